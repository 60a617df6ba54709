"""Reads the history of work from AWS's own lists and the rows of requests, with a bounded number of calls.

Of each list the running executions are read first, then those that have ended, so that one which ends meanwhile is in
the second part. The rows are read after the lists: an execution records its outcome before it ends. A list that could
not be read completely is in `not_read` with the missing part, and no check that needs it is shown.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.executions import CLOSED_STATUSES, Execution
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import execution_name, process_of_execution
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import STATE_MACHINE, kind_of
from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS, ENDED_STATES, MARKER
from slotkeeper_cli.account import MAX_DESCRIBED, Account
from slotkeeper_cli.audit.work_history import (
    CHILD,
    CHILDREN,
    EXECUTIONS,
    GLUE_RUN,
    GLUE_RUNS,
    REQUESTS,
    UNKNOWN,
    Attempt,
    AuditBounds,
    OperatorAct,
    WorkHistory,
    WorkInterval,
    must_be_listed,
)
from slotkeeper_cli.audit_lines import MAX_PAGES as MAX_AUDIT_PAGES
from slotkeeper_cli.audit_lines import Audited
from slotkeeper_cli.formatting import count, seconds
from slotkeeper_cli.holders import estimate, executions_of, grace_seconds
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.unread import Search

# Pages that are read of each list: of 1,000 executions (Step Functions API Reference, ListExecutions), and of 200 runs
# (Glue Web API, GetJobRuns).
MAX_READ_PAGES = {EXECUTIONS: 200, CHILDREN: 200, GLUE_RUNS: 1000}
# With a page of SlotTable, and without the rows of each process (row_search.py).
MAX_CALLS = sum((*MAX_READ_PAGES.values(), MAX_DESCRIBED, MAX_AUDIT_PAGES, 1))
# Seconds. Audit lines, rows and children are read from this long before the period: a request may have been granted
# before its start, and its row and its child end before its workflow.
_EARLIER = 3600
_DAY = 86400
_FEWER = "Give a later --since"

OnRead = Callable[[str, int], None]


def read_history(
    account: Account,
    since: float,
    until: float,
    only: str | None = None,
    on_read: OnRead = lambda _source, _number: None,
    also: Iterable[str] = (),
) -> WorkHistory:
    """Read the history of one process, or of all.

    Args:
        since, until: the period, in seconds since the epoch.
        on_read: receives the number of records of each page, by their source.
        also: names of processes without an item, whose rows are read too.

    Raises:
        NotFound: there is no such process.
    """
    return _Reader(account, since, until, only, on_read).read(also)


class _Reader:
    def __init__(self, account: Account, since: float, until: float, only: str | None, on_read: OnRead) -> None:
        self._account, self._stack = account, account.stack
        self._since, self._until = since, until
        self._only = only
        self._on_read = on_read
        self._search = Search()
        self._read: Counter[str] = Counter()
        self._now = time.time()

    def read(self, also: Iterable[str]) -> WorkHistory:
        processes, since = self._processes(), self._since
        listed = self._attempts()
        names = {*processes, *(each.process for each in listed), *also} - {""}
        # An execution ends later than its row.
        ended = {each.execution for each in listed}
        rows = [
            each
            for each in self._rows(names, since - _EARLIER)
            if each.ended is None or each.ended >= since or each.execution in ended
        ]
        listed += self._unlisted(processes, rows, ended)
        by_execution = {each.execution: each for each in rows}
        attempts = [
            replace(each, row=by_execution.get(each.execution)) for each in listed if each.started <= self._until
        ]
        acts = self._acts()
        work = self._work(processes, attempts, acts)
        not_read, bounds = self._search.not_read, self._bounds()
        return WorkHistory(since, self._until, self._now, processes, attempts, work, rows, acts, not_read, bounds)

    def _concerns(self, process: str) -> bool:
        return self._only in (None, process)

    def _processes(self) -> dict[str, Process]:
        known, malformed = self._search.try_read(
            "SlotTable", self._account.processes, (list[Process](), list[MalformedProcess]())
        )
        names = {each.name for each in known} | {each.process for each in malformed}
        if self._only is not None and self._only not in names and not self._search.missing("SlotTable"):
            raise self._account.control.not_found(self._only)
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

    # ----------------------------------------------------------------------------------------------------------- rows

    def _rows(self, names: Iterable[str], since: float) -> list[RequestRow]:
        """The rows of these processes that had not ended at a time. Malformed ones are not read."""
        given = (self._stack.parameters.get(f"{each}RetentionDays") for each in ("Request", "Failed"))
        kept = min(int(days or 30) for days in given)
        if self._since < self._now - kept * _DAY:
            self._search.note_unread(REQUESTS, f"rows are kept for {count(kept, 'day')} after their end. {_FEWER}")
        found: list[RequestRow] = []
        for name in sorted(names):
            if self._concerns(name):
                rows = self._search.try_read(REQUESTS, partial(self._rows_of, name, since), list[RequestRow]())
                self._on_read(REQUESTS, len(rows))
                found += rows
        return found

    def _rows_of(self, name: str, since: float) -> list[RequestRow]:
        """The rows of a process, with the next attempts of requests that were redriven after its queue was read.

        Of ids with a further attempt next to a success, the whole rows, which state their message.
        """
        rows = self._account.history(self._search, name, since, self._now + _EARLIER)
        known = {(each.request_id, each.attempt) for each in rows}
        redriven = ((each.request_id, each.attempt + 1) for each in rows if each.state == "REDRIVEN")
        late = [(name, execution_name(name, *each)) for each in redriven if not {each, (each[0], UNKNOWN)} & known]
        again = {each.request_id for each in rows if each.state == "SUCCEEDED"}
        again &= {each.request_id for each in rows if each.attempt > 1}
        named = [*late, *((name, each.execution) for each in rows if each.request_id in again)]
        whole = self._search.rows(self._account.control.row_search.named(named), "attempts") if named else []
        return [*{each.execution: each for each in [*rows, *whole]}.values()]

    # ---------------------------------------------------------------------------------------------------- executions

    def _attempts(self) -> list[Attempt]:
        """The executions that run, or have ended in the period or after it, without their rows."""
        listed = self._search.try_read(
            EXECUTIONS,
            lambda: self._listed(self._stack.outputs["WorkflowArn"], EXECUTIONS, self._since),
            list[Mapping[str, Any]](),
        )
        return [
            Attempt(
                each["name"],
                each["status"],
                each["startDate"].timestamp(),
                each["stopDate"].timestamp() if "stopDate" in each else None,
                redriven=each.get("redriveCount", 0) > 0,
            )
            for each in listed
            if self._concerns(process_of_execution(each["name"]))
            and ("stopDate" not in each or each["stopDate"].timestamp() >= self._since)
        ]

    def _unlisted(
        self, processes: Mapping[str, Process], rows: Sequence[RequestRow], listed: set[str]
    ) -> list[Attempt]:
        """The executions of holders and rows that the lists do not contain."""
        names = {name for each in processes.values() for name in executions_of(each)}
        if not self._search.missing(EXECUTIONS):
            names |= {each.execution for each in rows if must_be_listed(each, self._until)}
        chosen = sorted(names - listed)
        if len(chosen) > MAX_DESCRIBED:
            why = f"of {len(chosen):,} that rows or holders name, and the lists do not, {MAX_DESCRIBED} were read"
            self._search.note_unread(EXECUTIONS, why)
        found = self._search.try_read(
            EXECUTIONS,
            lambda: in_parallel(self._account.execution, chosen[:MAX_DESCRIBED]),
            list[Execution | None](),
        )
        return [
            Attempt(each.name, each.status, each.started_at or 0.0, each.stopped_at, redriven=each.redrives > 0)
            for each in found
            if each is not None
        ]

    def _listed(self, machine: str, source: str, since: float) -> list[Mapping[str, Any]]:
        """The executions of a state machine that run, and then those that have ended since a time.

        A list of one closed status begins with the execution that ended last (Step Functions API Reference,
        ListExecutions), so that it is complete as soon as one ended before. If it shows another order, all is read.
        """
        lists = self._stack.client("stepfunctions").get_paginator("list_executions")
        found: dict[str, Mapping[str, Any]] = {}
        for status in ("RUNNING", *CLOSED_STATUSES):
            pages = lists.paginate(stateMachineArn=machine, statusFilter=status, PaginationConfig={"PageSize": 1000})
            for listed in self._pages(source, f"the {status} ones", pages, "executions", "stopDate", since):
                found[listed["name"]] = listed
        return list(found.values())

    def _pages(
        self, source: str, what: str, pages: Iterable[Mapping[str, Any]], records: str, time_of: str, back_to: float
    ) -> Iterator[Mapping[str, Any]]:
        """The records of a list, until their times, which must descend, reach far enough.

        The pages of a source are bounded: a list that was cut is noted.
        """
        last, descends, number = math.inf, True, 0
        for page in pages:
            yield from page[records]
            times = [last, *(each[time_of].timestamp() for each in page[records] if time_of in each)]
            last, descends = times[-1], descends and times == sorted(times, reverse=True)
            number += len(page[records])
            self._on_read(source, len(page[records]))
            self._read[source] += 1
            if descends and last < back_to:
                return
            if self._read[source] >= MAX_READ_PAGES[source] and (page.get("nextToken") or page.get("NextToken")):
                why = f"there are too many: of {what} only the first {number:,} were read. {_FEWER}"
                self._search.note_unread(source, why)
                return

    # ----------------------------------------------------------------------------------------------------------- work

    def _work(
        self, processes: Mapping[str, Process], attempts: Sequence[Attempt], acts: Sequence[OperatorAct]
    ) -> list[WorkInterval]:
        if self._search.missing("SlotTable"):
            why = "SlotTable, which names the targets of the processes, could not be read completely"
            for source in (GLUE_RUNS, CHILDREN):
                self._search.note_unread(source, why)
        targets = {each.target for each in processes.values()}
        targets |= {holder.target for each in processes.values() for holder in each.holders.values()}
        targets |= {str(each.fields.get("target", "")) for each in acts if each.action == "process add"}
        known = {each.execution for each in attempts}
        reach = min([self._since, *(each.started for each in attempts)]) - CLOCK_DIFFERENCE_SECONDS
        found: list[WorkInterval] = []
        for target in sorted(targets - {"", NO_TARGET}):
            if kind_of(target) is STATE_MACHINE:
                found += self._search.try_read(CHILDREN, partial(self._children, target), list[WorkInterval]())
            else:
                found += self._search.try_read(GLUE_RUNS, partial(self._runs, target, reach), list[WorkInterval]())
        return [
            each for each in found if each.started <= self._until and (each.execution in known or not each.execution)
        ]

    def _runs(self, job: str, reach: float) -> list[WorkInterval]:
        """The runs of a job back to a time. The one that started last is the first."""
        pages = self._stack.client("glue").get_paginator("get_job_runs").paginate(JobName=job)
        runs = self._pages(GLUE_RUNS, f"those of {job}", pages, "JobRuns", "StartedOn", reach)
        return [_run(each) for each in runs if "StartedOn" in each]

    def _children(self, machine: str) -> list[WorkInterval]:
        return [_child(each) for each in self._listed(machine, CHILDREN, self._since - _EARLIER)]

    # ----------------------------------------------------------------------------------------------------------- logs

    def _acts(self) -> list[OperatorAct]:
        """The audit lines from before the period until now: they lead from the present limit to that of the period."""
        since = self._since - _EARLIER
        read = self._search.try_read("AuditLogGroup", lambda: self._account.audit_lines(since=since), Audited([]))
        if not read.is_complete:
            why = f"it has too many lines: only the oldest were read. {_FEWER}"
            self._search.note_unread("AuditLogGroup", why)
        return [act for line in read.lines if (act := _act(line)) and (not act.process or self._concerns(act.process))]


def _run(run: Mapping[str, Any]) -> WorkInterval:
    execution, started = run.get("Arguments", {}).get(MARKER, ""), run["StartedOn"].timestamp()
    # Of a run that has ended without an end time it is only certain that it has started.
    missing = started if run["JobRunState"] in ENDED_STATES else None
    ended = run["CompletedOn"].timestamp() if "CompletedOn" in run else missing
    return WorkInterval(execution, GLUE_RUN, started, ended, run["JobRunState"] == "SUCCEEDED")


def _child(listed: Mapping[str, Any]) -> WorkInterval:
    """A child has the name of its workflow's execution. Of one that was redriven, the time since then is certain."""
    ended = listed["stopDate"].timestamp() if listed["status"] in CLOSED_STATUSES else None
    started = listed.get("redriveDate", listed["startDate"]).timestamp()
    is_redriven = listed.get("redriveCount", 0) > 0
    return WorkInterval(listed["name"], CHILD, started, ended, listed["status"] == "SUCCEEDED", is_redriven)


def _act(line: Mapping[str, Any]) -> OperatorAct | None:
    try:
        at = seconds(line["at"])
    except (KeyError, TypeError, ValueError):
        return None
    return OperatorAct(at, str(line.get("action")), str(line.get("process") or ""), str(line.get("by")), line)
