"""The report of `make soak`: its figures, checks and tables, from what the run has done and left.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the start):

| key | meaning |
|---|---|
| `requests`, `bad_messages` | messages sent |
| `callers` | requests whose caller waited for the answer |
| `executions` | number by status |
| `states` | number of rows by state |
| `dead_lettered` | messages that are no requests |
| `glue_runs` | number, and how many SUCCEEDED |
| `faults` | number of faults that acted, by kind |
| `janitor_runs` | number, and how many were complete |
| `writes` | number of writes of both tables |
| `handoff` | count, median, longest: hand-offs after `calm_from` |
| `calm_from` | from this instant no fault acted, and the janitor was paused |
| `marks` | at, until, kind, said (details), process of each fault that acted |
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from dev.judge.grant_order import Row
from dev.judge.slot_item import Item
from dev.scenarios.runner import audit, checks
from dev.scenarios.runner.janitor_clock import JanitorRun
from dev.scenarios.runner.scenario import PAGE, Outcome, Run, counts_text, figure_table, spread_text
from dev.scenarios.runner.whole_run import STARTED, Disturbance, Sending, WholeRun, idle_times
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.audit_page import audit_page
from slotkeeper_cli.audit.check_result import CheckResult, first_of
from slotkeeper_cli.audit.intervals import rounded
from slotkeeper_cli.audit.work_history import AuditBounds, WorkHistory

from .soak_plan import DECK, RESTARTED, SHORT
from .soak_receivers import Received, all_was_published

FAULT_LASTS = 10.0  # seconds after a fault within which a new container receives a hidden message
# Faults that can end a starter or lose a ring. An aborted workflow rings not.
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
    """A message that SQS accepted.

    Attributes:
        bad: its defect, empty for a request.
        leaves: the state in which it may end without a start; empty if it must start.
    """

    process: str
    request_id: str
    message_id: str
    at: float
    body: str
    bad: str = ""
    leaves: str = ""

    @property
    def sending(self) -> Sending:
        """The message, as the audit judges it."""
        execution = execution_name(self.process, self.request_id, 1)
        codes = {"": STARTED, "unknown process": "UnknownProcess"}
        return Sending(execution, self.at, codes.get(self.bad, "InvalidRequest"), self.message_id, self.leaves)


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
    run: WholeRun
    changes: Sequence[Item | Row]
    sent: Sequence[SentMessage]
    received: Received
    janitor_runs: Sequence[JanitorRun]
    faults: Sequence[FaultMark]
    calm_from: float


def whole_run(
    sendings: Sequence[Sending],
    items: Sequence[Item],
    janitor_runs: Sequence[JanitorRun],
    faults: Sequence[FaultMark],
    calm_from: float,
    grace: float,
) -> WholeRun:
    """What the run knows beyond AWS's records. Another fault may act while one lasts, so starts take longer then."""
    disturbances = [
        Disturbance(mark.at, min(mark.until + FAULT_LASTS, calm_from), mark.process)
        for mark in faults
        if mark.kind in DISTURBING
    ]
    outages = [Disturbance(mark.at, mark.until, is_outage=True) for mark in faults if mark.kind in RESTARTED]
    complete = [(each.started, each.ended) for each in janitor_runs if each.ok]
    return WholeRun(
        sendings,
        items,
        disturbances=[*disturbances, *outages],
        disturbed=60.0,
        janitor_runs=complete,
        grace=grace,
    )


# Seconds. A free slot is taken within a fraction of a second, more on a busy machine; the message of a starter that was
# killed comes again after 6. The janitor has run at the end, so nothing is left to it.
BOUNDS = AuditBounds(dead_holder=0.0, intake=10.0, free_slot=7.0)


def build(parameters: Parameters, records: Records, run: Run) -> Outcome:
    """The report of one run."""
    history, started = records.history, records.started
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    idle = [each for process in records.limits for each in idle_times(history, records.run, process)]
    calm = [each.seconds for each in idle if each.began >= records.calm_from and each.started]
    figures = {
        "requests": sum(not sent.bad for sent in records.sent) + len(records.received.callers),
        "callers": len(records.received.callers),
        "bad_messages": sum(bool(sent.bad) for sent in records.sent),
        "executions": dict(Counter(each.status for each in history.attempts).most_common()),
        "states": dict(Counter(each.state for each in history.rows).most_common()),
        "dead_lettered": len(records.run.dead_letters),
        "glue_runs": {"started": len(history.work), "SUCCEEDED": sum(each.succeeded for each in history.work)},
        "faults": dict(Counter(mark.kind for mark in records.faults)),
        "janitor_runs": {"started": len(records.janitor_runs), "complete": sum(r.ok for r in records.janitor_runs)},
        "writes": len(records.changes),
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
    judged = [
        *audit.checks_of(history, records.run, records.changes),
        all_was_published(history, records.run.dead_letters, records.received),
        every_fault_acted(records, [*DECK, *restarts]),
    ]
    report = run.report(parameters, started, judged, figures)
    return Outcome(report, tables(report), {PAGE: audit_page(history, judged, "slotkeeper")})


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
        "requests": counts_text(report["states"]),
        "dead-lettered": report["dead_lettered"],
        "writes of both tables": report["writes"],
        "janitor runs": counts_text(report["janitor_runs"]),
        "hand-off when calm": spread_text(report["handoff"]),
    }
    faults = dict(sorted(report["faults"].items(), key=lambda item: (-item[1], item[0])))
    return [figure_table("The soak, by the services' own records", rows), figure_table("Faults that acted", faults)]
