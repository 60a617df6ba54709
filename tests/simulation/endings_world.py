"""The slots' world with requests that are skipped, or too late, and the checks of S9b.

It has one starter: of two with the same message, one may end the request while the other starts it. That needs a
starter that is frozen for longer than its message is hidden.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import slots_actors as code
from tests.simulation import targets_world
from tests.simulation.frozen import Record, freeze
from tests.simulation.slots_state import JOB, STEP, Plan, _parsed, id_of, owner_of
from tests.simulation.targets_world import TargetsWorld, _fields
from tests.simulation.transcript import Answer, Question
from tests.simulation.worlds import Actor, Choice, Violation

_NONE = freeze({"M": {}})


class EndingsWorld(TargetsWorld):
    """See World."""

    def __init__(self, plan: Plan, *, timeless: bool = False) -> None:
        # Of the message that the starter works on: when it was received, its body and its group.
        self.received: tuple[float, str, str] = (0.0, "", "")
        self.skipped: frozenset[str] = frozenset()  # executions whose requests' skip was published or answered
        super().__init__(plan, timeless=timeless)

    def _is_aimed_at(self, choice: Choice) -> bool:
        if self.plan.aim == "starter":
            return choice.kind == "call" and choice.subject.startswith("starter")
        return super()._is_aimed_at(choice)

    def receive(self, message_id: str, how: str) -> None:
        message = next(each for each in self._receivable() if each["id"] == message_id)
        self.received = self.now, message["body"], message["group"]
        super().receive(message_id, how)

    def land(self, number: str, how: str) -> None:
        # It was sent by an earlier invocation, when the request was not too late.
        received, self.received = self.received, (0.0, *self.received[1:])
        super().land(number, how)
        self.received = received

    def perform(self, question: Question) -> Answer:
        before = self.services["stepfunctions"]
        answer = super().perform(question)
        if question.operation == "start_execution" and self.services["stepfunctions"] is not before:
            self._check_start(question.parameters["name"], self._acting[0])
        return answer

    def _check_start(self, name: str, starter: str) -> None:
        at, request = self.received[0], _parsed(*self.received[1:])
        if name in self.skipped:
            raise Violation("S9b", f"{name} was skipped, and starts")
        is_own = starter in self.actors and request.execution_name == name
        if is_own and request.is_too_late(at):
            raise Violation("S9b", f"{name} was received after its start_before, and starts")

    def _check_answer(self, actor: str, question: Question, how: str) -> None:
        super()._check_answer(actor, question, how)
        if question.parameters.get("error") == "Skipped":
            self._note_skip()

    def finished(self, name: str, actor: Actor) -> None:
        super().finished(name, actor)
        if actor.node.result == "Skipped":
            self._note_skip()

    def _note_skip(self) -> None:
        name = _parsed(*self.received[1:]).execution_name
        if name in self.services["stepfunctions"]:
            raise Violation("S9b", f"{name} has started, and is skipped")
        self.skipped |= {name}

    def _check_process(self, item: Record, before: Record) -> None:
        super()._check_process(item, before)
        for entry in item.get("waiting", _NONE)["M"].fields.values():
            given = entry["M"].get("request_id")
            if given and given["S"] in self.plan.skips:
                raise Violation("S9b", f"request {given['S']} is registered, and must not wait")

    def _check_in_time(self) -> None:
        super()._check_in_time()
        working = {actor.notes.message for actor in self.actors.values() if actor.notes}
        for message in [] if self.suspended_actor else self._in_flight():
            deadline = _parsed(message["body"], message["group"]).deadline
            if deadline is None or message["handle"] in working:
                continue
            # A starter that died has left the message hidden for the default visibility timeout.
            bound = max(deadline, self.disturbed_at + code.VISIBILITY) + STEP
            if message["visible_at"] > bound:
                raise Violation("S9b", f"{message['id']} is hidden beyond its start_before")

    def check_end(self) -> None:
        super().check_end()
        children = {name for name, _ in self._children()}
        worked = {owner_of(run) for run in self.services["glue"][JOB]["runs"]} | children
        for message in self.services["sqs"][code.DEAD_LETTERS]["messages"]:
            if message["attributes"]["code"]["StringValue"] != "TooLate":
                continue
            fields = _fields(message["body"])
            for name in worked:
                execution = _fields(self.services["stepfunctions"][name]["input"]) if name else {}
                if all(execution.get(key) == fields.get(key, 1) for key in ("request_id", "attempt")):
                    raise Violation("S9b", f"{name} has run, and its request is dead-lettered as TooLate")

    def key(self) -> Hashable:
        return super().key(), self.received, self.skipped


def random_world(random: Random, **given: Any) -> EndingsWorld:
    """A random world for random schedules. `given`: fields of its plan that are not random."""
    plan = targets_world.random_world(random).plan
    ids = sorted({id_of(request) for request in plan.requests})
    twice = {each for each in ids if sum(id_of(request) == each for request in plan.requests) > 1}
    plan = replace(
        plan,
        starters=1,
        skips="".join(each for each in ids if each not in twice and random.random() < 0.4),
        deadlines="".join(each for each in ids if each not in twice and random.random() < 0.4),
        deadline=random.choice((0, 10, 60, 70, 130, 300)),
    )
    return EndingsWorld(replace(plan, **given))
