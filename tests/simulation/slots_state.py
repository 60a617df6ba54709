"""The state of the slots' world."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from dev.judge.slot_item import Holder, Item
from slotkeeper.slots.plan import NoRoom
from slotkeeper.slots.plan import Plan as Planned
from slotkeeper.slots.plan import plan as plan_starts
from slotkeeper.slots.process import Process, read_process
from slotkeeper.slots.queued import rank_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import Priority, caller_of, execution_name
from slotkeeper.slots.request_table import read_queued
from slotkeeper.slots.targets import is_state_machine
from slotkeeper.slots.work import MARKER, PARENT_FIELD
from tests.simulation import slots_actors as code
from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions, tasks
from tests.simulation.aws.stepfunctions import OPEN, WORKFLOW, execution_arn
from tests.simulation.frozen import Record, freeze, record, table, thaw
from tests.simulation.slots_actors import ENDINGS, REQUESTS
from tests.simulation.transcript import Question
from tests.simulation.workflow import BELLS, ROWS, SLOTS
from tests.simulation.worlds import BEGINNING, World

PROCESS, SECOND, JOB = "p", "q", "job"
NOTICE = "notification"
LAG = 30  # seconds: the latest arrival of a call after its sender gave up, and the largest lag of a read
PERIOD, GRACE, CHECK_GAP = 60, 120, 30  # seconds: template.yaml's defaults
TIMEOUT = code.AGE - 2  # seconds, of the functions that dispatch


class Sent(NamedTuple):
    """A request of a plan."""

    id: str
    priority: Priority = "normal"
    weight: int | None = None
    skips: bool = False
    deadline: float | None = None  # `start_before`, in seconds after the beginning
    caller: bool = False  # whether it carries a task token
    other: bool = False  # whether its content differs from that of another request with its id
    malformed: bool = False  # whether its message is no request
    process: str = PROCESS
    key: str = ""

    @property
    def token(self) -> str:
        return f"token-{self.id}" if self.caller else ""

    @property
    def execution(self) -> str:
        """The name of its first attempt."""
        return execution_name(self.process, self.id, 1, caller_of(self.token))

    def body(self, takes_input: bool) -> str:
        """The body of its message."""
        fields: dict[str, Any] = {"process": self.process, "request_id": self.id, "priority": self.priority}
        if self.weight is not None:
            fields["weight"] = self.weight
        if self.key:
            fields["key"] = self.key
        if self.skips:
            fields["when_busy"] = "skip"
        if self.deadline is not None:
            fields["start_before"] = datetime.fromtimestamp(BEGINNING + self.deadline, UTC).isoformat()
        if self.caller:
            fields["task_token"] = self.token
        if self.malformed:
            fields["priority"] = "none"
        if self.other:
            fields["input" if takes_input else "arguments"] = {"--other": "arguments"}
        return json.dumps(fields)


@dataclass(frozen=True)
class Plan:
    """What happens in a world."""

    requests: tuple[Sent, ...] = (Sent("a"),)  # in the order of sending
    limit: int = 1  # the first limit of the process. The second process has limit 1.
    key_limit: int | None = None  # of each key, of both processes
    default_weight: int = 1  # of both processes
    # That an operator sets at any time, in this order. 0 pauses the process, -1 resumes it. A pair: of a key, or of
    # each key ("").
    limits: tuple[int | tuple[int | None, str], ...] = ()
    cancels: tuple[str, ...] = ()  # the ids of the requests that an operator cancels at any time, in this order
    frees: int = 0  # how many reservations an operator frees, at any time
    # The ids of the requests that operators redrive after they have failed, two at the same time
    again: tuple[str, ...] = ()
    discards: tuple[str, ...] = ()  # the ids of the requests that an operator discards after they have failed
    rests: bool = False  # redrives and discards begin only when no actor but those of operators works
    # How often an operator removes the process while it is paused, and adds it again with `limit`
    replacements: int = 0
    batch: bool = False  # whether one invocation receives all messages of a group
    dispatchers: int = 1  # how many doorbells, and how many messages of EndingQueue, are handled at the same time
    has_doorbell: bool = True  # whether DispatchQueue has its event source
    rejects: tuple[str, ...] = ()  # the ids of the requests whose input Step Functions refuses
    # How many janitor runs may begin while other actors work, with the aim "ends" only if an execution has closed
    # whose end is not recorded or not published
    janitor_runs: int = 0
    # Seconds until the first of the janitor's scheduled runs. 0: a run only begins when nothing else can happen, and
    # it has something to do.
    first_run: int = 0
    rate: Rate | None = None  # of both processes
    ahead: tuple[float, ...] = (0.0,)  # seconds by which the clocks of starters and dispatchers are ahead, in turn
    leased: int = 0  # seconds from the beginning for which a lease holds a slot whose caller has died; 0: none does
    # For each caller of a lease the seconds by which its clock is ahead. It begins at any time.
    leases: tuple[float, ...] = ()
    # Seconds of their blocks, in turn. Every half a minute a block extends its lease, unless the number is negative:
    # such a block runs for so many seconds, and may overrun its lease of a minute.
    blocks: tuple[int, ...] = (0,)
    lease_wait: int = 0  # seconds for which a caller waits for a slot
    machines: tuple[str, ...] = ()  # the processes whose target is a state machine
    target: str = ""  # of the first process, if it is neither JOB nor CHILD
    settle_seconds: int = 0  # of state machines
    timeout_minutes: int = 0  # of both processes; the stack's parameter if 0
    wrong_kind: bool = False  # a request with `other` has an input for a Glue job, or arguments for a state machine
    run_seconds: tuple[int, ...] = ()  # how long Glue's runs and children take, in turn. Empty: they end at any time.
    fails: int = 0  # every `fails`-th run fails; none if 0
    stop_seconds: int = 0  # how long Glue takes to stop a run
    job_limit: int = 100  # the most concurrent runs that Glue allows
    lag: int = 0  # seconds for which an ended run still counts towards `job_limit`
    page: int = glue.LARGEST_PAGE  # the most runs on a page of GetJobRuns
    others: int = 0  # how many runs of the same job other users start, at any time
    leaves: int = 0  # how many callers may time out, at any time
    refusals: int = 0  # how many answers to callers Step Functions refuses before it accepts one
    # The calls that a role or a key may deny from a moment on, without an end: "starts" of the work, its "reads",
    # which include its stops, and "answers" to callers
    denials: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()  # the kinds that are denied from the beginning
    namesakes: int = 0  # how many executions with the name of a child another workflow may start, before the child
    child_redrives: int = 0  # how many closed children an operator may redrive, at any time
    large_outputs: bool = False  # the output of a child is above the limit of a task's result
    # How often an attribute of the items becomes malformed after a workflow has ended without success. It is repaired
    # at any time later.
    damages: int = 0
    # Sending an event or a notification is a step, which may fail, and before which other actors may act
    event_steps: bool = False
    events_lost: bool = False  # no status event reaches its function
    aim: str = ""  # restricts the faults; see `SlotsWorld._is_aimed_at`


# The item of a removed process.
NO_PROCESS = freeze({"slot_limit": {"N": "0"}, "slots_in_use": {"N": "0"}, "holders": {"M": {}}})
_NO_VERSION = Item("", 0, 0, {})


_alive: dict[Record, list[Record]] = table()
_read: dict[Record, Process] = table()
_versions: dict[Record, Item] = table()
_planned: dict[tuple[Any, ...], Planned] = table()


def version_of(item: Record) -> Item:
    """A process's item as the judge reads it; cached."""
    known = _NO_VERSION if item is NO_PROCESS else _versions.get(item)
    if known is None:
        known = _versions[item] = Item.read(thaw(item))
    return known


