"""The state of the slots' world."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from dev.judge.slot_item import Holder, Item
from slotkeeper.slots.executions import closing
from slotkeeper.slots.process import Process, WaitingRequest, read_process
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import (
    Delivery,
    Request,
    caller_of,
    execution_name,
    message_group,
    parse_request,
)
from slotkeeper.slots.work import MARKER
from tests.simulation import slots_actors as code
from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions, tasks
from tests.simulation.aws.stepfunctions import OPEN
from tests.simulation.frozen import Record, freeze, record, thaw
from tests.simulation.transcript import Question
from tests.simulation.workflow import FAILED, REQUESTS, SLOTS
from tests.simulation.worlds import BEGINNING, Actor, Choice, World

PROCESS, SECOND, JOB = "p", "q", "job"
_ORDER = {"high": 0, "": 1, "low": 2}  # of message groups' suffixes
STEP = 10  # seconds: the clock's step, so that schedules share times
LAG = 30  # seconds: the latest arrival of a call after its sender gave up, and the largest lag of a read
PERIOD, GRACE, CHECK_GAP = 60, 120, 30  # seconds: template.yaml's defaults
LATER = 2 * 86400.0  # seconds: the lead of the janitor's clock in a timeless world while other actors are frozen


@dataclass(frozen=True)
class Plan:
    """The settings of a world.

    Attributes:
        requests: the requests in the order of sending, each as an id of one character: "a". A sign before it
            is the priority: "+a" is high, "-a" low. A digit after it is the weight: "a3". An id that occurs twice is a
            request that is sent twice, and an id with a star at the end is another request under that id. A capital id
            is a request of a second process, in the same table and with the same job.
        limit: the first limit of the process. The second process has limit 1.
        default_weight: of both processes.
        limits: the limits that an operator sets later, in this order. 0 pauses the process, -1 resumes it.
        cancels: the ids of the requests that an operator cancels at any time, in this order.
        removals: how many messages that a starter has received leave the queue at any time: by a purge, at the end of
            their retention, or into SQS's own dead-letter queue.
        replacements: how often an operator removes the process while it is paused, and adds it again with `limit`. Only
            with one starter: of two starters with the same message, one may dead-letter it in between, and the other
            start it.
        starters: the most concurrent invocations of the starter.
        janitor_runs: how many janitor runs may begin while other actors work, in a timeless world and without a fault.
            With 0, status events also arrive only when no actor works.
        janitor_ahead: the faults include a janitor run whose clock is ahead, as if the other actors had been frozen.
        job_limit: the most concurrent runs that Glue allows.
        run_seconds: how long Glue's runs take, in turn.
        stop_seconds: how long Glue takes to stop a run.
        lag: seconds for which an ended run still counts towards `job_limit`.
        first_run: seconds until the janitor's first scheduled run.
        page: the most runs on a page of GetJobRuns.
        others: how many runs of the same job other users start, at any time.
        fails: every `fails`-th Glue run fails; none if 0.
        machines: the processes whose target is a state machine.
        settle_seconds: of these.
        callers: the ids of the requests that carry a task token.
        leaves: how many callers may time out, at any time.
        refusals: how many answers to callers Step Functions refuses before it accepts one.
        timeout_minutes: of both processes; the stack's parameter if 0.
        wrong_kind: a request with a star has an input for a Glue job, or arguments for a state machine.
        target: of the first process, if it is neither JOB nor CHILD.
        denials: the calls that a role or a key may deny from a moment on, without an end: "starts" of the work, its
            "reads", which include its stops, and "answers" to callers.
        denied: the kinds that are denied from the beginning.
        namesakes: how many executions with the name of a child another workflow may start, before the child.
        child_redrives: how many closed children an operator may redrive, at any time.
        large_outputs: the output of a child is above the limit of a task's result.
        skips: the ids of the requests that are skipped if they cannot start.
        deadlines: the ids of the requests that start before a time.
        deadline: that time, in seconds after the beginning.
        damages: how often an attribute of the items becomes malformed after a workflow has ended without success. It is
            repaired at any time later.
        containers: how many containers of the janitor take turns, each with its own memory. With 0, each run has a new
            container. Not for timeless worlds, where the lead of the janitor's clock changes.
        lax: SQS hides a message although it is visible again.
        starters_read_first: the starters treat the process as one with many holders, and read before they write.
        event_steps: sending an event is a step, which may fail, and before which other actors may act. Otherwise it
            happens immediately. No actor depends on its effect.
        events_lost: no status event reaches the janitor.
        leases: for each caller of a lease the seconds by which its clock is ahead. It begins at any time.
        blocks: seconds of their blocks, in turn. Every half a minute a block extends its lease, unless the number is
            negative: such a block runs for so many seconds, and may overrun its lease of a minute.
        lease_wait: seconds for which a caller waits for a slot.
        rate: of both processes. Not for timeless worlds, in which no start becomes due.
        ahead: for each starter the seconds by which its clock is ahead.
        aim: restricts the faults to "deaths" of workflows and calls of the janitor, to "wakes", to "answers" to
            callers, to "denials" and deaths of workflows, to failed "polls", to "ends" of children and of workflows, to
            deaths and "redrives" of workflows, or to starts of children that arrive "late" and deaths meanwhile; no
            restriction if empty.
    """

    requests: tuple[str, ...] = ("a", "b", "c")
    limit: int = 1
    limits: tuple[int, ...] = ()
    cancels: tuple[str, ...] = ()
    replacements: int = 0
    starters: int = 2
    janitor_runs: int = 1
    default_weight: int = 1
    removals: int = 0
    lax: bool = False
    starters_read_first: bool = False
    event_steps: bool = True
    events_lost: bool = False
    leases: tuple[float, ...] = ()
    blocks: tuple[int, ...] = (0,)
    lease_wait: int = 0
    rate: Rate | None = None
    ahead: tuple[float, ...] = (0.0, 0.0)
    aim: str = ""
    janitor_ahead: bool = True
    job_limit: int = 100
    page: int = glue.LARGEST_PAGE
    others: int = 0
    fails: int = 0
    run_seconds: tuple[int, ...] = (60, 120, 1800)
    stop_seconds: int = 0
    lag: int = 0
    first_run: int = PERIOD
    containers: int = 0
    machines: tuple[str, ...] = ()
    settle_seconds: int = 0
    callers: str = ""
    leaves: int = 0
    refusals: int = 0
    timeout_minutes: int = 0
    wrong_kind: bool = False
    target: str = ""
    denials: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    namesakes: int = 0
    child_redrives: int = 0
    large_outputs: bool = False
    skips: str = ""
    deadlines: str = ""
    deadline: int = 0
    damages: int = 0


# The item of a removed process.
NO_PROCESS = freeze({"slot_limit": {"N": "0"}, "slots_in_use": {"N": "0"}, "holders": {"M": {}}})
_NO_VERSION = Item("", 0, 0, {})
_SIGNS = {"+": "high", "-": "low"}


def id_of(request: str) -> str:
    """The id of one of a plan's requests."""
    return next(character for character in request if character.isalpha())


