"""A work queue, its workers, Scheduler and the ledger. `check` and `check_end` check R1 to R4."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tests.simulation import retry_actors as code
from tests.simulation import retry_properties as properties
from tests.simulation.aws import dynamodb, s3, scheduler, sqs
from tests.simulation.frozen import Record, freeze, record
from tests.simulation.retry_actors import DEAD_LETTERS, LEDGER, SCHEDULES_DEAD, WORK
from tests.simulation.retry_properties import read
from tests.simulation.transcript import Answer, Question, Raised
from tests.simulation.worlds import (
    DIE,
    DIE_AFTER,
    LATE,
    LOSE,
    NOT_SENT,
    THROTTLE,
    TWICE,
    Actor,
    Choice,
    Violation,
    World,
)

COPY_SECONDS = 13 * 86400  # seconds after which a standard queue may deliver a copy: its retention is 14 days
FREEZES = {"beyond its lease": 180, "until its message is back": code.VISIBILITY}
FIXED = '{"default": {"backoff": "fixed", "jitter": "none", "base_seconds": %d, "cap_seconds": %d, "max_attempts": %d}}'


def fixed_policy(seconds: int, attempts: int) -> str:
    """A policy with `attempts` attempts, `seconds` apart."""
    return FIXED % (seconds, seconds, attempts)


@dataclass(frozen=True)
class Plan:
    """The settings of a world."""

    # Id and payload (JSON) of each request, in the order in which they are sent. One may occur twice.
    requests: tuple[tuple[str, str], ...] = (("a", "{}"),)
    policy: str = fixed_policy(60, 2)  # the retry policy's parameter
    attempts: int = 2  # how many attempts the policy allows, for R3
    workers: int = 2  # the most concurrent invocations of the worker
    max_delay: int = 900  # seconds above which Scheduler delivers a retry
    copies: int = 0  # how many times the queue may deliver a message again without a fault
    redrives: int = 0  # how many dead-letter messages an operator moves back
    commands: tuple[str, ...] = ()  # the commands of an operator for a retry, at any time: "cancel" or "run_now"
    reads_policy: bool = False  # whether a worker calls SSM for the policy: one more call for each failure
    # A queue hides a message by any of its handles, as recorded; otherwise only by the handle of the newest receive
    # while the message is in flight, as documented
    lax: bool = True
    # The clock's step in seconds. With a coarse step more events have the same time, and so any order, and schedules
    # share more times.
    step: int = 60


class Notes(NamedTuple):
    """The world's notes on an invocation: its message's receipt handle, and until when it is frozen."""

    handle: str
    frozen_until: float = 0.0


class RetryWorld(World):
    """The world of the worker; see World."""

    NOT_IN_KEY = frozenset({"sent", "redriven", "commanded", "_checked", "_rows"})
    LATEST = 180  # longer than a lease

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.now += -self.now % plan.step
        self.services = {
            "dynamodb": dynamodb.tables(ledger=[]),
            "sqs": record(
                {name: sqs.queue(code.VISIBILITY, lax=plan.lax) for name in (WORK, DEAD_LETTERS, SCHEDULES_DEAD)}
            ),
            "scheduler": scheduler.schedules(),
            "s3": s3.objects(),
            "ssm": freeze({"Parameter": {"Value": plan.policy}}),
        }
        self.performed: frozenset[tuple[str, int]] = frozenset()  # (request, attempt) of all work that began
        self.copies = plan.copies
        self.copied = 0
        self.slow = 0  # how often time passed while an actor worked, summed over actors
        self.redrives = plan.redrives
        self.redriven: tuple[str, ...] = ()
        self.commands = plan.commands
        self.commanded = 0  # commands so far
        self.deliveries = record({})  # attempt -> its deliveries so far
        self.handles = record({})  # the text in place of a receipt handle in a delivery's code -> the handle
        self.consumed: tuple[str, ...] = ()  # receipt handles of messages that may be deleted
        self.sent: tuple[properties.Body, ...] = ()
        self._checked: tuple[Any, ...] = ()
        self._rows: Record = self.services["dynamodb"][LEDGER]
        for request_id, payload in plan.requests:
            body = f'{{"request_id": {json.dumps(request_id)}, "payload": {payload}}}'
            self.send(WORK, body, MessageAttributes={})
            if read(body) not in self.sent:
                self.sent = (*self.sent, read(body))

    # Choices -------------------------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        choices = []
        for name, actor in self.actors.items():
            if actor.asleep_until:  # the sleep is the longest time of its work
                choices.append(Choice("wake_up", name))
            elif self.now >= actor.notes.frozen_until:
                choices.append(Choice("call", name))
        if self._free_worker():
            choices += [Choice("receive", message["id"]) for message in self.receivable(WORK)]
        choices += [Choice("fire", schedule["name"]) for schedule in self._due()]
        choices += [Choice("delete", handle) for handle in self.consumed]
        if self.copies:
            choices += self._possible_copies(is_fault=False)
        if self.redrives:
            choices += [Choice("redrive", dead["id"]) for dead in self.messages(DEAD_LETTERS)]
        if self.commands and not any(name.startswith("operator") for name in self.actors):
            choices += [Choice("command", subject) for subject in self._subjects()]
        choices += [Choice("resend_undelivered", dead["id"]) for dead in self.messages(SCHEDULES_DEAD)]
        if choices:
            choices += self.arrivals()
        return choices

    def time_steps(self) -> list[Choice]:
        """Calls in transit arrive at any time up to LATEST."""
        choices = self.arrivals()
        if not any(self.now >= sent + self.LATEST for sent, *_ in self.in_transit) and self.due_times():
            choices.append(Choice("pass_time"))
        return choices

    def possible_faults(self) -> list[Choice]:
        choices: list[Choice] = []
        for name, actor in self.actors.items():
            if actor.asleep_until or self.now < actor.notes.frozen_until:
                continue
            kinds = (NOT_SENT, THROTTLE, LOSE, TWICE, LATE, DIE, DIE_AFTER)
            choices += [Choice("call", name, how, True) for how in kinds]
            choices += [Choice("freeze", name, how, True) for how in FREEZES]
        choices += [Choice("delete", handle, "not", True) for handle in self.consumed]
        choices += self._possible_copies(is_fault=True)
        for due in self._due():
            choices += [Choice("fire", due["name"], how, True) for how in (TWICE, "again", "late", "never")]
        return choices

    def _possible_copies(self, *, is_fault: bool) -> list[Choice]:
        originals = [message["id"] for message in self.messages(WORK) if not message["id"].endswith("*")]
        return [Choice("copy_of", one, how, is_fault) for one in originals for how in ("now", "late")]

    # Events --------------------------------------------------------------------------------------------------------

    def receive(self, message_id: str, _: str) -> None:
        """The event source mapping passes a message to an invocation."""
        message = next(m for m in self.messages(WORK) if m["id"] == message_id)
        taken, worker = self.deliver(WORK, message), self._free_worker()
        attempt = f"{read(taken['body']).request_id} {read(taken['body']).attempt}"
        number = self.deliveries.get(attempt, 0) + 1
        self.deliveries = self.deliveries.with_fields(**{attempt: number})
        self._invoke(worker, taken, f"{attempt} delivery {number}")

    def delete(self, handle: str, how: str) -> None:
        """The event source mapping deletes a message, or fails to."""
        self.log("mapping", f"does not delete {handle}" if how else f"deletes {handle}")
        self.consumed = tuple(other for other in self.consumed if other != handle)
        if not how:
            self.perform(Question("sqs", "delete_message", record({"QueueUrl": WORK, "ReceiptHandle": handle})))

    def fire(self, name: str, how: str) -> None:
        """A schedule fires."""
        due = self.services["scheduler"][name]
        self.log("scheduler", f"delivers {due['target']['Input']}{' ' + how if how else ''}")
        if how == "late":
            self.services["scheduler"] = scheduler.put_off(self.services["scheduler"], name, self.now + 3600)
            return
        if how == "never":
            self.send(due["target"]["DeadLetterConfig"]["Arn"], due["target"]["Input"], MessageAttributes={})
        else:
            for _ in range(1 + (how == TWICE)):
                self.send(due["target"]["Arn"], due["target"]["Input"], MessageAttributes={})
        self.services["scheduler"] = scheduler.fire(self.services["scheduler"], name, self.now)
        if how == "again":
            self.services["scheduler"] = scheduler.put_off(self.services["scheduler"], name, self.now + 3600)

    def copy_of(self, message_id: str, how: str) -> None:
        """A standard queue delivers a message again, even one in flight: immediately, or much later.

        The copy has its own id in the world, and the original's for the code.
        """
        self.log("queue", f"has a copy of {message_id}, visible {how}")
        self.copies -= bool(self.copies)
        messages = self.messages(WORK)
        message = next(m for m in messages if m["id"] == message_id)
        self.copied += 1
        visible_at = max(message["visible_at"], self.now) + COPY_SECONDS if how == "late" else self.now
        copied = message.with_fields(id=message_id + "*" * self.copied, visible_at=visible_at, handle="")
        self.put_messages(WORK, [*messages, copied])

    def redrive(self, message_id: str, _: str) -> None:
        """An operator moves a dead-letter message back, with its body and attributes and a new message id."""
        dead = self._move_back(DEAD_LETTERS, message_id)
        self.redrives -= 1
        self.redriven = (*self.redriven, read(dead["body"]).request_id)

    def command(self, request_id: str, _: str) -> None:
        """An operator cancels a retry or brings it forward."""
        step, self.commands = self.commands[0], self.commands[1:]
        self.commanded += 1
        name = f"operator {self.commanded}"
        self.log(name, f"{step} {request_id}")
        self.begin(name, code.operator.begin(self.now, step, name, request_id), Notes(""))

    def resend_undelivered(self, message_id: str, _: str) -> None:
        """An operator sends a message that Scheduler could not deliver."""
        self._move_back(SCHEDULES_DEAD, message_id)

    def freeze(self, name: str, how: str) -> None:
        """An invocation freezes. A time beyond Lambda's timeout represents a call that is delayed on its way."""
        self.log(name, f"freezes {how}")
        self.note(name, frozen_until=self.now + FREEZES[how])

    def pass_time(self, _: str, __: str) -> None:
        """The clock moves to the next moment at which something is due."""
        # An actor at a call was slow.
        self.slow += sum(not actor.notes.frozen_until for actor in self.actors.values())
        self.now = max(self.now + 1, min(self.due_times()))
        self.now += -self.now % self.plan.step
        for name, actor in self.actors.items():
            if actor.notes.frozen_until and self.now >= actor.notes.frozen_until:
                self.note(name, frozen_until=0.0)

    def _invoke(self, worker: str, taken: Record, token: str) -> None:
        # These arguments do not depend on the order of events, so that cached nodes are found again.
        policy = None if self.plan.reads_policy else self.plan.policy
        arguments = (taken["body"], taken["attributes"], min(2, taken["receives"]))
        node = code.worker.begin(self.now, policy, self.plan.max_delay, token, *arguments)
        self.handles = self.handles.with_fields(**{token: taken["handle"]})
        self.begin(worker, node, Notes(taken["handle"]))

    # Answers to actors ---------------------------------------------------------------------------------------------

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        if question.operation != "work":
            return super().own_answer(name, actor, question)
        request_id, attempt = question.parameters
        self.log(name, f"begins attempt {attempt} of {request_id}")
        if question.parameters in self.performed:
            raise Violation("R2", f"attempt {attempt} of {request_id} begins a second time")
        if properties.status(self.services["dynamodb"][LEDGER].get(request_id)) == "SUCCEEDED":
            raise Violation("R2", f"attempt {attempt} of {request_id} begins after {request_id} succeeded")
        properties.check_not_cancelled(self.services["dynamodb"][LEDGER].get(request_id), attempt)
        self.performed |= {question.parameters}
        return Answer()

    def finished(self, name: str, actor: Actor) -> None:
        result = actor.node.result
        if name.startswith("operator"):
            return  # with any outcome: a failed call is shown to the operator
        assert not isinstance(result, Raised), f"{name} raised {result}"
        is_consumed, *_ = result
        if is_consumed:
            self.consumed = (*self.consumed, actor.notes.handle)

    def perform(self, question: Question) -> Answer:
        own = _OWN.get(question.service)
        if own is None:
            return super().perform(self._with_handle(question))
        self.services[question.service], answer = own(self.services[question.service], *question[1:], self.now)
        return answer

    def _with_handle(self, question: Question) -> Question:
        if question.operation != "change_message_visibility":
            return question
        given = question.parameters["ReceiptHandle"]
        handle = self.handles.get(given, given)
        return question._replace(parameters=question.parameters.with_fields(ReceiptHandle=handle))

    def _subjects(self) -> Iterable[str]:
        """The requests to which the next command may apply."""
        return self._rows.fields

    # Reading the state ---------------------------------------------------------------------------------------------

    def _move_back(self, queue: str, message_id: str) -> Record:
        messages = self.messages(queue)
        dead = next(dead for dead in messages if dead["id"] == message_id)
        self.log("operator", f"sends {dead['body']} from {queue}")
        self.put_messages(queue, [message for message in messages if message is not dead])
        self.send(WORK, dead["body"], MessageAttributes=dead["attributes"])
        return dead

    def _due(self) -> list[Record]:
        return [schedule for schedule in scheduler.waiting(self.services["scheduler"]) if schedule["at"] <= self.now]

    def _free_worker(self) -> str:
        names = (f"worker {n + 1}" for n in range(self.plan.workers))
        return next((name for name in names if name not in self.actors), "")

    def times(self) -> list[float]:
        visible = [message["visible_at"] for message in self.messages(WORK)]
        schedules = [schedule["at"] for schedule in scheduler.waiting(self.services["scheduler"])]
        return [*super().times(), *visible, *schedules, *(actor.notes.frozen_until for actor in self.actors.values())]

    # Properties ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        now = (self.services["dynamodb"], self.services["sqs"], self.services["scheduler"], self.performed)
        if all(one is other for one, other in zip(now, self._checked, strict=False)) and self._checked:
            return
        self._checked = now
        before, self._rows = self._rows, self.services["dynamodb"][LEDGER]
        if before is not self._rows:
            properties.check_rows(before, self._rows)
        messages = properties.Messages(
            tuple(read(message["body"]) for message in self.messages(WORK)),
            tuple(read(schedule["target"]["Input"]) for schedule in scheduler.waiting(self.services["scheduler"])),
            tuple(read(dead["body"]) for dead in self.messages(SCHEDULES_DEAD)),
            tuple(self.messages(DEAD_LETTERS)),
        )
        for sent in self.sent:
            properties.check_not_lost(sent, self._rows.get(sent.request_id), self.services["s3"], messages)
        for dead in messages.dead:
            properties.check_dead_letter(dead)
        excuses = self.faults + self.slow + self.copied + len(self.redriven) + self.commanded
        fresh = tuple(read(m["body"]) for m in self.messages(WORK) if not m["receives"] and "*" not in m["id"])
        properties.check_once(fresh + messages.scheduled + messages.undelivered, messages.dead, excuses)
        if not self.faults and not self.slow:
            for row in self._rows.fields.values():
                properties.check_no_attempt_died(row)
        self._check_attempts()

    def _check_attempts(self) -> None:
        properties.check_attempts(self.performed, self.plan.attempts, self.redriven)

    def check_end(self) -> None:
        assert not self.messages(WORK)
        for request_id, row in self._rows.fields.items():
            if properties.status(row) not in ("SUCCEEDED", "DEAD_LETTERED"):
                raise Violation("R1", f"{request_id} is {properties.status(row)} in the end")

    def summary(self) -> str:
        rows = [
            f"{request_id} {properties.status(row)} {row['attempts']['N']}"
            for request_id, row in self._rows.fields.items()
        ]
        queue = [f"{m['id']}{'' if m['visible_at'] <= self.now else '(hidden)'}" for m in self.messages(WORK)]
        dead = [dead["attributes"]["code"]["StringValue"] for dead in self.messages(DEAD_LETTERS)]
        return (
            f"ledger [{', '.join(rows)}]  queue [{', '.join(queue)}]  "
            f"schedules {len(scheduler.waiting(self.services['scheduler']))}  dead [{', '.join(dead)}]  "
            f"effects [{', '.join(f'{k} by {v}' for k, v in self.services['s3'].fields.items())}]"
        )