@cache
def fields_of(given: str) -> dict[str, Any]:
    """The fields of an execution's input."""
    return json.loads(given)  # type: ignore[no-any-return]


def owner_of(run: Record) -> str:
    """The execution that a run belongs to; empty for a run of another user."""
    return str(run["arguments"].get(MARKER, ""))


def process_of(execution: str) -> str:
    """The process in an execution's name."""
    return execution.rpartition("-")[0]


class SlotsState(World):
    """The services of one process or two, and the world's notes."""

    # Notes that follow from others, or concern bounds in time, which random schedules check; and those that `key` adds.
    NOT_IN_KEY = frozenset(
        {"processes", "grants", "forced", "faults_at_close", "was_overdue", "overdue_since", "starts"}
    ) | {
        "runs_alone",
        "_acting",
        "_shown",
        "_asked_for",
        "_checked",
        "_before",
        "clocks",
    }

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.processes = tuple(dict.fromkeys((PROCESS, *(request.process for request in plan.requests))))
        self.services = {
            "dynamodb": dynamodb.tables(slots=map(self._new_item, self.processes), requests=[]),
            "sqs": record(
                {
                    REQUESTS: sqs.queue(code.VISIBILITY, fifo=True),
                    BELLS: sqs.queue(code.VISIBILITY),
                    code.DEAD_LETTERS: sqs.queue(fifo=True),
                    ENDINGS: sqs.queue(code.ENDING_VISIBILITY),
                }
            ),
            "stepfunctions": stepfunctions.executions(),
            "children": stepfunctions.executions(),
            "tasks": tasks.tasks(*filter(None, (request.token for request in plan.requests))),
            "glue": glue.jobs(plan.page, **{JOB: plan.job_limit}),
            **dict.fromkeys(("sns", "events"), ()),
        }
        if not plan.event_steps:
            self.immediate |= {"events", "sns"}
        # What operators, users and callers still do.
        self.limits, self.cancels = plan.limits, plan.cancels
        self.again, self.discards = plan.again, plan.discards
        self.frees, self.replacements, self.others = plan.frees, plan.replacements, plan.others
        self.leaves, self.namesakes, self.child_redrives = plan.leaves, plan.namesakes, plan.child_redrives
        self.refusals, self.damages, self.leases_begun = plan.refusals, plan.damages, 0
        self.denied = frozenset(plan.denied)
        self.is_malformed = False  # the items, as clients read them
        self.down, self.outage_until = "", 0.0  # the service that refuses all calls, and until when
        # The janitor.
        self.next_run = self.now + plan.first_run if plan.first_run else float("inf")
        self.janitor_runs = plan.janitor_runs
        # In the newest run's report: the number of holders whose work may not be read, and of ends that it could not
        # publish.
        self.unreadable = self.unpublished = 0
        # Whether a sender of a doorbell has died, or a message was lost, since the last run that began alone.
        self.needs_janitor = not plan.has_doorbell
        self.janitor_settles = False  # whether a status event or an answer was lost
        self.was_overdue, self.overdue_since = "", 0.0  # what `overdue` has returned last, and since when
        self.runs_alone = 0  # of the janitor, while nothing else could happen
        self.faults_at_close: dict[str, int] = {}  # of executions whose status events were sent
        # Of each caller whose block of code runs: its lease's end, as the caller knows it, and its weight.
        self.blocks: dict[str, tuple[int, int]] = {}
        self._acting: tuple[str, float] = ("", 0.0)  # the actor whose call is performed, and the lead of its clock
        self.clocks: dict[str, float] = {}  # the last time that each actor's clock has shown
        self._asked_for: Any = None  # the parameters of that call
        self._shown = 0.0  # what that actor's clock had shown before the call
        # With a rate: of each start of a process the time, and the last time that the clock of its caller had shown.
        self.starts: tuple[tuple[str, float, float], ...] = ()
        # The past of requests.
        self.worked: frozenset[str] = frozenset()  # executions whose work has begun
        self.cancelled: frozenset[str] = frozenset()  # executions that the command has reported as cancelled
        self.queued_at: dict[str, int] = {}  # execution -> the number of its process's grants before its row was added
        self.grants = dict.fromkeys(self.processes, 0)  # so far
        # Execution -> of each of its grants `grants` after it, its number in it, and when.
        self.granted: dict[str, tuple[tuple[int, int, float], ...]] = {}
        # Process and rank of a priority -> pairs of keys: since it was last the turn of the first one, or it had no
        # request that could start, the second one has had a start.
        self.passed: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
        # Process -> the weight of each key when `grants` last changed, if a key has a limit: only more is free now.
        self.held_at_change: dict[str, frozenset[tuple[str, int]]] = {}
        self.left_early: frozenset[str] = frozenset()  # tokens whose caller timed out before the confirm
        self.redriven_at: dict[str, float] = {}  # children
        self.adopted: frozenset[str] = frozenset()  # holders
        self.forced: frozenset[str] = frozenset()  # executions whose slot an operator has freed while it was confirmed
        # The publications: of an execution, or of a message that is no request, its state, and NOTICE.
        self.published: frozenset[tuple[str, str]] = frozenset()
        self.recorded: frozenset[tuple[str, str]] = frozenset()  # each execution with an end that its row has had
        self.discarded: frozenset[str] = frozenset()  # executions whose request the command has reported as discarded
        self._checked: tuple[Any, ...] = ()
        self._before = {process: self._item(process) for process in self.processes}
        for request in plan.requests:
            self._send(request)

    def _new_item(self, process: str) -> dict[str, Any]:
        plan = self.plan
        item: dict[str, Any] = {
            "process_name": {"S": process},
            "slot_limit": {"N": str(plan.limit if process == PROCESS else 1)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            "target": {"S": self.target_of(process)},
            "run_settings": {"M": self._settings_of(process)},
            "grants": {"N": "1"},
        }
        if plan.default_weight > 1:
            item["default_weight"] = {"N": str(plan.default_weight)}
        if plan.key_limit is not None:
            item["key_limit"] = {"N": str(plan.key_limit)}
        if plan.rate:
            item |= {"rate": plan.rate.item, "next_start": {"N": "0"}}
        if plan.leased and process == PROCESS:
            times = {"since": {"N": str(int(BEGINNING))}, "until": {"N": str(int(BEGINNING) + plan.leased)}}
            lease = {"state": {"S": "LEASED"}, "code": {"S": "of the dead"}, **times}
            item |= {"holders": {"M": {"lease": {"M": lease}}}, "slots_in_use": {"N": "1"}}
        return item

    def _settings_of(self, process: str) -> dict[str, Any]:
        settles = self.plan.settle_seconds if process in self.plan.machines else 0
        settings = {"settle_seconds": settles, "timeout_minutes": self.plan.timeout_minutes}
        return {name: {"N": str(value)} for name, value in settings.items() if value}

    def _send(self, request: Sent) -> None:
        body = request.body((request.process in self.plan.machines) != self.plan.wrong_kind)
        self.send(REQUESTS, body, MessageGroupId=request.priority)

    # Targets and permissions ---------------------------------------------------------------------------------------

    def target_of(self, process: str) -> str:
        """The target of a process."""
        if process == PROCESS and self.plan.target:
            return self.plan.target
        return stepfunctions.CHILD if process in self.plan.machines else JOB

    def _is_machine(self, execution: str) -> bool:
        return is_state_machine(self.target_of(process_of(execution)))

    def is_denied(self, question: Question) -> bool:
        """Whether a role or a key denies a call."""
        if not self.denied and not self.plan.target:
            return False
        service = self.service_of(question)
        if service == "tasks":
            return "answers" in self.denied
        if service not in ("glue", "children"):
            return False
        is_start = question.operation in ("start_job_run", "start_execution")
        return ("starts" if is_start else "reads") in self.denied or self.is_without_permission(question)

    def is_without_permission(self, question: Question) -> bool:
        """Whether no role names the target of a call: it is the plan's own."""
        given, target = question.parameters, self.plan.target
        named = (given.get("JobName"), given.get("stateMachineArn"), given.get("executionArn"))
        execution = execution_arn(target, "")
        return bool(target) and any(name and (name == target or name.startswith(execution)) for name in named)

    def is_unreadable(self, execution: str) -> bool:
        """Whether no role may read if the work of an execution has ended."""
        return "reads" in self.denied or self.target_of(process_of(execution)) == self.plan.target

    def service_of(self, question: Question) -> str:
        return stepfunctions.service_of(question)

    # The process, and its queue ------------------------------------------------------------------------------------

    def _item(self, process: str = PROCESS) -> Record:
        item: Record | None = self.services["dynamodb"][SLOTS].get(process)
        return item or NO_PROCESS

    def _holders_of(self, process: str) -> Mapping[str, Holder]:
        return version_of(self._item(process)).holders

    def _holders(self) -> dict[str, Holder]:
        return {name: holder for process in self.processes for name, holder in self._holders_of(process).items()}

    def _process(self, name: str) -> Process | None:
        """The process as the code reads it; None if it is removed."""
        item = self._item(name)
        if item is NO_PROCESS:
            return None
        known = _read.get(item)
        if known is None:
            known = _read[item] = read_process(thaw(item))
        return known

    def _rows(self) -> dict[str, Record]:
        """The rows of all requests, by execution."""
        return {row["execution"]["S"]: row for row in self.services["dynamodb"][ROWS].fields.values()}

    def _planned(self, name: str) -> Planned | None:
        """The plan of a dispatch now, by the clock that is furthest behind; None if the process is removed.

        A reservation is old only if it is so by each clock.
        """
        process, rows = self._process(name), self.services["dynamodb"][ROWS]
        if process is None:
            return None
        key = self._item(name), rows, self.now
        known = _planned.get(key)
        if known is None:
            queued = [row for row in rows.fields.values() if "place" in row and row["process_name"]["S"] == name]
            queue = sorted((read_queued(thaw(row)) for row in queued), key=lambda each: each.place)
            now = self.now + min(*self.plan.ahead, 0.0)
            known = _planned[key] = plan_starts(process, queue, now, age=code.AGE)
        return known

    def _waiting(self, process: str) -> list[str]:
        """The queued requests of a process that have no holder."""
        rows, held = self._rows().items(), self._holders_of(process)
        return [
            name for name, row in rows if "place" in row and row["process_name"]["S"] == process and name not in held
        ]

    def _lines(self, process: str, waiting: Iterable[str]) -> dict[str, list[str]]:
        """The requests that fit into the limits when all slots are free: by key, in the order of their places."""
        item, lines = version_of(self._item(process)), dict[str, list[str]]()
        for name in sorted(waiting, key=self._place):
            key = self._sent(self._rows()[name]).key
            if self._weight(name) <= min(item.limit, item.limit_of(key)):
                lines.setdefault(key, []).append(name)
        return lines

    def _heads(self, process: str, waiting: Iterable[str], held: Counter[str], known: Container[str]) -> list[str]:
        """The first known request of each key, if it fits into the key's limit.

        One in front of it that is not known may keep it back, unless it fits, too.

        Args:
            held: the weight that each key holds.
        """
        heads = []
        for key, line in self._lines(process, waiting).items():
            until = next((at for at, name in enumerate(line, 1) if name in known), 0)
            free = version_of(self._item(process)).limit_of(key) - held[key]
            if until and all(self._weight(name) <= free for name in line[:until]):
                heads.append(line[until - 1])
        return heads

    def _place(self, name: str) -> str:
        return str(self._rows()[name]["placed"]["S"])

    def _weight(self, name: str) -> int:
        row = self._rows()[name]
        return int(row["weight"]["N"]) if "weight" in row else version_of(self._item(process_of(name))).default_weight

    def _unused(self, process: str) -> str:
        """A request that waits although it fits into the limits, as do all that may come before it; or "".

        It follows from the limits, not from the product's plan.
        """
        item, waiting = version_of(self._item(process)), self._waiting(process)
        if item.paused or item.interval:
            return ""
        heads = sorted(self._heads(process, waiting, item.held_by_key, waiting), key=self._place)
        first = [name for name in heads if rank_of(self._place(name)) == rank_of(self._place(heads[0]))]
        free = item.limit - max(item.count, item.weight)
        return first[0] if first and max(map(self._weight, first)) <= free else ""

    def _behind_expired(self, name: str, planned: Planned) -> str:
        """The first request that waits for a slot, if a lease of the process has expired by each clock; or ""."""
        process = self._process(name)
        expired = process and process.expired_leases(self.now + min(*self.plan.ahead, 0.0))
        waiting = (each for each, wait in planned.waits.items() if isinstance(wait.reason, NoRoom))
        return next(waiting, "") if expired else ""

    def overdue(self) -> str:
        """A request that may start or must leave its queue now, or a reservation that must start; "" if none."""
        for name in self.processes:
            planned = self._planned(name)
            if planned is None:
                queued = (row for row in self._rows().values() if row["process_name"]["S"] == name and "place" in row)
                if not self.is_disturbed and (row := next(queued, None)):
                    return f"{row['execution']['S']} of a process that does not exist"
            elif due := [each.execution for each in planned.starts] + [each.execution for each in planned.leaves]:
                return f"{due[0]} may start, or must leave"
            elif unused := self._unused(name):
                return f"{unused} may start by its limits"
            elif waits := self._behind_expired(name, planned):
                return f"{waits} waits for the slot of a lease that has expired"
            elif orphans := [each for each in planned.again if each not in self.services["stepfunctions"]]:
                return f"{orphans[0]}, which is reserved,"
        return ""

    def _sent(self, row: Record) -> Sent:
        """The request of a plan that a row contains. Of two with one id, the second one has other content."""
        request_id, is_other = row["request_id"]["S"], "#" in row["execution"]["S"]
        same = [
            each for each in self.plan.requests if each.id == request_id and each.process == row["process_name"]["S"]
        ]
        return same[-1] if is_other else same[0]

    # Work and executions -------------------------------------------------------------------------------------------

    def _alive(self) -> list[Record]:
        jobs = self.services["glue"]
        alive = _alive.get(jobs)
        if alive is None:
            alive = _alive[jobs] = [run for run in jobs[JOB]["runs"] if run["state"] in glue.ALIVE]
        return alive

    def _run_seconds(self, number: int) -> float:
        return self.plan.run_seconds[number % len(self.plan.run_seconds)] if self.plan.run_seconds else 0

    def _fails(self, number: int) -> bool:
        return bool(self.plan.fails) and number % self.plan.fails == 0

    def _ends_at(self, run: Record) -> float:
        """When a Glue run ends."""
        if run["state"] == "STOPPING":
            return float(run["stopping"] + self.plan.stop_seconds)
        return float(run["started"] + self._run_seconds(int(run["id"].partition("_")[2])))

    def _child_ends_at(self, name: str) -> float:
        children = self.services["children"]
        began = self.redriven_at.get(name, float(children[name]["started"]))
        return began + self._run_seconds(list(children.fields).index(name))

    def _children(self) -> Iterator[tuple[str, Record]]:
        """The executions that the workflow has started, by name."""
        for name, child in self.services["children"].fields.items():
            if fields_of(child["input"]).get(PARENT_FIELD) == execution_arn(WORKFLOW, name):
                yield name, child

    def _child(self, name: str) -> Record | None:
        return dict(self._children()).get(name)

    def _has_succeeded(self, execution: str) -> bool:
        """Whether the work of an execution has succeeded, and was not redriven."""
        child = self._child(execution)
        runs = self.services["glue"][JOB]["runs"]
        succeeded = {owner_of(run) for run in runs if run["state"] == "SUCCEEDED"}
        return execution in succeeded or (
            child is not None and child["status"] == "SUCCEEDED" and not child["redrives"]
        )

    def _working(self) -> set[str]:
        """The executions whose work runs."""
        children = self.services["children"].fields.items()
        return {owner_of(run) for run in self._alive()} | {name for name, each in children if each["status"] in OPEN}

    def _executions_of(self, token: str) -> list[str]:
        caller = caller_of(token)
        executions = self.services["stepfunctions"].fields.items()
        return [name for name, execution in executions if fields_of(execution["input"]).get("caller") == caller]

    def _is_confirmed(self, name: str) -> bool:
        holder = self._holders().get(name)
        return holder is not None and holder.state == "RUNNING"

    def _not_adopted(self) -> list[str]:
        """The open children that were redriven and hold no slot."""
        held, executions = self._holders(), self.services["stepfunctions"]
        return [
            name
            for name, child in self._children()
            if child["status"] in OPEN
            and child["redrives"]
            and name not in held
            and not stepfunctions.is_open(executions, name)
            and self._process(process_of(name)) is not None
        ]

    def _dead(self) -> list[str]:
        """The confirmed holders without an open execution, the leases, and the children that hold no slot."""
        executions = self.services["stepfunctions"]
        held = self._holders().items()
        dead = [name for name, each in held if each.state != "RESERVED" and not stepfunctions.is_open(executions, name)]
        return dead + self._not_adopted()

    def _reserved(self) -> list[str]:
        """The reservations that no execution can confirm."""
        executions = self.services["stepfunctions"]
        held = self._holders().items()
        return [n for n, each in held if each.state == "RESERVED" and not stepfunctions.is_open(executions, n)]

    def _unsuccessful(self) -> list[str]:
        executions = self.services["stepfunctions"].fields.items()
        return [name for name, execution in executions if execution["status"] not in (*OPEN, "SUCCEEDED")]

    @property
    def is_disturbed(self) -> bool:
        """Whether a fault has happened, or time has passed while actors worked."""
        return bool(self.faults) or self.disturbed_at > BEGINNING

    def _unpublished(self) -> list[str]:
        """The requests whose end must still be published.

        The janitor does not know those of a process that was removed, and reports an answer that is denied.
        """
        rows = self._rows().items()
        names = [name for name, row in rows if row["state"]["S"] not in ("QUEUED", "STARTED") and "open" in row]
        if self.is_disturbed:
            names = [name for name in names if self._process(process_of(name)) is not None]
        if "answers" in self.denied and self.unpublished:
            names = [name for name in names if "task_token" not in self._rows()[name]]
        return names

    def _waits(self, row: Record) -> bool:
        """Whether the caller of a request waits for its answer."""
        task = self.services["tasks"].get(row["task_token"]["S"]) if "task_token" in row else None
        return task is not None and task["status"] == "WAITS"

    def _unrecorded(self) -> list[str]:
        """The requests whose execution has closed, and whose row has no end."""
        executions = self.services["stepfunctions"]
        rows = self._rows().items()
        return [
            name
            for name, row in rows
            if row["state"]["S"] in ("QUEUED", "STARTED")
            and name in executions
            and not stepfunctions.is_open(executions, name)
        ]

    def left(self) -> str:
        """The first task of a function or the janitor; empty at the end."""
        for what, names in (
            ("holds a slot, and does not run", [*self._dead(), *self._reserved()]),
            ("has closed, and its request has no end", self._unrecorded()),
            ("has ended, and nothing publishes it", self._unpublished()),
        ):
            if names:
                return f"{names[0]} {what}"
        overdue = self.overdue()
        return f"{overdue} waits, and nothing comes for it" if overdue else ""

    def is_unfinished(self) -> bool:
        """Whether a scheduled run of the janitor may still find work."""
        return bool(self.actors or self._holders() or self._alive() or self.left() or self.awaits_time())

    def awaits_time(self) -> bool:
        """Whether a request may start, or must leave, at a later time."""
        planned = (self._planned(name) for name in self.processes)
        return any(each is not None and each.look_again is not None for each in planned)

    def key(self) -> Hashable:
        older = (self.older.get("glue"), self.older.get("children"), self.disturbed_at if self.plan.run_seconds else 0)
        return super().key(), older, (self.starts, frozenset(self.clocks.items())) if self.plan.rate else ()

    def summary(self) -> str:
        slots = [
            "/".join(self._item(name)[part]["N"] for part in ("slots_in_use", "slot_limit")) for name in self.processes
        ]
        holders = [f"{name[-4:]} {holder.state}" for name, holder in self._holders().items()]
        rows = sorted(
            (row["placed"]["S"] if "placed" in row else "", row["state"]["S"]) for row in self._rows().values()
        )
        states = [f"{place[:1]}..{place[-2:]} {state}" for place, state in rows]
        runs = [f"{run['id']} {run['state']}" for run in self._alive()]
        children = [f"{name[-4:]} {child['status']}" for name, child in self.services["children"].fields.items()]
        return f"slots {', '.join(slots)} {holders}  rows {states}  runs {[*runs, *children]}"


def code_of(caller: str) -> str:
    """The code of a caller's lease."""
    return caller.replace("caller ", "code-")
