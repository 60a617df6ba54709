"""Records of a soak: what the run has sent and done, and the history that it has left. Times: epoch seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dev.judge.slot_item import Item
from dev.scenarios.runner import audit
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.work_history import STARTED, AuditBounds, Disturbance, Sending, WholeRun, WorkHistory

from .soak_plan import RESTARTED

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
class Records:
    """What is known of a soak. From `calm_from` on no fault acted, and the janitor was paused."""

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