_OWN: dict[str, Any] = {
    "s3": s3.perform,
    "scheduler": scheduler.perform,
    "ssm": lambda parameter, *_: (parameter, Answer(parameter)),
}

_WORK = (
    "{}",
    '{"poison": "no such thing"}',
    '{"fails": 1}',
    '{"fails": 9}',
    '{"breaks": 1, "seconds": 60}',
    '{"fails": 1, "retry_after": 0}',
    '{"fails": 1, "retry_after": 1980}',
)

# Seconds between attempts, number of attempts, and the seconds above which Scheduler delivers them.
_SETTINGS = ((60, 2, 900), (60, 3, 0), (1200, 2, 900), (60, 1, 900))

_COMMANDS = ((), (), (), ("cancel",), ("run_now",), ("cancel", "cancel"), ("run_now", "cancel"))


def random_world(random: Random) -> RetryWorld:
    """A random world for random schedules. Few kinds, so that cached nodes are found again; orders and faults vary."""
    requests = [("a", random.choice(_WORK))]
    requests += [(name, random.choice(_WORK[:3])) for name in "bc"[: random.choice((0, 0, 1, 1, 2))]]
    if random.random() < 0.3:
        requests.append(requests[0])
    if random.random() < 0.15:
        requests.append(("a", '{"other": "payload"}'))
    seconds, attempts, max_delay = random.choice(_SETTINGS)
    return RetryWorld(
        Plan(
            tuple(requests),
            fixed_policy(seconds, attempts),
            attempts,
            workers=random.choice((2, 3)),
            max_delay=max_delay,
            copies=random.choice((0, 0, 1)),
            redrives=random.choice((0, 0, 0, 1, 2)),
            commands=random.choice(_COMMANDS),
            reads_policy=random.random() < 0.25,
            lax=random.random() < 0.75,
            step=code.VISIBILITY,
        )
    )
