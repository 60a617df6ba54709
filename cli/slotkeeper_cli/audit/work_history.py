"""The history of work: what AWS's own records and the rows of requests state, as plain values.

`history_reader.py` makes it from an account. Scenarios and tests make it themselves, or change it with
`dataclasses.replace`: other `acts` for changes of limits that no audit line states, shorter `bounds`.

`audit.judge` judges it, `figures` computes figures. Times are seconds since the epoch. The name of an execution
identifies an attempt of a request everywhere (`slotkeeper.slots.request.execution_name`).
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority, process_of_execution
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.intervals import pieces
from slotkeeper_cli.formatting import count

if TYPE_CHECKING:
    from slotkeeper_cli.unread import UnreadSource

GLUE_RUN = "Glue run"
CHILD = "child execution"
# What can be missing in a history, as `UnreadSource.source`, next to the template's table and log.
EXECUTIONS, REQUESTS, GLUE_RUNS, CHILDREN = "executions", "RequestTable", "Glue runs", "child executions"
# ListExecutions is eventually consistent (API Reference): in these seconds after its end an execution may be missing.
_LISTED_WITHIN = 60.0
# A change is made from so many seconds before its audit line to so many after it. It follows within a minute, and the
# line has the time of the operator's machine: AWS refuses a request that is signed with a time that differs by five
# minutes (IAM User Guide, "AWS Signature Version 4 for API requests").
BEFORE_LINE, AFTER_LINE = 300.0, 360.0
UNKNOWN = 0  # the attempt of a row of which the index of the queue was read
_CHANGES = ("process set-limit", "process add", "process remove", "process repair", "stack restore")
# Their lines do not state the limit, which is then as the next line or the present item states.
_WITHOUT_LIMIT = ("process remove", "process repair", "stack restore")
RATE_CHANGES = ("process set-rate", "process repair", "stack restore")
SET_KEY_LIMIT = "process set-key-limit"
NO_LIMIT = sys.maxsize  # of a key that has none
_RESUMES = ("process resume", "process add", "process repair", "process remove", "stack restore")


@dataclass(frozen=True)
class Attempt:
    """One execution of the workflow: an attempt of a request (ListExecutions), with its row.

    Attributes:
        status: of ListExecutions.
        stopped: None while it runs.
        row: None if it was not read.
        redriven: an operator redrove it in Step Functions, so it did not run all the time until `stopped`.
    """

    execution: str
    status: str
    started: float
    stopped: float | None = None
    row: RequestRow | None = None
    redriven: bool = False

    @property
    def process(self) -> str:
        return process_of_execution(self.execution)

    @property
    def priority(self) -> Priority | None:
        """None if its row was not read."""
        return self.row.priority if self.row else None

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED_STATUSES

    @property
    def label(self) -> str:
        """The request and the process as a text."""
        return label_of(self.row) if self.row else f"{self.execution} ({self.process})"


def must_be_listed(row: RequestRow, until: float) -> bool:
    """Whether Step Functions' lists certainly have the execution of a row at a time."""
    has_one = row.state in ("STARTED", "SUCCEEDED", "FAILED")
    return has_one and (row.ended or row.started or until) < until - _LISTED_WITHIN


def grant_of(row: RequestRow) -> int:
    """The value of its process's `grants` after its grant; 0 if that was not recorded."""
    return int(row.granted.partition("#")[0] or 0)


def label_of(row: RequestRow) -> str:
    """A request and its process as a text."""
    attempt = "" if row.attempt == UNKNOWN else f", attempt {row.attempt}"
    return f"{row.request_id}{attempt} ({row.process})"


@dataclass(frozen=True)
class WorkInterval:
    """The work in the slot of an execution: a Glue run (GetJobRuns) or a child execution (ListExecutions).

    Attributes:
        execution: empty if Slotkeeper has not started it.
        kind: Glue run or child execution. The clocks of two kinds may differ.
        started: of a child that was redriven, when it was: how long it ran before is not listed.
        ended: None while it runs.
        succeeded: whether it ended with success.
        redriven: an operator redrove it, so it began outside of any slot (docs/state-machines.md).
    """

    execution: str
    kind: str
    started: float
    ended: float | None = None
    succeeded: bool = False
    redriven: bool = False

    @property
    def process(self) -> str:
        return process_of_execution(self.execution)

    def certain(self, now: float) -> tuple[float, float]:
        """The time in which it certainly ran. A time in whole seconds may have been rounded up or down."""
        start = self.started + 1 if float(self.started).is_integer() else self.started
        if self.ended is None:
            return start, max(start, now)
        return start, self.ended - 1 if float(self.ended).is_integer() else self.ended


