"""The history of work: what AWS's own records state about requests and what ran in slots, as plain values.

`history_reader.py` makes it from an account. Scenarios and tests make it themselves, or add what they know beyond AWS's
records, with `dataclasses.replace`:

- `sendings`: when each message was sent, and its sequence number
- `Attempt.freed`: when a slot was freed, as from the journal of the item's writes
- `work` of a kind of its own, such as the time inside a state of the workflow
- `acts`: changes of limits that no audit line states
- `bounds`: shorter ones than those that hold in any account

`audit_checks.judge` judges it, `audit_figures.figures` computes figures. Times are seconds since the epoch. The name of
an execution identifies an attempt of a request everywhere (`slotkeeper.slots.request.execution_name`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import DEFAULT_PRIORITY, Priority, message_group, process_of_execution
from slotkeeper_cli.formatting import count
from slotkeeper_cli.search import UnreadSource

GLUE_RUN = "Glue run"
CHILD = "child execution"
# What can be missing in a history, as `UnreadSource.source` and in `samples`, next to the template's queues, table and
# log.
EXECUTIONS, REQUESTS, GLUE_RUNS, CHILDREN = "executions", "requests of executions", "Glue runs", "child executions"


@dataclass(frozen=True)
class Attempt:
    """One execution of the workflow: an attempt of a request (ListExecutions, DescribeExecution).

    Attributes:
        status: of ListExecutions.
        stopped: None while it runs.
        request_id: empty if the execution's request was not read, as are the next five.
        number: 1 for the first attempt, 0 if it was not read.
        weight: in the unit of the limit, the process's default weight if the request states none; None: not read.
        caller: what identifies a caller that waits, as in the execution's name.
        freed: when its slot was freed, if it is known. No record of AWS states it.
    """

    execution: str
    status: str
    started: float
    stopped: float | None = None
    request_id: str = ""
    number: int = 0
    priority: Priority | None = None
    weight: int | None = None
    error: str = ""
    cause: str = ""
    caller: str = ""
    redrives: int = 0
    freed: float | None = None

    @property
    def process(self) -> str:
        return process_of_execution(self.execution)

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED_STATUSES

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without success."""
        return self.is_closed and self.status != "SUCCEEDED"

    @property
    def is_read(self) -> bool:
        """Whether its request was read."""
        return self.number > 0

    @property
    def label(self) -> str:
        """The request and the process as a text."""
        named = f"{self.request_id}, attempt {self.number}" if self.is_read else self.execution
        return f"{named} ({self.process})"


@dataclass(frozen=True)
class WorkInterval:
    """What ran in the slot of an execution: a Glue run (GetJobRuns) or a child execution (ListExecutions).

    Attributes:
        execution: empty if Slotkeeper has not started it.
        kind: what was recorded. Times of different kinds are never compared, since clocks may differ.
        ended: None while it runs.
        succeeded: whether it ended with success.
    """

    execution: str
    kind: str
    started: float
    ended: float | None = None
    succeeded: bool = False

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
class Sending:
    """The message of one attempt, on RequestQueue.

    Attributes:
        sequence: its SQS sequence number, which orders the messages of a group; None if it is not known.
        weight: None: the process's default weight, or not known.
    """

    execution: str
    at: float
    sequence: int | None = None
    priority: Priority = DEFAULT_PRIORITY
    weight: int | None = None

    @property
    def process(self) -> str:
        return process_of_execution(self.execution)

    @property
    def group(self) -> str:
        """Its message group."""
        return message_group(self.process, self.priority)


@dataclass(frozen=True)
class KeptRequest:
    """A message of FailedRequestQueue or RequestDeadLetterQueue."""

    execution: str
    queue: str
    at: float
    code: str = ""


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
            the janitor keeps its request (S3): the grace time, two janitor periods, and one for the run itself.
        reservation: how long before its recorded start a request may have been admitted: after that time the janitor
            frees a reservation that has no execution. It includes a minute from an audit line to its change.
        free_slot: for which a slot may be free while a request waits (S6): a starter that dies delays a start by the
            visibility timeout, and a reservation without an execution takes the slot.
    """

    dead_holder: float = 300.0
    reservation: float = 360.0
    free_slot: float = 600.0


@dataclass(frozen=True)
class WorkHistory:
    """All records of one period.

    Attributes:
        since, until: the period. Records that reach into it are included.
        now: when the records were read.
        processes: the present items of SlotTable, without malformed ones.
        queued: the approximate number of messages on RequestQueue; None if it is not known.
        not_read: what could not be read. A check that needs it is not shown.
        samples: for each source of which a sample was read, what was left out.
    """

    since: float
    until: float
    now: float
    processes: Mapping[str, Process] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    work: Sequence[WorkInterval] = ()
    sendings: Sequence[Sending] = ()
    kept: Sequence[KeptRequest] = ()
    acts: Sequence[OperatorAct] = ()
    queued: int | None = None
    not_read: Sequence[UnreadSource] = ()
    samples: Mapping[str, str] = field(default_factory=dict)
    bounds: AuditBounds = AuditBounds()

    def lacks(self, *sources: str) -> list[str]:
        """What of these sources could not be read, in sentences."""
        return [f"{each.source}: {each.why}" for each in self.not_read if each.source in sources]

    def lacks_work(self) -> list[str]:
        """The processes with executions that succeeded and whose work was not found, in sentences.

        As after a change of the target, or in another account. A sample of the work is no such gap.
        """
        if GLUE_RUNS in self.samples or CHILDREN in self.samples:
            return []
        known = {each.execution for each in self.work}
        missing = Counter(
            each.process for each in self.attempts if each.status == "SUCCEEDED" and each.execution not in known
        )
        return [f"{name}: the work of {count(number, 'execution')} was not found" for name, number in missing.items()]

    @cached_property
    def by_execution(self) -> Mapping[str, Attempt]:
        """The attempts by the names of their executions."""
        return {each.execution: each for each in self.attempts}

    @cached_property
    def by_process(self) -> Mapping[str, list[Attempt]]:
        """The attempts of each process in the order of their starts."""
        found: dict[str, list[Attempt]] = defaultdict(list)
        for each in sorted(self.attempts, key=lambda each: each.started):
            found[each.process].append(each)
        return found

    @cached_property
    def names(self) -> list[str]:
        """The processes that have an item or an attempt."""
        return sorted({*self.processes, *self.by_process})