def process_of(request: str) -> str:
    """The process of one of a plan's requests."""
    return SECOND if request.isupper() else PROCESS


def arguments_of(request: str) -> dict[str, str]:
    """The arguments of one of a plan's requests."""
    return {"--other": "arguments"} if request.endswith("*") else {}


def body_of(request: str, plan: Plan) -> str:
    """The message body of one of a plan's requests."""
    fields: dict[str, Any] = {"process": process_of(request), "request_id": id_of(request)}
    arguments = arguments_of(request)
    takes_input = (process_of(request) in plan.machines) != plan.wrong_kind
    fields |= {"input" if takes_input else "arguments": arguments} if arguments else {}
    fields |= {"task_token": token} if (token := token_of(request, plan.callers)) else {}
    fields |= {"when_busy": "skip"} if id_of(request) in plan.skips else {}
    if id_of(request) in plan.deadlines:
        fields["start_before"] = datetime.fromtimestamp(BEGINNING + plan.deadline, UTC).isoformat()
    fields |= {"priority": _SIGNS[request[0]]} if request[0] in _SIGNS else {}
    fields |= {"weight": int(character) for character in request if character.isdigit()}  # noqa: B035
    return json.dumps(fields)


def token_of(request: str, callers: str) -> str:
    """The task token of one of a plan's requests; empty if it has no caller."""
    return f"token-{id_of(request)}" if id_of(request) in callers else ""


