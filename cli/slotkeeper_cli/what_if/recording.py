"""The records of a process that can be replayed: when each request was sent, started and ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS
from slotkeeper_cli.audit.history_reader import MAX_READ_PAGES, OnRead, Window, read_slots
from slotkeeper_cli.audit.starter_log import MAX_LOG_PAGES, read_starts, sent_at
from slotkeeper_cli.audit.work_history import EXECUTIONS, Attempt, LimitSteps, WorkHistory, acts_of, limit_steps
from slotkeeper_cli.audit_log import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.requests import priority_in, weight_in
from slotkeeper_cli.stack_connection import StackConnection

# The stack's description, and a page of the slot table.
MAX_CALLS = MAX_READ_PAGES[EXECUTIONS] + MAX_AUDIT_PAGES + MAX_LOG_PAGES + 2
# The largest share of requests without a known arrival with which the waits are those of all.
MOST_UNKNOWN = 0.1


@dataclass(frozen=True)
class PastRequest:
    """One attempt that held a slot, as recorded or replayed. Times are seconds since the epoch.

    Attributes:
        started: infinite if it never starts in a replay.
        ended: None if it has not ended. The slot was free a fraction of a second earlier.
        sent: when its message was sent; None if no line of the starter states it.
    """

    execution: str
    started: float
    ended: float | None
    sent: float | None = None
    priority: Priority = "normal"
    weight: int = 1

    @property
    def arrival(self) -> float:
        """When it was sent; if that is not known, when it started."""
        return self.started if self.sent is None else self.sent

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
        """How many requests are known (`samples`: arrival, start and end), and of which something is not."""
        started = [each for each in self.requests if each.started >= self.since]
        return {
            "samples": sum(each.sent is not None and each.ended is not None for each in started),
            "started": len(started),
            "arrival_unknown": sum(each.sent is None for each in started),
            "running_at_begin": len(self.requests) - len(started),
            "waiting_at_begin": sum(each.sent is not None and each.sent < self.since for each in started),
            "running_at_end": sum(each.ended is None for each in self.requests),
        }


def read_recording(
    stack: StackConnection, window: Window, process: str, on_read: OnRead = lambda _source, _number: None
) -> Recording:
    """Read the records of a process, in at most MAX_CALLS calls. It changes nothing.

    Raises:
        NotFound: there is no such process.
        CommandFailed, ClientError: records without which a replay would be wrong could not be read.
    """
    history = read_slots(stack, window, process, on_read)
    cut = [f"{each}: give a later --since" for each in history.samples.values()]
    if lacking := [*history.lacks(EXECUTIONS, "SlotTable"), *cut]:
        raise CommandFailed(f"the records of process {process} could not be read: {'; '.join(lacking)}")
    first = min([window.since, *(each.started for each in history.attempts)]) - CLOCK_DIFFERENCE_SECONDS
    lines = read_starts(stack, first, {each.execution for each in history.attempts}, on_read)
    return recording_of(history, process, lines)


def recording_of(history: WorkHistory, name: str, lines: Mapping[str, Mapping[str, Any]]) -> Recording:
    """Join the executions of a process with the starter's lines, by the names of the executions."""
    process, own = history.processes[name], history.by_process.get(name, [])
    # A redriven execution holds no slot, and is listed as one from its first start on.
    requests = [_request(each, lines.get(each.execution, {}), process) for each in own if not each.redrives]
    first = min((each.arrival for each in requests), default=history.since)
    made = Recording(process, max(history.since, first), history.until, requests, limit_steps(history, name))
    unknown, started = made.counts["arrival_unknown"], made.counts["started"]
    numbers = {
        "redriven in Step Functions are left out": len(own) - len(requests),
        "or more that still wait are left out": len(process.waiting),
        "aborted or timed out: when their slots were freed is not known": sum(
            each.status in ("ABORTED", "TIMED_OUT") for each in own
        ),
        "still run: how long they take is not known, so they keep their slots": made.counts["running_at_end"],
        f"of {started:,} have no known arrival: they take a slot and are not in the waits": unknown,
    }
    facts = {
        "the waits are those of a part of the requests only: give a later --since": unknown > MOST_UNKNOWN * started,
        "the limit in the period is not known, so there is no check": made.limits.known(made.since, made.until) is None,
        "it was paused in the period: the waits then are replayed as recorded": any(
            each.action == "process pause" and each.at >= made.since for each in acts_of(history, name)
        ),
        "leases leave no record and are not replayed": any(each.is_lease for each in process.holders.values()),
    }
    notes = [f"{number:,} {text}" for text, number in numbers.items() if number]
    return replace(made, notes=[*notes, *(text for text, applies in facts.items() if applies)])


def _request(attempt: Attempt, line: Mapping[str, Any], process: Process) -> PastRequest:
    weight = weight_in(line) or process.default_weight
    sent = sent_at(line, attempt.started)
    return PastRequest(attempt.execution, attempt.started, attempt.stopped, sent, priority_in(line), weight)
