"""Reads the history of work from AWS's own records and the rows of requests, with a bounded number of calls.

The rows are read after the executions: an execution records its outcome before it ends.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.executions import CLOSED_STATUSES, Execution
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.rows import Listed, RequestRow, RequestRows
from slotkeeper.slots.targets import STATE_MACHINE, kind_of
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS, ENDED_STATES, MARKER
from slotkeeper_cli.audit.work_history import (
    CHILD,
    CHILDREN,
    EXECUTIONS,
    GLUE_RUN,
    GLUE_RUNS,
    REQUESTS,
    Attempt,
    AuditBounds,
    OperatorAct,
    WorkHistory,
    WorkInterval,
)
from slotkeeper_cli.audit_log import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.audit_log import Audited, read_audit
from slotkeeper_cli.formatting import count, iso, seconds
from slotkeeper_cli.holders import estimate, executions_of, grace_seconds
from slotkeeper_cli.search import Search
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, in_parallel

# Pages that are read of each source: of 1,000 executions (Step Functions API Reference, ListExecutions), of 200 runs
# (Glue Web API, GetJobRuns), and of 1 MB of rows with their bodies.
MAX_READ_PAGES = {EXECUTIONS: 100, CHILDREN: 100, GLUE_RUNS: 500, REQUESTS: 200}
# Executions that are described: those of holders and of rows that have not ended, and that the lists do not contain.
MAX_DESCRIBED = 100
# With a page of the table.
MAX_CALLS = sum((*MAX_READ_PAGES.values(), MAX_DESCRIBED, MAX_AUDIT_PAGES, 1))
# Audit lines are read from this long before the period: a request may have been granted before its start.
_EARLIER = 3600

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
    on_read: OnRead = lambda _source, _number: None,
    also: Iterable[str] = (),
) -> WorkHistory:
    """Read the history of one process, or of all.

    Args:
        on_read: receives the number of records of each page, by their source.
        also: names of processes without an item, whose rows are read too.

    Raises:
        NotFound: there is no such process.
    """
    return _Reader(stack, window, only, on_read).read(also)


def read_requests(stack: StackConnection, window: Window, process: str, on_read: OnRead) -> WorkHistory:
    """Read only a process's rows, and its limits. Raises NotFound without such a process."""
    return _Reader(stack, window, process, on_read).read_requests()


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

    def read(self, also: Iterable[str]) -> WorkHistory:
        processes = self._processes()
        attempts = self._attempts()
        rows = self._rows({*processes, *(each.process for each in attempts), *also})
        attempts += self._unlisted(processes, rows, {each.execution for each in attempts})
        acts = self._acts()
        work = self._work(processes, attempts, acts)
        by_execution = {each.execution: each for each in rows}
        attempts = [replace(each, row=by_execution.get(each.execution)) for each in attempts]
        of_rows = self._history(processes, rows, acts)
        return replace(of_rows, attempts=attempts, work=work, bounds=self._bounds())

    def read_requests(self) -> WorkHistory:
        processes = self._processes()
        return self._history(processes, self._rows(processes), self._acts())

    def _history(
        self, processes: Mapping[str, Process], rows: Sequence[RequestRow], acts: Sequence[OperatorAct]
    ) -> WorkHistory:
        return WorkHistory(
            since=self._window.since,
            until=self._window.until,
            now=self._now,
            processes=processes,
            rows=rows,
            acts=acts,
            not_read=self._search.not_read,
            samples=self._samples,
        )

    def _rows(self, names: Iterable[str]) -> list[RequestRow]:
        """The rows of these processes that had not ended at the begin of the period. Malformed ones are not read."""
        reader = RequestRows(self._stack.client("dynamodb"), self._stack.outputs["RequestTableName"])
        chosen = sorted(name for name in names if self._concerns(name))
        pages = max(1, MAX_READ_PAGES[REQUESTS] // max(1, len(chosen)))
        found: list[RequestRow] = []
        cut: list[str] = []
        for name in chosen:
            listed = self._search.try_read(REQUESTS, partial(reader.rows, name, max_pages=pages), Listed[RequestRow]())
            self._on_read(REQUESTS, len(listed.rows))
            found += [each for each in listed.rows if each.ended is None or each.ended >= self._window.since]
            cut += [name] if listed.is_cut else []
            if listed.malformed:
                first = f"{listed.malformed[0]}{' ...' if len(listed.malformed) > 1 else ''}"
                self._search.note_unread(
                    REQUESTS, f"{count(len(listed.malformed), 'row')} of process {name} malformed: {first}"
                )
        if cut:
            # The names of executions are hashes, so in their order these are a random sample of each process.
            self._samples[REQUESTS] = f"of {', '.join(cut)} the first {pages:,} MB of rows were read"
        return found

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
        """The executions that ran in the period, without their rows."""
        machine = self._stack.outputs["WorkflowArn"]
        listed = self._search.try_read(EXECUTIONS, lambda: self._listed(machine, EXECUTIONS), list[Mapping[str, Any]]())
        attempts = [
            Attempt(
                each["name"],
                each["status"],
                each["startDate"].timestamp(),
                each["stopDate"].timestamp() if "stopDate" in each else None,
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

    def _unlisted(
        self, processes: Mapping[str, Process], rows: Sequence[RequestRow], listed: set[str]
    ) -> list[Attempt]:
        """The executions that began before those of the list, and hold a slot or have a row that has not ended."""
        names = {name for each in processes.values() for name in executions_of(each)}
        names |= {each.execution for each in rows if each.state == "STARTED"}
        chosen = sorted(names - listed)
        if len(chosen) > MAX_DESCRIBED:
            text = f"of {len(chosen):,} executions that began before the period {MAX_DESCRIBED} were read"
            self._samples.setdefault(EXECUTIONS, text)
        found = self._search.try_read(
            EXECUTIONS,
            lambda: in_parallel(self._control.workflow.describe, chosen[:MAX_DESCRIBED]),
            list[Execution | None](),
        )
        return [
            Attempt(each.name, each.status, each.started_at or 0.0, each.stopped_at)
            for each in found
            if each is not None
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
