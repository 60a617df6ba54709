"""Reads the history of work from AWS's own records, with a bounded number of calls.

The order of the reads matters: an execution keeps its request before it ends, so dead-letter messages are read after
executions, and audit lines after these, because a redrive writes its line before it deletes a message.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from slotkeeper.slots.executions import CLOSED_STATUSES, Execution
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import DEFAULT_PRIORITY, execution_name
from slotkeeper.slots.targets import NO_TARGET, STATE_MACHINE, kind_of
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS, ENDED_STATES, MARKER
from slotkeeper_cli.audit.starter_log import MAX_LOG_PAGES, read_starts, sent_at
from slotkeeper_cli.audit.work_history import (
    CHILD,
    CHILDREN,
    EXECUTIONS,
    GLUE_RUN,
    GLUE_RUNS,
    REQUESTS,
    Attempt,
    AuditBounds,
    KeptRequest,
    OperatorAct,
    Sending,
    WorkHistory,
    WorkInterval,
)
from slotkeeper_cli.audit_log import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.audit_log import Audited, read_audit
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.formatting import iso, seconds
from slotkeeper_cli.holders import estimate, executions_of, grace_seconds
from slotkeeper_cli.requests import RETURNED, fields_in, priority_in, weight_in
from slotkeeper_cli.search import Search, read_dead_letters
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, in_parallel, message_counts, queue_attributes

# Pages that are read of each source: of 1,000 executions (Step Functions API Reference, ListExecutions), and of 200
# runs (Glue Web API, GetJobRuns).
MAX_READ_PAGES = {EXECUTIONS: 100, CHILDREN: 100, GLUE_RUNS: 500}
# Executions whose requests are read. DescribeExecution has a bucket of 250 calls in the smallest Regions, refilled by
# ten a second, which the functions use too (docs/limits.md).
DESCRIBED, MAX_DESCRIBED = 200, 10_000
MAX_HOLDERS_DESCRIBED = 100
# With a page of the table, the counts of three queues, and receives that return one message each.
MAX_CALLS = sum(
    (*MAX_READ_PAGES.values(), DESCRIBED, MAX_HOLDERS_DESCRIBED, MAX_AUDIT_PAGES, MAX_LOG_PAGES, 2 * (1000 + 101), 4)
)
# Audit lines are read from this long before the period: a request may have been admitted before its start.
_EARLIER = 3600
_QUEUES = (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED)

OnRead = Callable[[str, int], None]


@dataclass(frozen=True)
class Window:
    """The period of a history. Seconds since the epoch."""

    since: float
    until: float


def read_history(
    stack: StackConnection,
    window: Window,
    only: str | None = None,
    described: int = DESCRIBED,
    on_read: OnRead = lambda _source, _number: None,
) -> WorkHistory:
    """Read the history of one process, or of all.

    Args:
        described: the executions whose requests are read. Those that failed and were not kept come first.
        on_read: receives the number of records of each page, by their source.

    Raises:
        NotFound: there is no such process.
    """
    return _Reader(stack, window, only, on_read).read(described)


def read_slots(stack: StackConnection, window: Window, process: str, on_read: OnRead) -> WorkHistory:
    """Read only when a process's executions held slots, and its limits. Raises NotFound without such a process."""
    return _Reader(stack, window, process, on_read).read_slots()