@dataclass(frozen=True)
class OperatorAct:
    """A line of the operators' audit log, which is written up to a minute before its change.

    Attributes:
        action: as in the log: `process set-limit`.
        process: empty if the line names none.
        fields: the whole line.
    """

    at: float
    action: str
    process: str = ""
    by: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditBounds:
    """Seconds. The defaults hold for the template's default parameters.

    Attributes:
        dead_holder: within which the slot of an ended execution is free after its work has ended (S4), and within which
            the row of an ended execution ends (S3): the grace time, two janitor periods, and one for the run itself.
        reservation: how long before its recorded start a request may have been granted: after that time the janitor
            frees a reservation that has no execution.
        intake: within which a message becomes a row, from which its order counts (S5): a starter that dies delays it by
            the visibility timeout.
        free_slot: for which a slot may be free while a request that fits is queued (S6).
    """

    dead_holder: float = 300.0
    reservation: float = 300.0
    intake: float = 360.0
    free_slot: float = 600.0


@dataclass(frozen=True)
class WorkHistory:
    """All records of one period.

    Attributes:
        since, until: the period. Records that reach into it are included.
        now: when the records were read.
        processes: the present items of SlotTable, without malformed ones.
        rows: of requests, those that had not ended at the begin of the period.
        not_read: what could not be read, also a part of a list. A check that needs it is not shown.
    """

    since: float
    until: float
    now: float
    processes: Mapping[str, Process] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    work: Sequence[WorkInterval] = ()
    rows: Sequence[RequestRow] = ()
    acts: Sequence[OperatorAct] = ()
    not_read: Sequence[UnreadSource] = ()
    bounds: AuditBounds = AuditBounds()

    def lacks(self, *sources: str) -> list[str]:
        """What of these sources could not be read, in sentences."""
        return [f"{each.source}: {each.why}" for each in self.not_read if each.source in sources]

    def lacks_work(self) -> list[str]:
        """The processes with executions whose work or row was not found, in sentences.

        Work is not found after a change of the target, or in another account.
        """
        known = {each.execution for each in self.work}
        missing = Counter(
            each.process for each in self.attempts if each.status == "SUCCEEDED" and each.execution not in known
        )
        rowless = Counter(each.process for each in self.without_row)
        texts = [(missing, "the work of {} was not found"), (rowless, "the weight of {} is not known")]
        return [
            f"{name}: {text.format(count(number, 'execution'))}" for of, text in texts for name, number in of.items()
        ]

    @cached_property
    def without_row(self) -> Sequence[Attempt]:
        """The executions of the period that have no row. That of a redriven one may have expired."""
        return [
            each
            for each in self.attempts
            if each.row is None and not each.redriven and (each.stopped is None or each.stopped >= self.since)
        ]

    @cached_property
    def last_work(self) -> Mapping[str, float]:
        """When the last work of each execution has ended, by its name; infinite while it runs."""
        last: dict[str, float] = {}
        for work in self.work:
            ended = math.inf if work.ended is None else work.ended
            last[work.execution] = max(last.get(work.execution, 0.0), ended)
        return last

    @cached_property
    def by_execution(self) -> Mapping[str, Attempt]:
        """The attempts by the names of their executions."""
        return {each.execution: each for each in self.attempts}

    def row(self, execution: str) -> RequestRow | None:
        """The row of an execution; None if it was not read."""
        return self._by_execution.get(execution)

    @cached_property
    def _by_execution(self) -> Mapping[str, RequestRow]:
        return {each.execution: each for each in self.rows}

    def default_weight(self, name: str) -> int:
        """The weight of a process's request that states none; 1 if its item is not known."""
        return self.processes[name].default_weight if name in self.processes else 1

    def weight(self, execution: str) -> int:
        """The weight of a request, in the unit of the limit; 1, the least, if it has no row."""
        row = self.row(execution)
        return (row.weight or self.default_weight(row.process)) if row else 1

    @cached_property
    def by_process(self) -> Mapping[str, list[Attempt]]:
        """The attempts of each process in the order of their starts."""
        found: dict[str, list[Attempt]] = defaultdict(list)
        for each in sorted(self.attempts, key=lambda each: each.started):
            found[each.process].append(each)
        return found

    @cached_property
    def rows_of(self) -> Mapping[str, list[RequestRow]]:
        """The rows of each process in the order of their places."""
        found: dict[str, list[RequestRow]] = defaultdict(list)
        for each in sorted(self.rows, key=lambda each: each.placed):
            found[each.process].append(each)
        return found

    @cached_property
    def _grants(self) -> Mapping[str, list[int]]:
        """The values of each process's `grants` that its rows have, in order."""
        found: dict[str, set[int]] = defaultdict(set)
        for row in self.rows:
            found[row.process] |= {number for number in (grant_of(row), row.put_back) if number}
        return {name: sorted(numbers) for name, numbers in found.items()}

    def all_grants_known(self, name: str, after: int, until: int) -> bool:
        """Whether each change of a process's `grants` between two values is that of a row.

        Then no lease began meanwhile, and no reservation was taken back without a note: both change it (grants.py).
        """
        numbers = self._grants.get(name, [])
        return bisect_right(numbers, until) - bisect_right(numbers, after) == until - after

    @cached_property
    def names(self) -> list[str]:
        """The processes that have an item, an attempt or a row."""
        return sorted({*self.processes, *self.by_process, *self.rows_of})


