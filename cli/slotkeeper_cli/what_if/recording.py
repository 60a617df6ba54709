"""The records of a process that can be replayed: when each request was sent, started and ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit.history_reader import OnRead, Window, read_requests
from slotkeeper_cli.audit.work_history import REQUESTS, LimitSteps, WorkHistory, acts_of, limit_steps
from slotkeeper_cli.audit_lines import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.process_rows import MAX_HISTORY_CALLS as MAX_ROW_CALLS
from slotkeeper_cli.stack_connection import StackConnection

# The stack's description, and a page of the slot table.
MAX_CALLS = MAX_ROW_CALLS + MAX_AUDIT_PAGES + 2


@dataclass(frozen=True)
class PastRequest:
    """One attempt that held a slot, as recorded or replayed. Times are seconds since the epoch.

    Attributes:
        sent: when its message was sent.
        started: infinite if it never starts in a replay.
        ended: None if it has not ended. The slot was free a fraction of a second later.
    """

    execution: str
    sent: float
    started: float
    ended: float | None
    priority: Priority = "normal"
    weight: int = 1

    @property
    def freed(self) -> float:
        """When its slot is free: infinite if it has not ended."""
        return math.inf if self.ended is None else self.ended


@dataclass(frozen=True)
class Recording:
    """What is known of a process in a period.

    Attributes:
        since: the begin of the period, or the first request if that is later.
        requests: those that held a slot in the period.
        notes: what the records do not show, in sentences.
    """

    process: Process
    since: float
    until: float
    requests: Sequence[PastRequest]
    limits: LimitSteps
    notes: Sequence[str] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many requests are known (`samples`: with their end), and of which something is not."""
        started = [each for each in self.requests if each.started >= self.since]
        return {
            "samples": sum(each.ended is not None for each in started),
            "started": len(started),
            "running_at_begin": len(self.requests) - len(started),
            "waiting_at_begin": sum(each.sent < self.since for each in started),
            "running_at_end": sum(each.ended is None for each in self.requests),
        }


def read_recording(
    stack: StackConnection, window: Window, process: str, on_read: OnRead = lambda _source, _number: None
) -> Recording:
    """Read the rows of a process, in at most MAX_CALLS calls. It changes nothing.

    Raises:
        NotFound: there is no such process.
        CommandFailed: records without which a replay would be wrong could not be read.
    """
    history = read_requests(Account(stack), window, process, on_read)
    if lacking := history.lacks(REQUESTS, "SlotTable"):
        raise CommandFailed(f"the records of process {process} could not be read: {'; '.join(lacking)}")
    return recording_of(history, process)


def recording_of(history: WorkHistory, name: str) -> Recording:
    """The rows of a process that held a slot in the period."""
    process, rows = history.processes[name], history.rows_of.get(name, [])
    # The row of a redriven attempt states when it was redriven, not when it ended.
    redriven = [each for each in rows if each.state == "REDRIVEN" and each.started is not None]
    others = (each for each in rows if each.state != "REDRIVEN")
    held = (each for each in others if each.started is not None and each.started <= history.until)
    requests = sorted((_request(each, process) for each in held), key=lambda each: each.started)
    first = min((each.sent for each in requests), default=history.since)
    made = Recording(process, max(history.since, first), history.until, requests, limit_steps(history, name))
    numbers = {
        "ended before their start was recorded, and are left out": sum(
            each.started is None and each.state in ("SUCCEEDED", "FAILED") for each in rows
        ),
        "were redriven, and are left out: how long they ran is not known": len(redriven),
        "still queued are left out": sum(bool(each.place) for each in rows),
        "still run: how long they take is not known, so they keep their slots": made.counts["running_at_end"],
    }
    facts = {
        "the limit in the period is not known, so there is no check": made.limits.known(made.since, made.until) is None,
        "it was paused in the period: the waits then are replayed as recorded": any(
            each.action == "process pause" and each.at >= made.since for each in acts_of(history, name)
        ),
        "leases leave no record and are not replayed": any(each.is_lease for each in process.holders.values()),
    }
    notes = [f"{number:,} {text}" for text, number in numbers.items() if number]
    return replace(made, notes=[*notes, *(text for text, applies in facts.items() if applies)])


def _request(row: RequestRow, process: Process) -> PastRequest:
    started = row.started or 0.0
    weight = row.weight or process.default_weight
    return PastRequest(row.execution, min(row.sent, started), started, row.ended, row.priority, weight)
