"""The records of a process that can be replayed: when each request was sent, started and ended.

Step Functions lists starts and ends of executions, but not when a request was sent: SQS's SentTimestamp of its message.
The starter logs that time with the execution's name, the priority and the weight. Execution inputs do not have it,
because StartExecution of a redelivered request must have the same input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority
from slotkeeper_cli.audit.history_reader import MAX_READ_PAGES, OnRead, Window, read_slots
from slotkeeper_cli.audit.work_history import EXECUTIONS, Attempt, LimitSteps, WorkHistory, acts_of, limit_steps
from slotkeeper_cli.audit_log import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.requests import fields_in, priority_in, weight_in
from slotkeeper_cli.stack_connection import StackConnection

# The starter's line of a request that it has started (functions/starter/app.py).
STARTED_LINE = "Started the workflow"
# A page has at most 10,000 lines or 1 MB (CloudWatch Logs API Reference, FilterLogEvents).
MAX_LOG_PAGES = 500
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
    first = min([window.since, *(each.started for each in history.attempts)])
    return recording_of(history, process, _read_starts(stack, first, process, on_read))


def _read_starts(stack: StackConnection, since: float, process: str, on_read: OnRead) -> dict[str, Any]:
    """The starter's lines of started requests, by the names of their executions."""
    group, pages = stack.outputs["StarterLogGroupName"], stack.client("logs").get_paginator("filter_log_events")
    pattern = f'"{STARTED_LINE}"'
    found = dict[str, Any]()
    asked = pages.paginate(logGroupName=group, startTime=int(since * 1000), filterPattern=pattern)
    for number, page in enumerate(asked):
        if number == MAX_LOG_PAGES:
            raise CommandFailed(f"the log of the starter has more than {MAX_LOG_PAGES} pages: give a later --since")
        lines = [fields_in(event["message"]) for event in page["events"]]
        found |= {line["execution"]: line for line in lines if line.get("process") == process and "execution" in line}
        on_read("lines of the starter", len(lines))
    return found


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
    sent_at = line.get("sent_at")
    # Clocks differ: by the record of another service a request can have started before it was sent.
    sent = min(sent_at, attempt.started) if isinstance(sent_at, int | float) else None
    weight = weight_in(line) or process.default_weight
    return PastRequest(attempt.execution, attempt.started, attempt.stopped, sent, priority_in(line), weight)