@dataclass(frozen=True)
class LimitSteps:
    """(instant, limit from then on), by time; the first is -inf. None: the limit is not known.

    `paused`: the times in which the process may have been paused.
    """

    steps: Sequence[tuple[float, int | None]]
    paused: Sequence[tuple[float, float]] = ()

    def values(self, start: float, end: float) -> list[int | None]:
        """The limits in force at some instant of [start, end]."""
        return [value for at, until, value in pieces(self.steps) if at <= end and until > start]

    def most(self, start: float, end: float) -> int | None:
        """The highest limit that may have been in force in a time; None if one is not known."""
        possible = self._possible(start, end)
        return None if possible is None else max(possible, default=0)

    def least(self, start: float, end: float) -> int | None:
        """The lowest limit that may have been in force in a time, 0 in a pause; None if one is not known."""
        if any(since <= end + BEFORE_LINE and until > start - AFTER_LINE for since, until in self.paused):
            return 0
        possible = self._possible(start, end)
        return None if possible is None else min(possible, default=0)

    def _possible(self, start: float, end: float) -> list[int] | None:
        values = self.values(start - AFTER_LINE, end + BEFORE_LINE)
        return None if None in values else [each for each in values if each is not None]

    @property
    def certain(self) -> list[tuple[float, int]]:
        """(instant, limit that was certainly in force from then on), by time; 0 while it is not known."""
        changes = [*(at for at, _ in self.steps), *chain.from_iterable(self.paused)]
        instants = sorted({at + by for at in changes for by in (-BEFORE_LINE, math.nextafter(AFTER_LINE, math.inf))})
        return [(at, self.least(at, at) or 0) for at in instants]


def limit_steps(history: WorkHistory, name: str) -> LimitSteps:
    """The limit of a process over time.

    An audit line is written before its change, and does not prove it. The next line's `before`, or the present item,
    does. A limit that follows from neither is not known. While an operator's pause is in force the limit is 0, because
    nothing is admitted; that is known only of a pause that lasts until now.
    """
    process = history.processes.get(name)
    if history.lacks("AuditLogGroup"):
        return LimitSteps([(-math.inf, None)])
    acts = [each for each in acts_of(history, name) if each.action in _CHANGES]
    known = [*(_before(each) for each in acts), process.slot_limit if process else None]
    steps: list[tuple[float, int | None]] = [(-math.inf, known[0])]
    for act, value in zip(acts, known[1:], strict=True):
        is_known = act.action in _WITHOUT_LIMIT or value in (_before(act), _after(act))
        steps.append((act.at, value if is_known else None))
    paused = pauses(history, name)
    if process is not None and process.paused and paused and math.isinf(paused[-1][1]):
        steps = [each for each in steps if each[0] <= paused[-1][0]] + [(paused[-1][0], 0)]
    lines = [each for each in acts_of(history, name) if each.action in ("process pause", "process resume")]
    if lines and lines[0].action == "process resume":  # the pause began before the lines
        paused.append((-math.inf, lines[0].at))
    elif process is not None and process.paused and not lines:
        paused.append((-math.inf, math.inf))
    return LimitSteps(steps, paused)