def name_of(request: str, callers: str = "", attempt: int = 1) -> str:
    """The name of the execution of one of a plan's requests."""
    return execution_name(process_of(request), id_of(request), attempt, caller_of(token_of(request, callers)))


def group_of(request: str) -> str:
    """The message group of one of a plan's requests."""
    return message_group(process_of(request), _SIGNS.get(request[0], "normal"))


@cache
def request_of(given: str) -> str:
    """The plan's request in an execution's input or a message's body."""
    fields = json.loads(given)
    sign = {priority: sign for sign, priority in _SIGNS.items()}.get(fields.get("priority"), "")
    return f"{sign}{fields['request_id']}{fields.get('weight', '')}" + "*" * bool(
        fields.get("arguments") or fields.get("input")
    )


@cache
def _parsed(body: str, group: str) -> Request:
    """The request of a message."""
    return parse_request(Delivery("", body, group, "", "0", 1, 0))


@cache
def _name_in(body: str) -> str:
    """The name of the execution of a message. A dead letter's message group is its own."""
    fields = json.loads(body)
    return _parsed(body, message_group(fields["process"], fields.get("priority", "normal"))).execution_name


class StatusEvent(NamedTuple):
    """A status event of a closed execution. `sent`: when; `due`: when it is received next."""

    execution: str
    redrives: int
    sent: float
    due: float


_messages: dict[Any, tuple[list[Record], list[Record]]] = {}
_alive: dict[Record, list[Record]] = {}
_read: dict[Record, Process] = {}
_versions: dict[Record, Item] = {}
right_steps: set[Any] = set()  # the writes of a process's item that the judge has accepted

# How often callers took over an expired lease, and how often the condition of the write refused it.
take_overs: Counter[str] = Counter()


def forget() -> None:
    """Clear the caches, to bound memory, and the counts."""
    take_overs.clear()
    _messages.clear()
    _alive.clear()
    _read.clear()
    _versions.clear()
    right_steps.clear()


def version_of(item: Record) -> Item:
    """A process's item as the judge reads it; cached."""
    known = _NO_VERSION if item is NO_PROCESS else _versions.get(item)
    if known is None:
        known = _versions[item] = Item.read(thaw(item))
    return known


