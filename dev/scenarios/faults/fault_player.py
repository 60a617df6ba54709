"""Carries out a plan: sends requests, causes and removes faults, waits until no request is left."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast

from botocore.exceptions import ClientError
from rich.console import Console

from dev.emulator import processes
from dev.emulator.faults import Action, Faults
from dev.emulator.live_view import LiveView, Snapshot, Stalled, watch
from dev.scenarios.runner.janitor_clock import JanitorClock
from dev.scenarios.slots.slot_requests import Request
from dev.scenarios.slots.slot_stack import SlotStack
from slotkeeper.slots.doorbell import Bell

from .fault_plan import ENGINE_KILLED, Fault, Plan

TITLE = "Slotkeeper: requests and faults"
TICK = 0.04  # seconds
LATE = 1.2  # seconds of an answer's delay
KILL_AFTER = 1.0  # seconds in which all calls of a kind are answered late, before the containers are killed
ABORT_AFTER = 1.5  # seconds, so that there is a Glue run
UNDONE_AFTER = (3.0, 9.0)  # seconds of a changed limit, a pause, and lost events
# Seconds without a change, after which the checks report the remainder.
STALLED_AFTER = 180.0

ABORT_STEPS = ("ConfirmSlot", "RunGlueJob", "RecordOutcome", "ReleaseSlot", "Ring")
_DYNAMODB = (
    "refuse DynamoDB.ProvisionedThroughputExceededException",
    "lose_answer DynamoDB.InternalServerErrorException",
)
_SQS = ("refuse Sqs.RequestThrottledException", "lose_answer Sqs.SqsException")
_LIMITED, _THROTTLED = "refuse ProvisionedThroughputExceededException", "refuse ThrottlingException"
_GLUE = ("refuse Glue.InternalServiceException", "lose_answer Glue.InternalServiceException")
# By kind, state or operation: the actions with their errors.
RULES: dict[str, dict[str, Sequence[str]]] = {
    "abort at a step": dict.fromkeys(ABORT_STEPS, ("abort_before", "abort_after")),
    "fault in a task": {
        "ConfirmSlot": (*_DYNAMODB, "delay"),
        "RunGlueJob": (
            *_GLUE,
            "refuse Glue.ConcurrentRunsExceededException",
            "refuse Glue.ThrottlingException",
            "lose_answer States.Timeout",
        ),
        "FindGlueRun": _GLUE[:1],
        "RecordOutcome": (*_DYNAMODB, "late"),
        "ReleaseSlot": (*_DYNAMODB, "late"),
        "Ring": _SQS,
    },
    "fault in StartExecution": {
        "StartExecution": (
            "lose_answer",
            _THROTTLED,
            "refuse ExecutionLimitExceeded",
            "refuse AccessDeniedException",
            "delay",
            "abort_after",
        )
    },
    "fault in an API call": {
        "UpdateItem": (_LIMITED, "lose_answer"),
        "GetItem": (_LIMITED,),
        "PutItem": (_LIMITED, "lose_answer"),
        "Query": (_LIMITED,),
        "BatchGetItem": (_LIMITED,),
        "TransactWriteItems": ("lose_answer",),
        "SendMessage": ("refuse RequestThrottled", "lose_answer"),
        "SendTaskSuccess": (_THROTTLED, "lose_answer"),
        "PutEvents": (_THROTTLED, "lose_answer"),
        "Publish": ("refuse Throttled", "lose_answer"),
        "DescribeExecution": (_THROTTLED,),
        "GetJobRuns": (_THROTTLED,),
    },
}
KILLED_IN = (
    "PutItem",
    "UpdateItem",
    "StartExecution",
    "Query",
    "GetItem",
    "TransactWriteItems",
    "DescribeExecution",
    "",
)
BAD = {"not JSON": "InvalidRequest", "unknown process": "UnknownProcess", "reserved argument": "InvalidRequest"}
GLUE_SCRIPT = re.compile(r"/glue-[^/\s]+/[^/\s]+\.py\b")  # as in dev/emulator/engine/glue_script.py


@dataclass(frozen=True)
class FaultMark:
    """A fault that has acted. `process` is empty if it can have affected any process. `until`: its end."""

    at: float
    kind: str
    detail: str = ""
    process: str = ""
    until: float = 0.0


@dataclass
class FaultPlayer:
    """Plays a plan on a stack.

    Attributes:
        marks: the faults that have acted.
    """

    stack: SlotStack
    plan: Plan
    janitor: JanitorClock
    console: Console
    marks: list[FaultMark] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.faults = Faults(self.stack.aws.state_dir)
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._rules: dict[str, tuple[str, str, int]] = {}  # kind, details, times known
        self._rules_read = self._started = time.time()
        rules = self.stack.events.list_rules()["Rules"]
        self._status_rules = [rule["Name"] for rule in rules if "aws.states" in rule.get("EventPattern", "")]

    # ---------------------------------------------------------------------------------------------------- the phases

    def storm(self) -> None:
        """Send and cause everything in the plan, at its time."""
        for request in self.plan.sends:
            if request.has_caller:
                self.stack.receivers.call(request, self._started + request.at)
            else:
                self._at(request.at, partial(self.stack.send, request))
        for fault in self.plan.faults:
            self._at(fault.at, partial(self.cause, fault))
        shown = 0.0
        with LiveView(self.console, TITLE) as view:
            while self._later or self._elapsed() < self.plan.seconds:
                while self._later and self._later[0][0] <= self._elapsed():
                    heappop(self._later)[2]()
                if time.time() - shown >= view.interval:
                    shown = time.time()
                    self._mark_rules()
                    view.show(self._progress(self._elapsed()))
                time.sleep(TICK)

    def remove_faults(self) -> None:
        """Remove all faults, restore the limits, resume the processes."""
        self._mark_rules()
        self.faults.clear()
        self._status_events(lost=False)
        for process, limit in self.plan.limits.items():
            self.stack.operations.resume(process)
            self.stack.operations.set_limit(process, limit)

    def settle(self, *, janitor_runs: int) -> None:
        """Wait until no request is left, and then for these janitor runs. The checks report what does not end."""
        with suppress(Stalled):
            watch(self.console, self._progress, TITLE, STALLED_AFTER)
        enough = self._complete_runs() + janitor_runs
        deadline = time.time() + STALLED_AFTER
        while self._complete_runs() < enough and time.time() < deadline:
            time.sleep(1)

    def _complete_runs(self) -> int:
        return sum(run.ok for run in self.janitor.runs)

    def _progress(self, elapsed: float) -> Snapshot:
        last = self.marks[-1].kind if self.marks else "none"
        return self.stack.progress(elapsed, len(self.plan.sends), 0, faults=len(self.marks), last=last)

    # ----------------------------------------------------------------------------------------------------- faults

    def cause(self, fault: Fault) -> None:
        """Cause a fault, or prepare the engine to cause it."""
        kind, drawn, stack = fault.kind, random.Random(fault.seed), self.stack  # noqa: S311 - a schedule, not a secret
        process = drawn.choice(list(self.plan.limits))
        match kind:
            case "engine restarted" | "engine killed":
                self._mark_rules()
                self._rules.clear()  # the engine forgets them
                started = time.time()
                stack.aws.restart(hard=kind == ENGINE_KILLED)
                self._mark(kind, started=started)
            case "containers killed":
                self._kill(drawn.choice(KILLED_IN))
            case "abort":
                self._pick(kind, drawn, stack.listed("RUNNING"), stack.stepfunctions.stop_execution)
            case "redriven":
                closed = [name for each in ("FAILED", "ABORTED", "TIMED_OUT") for name in stack.listed(each)[:10]]
                self._pick(kind, drawn, closed, stack.stepfunctions.redrive_execution)
            case "abort, run left alive":
                rule = self.faults.add("RunGlueJob", "leave_running")
                stop = partial(self._control, kind, call=stack.stepfunctions.stop_execution)
                self._in(ABORT_AFTER, lambda: [stop(name) for name in self._met(rule)])
            case "limit changed":
                usual = self.plan.limits[process]
                limit = drawn.choice([new for new in range(usual + 3) if new != usual])
                stack.operations.set_limit(process, limit)
                self._undo_later(kind, drawn, partial(stack.operations.set_limit, process, usual), process, str(limit))
            case "paused":
                stack.operations.pause(process)
                self._undo_later(kind, drawn, partial(stack.operations.resume, process), process)
            case "status events lost":
                self._status_events(lost=True)
                self._undo_later(kind, drawn, partial(self._status_events, lost=False))
            case "bad message":
                self._send_bad(process, drawn.choice(list(BAD)))
            case "rung for nothing":
                stack.doorbell.ring(Bell(process))
                self._mark(kind, process=process)
            case "sent again" | "cancelled":
                self._touch(kind, drawn, process)
            case _:
                state, how = drawn.choice([(state, how) for state, some in RULES[kind].items() for how in some])
                action, _, error = how.partition(" ")
                # Most faults have ended at the second attempt. Some outlast every attempt of a call.
                times = 1 if kind == "abort at a step" else drawn.choice((1, 1, 2, 3, 5))
                rule = self.faults.add(
                    state, cast(Action, action), error=error or "States.TaskFailed", seconds=LATE, times=times
                )
                self._rules[rule] = (kind, f"{state}: {action}", 0)

    def _status_events(self, *, lost: bool) -> None:
        """Lose all status events of workflows, or deliver them again."""
        for rule in self._status_rules:
            (self.stack.events.disable_rule if lost else self.stack.events.enable_rule)(Name=rule)

    def _kill(self, call: str) -> None:
        """Kill the containers while calls of a kind, or of none, take effect and are not answered yet."""
        rule = self.faults.add(call, "late", seconds=LATE, times=0) if call else ""

        def kill() -> None:
            in_call = call if rule and self._met(rule) else "no call"
            if killed := kill_containers(self.stack.aws.pid):
                self._mark("containers killed", f"{killed} of them, in {in_call}")

        self._in(KILL_AFTER if call else 0.0, kill)

    def _pick(self, kind: str, drawn: random.Random, names: list[str], call: Any) -> None:
        if names:
            self._control(kind, drawn.choice(sorted(names)), call)

    def _control(self, kind: str, name: str, call: Any) -> None:
        """Stop or redrive an execution, if its status allows the call."""
        workflow = self.stack.outputs["WorkflowArn"].replace(":stateMachine:", ":execution:")
        with suppress(ClientError):
            call(executionArn=f"{workflow}:{name}")
            self._mark(kind, name, name.rpartition("-")[0])

    def _undo_later(
        self, kind: str, drawn: random.Random, action: Callable[[], object], process: str = "", detail: str = ""
    ) -> None:
        started = time.time()

        def undo() -> None:
            action()
            self._mark(kind, detail, process, started)

        self._in(drawn.uniform(*UNDONE_AFTER), undo)

    def _touch(self, kind: str, drawn: random.Random, process: str) -> None:
        """What users and operators do: a producer repeats a send, an operator cancels.

        A request that ended without a start would run as its next attempt.
        """
        of_process = [each for each in self.stack.sent if each.request.process == process]
        sent = [each for each in of_process if each.request.outcome not in BAD.values()]
        if kind == "sent again":
            chosen = [each for each in sent if not each.request.leaves]
        else:
            queued = set(self.stack.queue(process))
            chosen = [each for each in sent if each.request.execution in queued]
        if not chosen:
            return
        one = drawn.choice(chosen)
        if kind == "sent again":
            self.stack.deliver(one.request)
        else:
            may_leave = replace(one, request=replace(one.request, leaves="CANCELLED"))
            self.stack.sent[self.stack.sent.index(one)] = may_leave
            if not self.stack.cancel(process, one.request.execution):
                return
        self._mark(kind, one.request.request_id, process)

    def _send_bad(self, process: str, what: str) -> None:
        request_id = f"bad-{len(self.marks)}"
        group = "soak-unknown" if what == "unknown process" else process
        work = {"arguments": {"--slotkeeper-execution": "another"} if what == "reserved argument" else {}}
        text = "{not JSON" if what == "not JSON" else ""
        self.stack.send(Request(request_id, work, BAD[what], group, text=text))
        self._mark("bad message", what, process)

    # ------------------------------------------------------------------------------------------------- bookkeeping

    def _mark(self, kind: str, detail: str = "", process: str = "", started: float | None = None) -> None:
        now = time.time()
        self.marks.append(FaultMark(now if started is None else started, kind, detail, process, now))

    def _mark_rules(self) -> None:
        """Mark each action of a rule since the last call. A rule may act several times."""
        now = time.time()
        for rule, (kind, detail, known) in self._rules.items():
            met = self.faults.met(rule)
            for name in met[known:]:
                self.marks.append(FaultMark(self._rules_read, kind, detail, name.rpartition("-")[0], now))
            self._rules[rule] = (kind, detail, len(met))
        self._rules_read = now

    def _met(self, rule: str) -> list[str]:
        """End a rule; the executions that it has acted on."""
        met = self.faults.met(rule)
        self.faults.remove(rule)
        return met

    def _in(self, seconds: float, action: Callable[[], object]) -> None:
        self._at(self._elapsed() + seconds, action)

    def _at(self, elapsed: float, action: Callable[[], object]) -> None:
        heappush(self._later, (elapsed, next(self._order), action))

    def _elapsed(self) -> float:
        return time.time() - self._started


def kill_containers(engine: int) -> int:
    """Kill all containers of functions, as Lambda may, and no script of a Glue run. Returns their number."""
    containers = [
        pid
        for pid in processes.session_members(engine)
        if pid != engine and not GLUE_SCRIPT.search(processes.command_line(pid))
    ]
    for pid in containers:
        processes.send_signal(pid, signal.SIGKILL)
    return len(containers)
