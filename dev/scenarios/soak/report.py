"""The soak's report: records in, figures and checks out. Pure.

Keys of report.json (times in seconds; instants count from the beginning):

| key | meaning |
|---|---|
| `parameters` | minutes, seed and limit of this run |
| `started_at` | ISO 8601, UTC |
| `requests`, `bad_messages` | sent |
| `executions` | how many ended in each status |
| `given_back`, `kept`, `dead_lettered` | attempts returned to the queue, requests in FailedRequestQueue, dead letters |
| `glue_runs` | how many ended in each state |
| `faults` | how many of each kind have acted |
| `rounds` | of the janitor: at, seconds, ok (it came to its end and reported no error) |
| `writes` | of the slot table |
| `dead_holders` | slots that the janitor, or nobody, gave back |
| `handoff` | count, median and longest of the undisturbed hand-offs |
| `calm_from` | from here on nothing was disturbed, and the janitor rested |
| `checks`, `ok` | name, ok (null: not shown) and what was found, for each claim; whether no check fails |
| `marks` | at, until, kind, said, process of everything that was done to the stack |
| `processes` | a process each: limit, and the steps of holders, of its Glue runs alive and of its limit over time |
| `load` | how many processes wanted a processor, on average over the last 1, 5 and 15 minutes |
| `phases` | seconds each phase took |
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dev.scenarios.runner.checking import none_fails
from dev.scenarios.slots.figures import steps

from . import checks
from .holding import holdings, idle
from .plan import DECK, RESTARTED, SHORT
from .records import RETURNED, Records


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


def build(
    parameters: Parameters,
    limits: Mapping[str, int],
    began: float,
    records: Records,
    phases: Mapping[str, float],
    *,
    load: Sequence[float] = (),
) -> dict[str, Any]:
    """The report of one run, as it is written to report.json."""
    slots = holdings(records.changes)
    stretches = [each for process in limits for each in idle(records, process, slots)]
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    held_to = checks.all_checks(records, slots, stretches, [*DECK, *restarts])
    calm = [each.seconds for each in stretches if each.began >= records.calm_from and each.admitted]
    stopped = {e.name: e.stopped or math.inf for e in records.executions}
    return {
        "parameters": asdict(parameters),
        "started_at": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
        "requests": sum(not sent.bad for sent in records.sent),
        "bad_messages": sum(bool(sent.bad) for sent in records.sent),
        "executions": dict(Counter(e.status for e in records.executions)),
        "given_back": sum(e.error == RETURNED for e in records.executions),
        "kept": len({letter.execution for letter in records.kept}),
        "dead_lettered": len(records.dead),
        "glue_runs": dict(Counter(run.state for run in records.runs)),
        "faults": dict(Counter(mark.kind for mark in records.marks)),
        "rounds": [
            {"at": round(r.began - began, 2), "seconds": round(r.ended - r.began, 2), "ok": r.ok}
            for r in records.rounds
        ],
        "writes": len(records.changes),
        "dead_holders": sum(stopped.get(slot.execution, 0.0) < slot.freed for slot in slots),
        "handoff": {
            "count": len(calm),
            "median": round(statistics.median(calm), 3) if calm else None,
            "longest": round(max(calm), 3) if calm else None,
        },
        "calm_from": round(records.calm_from - began, 2),
        "checks": [asdict(check) for check in held_to],
        "ok": none_fails(held_to),
        "marks": [
            asdict(mark) | {"at": round(mark.at - began, 2), "until": round(mark.until - began, 2)}
            for mark in records.marks
        ],
        "processes": {process: _course(records, process, limit, began) for process, limit in limits.items()},
        "load": [round(each, 1) for each in load],
        "phases": {name: round(seconds, 2) for name, seconds in phases.items()},
    }


def _course(records: Records, process: str, limit: int, began: float) -> dict[str, Any]:
    mine = [change for change in records.changes if change.process == process]
    alive = steps(
        (run.started, run.completed or math.inf)
        for run in records.runs
        if (run.execution or "").rsplit("-", 1)[0] == process
    )
    return {
        "limit": limit,
        "holders": [(round(change.at - began, 2), len(change.holders)) for change in mine],
        "limits": [(round(change.at - began, 2), 0 if change.paused else change.limit) for change in mine],
        "alive": [(round(at - began, 2), number) for at, number in alive if at < math.inf],
    }