class SlotsState(World):
    """The services of one process or two, and the world's notes."""

    def __init__(self, plan: Plan, *, timeless: bool = False) -> None:
        super().__init__(timeless=timeless)
        self.plan = plan
        limits = {PROCESS: plan.limit} | {process_of(request): 1 for request in plan.requests if request.isupper()}
        items = [
            {
                "process_name": {"S": name},
                "slot_limit": {"N": str(limit)},
                "slots_in_use": {"N": "0"},
                "holders": {"M": {}},
                "waiting": {"M": {}},
                "target": {"S": self.target_of(name)},
                "run_settings": {"M": self.settings_of(name)},
                **({"queue_url": {"S": REQUESTS}} if plan.leases else {}),
                **({"default_weight": {"N": str(plan.default_weight)}} if plan.default_weight > 1 else {}),
                **({"rate": plan.rate.item, "next_start": {"N": "0"}} if plan.rate else {}),
            }
            for name, limit in limits.items()
        ]
        queues = {
            REQUESTS: sqs.queue(code.VISIBILITY, fifo=True, lax=plan.lax),
            code.DEAD_LETTERS: sqs.queue(fifo=True),
            FAILED: sqs.queue(),
        }
        self.services = {
            "dynamodb": dynamodb.tables(slots=items, settled=[]),
            "sqs": record(queues),
            "stepfunctions": stepfunctions.executions(),
            "children": stepfunctions.executions(),
            "tasks": tasks.tasks(*filter(None, (token_of(request, plan.callers) for request in plan.requests))),
            "glue": glue.jobs(plan.page, **{JOB: plan.job_limit}),
            **dict.fromkeys(("sns", "events", "cloudwatch"), ()),
        }
        if not plan.event_steps:
            self.immediate |= {"events", "cloudwatch"}
        self.operations = plan.limits
        self.newest: tuple[int | None, int | None] = (None, None)  # given by the operator: a limit; a pause or resume
        self.cancels = plan.cancels
        self.removals = plan.removals
        self.removed: frozenset[str] = frozenset()  # requests whose message has left the queue
        self.replacements = plan.replacements
        self.others = plan.others
        self.denied = frozenset(plan.denied)
        # Holders that the newest janitor run reports, because their work may not be read. Its counts have no names.
        self.unreadable = 0
        self.down, self.outage_until = "", 0.0  # the service that refuses all calls, and until when
        self.janitor_runs = 0
        self.leases_begun = 0
        # Of each caller whose block of code runs: its lease's end, as the caller knows it, and its weight.
        self.blocks: dict[str, tuple[int, int]] = {}
        self.latest_clock = self.now  # of all actors that have called
        self._acting: tuple[str, float] = ("", 0.0)  # the actor whose call is performed, and the lead of its clock
        self.clocks: dict[str, float] = {}  # what each actor's clock has shown last
        self._shown = 0.0  # what that actor's clock had shown before the call
        # With a rate: of each start of a process the time, and what the clock of its caller had shown last.
        self.starts: tuple[tuple[str, float, float], ...] = ()
        self.next_run = self.now + plan.first_run
        self.memories = (code.NEW,) * plan.containers  # of the janitor's containers, the next one first
        self.deferred: dict[str, float] = {}  # handles of deferred messages, and when they were deferred
        # Receipt handles of the waiting requests whose turn it is and that fit, and since when.
        self._to_wake: dict[str, tuple[WaitingRequest | None, float]] = {}
        # Whether a fault or a removal has happened since the last janitor run that began while no other actor worked.
        self.needs_janitor = False
        # Of a timeless world: the request that the newest janitor run should report, if it began without other actors.
        self.noting = ""
        self.left_queue_at = self.now  # the last message of RequestQueue, as far as the clock has moved since
        self.faults_at_close: dict[str, int] = {}  # of executions whose status events were sent
        self.status_events: tuple[StatusEvent, ...] = ()  # not received yet, or to be received again
        self.processes = tuple(limits)
        # For each message group, the place in the plan of the request that started last.
        self.groups = tuple(dict.fromkeys(group_of(request) for request in plan.requests))
        self.order = (0,) * len(self.groups)
        self._checked: tuple[Any, ...] = ()
        self._before = {process: self._item(process) for process in self.processes}
        for request in plan.requests:
            body = body_of(request, plan)
            self.perform(
                Question(
                    "sqs",
                    "send_message",
                    freeze({"QueueUrl": REQUESTS, "MessageBody": body, "MessageGroupId": group_of(request)}),
                )
            )

    # Reading the state ---------------------------------------------------------------------------------------------

    def target_of(self, process: str) -> str:
        """What runs in the slots of a process."""
        if process == PROCESS and self.plan.target:
            return self.plan.target
        return stepfunctions.CHILD if process in self.plan.machines else JOB

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
        execution = stepfunctions.execution_arn(target, "")
        return bool(target) and any(name and (name == target or name.startswith(execution)) for name in named)

    def is_unreadable(self, execution: str) -> bool:
        """Whether no role may read if the work of an execution has ended."""
        return "reads" in self.denied or self.target_of(execution.rpartition("-")[0]) == self.plan.target

    def _to_release(self) -> list[str]:
        """The holders that an operator releases: their check is denied and reported, and their work has ended."""
        if not self.unreadable or self.actors or self.in_transit:
            return []
        working = [owner_of(run) for run in self._alive()]
        working += [name for name, child in self.services["children"].fields.items() if child["status"] in OPEN]
        return [
            name
            for name in self._dead()
            if self.is_unreadable(name) and not self._holders()[name].is_lease and name not in working
        ]

    def settings_of(self, process: str) -> dict[str, Any]:
        """The settings of a process's runs."""
        settles = self.plan.settle_seconds if process in self.plan.machines else 0
        settings = {"settle_seconds": settles, "timeout_minutes": self.plan.timeout_minutes}
        return {name: {"N": str(value)} for name, value in settings.items() if value}

    def check_success(self, execution: str) -> None:
        """S3 for a workflow that ends as SUCCEEDED."""

    def has_succeeded(self, _execution: str) -> bool:
        """Whether the request of an execution that did not succeed has succeeded nevertheless."""
        return False

    def _item(self, process: str = PROCESS) -> Record:
        return self.services["dynamodb"][SLOTS].get(process) or NO_PROCESS

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

    def _waiting(self) -> Iterator[tuple[Process, Request, Record]]:
        """The heads of the message groups that were received and are hidden, those of high priority first."""
        for message in sorted(self._in_flight(), key=lambda each: _ORDER[each["group"].partition("#")[2]]):
            request = _parsed(message["body"], message["group"])
            process = self._process(request.process)
            if process is not None:
                yield process, request, message

    def _fits(self, process: Process, request: Request) -> bool:
        return process.fits(request.weight or process.default_weight, len(request.task_token))

    def _may_start(self, process: Process, weight: int, token_bytes: int) -> bool:
        return process.fits(weight, token_bytes) and self._is_due(process)

    def _is_due(self, process: Process) -> bool:
        """Whether the rate permits a start, by the clock that is furthest behind."""
        return process.is_due(self.now + min(*self.plan.ahead, 0.0))

    def is_blocked(self, message: Record) -> bool:
        """Whether a message's request is heavier than the limit."""
        request = _parsed(message["body"], message["group"])
        process = self._process(request.process)
        return process is not None and (request.weight or process.default_weight) > process.slot_limit

    def _may_be_removed(self) -> bool:
        paused = self._item().get("paused")
        return paused is not None and bool(paused["BOOL"]) and not self._holders_of(PROCESS)

    def _queue(self) -> Record:
        return self.services["sqs"][REQUESTS]  # type: ignore[no-any-return]

    def _names_in(self, queue: str) -> set[str]:
        """The names of the executions of a queue's messages."""
        return {_name_in(message["body"]) for message in self.services["sqs"][queue]["messages"]}

    def _receivable(self) -> list[Record]:
        return self._messages()[0]

    def _in_flight(self) -> list[Record]:
        return self._messages()[1]

    def _messages(self) -> tuple[list[Record], list[Record]]:
        """The receivable messages and those in flight; cached, since every step reads them."""
        key = (self.services["sqs"], self.now)
        known = _messages.get(key)
        if known is None:
            queue = self._queue()
            hidden = [message for message in queue["messages"] if sqs.is_in_flight(message, self.now)]
            known = _messages[key] = (sqs.receivable(queue, self.now), hidden)
        return known

    def _free_starter(self) -> str:
        names = (f"starter {n + 1}" for n in range(self.plan.starters))
        return next((name for name in names if name not in self.actors), "")

    def _alive(self) -> list[Record]:
        jobs = self.services["glue"]
        alive = _alive.get(jobs)
        if alive is None:
            alive = _alive[jobs] = [run for run in jobs[JOB]["runs"] if run["state"] in glue.ALIVE]
        return alive

    def _ends_at(self, run: Record) -> float:
        if run["state"] == "STOPPING":
            return float(run["stopping"] + self.plan.stop_seconds)
        seconds = self.plan.run_seconds[int(run["id"].partition("_")[2]) % len(self.plan.run_seconds)]
        return float(run["started"] + seconds)

    def _ends_as(self, run: Record) -> str:
        if run["state"] == "STOPPING":
            return "STOPPED"
        number = int(run["id"].partition("_")[2])
        return "FAILED" if self.plan.fails and number % self.plan.fails == 0 else "SUCCEEDED"

    def _may_end(self, run: Record) -> bool:
        return self.timeless or self.now >= self._ends_at(run)

    def _may_wake_up(self, name: str, actor: Actor, question: Question) -> bool:
        if question.operation == "sleep":
            return self.may_continue(name) if self.timeless else self.now >= actor.asleep_until
        return self.own_answer(name, actor, question) is not None

    def may_continue(self, name: str) -> bool:
        """A workflow that waits for its run to stop continues when the run has stopped."""
        stopping = (owner_of(run) for run in self._alive() if run["state"] == "STOPPING")
        return name.partition(" ")[2] not in stopping

    def _keep_older(self, service: str) -> None:
        self.older[service] = self.services[service]
        self.older_at[service] = self.now

    def _can_be_stale(self, question: Question) -> bool:
        """Whether a read may return the state before the last change: Glue and Step Functions lag by seconds."""
        if question.operation not in ("get_job_runs", "get_job_run", "list_executions", "describe_execution"):
            return False
        # In a timeless world a lag would never end, and the janitor's grace is longer than Step Functions' lag.
        if self.timeless and question.service != "glue":
            return False
        service = self.service_of(question)
        recent = self.now < self.older_at.get(service, 0) + LAG
        return recent and self.older[service] is not self.services[service]

    def service_of(self, question: Question) -> str:
        return stepfunctions.service_of(question)

    def _due_events(self) -> list[str]:
        """The executions whose status events can be received."""
        return [event.execution for event in self.status_events if event.due <= self.now]

    def _janitor_times(self) -> tuple[int, int]:
        return GRACE, (0 if self.timeless else CHECK_GAP)

    def _unsuccessful(self) -> list[str]:
        executions = self.services["stepfunctions"].fields.items()
        return [name for name, execution in executions if execution["status"] not in (*stepfunctions.OPEN, "SUCCEEDED")]

    def _dead(self) -> list[str]:
        return [name for name in self._holders() if not stepfunctions.is_open(self.services["stepfunctions"], name)]

    def _unsettled(self) -> list[str]:
        rows, executions = self.services["dynamodb"][code.SETTLED].fields, self.services["stepfunctions"]
        settled = {name for name, row in rows.items() if "settled_at" in row}  # a claim is not enough
        return [name for name in self._unsuccessful() if closing(name, executions[name]["redrives"]) not in settled]

    def _is_unfinished(self) -> bool:
        left = self._holders() or self._unsettled() or self._queue()["messages"] or self._alive()
        return bool(self.actors or left)

    def _put_queue(self, queue: Record) -> None:
        self.services["sqs"] = self.services["sqs"].with_fields(**{REQUESTS: queue})

    def take(self, choice: Choice) -> None:
        self.needs_janitor |= choice.is_fault or choice.kind == "remove"
        super().take(choice)

    def key(self) -> Hashable:
        return (
            *self.services.values(),
            frozenset(self.actors.items()),
            self.operations,
            self.newest,
            self.cancels,
            self.removals,
            self.removed,
            self.denied,
            self.unreadable,
            self.needs_janitor,
            self.noting,
            self.replacements,
            self.others,
            self.janitor_runs,
            self.leases_begun,
            frozenset(self.blocks.items()),
            self.latest_clock if self.blocks else 0,
            (self.starts, frozenset(self.clocks.items())) if self.plan.rate else (),
            self.memories,
            self.status_events,
            self.order,
            self.in_transit,
            self.faults,
            self.older.get("glue"),
            self.now,
        )

    def summary(self) -> str:
        slots = [
            "/".join(self._item(name)[part]["N"] for part in ("slots_in_use", "slot_limit")) for name in self.processes
        ]
        holders = [f"{name[-4:]}={holder.state}" for name, holder in self._holders().items()]
        queue = [f"{m['id']}{'(hidden)' if sqs.is_in_flight(m, self.now) else ''}" for m in self._queue()["messages"]]
        return (
            f"slots {', '.join(slots)} [{', '.join(holders)}]  "
            f"queue [{', '.join(queue)}]  runs [{', '.join(run['id'] + ' ' + run['state'] for run in self._alive())}]"
        )


def code_of(caller: str) -> str:
    """The code of a caller's lease."""
    return caller.replace("caller ", "code-")


def owner_of(run: Record) -> str:
    """The execution that a run belongs to; empty for a run of another user."""
    return str(run["arguments"].get(MARKER, ""))
