"""Cancels queued requests: a transaction for up to 50 of them, then a ring, after which their callers are answered.

Cancelled means never started: a request that has a slot is left. Each call is safe to repeat, also after an answer that
was lost: what was cancelled is found so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import batched, groupby

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import MalformedAttribute
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.request_table import MAX_LEAVES, Leaving
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.errors import failure_text
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import in_parallel

# Seconds before each repeat of a transaction that met another one, or was throttled. The layer has repeated it within a
# second before.
WAITS = (0.2, 0.4, 0.8, 1.6, 3.2)
_REPEATED = {
    "InternalServerError",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionCanceledException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
# Cancelled requests of one ring. The function that receives it answers their callers one by one.
MAX_RUNG = 100


@dataclass(frozen=True)
class Chosen:
    """A queued request to cancel."""

    process: str
    execution: str
    request_id: str

    def as_dict(self) -> dict[str, str]:
        """The request as JSON and audit lines show it."""
        return {"process": self.process, "request_id": self.request_id, "execution": self.execution}


def _process_of(one: Chosen) -> str:
    return one.process


@dataclass
class CancelReport:
    """What was done.

    Attributes:
        left: each with the reason why it was not cancelled.
        failure: why not all were tried; empty if they were.
        unrung: processes for which the ring has failed.
    """

    cancelled: list[Chosen] = field(default_factory=list)
    left: list[tuple[Chosen, str]] = field(default_factory=list)
    failure: str = ""
    unrung: list[str] = field(default_factory=list)

    @property
    def handled(self) -> int:
        return len(self.cancelled) + len(self.left)


class Cancelling:
    """Cancels requests, and reports as it goes.

    Args:
        by: the operator, as the answers to the callers name it.
        on_progress: receives the number of requests that were handled.
    """

    def __init__(self, control: SlotControl, by: str, on_progress: Callable[[int], object]) -> None:
        self.report = CancelReport()
        self._control, self._by, self._on_progress = control, by, on_progress

    def run(self, chosen: Iterable[Chosen]) -> CancelReport:
        """Cancel the requests. After an interruption, `report` has what was done."""
        for process, of in groupby(sorted(chosen, key=_process_of), _process_of):
            ended = list[str]()
            try:
                for batch in batched(of, MAX_LEAVES, strict=False):
                    ended += self._cancel(process, batch)
                    self._on_progress(self.report.handled)
            except (ClientError, BotoCoreError, MalformedAttribute) as error:
                self.report.failure = failure_text(error)
                return self.report
            finally:
                self._ring(process, ended)
        return self.report

    def _cancel(self, process: str, batch: Sequence[Chosen]) -> list[str]:
        """Cancel requests of one transaction; return the executions of those that are cancelled."""
        audit("request cancel", process=process, requests=[one.as_dict() for one in batch])
        leavings = [Leaving(one.execution, "CANCELLED", "Cancelled", f"cancelled by {self._by}") for one in batch]
        ended = {each.execution for each in self._leave(process, leavings)}
        rest = [one for one in batch if one.execution not in ended]
        for one, why in zip(rest, in_parallel(self._why, rest), strict=True):
            if why:
                self.report.left.append((one, why))
            else:
                ended.add(one.execution)
        self.report.cancelled += [one for one in batch if one.execution in ended]
        return sorted(ended)

    def _leave(self, process: str, leavings: Sequence[Leaving]) -> list[Leaving]:
        waits = iter(WAITS)
        while True:
            try:
                return self._control.requests.leave(process, leavings, time.time())
            except ClientError as error:
                wait = next(waits, None)
                if error.response["Error"]["Code"] not in _REPEATED or wait is None:
                    raise
            time.sleep(wait)

    def _why(self, one: Chosen) -> str:
        """Why a request was not cancelled; empty if it is cancelled."""
        row = self._control.row_search.row(one.process, one.execution)
        if row is None:
            return "it has no row any more"
        if row.state == "STARTED":
            return "it runs: give --stop to stop it"
        if row.state != "QUEUED":
            return "" if row.state == "CANCELLED" else f"it has ended: {state_of(row.state)}"
        try:
            process = self._control.slots.read(one.process)
        except MalformedProcess as error:
            return f"the item of its process is malformed: {error}"
        if process is None:
            return "its process does not exist: the next dispatch rejects it"
        has_slot = one.execution in process.holders
        return "it has a slot, and starts: to stop it, give --stop in some seconds" if has_slot else "it has changed"

    def _ring(self, process: str, ended: Sequence[str]) -> None:
        try:
            for names in batched(ended, MAX_RUNG, strict=False):
                self._control.doorbell.ring(Bell(process, ended=names))
        except (ClientError, BotoCoreError):  # the janitor's next run does the same
            self.report.unrung.append(process)
