"""The report of `make soak`: the audit's checks, and the figures. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the start):

| key | meaning |
|---|---|
| `requests`, `bad_messages` | messages sent |
| `executions` | number by status |
| `given_back`, `kept`, `dead_lettered` | attempts returned to the queue, requests in FailedRequestQueue, dead letters |
| `glue_runs` | number, and how many SUCCEEDED |
| `faults` | number of faults that acted, by kind |
| `rounds` | the janitor's runs: at, seconds, ok (it completed and reported no error) |
| `writes` | number of writes of the slot table |
| `handoff` | count, median, longest: hand-offs after `calm_from` |
| `calm_from` | from this instant no fault acted, and the janitor was paused |
| `marks` | at, until, kind, said (details), process of each fault that acted |
| `processes` | by process: limit, and the weight held, the Glue runs and the limit over time |
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.scenarios.runner import audit
from dev.scenarios.runner.claims import Claim, first_names
from dev.scenarios.runner.scenario import Run
from slotkeeper_cli.audit.free_slot_checks import idle_times
from slotkeeper_cli.audit.intervals import rounded, steps

from .soak_plan import DECK, RESTARTED, SHORT
from .soak_records import Records


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


def build(
    parameters: Parameters, limits: Mapping[str, int], started: float, records: Records, run: Run
) -> dict[str, Any]:
    """The report of one run; `started`: epoch seconds."""
    history = records.history
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    claims = [
        *audit.claims_of(history, records.items),
        every_fault_acted(records, [*DECK, *restarts]),
    ]
    idle = [each for process in limits for each in idle_times(history, process)]
    calm = [each.seconds for each in idle if each.started >= records.calm_from and each.taken_by]
    queues = Counter(each.queue for each in history.kept)
    figures = {
        "requests": sum(not sent.bad for sent in records.sent),
        "bad_messages": sum(bool(sent.bad) for sent in records.sent),
        "executions": dict(Counter(each.status for each in history.attempts).most_common()),
        "given_back": sum(each.error == "RequestReturned" for each in history.attempts),
        "kept": queues["FailedRequestQueue"],
        "dead_lettered": queues["RequestDeadLetterQueue"],
        "glue_runs": {"started": len(history.work), "SUCCEEDED": sum(each.succeeded for each in history.work)},
        "faults": dict(Counter(mark.kind for mark in records.faults)),
        "rounds": [
            {"at": round(r.started - started, 2), "seconds": round(r.ended - r.started, 2), "ok": r.ok}
            for r in records.janitor_runs
        ],
        "writes": len(records.items),
        "handoff": {
            "count": len(calm),
            "median": rounded(statistics.median(calm)) if calm else None,
            "longest": rounded(max(calm, default=None)),
        },
        "calm_from": round(records.calm_from - started, 2),
        "marks": [
            {"at": round(mark.at - started, 2), "until": round(mark.until - started, 2)}
            | {"kind": mark.kind, "said": mark.detail, "process": mark.process}
            for mark in records.faults
        ],
        "processes": {process: _process(records, process, limit, started) for process, limit in limits.items()},
    }
    return run.report(parameters, started, claims, figures)


def _process(records: Records, process: str, limit: int, started: float) -> dict[str, Any]:
    items = [item for item in records.items if item.process == process]
    alive = steps((each.started, each.ended or math.inf) for each in records.history.work if each.process == process)
    return {
        "limit": limit,
        "held": [(round(item.at - started, 2), item.weight) for item in items],
        "limits": [(round(item.at - started, 2), 0 if item.paused else item.limit) for item in items],
        "alive": [(round(at - started, 2), number) for at, number in alive if at < math.inf],
    }


def every_fault_acted(records: Records, kinds: Sequence[str]) -> Claim:
    """Without the faults the other claims would show little."""
    acted = {mark.kind for mark in records.faults}
    missing = [kind for kind in kinds if kind not in acted]
    finding = f"{len(records.faults)} faults of {len(acted)} kinds"
    name = "every kind of fault has acted"
    return Claim(name, None, f"{finding}; not: {first_names(missing)}") if missing else Claim(name, True, finding)
