"""The report of `make soak`: its figures, checks and tables, from what the run has done and left.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the start):

| key | meaning |
|---|---|
| `requests`, `bad_messages` | messages sent |
| `executions` | number by status |
| `given_back`, `kept`, `dead_lettered` | attempts returned to the queue, requests in FailedRequestQueue, dead letters |
| `glue_runs` | number, and how many SUCCEEDED |
| `faults` | number of faults that acted, by kind |
| `janitor_runs` | number, and how many were complete |
| `writes` | number of writes of the slot table |
| `handoff` | count, median, longest: hand-offs after `calm_from` |
| `calm_from` | from this instant no fault acted, and the janitor was paused |
| `marks` | at, until, kind, said (details), process of each fault that acted |
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.table import Table

from dev.judge.slot_item import Item
from dev.scenarios.runner import audit, checks
from dev.scenarios.runner.scenario import Outcome, Run, counts_text, figure_table, spread_text
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.free_slot_checks import idle_times
from slotkeeper_cli.audit.history_checks import CheckResult, first_of
from slotkeeper_cli.audit.intervals import rounded
from slotkeeper_cli.audit.picture import draw_history
from slotkeeper_cli.audit.work_history import STARTED, AuditBounds, Disturbance, Sending, WholeRun, WorkHistory

from .soak_plan import DECK, RESTARTED, SHORT

FAULT_LASTS = 10.0  # seconds after a fault within which a new container receives a hidden message
# Faults that can end a starter or lose a wake. An aborted workflow wakes no request.
DISTURBING = {
    *RESTARTED,
    "abort",
    "abort at a step",
    "abort, run left alive",
    "containers killed",
    "fault in StartExecution",
    "fault in a task",
    "fault in an API call",
    "redriven",
}


@dataclass(frozen=True)
class SentMessage:
    """A message that SQS accepted. `bad`: its defect, empty for a request."""

    process: str
    request_id: str
    message_id: str
    sequence: str
    at: float
    body: str
    bad: str = ""

    @property
    def sending(self) -> Sending:
        """The message, as the audit judges it."""
        execution = execution_name(self.process, self.request_id, 1)
        codes = {"": STARTED, "unknown process": "UnknownProcess"}
        outcome = codes.get(self.bad, "InvalidRequest")
        return Sending(execution, self.at, int(self.sequence), message_id=self.message_id, outcome=outcome)


@dataclass(frozen=True)
class JanitorRun:
    """`ok`: the run completed and reported no error."""

    started: float
    ended: float
    ok: bool


@dataclass(frozen=True)
class FaultMark:
    """A fault that has acted. `process` is empty if it can have affected any process. `until`: its end."""

    at: float
    kind: str
    detail: str = ""
    process: str = ""
    until: float = 0.0


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


@dataclass(frozen=True)
class Records:
    """What is known of a soak. From `calm_from` on no fault acted, and the janitor was paused. Epoch seconds."""

    limits: Mapping[str, int]
    started: float
    history: WorkHistory
    items: Sequence[Item]
    sent: Sequence[SentMessage]
    janitor_runs: Sequence[JanitorRun]
    faults: Sequence[FaultMark]
    calm_from: float


def whole_run(
    items: Sequence[Item], janitor_runs: Sequence[JanitorRun], faults: Sequence[FaultMark], calm_from: float
) -> WholeRun:
    """What the run knows beyond AWS's records."""
    disturbances = [
        Disturbance(mark.at, min(mark.until + FAULT_LASTS, calm_from), mark.process)
        for mark in faults
        if mark.kind in DISTURBING
    ]
    outages = [Disturbance(mark.at, mark.until, is_outage=True) for mark in faults if mark.kind in RESTARTED]
    complete = [(each.started, each.ended) for each in janitor_runs if each.ok]
    return WholeRun(audit.versions(items), [*disturbances, *outages], complete)


def bounds(grace: float) -> AuditBounds:
    """Seconds, for a grace time.

    A free slot is taken within a fraction of a second, more on a busy machine; without a wake, after at least 7.5. The
    message of a killed starter is visible again after 6, or after 7.5 if it was registered. Another fault may affect it
    then, and on a busy machine containers start slowly. The janitor has run at the end, so nothing is left to it.
    """
    return AuditBounds(dead_holder=0.0, free_slot=7.0, disturbed=60.0, grace=grace)


def build(parameters: Parameters, records: Records, run: Run) -> Outcome:
    """The report of one run."""
    history, started = records.history, records.started
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    idle = [each for process in records.limits for each in idle_times(history, process)]
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
        "janitor_runs": {"started": len(records.janitor_runs), "complete": sum(r.ok for r in records.janitor_runs)},
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
    }
    judged = [*audit.checks_of(history, records.items), every_fault_acted(records, [*DECK, *restarts])]
    report = run.report(parameters, started, judged, figures)
    return Outcome(report, tables(report), partial(draw_history, history))


def every_fault_acted(records: Records, kinds: Sequence[str]) -> CheckResult:
    """Without the faults the other checks would show little."""
    acted = {mark.kind for mark in records.faults}
    missing = [kind for kind in kinds if kind not in acted]
    finding = f"{len(records.faults)} faults of {len(acted)} kinds"
    lacking = f"; not: {', '.join(first_of(missing, checks.NAMES_SHOWN))}" if missing else ""
    return checks.check("every kind of fault has acted", None if missing else True, finding + lacking)


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = {
        "sent": f"{report['requests']} requests, {report['bad_messages']} bad messages",
        "workflows": counts_text(report["executions"]),
        "Glue runs": counts_text(report["glue_runs"]),
        "returned and started again": report["given_back"],
        "in FailedRequestQueue": report["kept"],
        "dead-lettered": report["dead_lettered"],
        "writes of the slot table": report["writes"],
        "janitor runs": counts_text(report["janitor_runs"]),
        "hand-off when calm": spread_text(report["handoff"]),
    }
    faults = dict(sorted(report["faults"].items(), key=lambda item: (-item[1], item[0])))
    return [figure_table("The soak, by the services' own records", rows), figure_table("Faults that acted", faults)]