class _Reader:
    def __init__(self, stack: StackConnection, window: Window, only: str | None, on_read: OnRead) -> None:
        self._stack = stack
        self._window = window
        self._only = only
        self._on_read = on_read
        self._control = SlotControl(stack)
        self._search = Search()
        self._samples: dict[str, str] = {}
        self._pages: Counter[str] = Counter()
        self._now = time.time()

    def read(self, described: int) -> WorkHistory:
        processes = self._processes()
        attempts = self._attempts()
        attempts += self._dead_holders(processes, {each.execution for each in attempts})
        messages = [
            each for each in read_dead_letters(self._stack, self._search, _QUEUES) if self._concerns(each.process)
        ]
        kept = [
            KeptRequest(
                each.shown_execution or "",
                each.queue.full_name,
                each.sent_at,
                each.code,
                each.reason,
                each.attributes.get("source_message_id", ""),
                each.request_id,
            )
            for each in messages
        ]
        acts = self._acts()
        work = self._work(processes, attempts, acts)
        attempts = self._with_requests(attempts, processes, {each.execution for each in kept}, described)
        queued = self._search.try_read("RequestQueue", lambda: queue_attributes(self._stack, "RequestQueue"), None)
        return WorkHistory(
            since=self._window.since,
            until=self._window.until,
            now=self._now,
            processes=processes,
            attempts=attempts,
            work=work,
            sendings=[*_of_items(processes), *_of_messages(messages), *_of_attempts(attempts, acts)],
            logged=self._logged(attempts),
            kept=kept,
            acts=acts,
            skipped=self._search.try_read("SettledTable", self._skipped, frozenset[str]()),
            queued=None if queued is None else sum(message_counts(queued).values()),
            not_read=self._search.not_read,
            samples=self._samples,
            bounds=self._bounds(),
        )

    def read_slots(self) -> WorkHistory:
        processes = self._processes()
        return WorkHistory(
            since=self._window.since,
            until=self._window.until,
            now=self._now,
            processes=processes,
            attempts=self._attempts(),
            acts=self._acts(),
            not_read=self._search.not_read,
            samples=self._samples,
        )

    def _skipped(self) -> frozenset[str]:
        return frozenset(each.execution for each in self._control.skipped.all_notes() if self._concerns(each.process))

    def _concerns(self, process: str) -> bool:
        return self._only in (None, process)

    def _processes(self) -> dict[str, Process]:
        known, malformed = self._search.try_read(
            "SlotTable", self._control.read_all, (list[Process](), list[MalformedProcess]())
        )
        names = {each.name for each in known} | {each.process for each in malformed}
        if self._only is not None and self._only not in names and not self._search.missing("SlotTable"):
            raise self._control.not_found(self._only)
        for error in malformed:
            if self._concerns(error.process):
                self._search.note_malformed(error)
        return {each.name: each for each in known if self._concerns(each.name)}

    def _bounds(self) -> AuditBounds:
        """Longer bounds if the stack's parameters are."""
        parameters = self._stack.parameters
        release = estimate(parameters, 0.0, "", None)
        if release.by is None:
            return AuditBounds()
        period = release.by - grace_seconds(parameters)
        dead_holder = release.by + period / 2
        return AuditBounds(dead_holder, dead_holder + 60, max(AuditBounds().free_slot, 2 * dead_holder))

    # ---------------------------------------------------------------------------------------------------- executions

    def _attempts(self) -> list[Attempt]:
        """The executions that ran in the period, without their requests."""
        machine = self._stack.outputs["WorkflowArn"]
        listed = self._search.try_read(EXECUTIONS, lambda: self._listed(machine, EXECUTIONS), list[Mapping[str, Any]]())
        attempts = [
            Attempt(
                each["name"],
                each["status"],
                each["startDate"].timestamp(),
                each["stopDate"].timestamp() if "stopDate" in each else None,
                redrives=each.get("redriveCount", 0),
            )
            for each in listed
        ]
        window = self._window
        return [
            each
            for each in attempts
            if self._concerns(each.process)
            and each.started <= window.until
            and (each.stopped is None or each.stopped >= window.since)
        ]

    def _dead_holders(self, processes: Mapping[str, Process], listed: set[str]) -> list[Attempt]:
        """The executions that ended before the period, and whose slots are still held."""
        names = [name for each in processes.values() for name in executions_of(each) if name not in listed]
        found = self._search.try_read(
            REQUESTS,
            lambda: in_parallel(self._control.workflow.describe, names[:MAX_HOLDERS_DESCRIBED]),
            list[Execution | None](),
        )
        return [
            Attempt(each.name, each.status, each.started_at or 0.0, each.stopped_at)
            for each in found
            if each is not None and each.is_closed
        ]

    def _listed(self, machine: str, source: str, reach: float | None = None) -> list[Mapping[str, Any]]:
        """The newest executions of a state machine, back to `reach`; by default to where none can reach the period."""
        pages = self._stack.client("stepfunctions").get_paginator("list_executions")
        found: list[Mapping[str, Any]] = []
        longest = 0.0
        for page in pages.paginate(stateMachineArn=machine, PaginationConfig={"PageSize": 1000}):
            found += page["executions"]
            ended = (each for each in page["executions"] if "stopDate" in each)
            longest = max([longest, *((each["stopDate"] - each["startDate"]).total_seconds() for each in ended)])
            back_to = self._window.since - longest if reach is None else reach
            oldest = min((each["startDate"].timestamp() for each in page["executions"]), default=math.inf)
            if oldest < back_to or self._is_last(source, page.get("nextToken"), len(page["executions"]), oldest):
                break
        return found

    def _is_last(self, source: str, token: str | None, number: int, oldest: float) -> bool:
        """Whether a page is the last one that is read of a source. If there are more, the rest is a sample."""
        self._on_read(source, number)
        self._pages[source] += 1
        is_last = token is not None and self._pages[source] >= MAX_READ_PAGES[source]
        if is_last:
            self._samples[source] = f"of the {source} only those since {iso(oldest)} were read"
        return is_last

    def _with_requests(
        self, attempts: Sequence[Attempt], processes: Mapping[str, Process], kept: set[str], most: int
    ) -> list[Attempt]:
        """The attempts, with the requests of at most `most` of them: first those that may be lost, then a sample."""
        first = [each.execution for each in attempts if each.has_failed and each.execution not in kept][:most]
        others = sorted({each.execution for each in attempts} - set(first))
        # The names are hashes of the requests' ids, so in their order these are a random sample of each process.
        chosen = [*first, *evenly(others, most - len(first))]
        if len(chosen) < len(attempts):
            self._samples[REQUESTS] = f"the requests of {len(chosen):,} of {len(attempts):,} executions were read"

        def describe(execution: str) -> Execution | None:
            described = self._control.workflow.describe(execution)
            self._on_read(REQUESTS, 1)
            return described

        found = self._search.try_read(REQUESTS, lambda: in_parallel(describe, chosen), list[Execution | None]())
        described = {each.name: each for each in found if each is not None}
        return [_with_request(each, described.get(each.execution), processes.get(each.process)) for each in attempts]

    # ----------------------------------------------------------------------------------------------------------- work

    def _work(
        self, processes: Mapping[str, Process], attempts: Sequence[Attempt], acts: Sequence[OperatorAct]
    ) -> list[WorkInterval]:
        if self._search.missing("SlotTable"):
            why = "what the processes run is in SlotTable, which could not be read completely"
            for source in (GLUE_RUNS, CHILDREN):
                self._search.note_unread(source, why)
        targets = {each.target for each in processes.values()}
        targets |= {holder.target for each in processes.values() for holder in each.holders.values()}
        targets |= {str(each.fields.get("target", "")) for each in acts if each.action == "process add"}
        known = {each.execution for each in attempts}
        reach = min([self._window.since, *(each.started for each in attempts)]) - CLOCK_DIFFERENCE_SECONDS
        found: list[WorkInterval] = []
        for target in sorted(targets - {"", NO_TARGET}):
            source, read = (CHILDREN, self._children) if kind_of(target) is STATE_MACHINE else (GLUE_RUNS, self._runs)
            found += self._search.try_read(source, partial(read, target, reach), list[WorkInterval]())
        window = self._window
        return [
            each
            for each in found
            if each.started <= window.until and (each.ended is None or each.ended >= reach)
            if each.execution in known or not each.execution
        ]

    def _runs(self, job: str, reach: float) -> list[WorkInterval]:
        found: list[WorkInterval] = []
        for page in self._stack.client("glue").get_paginator("get_job_runs").paginate(JobName=job):
            runs = [_run(run) for run in page["JobRuns"] if "StartedOn" in run]
            found += runs
            oldest = min((each.started for each in runs), default=math.inf)
            if oldest < reach or self._is_last(GLUE_RUNS, page.get("NextToken"), len(runs), oldest):
                break
        return found

    def _children(self, machine: str, reach: float) -> list[WorkInterval]:
        return [_child(each) for each in self._listed(machine, CHILDREN, reach)]

    # ----------------------------------------------------------------------------------------------------------- logs

    def _acts(self) -> list[OperatorAct]:
        """The audit lines from before the period until now: they lead from the present limit to that of the period."""
        since = self._window.since - _EARLIER
        read = self._search.try_read("AuditLogGroup", lambda: read_audit(self._stack, since=since), Audited([]))
        if not read.is_complete:
            why = "it has too many lines: only the oldest were read. Give a later --since"
            self._search.note_unread("AuditLogGroup", why)
        return [act for line in read.lines if (act := _act(line)) and (not act.process or self._concerns(act.process))]

    def _logged(self, attempts: Sequence[Attempt]) -> list[Sending]:
        """The messages of the attempts that started in the period: those of earlier ones did not wait in it."""
        since = self._window.since
        started = {each.execution: each.started for each in attempts if each.started >= since}
        read = partial(read_starts, self._stack, since - CLOCK_DIFFERENCE_SECONDS, started, self._on_read)
        try:
            lines = self._search.try_read("StarterLogGroup", read, dict[str, Mapping[str, Any]]())
        except CommandFailed as error:
            self._search.note_unread("StarterLogGroup", str(error))
            return []
        return [
            Sending(execution, at, None, priority_in(line), weight_in(line))
            for execution, line in lines.items()
            if (at := sent_at(line, started[execution])) is not None
        ]


