"""Carries out a plan: sends requests, causes and removes faults, runs the janitor, waits until no request is left."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import cast

from dev.emulator.faults import Action, Faults
from dev.emulator.live_view import LiveView, Snapshot
from dev.scenarios.runner.janitor_clock import JanitorClock

from .soak_plan import ENGINE_KILLED, Fault, Plan, Send
from .soak_report import FaultMark, SentMessage
from .soak_stack import SoakStack

TICK = 0.04  # seconds
SETTLE_TICK = 1.0  # seconds between two reads of what is left: each is some calls of the busy engine
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
BAD = ("not JSON", "unknown process", "reserved argument")


@dataclass
class FaultPlayer:
    stack: SoakStack
    plan: Plan
    view: LiveView
    janitor: JanitorClock
    started: float = field(default_factory=time.time)
    sent: list[SentMessage] = field(default_factory=list)
    marks: list[FaultMark] = field(default_factory=list)
    phase: str = "storm"

    def __post_init__(self) -> None:
        self.faults = Faults(self.stack.aws.state_dir)
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._rules: dict[str, tuple[str, str, int]] = {}  # kind, details, times known
        self._rules_read = self.started
        self._shown = 0.0

    # ---------------------------------------------------------------------------------------------------- the phases

    def storm(self) -> None:
        """Send and cause everything in the plan, at its time."""
        for send in self.plan.sends:
            if send.has_caller:
                self.stack.receivers.call(send.body(self.started), self.started + send.at)
                continue
            self._at(send.at, partial(self.send, send))
        for fault in self.plan.faults:
            self._at(fault.at, partial(self.cause, fault))
        while self._later or self._elapsed() < self.plan.seconds:
            while self._later and self._later[0][0] <= self._elapsed():
                heappop(self._later)[2]()
            self._show()
            time.sleep(TICK)

    def remove_faults(self) -> None:
        """Remove all faults, restore the limits, resume the processes."""
        self._mark_rules()
        self.faults.clear()
        self.stack.status_events(lost=False)
        for process, limit in self.plan.limits.items():
            self.stack.operations.resume(process)
            self.stack.operations.set_limit(process, limit)

    def settle(self, phase: str, *, janitor_runs: int) -> None:
        """Wait until no request is left, and then for these janitor runs. Stop if nothing changes any more."""
        self.phase = phase
        last, since = None, time.time()
        while (left := self._left())[0]:
            if left != last:
                last, since = left, time.time()
            elif time.time() - since > STALLED_AFTER:
                return
            self._show()
            time.sleep(SETTLE_TICK)
        enough = self._complete_runs() + janitor_runs
        deadline = time.time() + STALLED_AFTER
        while self._complete_runs() < enough and time.time() < deadline:
            self._show()
            time.sleep(SETTLE_TICK)

    def _left(self) -> tuple[int, int]:
        """The messages, requests, executions and holders that are left, and the number of writes of both tables."""
        holders = sum(len(item.holders) for item in self.stack.journal.read().values())
        return self.stack.left() + self.stack.receivers.waiting() + len(self.stack.running()) + holders, len(
            self.stack.journal.changes
        )

    def _complete_runs(self) -> int:
        return sum(run.ok for run in self.janitor.runs)

    # ----------------------------------------------------------------------------------------------------- faults

    def send(self, send: Send) -> None:
        if send.has_caller:
            self.stack.receivers.call(send.body(time.time()), time.time())
            return
        body = json.dumps(send.body(time.time()))
        self.sent.append(replace(self.stack.send(send.process, send.request_id, body), leaves=send.leaves))

    def cause(self, fault: Fault) -> None:
        """Cause a fault, or prepare the engine to cause it."""
        kind, drawn = fault.kind, random.Random(fault.seed)  # noqa: S311 - a schedule, not a secret
        process = drawn.choice(list(self.plan.limits))
        match kind:
            case "engine restarted" | "engine killed":
                self._restart(kind)
            case "containers killed":
                self._kill(drawn.choice(KILLED_IN))
            case "abort":
                self._pick(kind, drawn, self.stack.running(), self.stack.abort)
            case "redriven":
                self._pick(kind, drawn, self.stack.unsuccessful(), self.stack.redrive)
            case "abort, run left alive":
                rule = self.faults.add("RunGlueJob", "leave_running")
                self._in(ABORT_AFTER, lambda: [self._control(kind, name, self.stack.abort) for name in self._met(rule)])
            case "limit changed":
                usual = self.plan.limits[process]
                limit = drawn.choice([new for new in range(usual + 3) if new != usual])
                self.stack.operations.set_limit(process, limit)
                undo = partial(self.stack.operations.set_limit, process, usual)
                self._undo_later(kind, drawn, undo, process, str(limit))
            case "paused":
                self.stack.operations.pause(process)
                self._undo_later(kind, drawn, lambda: self.stack.operations.resume(process), process)
            case "status events lost":
                self.stack.status_events(lost=True)
                self._undo_later(kind, drawn, lambda: self.stack.status_events(lost=False))
            case "bad message":
                self._send_bad(process, drawn.choice(BAD))
            case "sent again" | "cancelled" | "rung for nothing":
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

    def _restart(self, kind: str) -> None:
        self._mark_rules()
        self._rules.clear()  # the engine forgets them
        started = time.time()
        self.stack.aws.restart(hard=kind == ENGINE_KILLED)
        self._mark(kind, started=started)

    def _kill(self, call: str) -> None:
        """Kill the containers while calls of a kind, or of none, take effect and are not answered yet."""
        rule = self.faults.add(call, "late", seconds=LATE, times=0) if call else ""

        def kill() -> None:
            in_call = call if rule and self._met(rule) else "no call"
            if killed := self.stack.kill_containers():
                self._mark("containers killed", f"{killed} of them, in {in_call}")

        self._in(KILL_AFTER if call else 0.0, kill)

    def _pick(self, kind: str, drawn: random.Random, names: list[str], action: Callable[[str], bool]) -> None:
        if names:
            self._control(kind, drawn.choice(sorted(names)), action)

    def _control(self, kind: str, name: str, action: Callable[[str], bool]) -> bool:
        if done := action(name):
            self._mark(kind, name, name.rsplit("-", 1)[0])
        return done

    def _undo_later(
        self, kind: str, drawn: random.Random, action: Callable[[], object], process: str = "", detail: str = ""
    ) -> None:
        started = time.time()

        def undo() -> None:
            action()
            self._mark(kind, detail, process, started)

        self._in(drawn.uniform(*UNDONE_AFTER), undo)

    def _touch(self, kind: str, drawn: random.Random, process: str) -> None:
        """What users and operators do to requests."""
        sent = [each for each in self.sent if each.process == process and not each.bad]
        queued = set(self.stack.queue(process)) if kind == "cancelled" else ()
        match kind:
            case "rung for nothing":
                self.stack.ring(process)
                self._mark(kind, "", process)
            # As by a producer that repeats a send: the same request in another message. One that ended without a start
            # would run as its next attempt.
            case "sent again" if chosen := [each for each in sent if not each.leaves]:
                one = drawn.choice(chosen)
                self.stack.send(process, one.request_id, one.body)
                self._mark(kind, one.request_id, process)
            case "cancelled" if chosen := [each for each in sent if each.sending.execution in queued]:
                one = drawn.choice(chosen)
                self.sent[self.sent.index(one)] = replace(one, leaves="CANCELLED")
                if self.stack.cancel(process, one.request_id):
                    self._mark(kind, one.request_id, process)

    def _send_bad(self, process: str, what: str) -> None:
        request_id = f"bad-{len(self.sent)}"
        group = "soak-unknown" if what == "unknown process" else process
        arguments = {"--slotkeeper-execution": "another"} if what == "reserved argument" else {}
        body = {"process": group, "request_id": request_id, "arguments": arguments}
        text = "{not JSON" if what == "not JSON" else json.dumps(body)
        self.sent.append(self.stack.send(group, request_id, text, bad=what))
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
        return time.time() - self.started

    def _show(self) -> None:
        """Update the view if it is due."""
        now = time.time()
        if now - self._shown < self.view.interval:
            return
        self._shown = now
        self._mark_rules()
        items = self.stack.journal.read()
        counts: dict[str, int | str] = {
            "phase": self.phase,
            "sent": len(self.sent),
            "queued": self.stack.left(),
            "running": len(self.stack.running()),
            "janitor runs": len(self.janitor.runs),
            "faults": len(self.marks),
            "last": self.marks[-1].kind if self.marks else "none",
        }
        gauges = {name: (item.weight, 0 if item.paused else item.limit) for name, item in sorted(items.items())}
        seconds = round(min(self._elapsed(), self.plan.seconds))
        self.view.show(Snapshot(self._elapsed(), False, seconds, round(self.plan.seconds), gauges, counts))