def key_limits_over_time(process: Process | None, acts: Sequence[OperatorAct]) -> list[tuple[float, Process | None]]:
    """(instant, the process with the limits of its keys from then on), by time; None: they are not known.

    As for `limit_steps`, a line alone does not prove its change: the limit after it must be one that it states.

    Args:
        process: as it is now.
        acts: the lines that concern it, by time.
    """
    found, now = list[tuple[float, Process | None]](), process
    for act in reversed(acts):
        if act.action not in (SET_KEY_LIMIT, "process add", *_WITHOUT_LIMIT):
            continue
        key, former, is_known, before = act.fields.get("key"), act.fields.get("before"), True, None
        if now and act.action == SET_KEY_LIMIT:
            limit = now.key_limits.get(key) if key else now.key_limit
            is_known = limit in (former, act.fields.get("after"))
            own = {**now.key_limits, key: former} if key else now.key_limits
            own = {each: limit for each, limit in own.items() if limit is not None}
            before = replace(now, key_limit=now.key_limit if key else former, key_limits=own)
        elif now and act.action == "process add":
            is_known = (now.key_limit, now.key_limits) == (act.fields.get("key_limit"), {})
            before = replace(now, key_limit=None, key_limits={})
        found.append((act.at, now if is_known else None))
        now = before
    return [(-math.inf, now), *reversed(found)]


class KeyLimits:
    """The limits of a process's keys over time.

    `exist`: whether a key has, had, or may have had a limit.
    """

    def __init__(self, history: WorkHistory, name: str) -> None:
        process = history.processes.get(name)
        self._steps = key_limits_over_time(process, acts_of(history, name))
        if history.lacks("AuditLogGroup"):
            self._steps = [(-math.inf, None)]
        known = [each for _, each in (*self._steps, (0, process)) if each]
        self.exist = any(each.key_limit is not None or each.key_limits for each in known)
        if len(known) <= len(self._steps):
            self.exist |= any(row.key for row in history.rows_of.get(name, []))

    def of(self, key: str) -> LimitSteps:
        """The limit of a key; "" is that of all requests without one. NO_LIMIT: there is none."""
        limits = [(at, each, each.limit_of(key) if each else None) for at, each in self._steps]
        return LimitSteps([(at, NO_LIMIT if each and limit is None else limit) for at, each, limit in limits])


def acts_of(history: WorkHistory, name: str) -> list[OperatorAct]:
    """The audit lines that concern a process, in order."""
    concern = (each for each in history.acts if each.process == name or each.action.startswith("stack "))
    return sorted(concern, key=lambda each: each.at)


def pauses(history: WorkHistory, name: str) -> list[tuple[float, float]]:
    """The operators' pauses that the audit lines state, by time. The end of one that lasts is infinite."""
    found, since = list[tuple[float, float]](), math.inf
    for act in acts_of(history, name):
        if act.action == "process pause":
            since = min(since, act.at)
        elif act.action in _RESUMES:
            found += [(since, act.at)] if since < math.inf else []
            since = math.inf
    return [*found, (since, math.inf)] if since < math.inf else found


def _before(act: OperatorAct) -> int | None:
    if act.action == "process add":  # it adds none that exists
        return 0
    return _whole(act.fields.get("before")) if act.action == "process set-limit" else None


def _after(act: OperatorAct) -> int | None:
    return _whole(act.fields.get({"process set-limit": "after", "process add": "limit"}.get(act.action, "")))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