def _run(run: Mapping[str, Any]) -> WorkInterval:
    execution, started = run.get("Arguments", {}).get(MARKER, ""), run["StartedOn"].timestamp()
    # Of a run that has ended without an end time it is only certain that it has started.
    missing = started if run["JobRunState"] in ENDED_STATES else None
    ended = run["CompletedOn"].timestamp() if "CompletedOn" in run else missing
    return WorkInterval(execution, GLUE_RUN, started, ended, run["JobRunState"] == "SUCCEEDED")


def _child(listed: Mapping[str, Any]) -> WorkInterval:
    """A child has the name of its workflow's execution."""
    ended = listed["stopDate"].timestamp() if listed["status"] in CLOSED_STATUSES else None
    return WorkInterval(listed["name"], CHILD, listed["startDate"].timestamp(), ended, listed["status"] == "SUCCEEDED")


def _act(line: Mapping[str, Any]) -> OperatorAct | None:
    try:
        at = seconds(line["at"])
    except (KeyError, TypeError, ValueError):
        return None
    return OperatorAct(at, str(line.get("action")), str(line.get("process") or ""), str(line.get("by")), line)


def evenly(names: Sequence[str], most: int) -> list[str]:
    """At most so many of these names, at equal distances."""
    number = min(most, len(names))
    return [names[at * len(names) // number] for at in range(number)]


def _with_request(attempt: Attempt, described: Execution | None, process: Process | None) -> Attempt:
    if described is None:
        return attempt
    fields = fields_in(described.input)
    number = fields.get("attempt")
    weight = weight_in(fields) or (process.default_weight if process else None)
    return replace(
        attempt,
        request_id=str(fields.get("request_id", "")),
        number=number if isinstance(number, int) else 0,
        priority=priority_in(fields),
        weight=weight,
        caller=str(fields.get("caller", "")),
        error=described.error,
        cause=described.cause,
    )


# ---------------------------------------------------------------------------------------- when messages were sent


def _of_items(processes: Mapping[str, Process]) -> list[Sending]:
    return [
        Sending(each.execution, each.since, int(each.sequence), each.priority, each.weight)
        for process in processes.values()
        for each in process.waiting.values()
        if each.sequence.isdecimal()
    ]


def _of_messages(messages: Sequence[DeadLetterMessage]) -> list[Sending]:
    """The messages that the starter dead-lettered: it states when they were sent."""
    return [
        Sending(each.execution, each.order[0], int(each.attributes["sequence_number"]), each.priority, each.weight)
        for each in messages
        if each.shown_execution is not None and each.attributes.get("sequence_number", "").isdecimal()
    ]


def _of_attempts(attempts: Sequence[Attempt], acts: Sequence[OperatorAct]) -> list[Sending]:
    """The attempts that a workflow has returned or an operator has redriven, and that have started since."""
    known = {each.execution: each for each in attempts}
    sent = {
        execution_name(each.process, each.request_id, each.number + 1, each.caller): each.stopped
        for each in attempts
        if each.error == RETURNED and each.stopped is not None
    }
    for act in acts:
        if act.action == "dlq redrive":
            sent |= {str(one.get("execution")): act.at for one in act.fields.get("sent", [])}
    return [
        Sending(execution, at, None, of.priority or DEFAULT_PRIORITY, of.weight)
        for execution, at in sent.items()
        if (of := known.get(execution)) is not None
    ]
