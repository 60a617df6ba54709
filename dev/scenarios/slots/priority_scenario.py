"""`make run PRIORITIES=yes`: a backlog, urgent and heavy requests in between, a cancellation, and a raised limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dev.emulator.aws import EmbeddedAws
from dev.emulator.live_view import Snapshot, counted
from dev.emulator.sample_data import read_dataset
from dev.scenarios.runner.claims import Claim, judge
from dev.scenarios.runner.scenario import CannotContinue, Run, Scenario
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import CancelOutcome, Operations, Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.intervals import Interval
from slotkeeper_cli.audit.work_history import Sending

from . import priority_requests, slot_requests, slot_stack
from .priority_requests import Action, Mix, Step
from .slot_report import Parameters, SlotReport, SlotsOfRun, build, draw, tables
from .slot_requests import PROCESS, Request, SentRequest

OPERATOR = "make run"
WITHIN = 30.0  # seconds in which a request that was sent must be registered, while slots are in use
FULL_WITHIN = 5.0  # seconds for which an urgent request is held back until all slots are in use, so that it must wait
OTHERS = 2  # requests that start while one is blocked, before the limit is raised
TICK = 0.02  # seconds


SCENARIO = Scenario(Path("build/run"), "timeline.png", draw, tables, {"lasting": True})


def perform(aws: EmbeddedAws, parameters: Parameters, run: Run) -> SlotReport:
    """Run on a started engine with `lasting`, and return the report. Raises Stalled, SendFailed, CannotContinue."""
    with run.phase("deploy", "build and deploy"):
        aws.deploy({"ProcessName": PROCESS, "SlotLimit": str(parameters.limit)})
    run_id = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    work = slot_requests.plan(read_dataset(), requests=parameters.requests, fail=parameters.fail, run_id=run_id)
    mix = priority_requests.mix(work, parameters.limit)
    slot_stack.upload(aws, mix.inputs, run)
    director = Director(Stack(aws), mix, parameters.limit)
    with run.phase("send", f"send a backlog of {counted(len(mix.backlog), 'request')}"):
        director.send(mix.backlog)

    def progress(elapsed: float) -> Snapshot:
        snapshot = slot_stack.progress(aws, parameters.requests, director.limit, elapsed)
        director.act(snapshot.done)
        return snapshot

    with run.phase("run", "run, with urgent and heavy requests in between"):
        run.watch(progress)
    with run.phase("collect", "collect the records"):
        slots = slot_stack.collect(aws, director.sendings())
        results = slot_stack.outputs_of(aws, f"output/{run_id}/")
    claims = [
        slot_stack.results_are_those(slots.history, director.sent, results),
        others_started(slots, mix, director),
    ]
    return build(parameters, slots, claims, {"results in the bucket": len(results)}, run)


def others_started(slots: SlotsOfRun, mix: Mix, director: Director) -> Claim:
    """What the checks of the audit need in order to show something about heads that wait. It never fails."""
    at = director.raised[0] if director.raised else math.inf
    sent = {each.request.request_id: each.at for each in director.sent}
    others = sum(sent.get(mix.blocked, math.inf) < each.started < at for each in slots.history.attempts)
    finding = f"{counted(others, 'request')} started while one above the limit waited for it to be raised"
    cancelled = "too late" if director.cancel_was_late else "while a slot was kept free for it"
    shown = others > 0 and not director.cancel_was_late
    name = "others start while a head above the limit waits, and one is cancelled while it waits"
    return judge(name, {}, f"{finding}; one was cancelled {cancelled}", shown=shown)


class Stack:
    """What the run does to a deployed stack, as a producer and as an operator."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self._sqs, self._queue_url = aws.client("sqs"), aws.outputs["RequestQueueUrl"]
        dynamodb, table = aws.client("dynamodb"), aws.outputs["SlotTableName"]
        self._slots = Slots(dynamodb, table)
        queue = RequestQueue(self._sqs, self._queue_url)
        self._operations = Operations(Processes(dynamodb, table), self._slots, queue)

    def send(self, requests: Sequence[Request]) -> list[SentRequest]:
        return slot_requests.send(self._sqs, self._queue_url, requests)

    def process(self) -> Process:
        seen = self._slots.read(PROCESS)
        if seen is None:
            raise CannotContinue(f"process {PROCESS} was removed during the run")
        return seen

    def cancel(self, execution: str) -> CancelOutcome:
        """As `slotkeeper request cancel`."""
        return self._operations.cancel_request(PROCESS, execution, time.time(), OPERATOR)

    def set_limit(self, limit: int) -> None:
        """As `slotkeeper process set-limit`."""
        self._operations.set_limit(PROCESS, limit)


@dataclass
class Director:
    """Carries out the steps of a mix, in their order.

    Args:
        limit: of the process.
        raised: from the call that raised the limit to its answer.
        cancel_was_late: the request that was to be cancelled held its slots already.
    """

    stack: Stack
    mix: Mix
    limit: int
    sent: list[SentRequest] = field(default_factory=list)
    raised: Interval | None = None
    cancel_was_late: bool = False

    def __post_init__(self) -> None:
        self._steps = list(self.mix.steps)

    def send(self, requests: Sequence[Request]) -> None:
        self.sent += self.stack.send(requests)

    def sendings(self) -> list[Sending]:
        """The messages, with their expected outcomes."""
        is_cancelled = {self.mix.cancelled: not self.cancel_was_late}
        return [
            each.sending(outcome="Cancelled" if is_cancelled.get(each.request.request_id) else "") for each in self.sent
        ]

    def act(self, ended: int) -> None:
        """Carry out the steps that are due after so many ended workflows. Raises CannotContinue."""
        while self._steps and self._steps[0].after <= ended:
            self._carry_out(self._steps.pop(0))

    def _carry_out(self, step: Step) -> None:
        if step.request:
            if step.action is Action.SEND:
                self._wait_until(lambda seen: seen.slots_in_use >= seen.slot_limit, FULL_WITHIN)
            self.send([step.request])
        if step.action is Action.CANCEL and step.request:
            name = _execution(step.request.request_id)
            self._await("registered, with a slot kept free for it", lambda seen: _is_kept_free(seen, name))
            # All slots may have been released since the last read.
            self.cancel_was_late = self.stack.cancel(name) is not CancelOutcome.CANCELLED
        if step.action is Action.RAISE:
            name = _execution(self.mix.blocked)
            self._await("registered as blocked", lambda seen: name in {e.execution for e in seen.waiting.values()})
            started, before = set[str](), set(self.stack.process().holders)

            def have_others_started(seen: Process) -> bool:
                started.update(set(seen.holders) - before)
                return len(started) >= OTHERS or not seen.holders  # without holders none is left that could start

            self._wait_until(have_others_started, WITHIN)
            began = time.time()
            self.stack.set_limit(self.mix.raised)
            self.raised, self.limit = (began, time.time()), self.mix.raised

    def _await(self, what: str, holds: Callable[[Process], bool]) -> None:
        if not self._wait_until(holds, WITHIN):
            raise CannotContinue(f"within {WITHIN:.0f} s no request was {what}; the run cannot show it")

    def _wait_until(self, holds: Callable[[Process], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not (held := holds(self.stack.process())) and time.monotonic() < deadline:
            time.sleep(TICK)
        return held


def _execution(request_id: str) -> str:
    return execution_name(PROCESS, request_id, 1)


def _is_kept_free(seen: Process, execution: str) -> bool:
    return seen.first is not None and seen.first.execution == execution and seen.slots_in_use < seen.slot_limit
