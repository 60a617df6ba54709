"""The base of all simulated worlds: services, actors, faults, and the scheduler's choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, NamedTuple, Self

from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions, tasks
from tests.simulation.frozen import Record, freeze, record, table
from tests.simulation.transcript import CLOCK, LOST, UNSENT, Answer, Node, Question

THROTTLED = Answer(error="ThrottlingException")
DENIED = Answer(error="AccessDeniedException")
_EMPTY = record({})
_RETRIED = record({"RetryAttempts": 1})
_DIGEST = re.compile(r"-[0-9a-f]{28}([0-9a-f]{4})")  # of a request; histories show four digits of it
BEGINNING = 1_000_020.0  # seconds since the epoch at which every world begins: a multiple of most clock steps


class Choice(NamedTuple):
    """A possible next event. `kind` names a method of the world, `subject` and `how` are its arguments."""

    kind: str
    subject: str = ""
    how: str = ""
    is_fault: bool = False


class Violation(AssertionError):
    """A guarantee of docs/correctness.md does not hold."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Actor(NamedTuple):
    """Running code: its node, until when it sleeps, and the world's notes on it."""

    node: Node
    asleep_until: float = 0
    notes: Any = None

    @property
    def question(self) -> Question:
        """The call, sleep or read of a clock that it is at."""
        assert self.node.question is not None
        return self.node.question

    def after(self, answer: Answer, clock: Answer | None = None) -> Actor:
        """The actor after this answer. `clock`: the time that its clock shows then."""
        return Actor(self.node.after(answer, clock), self.asleep_until, self.notes)


# The faults of a call.
THROTTLE, NOT_SENT, LOSE, TWICE, STALE, CONFLICT = "throttle", "unsent", "lose", "twice", "stale", "conflict"
DIE, DIE_AFTER, LATE = "die", "die after", "late"

_SERVICES: dict[str, Callable[..., Any]] = {
    "dynamodb": lambda state, operation, parameters, _: dynamodb.perform(state, operation, parameters),
    "sqs": sqs.perform,
    "stepfunctions": stepfunctions.perform,
    "children": stepfunctions.perform,
    "tasks": tasks.perform,
    "glue": glue.perform,
}
_performed = table()


class World:
    """A state of services and actors. `steps` lists possible events, `take` applies one, `key` identifies the state.

    A world adds its events as methods of (subject, how), which choices name, and lists them. Its further attributes
    are part of the key, unless NOT_IN_KEY names them: values that can be hashed, or dictionaries of such values.

    Args:
        timeless: the clock does not run. Then every order of events that any clock allows is possible, and more.
    """

    # Attributes that differ between states with the same possible events.
    NOT_IN_KEY: frozenset[str] = frozenset()
    LATEST = 30  # seconds: the latest arrival of a call after its sender gave up

    def __init__(self, *, timeless: bool = False) -> None:
        self.now = BEGINNING  # seconds since the epoch
        self.timeless = timeless
        self.services: dict[str, Any] = {}
        self.actors: dict[str, Actor] = {}
        # Calls that arrive after their senders gave up: when each was sent, its sender, and the question.
        self.in_transit: tuple[tuple[float, str, Question], ...] = ()
        self.older_at: dict[str, float] = {}
        self.older: dict[str, Any] = {}  # states of services that a stale read may return
        self.faults = 0  # so far
        self.immediate = frozenset({"actor"})  # services that answer without a step of their own
        # When a fault last happened or took effect, or the clock moved while actors worked: bounds in time begin here.
        self.disturbed_at = self.now
        self.suspended_actor = ""  # the actor that the scheduler suspends now
        self.ever_suspended: frozenset[str] = frozenset()  # no bound in time applies to these actors
        self.emit: Callable[[str], None] | None = None  # receives the lines of the history

    # Defined by each world -----------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        """The possible next events without a fault."""
        calls = [Choice("call", name) for name, actor in self.actors.items() if actor.question.service != "actor"]
        return calls + [
            Choice("wake_up", name) for name, each in self.actors.items() if 0 < each.asleep_until <= self.now
        ]

    def time_steps(self) -> list[Choice]:
        """The events that time causes when there are no `steps`; empty at the end."""
        return [Choice("pass_time")] if self.due_times() else []

    def possible_faults(self) -> list[Choice]:
        """The possible next faults."""
        calls = [Choice("call", name) for name, actor in self.actors.items() if actor.question.service != "actor"]
        return [call._replace(how=how, is_fault=True) for call in calls for how in (THROTTLE, LOSE, DIE, DIE_AFTER)]

    def finished(self, name: str, actor: Actor) -> None:
        """An actor's code has ended with `actor.node.result`."""

    def died(self, name: str, actor: Actor) -> None:
        """An actor has died in the middle of its code."""

    def check(self) -> None:
        """Raise Violation if a guarantee does not hold now. Called after every step."""

    def check_end(self) -> None:
        """Raise Violation if a guarantee does not hold when no event is left."""

    def summary(self) -> str:
        """The state in a line, for histories."""
        return str(self.services)

    def own_answer(self, name: str, actor: Actor, question: Question) -> Answer | None:
        """The world's answer to a question about the clock or a run, or None if the actor has to wait for it."""
        if question is CLOCK:
            return Answer(self.clock_of(name, actor))
        raise AssertionError(f"no service answers {question}")

    def clock_of(self, name: str, actor: Actor) -> Any:
        """The time that the clock of an actor shows."""
        return self.now

    def slow_steps(self) -> list[Choice]:
        """Events in which time passes although an actor could continue."""
        return [Choice("pass_time", how="while actors work")] if self.due_times() else []

    def possible(self) -> list[Choice]:
        """All that may happen next, faults and the scheduler's suspensions included."""
        suspensions = [Choice("suspend", name, "", True) for name in self.actors] + [Choice("resume")]
        events = self.steps() or self.time_steps()
        return [*events, *self.slow_steps(), *self.possible_faults(), *suspensions]

    def suspend(self, name: str, _: str) -> None:
        """The scheduler suspends an actor for a while: a fault."""
        self.suspended_actor = name
        self.ever_suspended |= {name}
        self.log(name, "is suspended")

    def resume(self, _: str, __: str) -> None:
        """The suspended actor, if any, continues."""
        if self.suspended_actor:
            self.suspended_actor = ""
            self.disturbed_at = self.now

    def service_of(self, question: Question) -> str:
        """The name in `services` of the state that answers a question."""
        return question.service

    def may_continue(self, name: str) -> bool:
        """Whether a sleeping actor may continue in a timeless world: only if it would find something new."""
        raise NotImplementedError

    def times(self) -> list[float]:
        """The moments at which something is due. Those that have passed do not matter."""
        asleep = [actor.asleep_until for actor in self.actors.values()]
        return asleep + [sent + self.LATEST for sent, *_ in self.in_transit]

    def due_times(self) -> list[float]:
        """The moments after now at which something is due."""
        return [time for time in self.times() if time > self.now]

    def pass_time(self, _: str, how: str) -> None:
        """The clock moves to the next moment at which something is due."""
        self.now = min(self.due_times())

    # Queues, in worlds that have some ------------------------------------------------------------------------------

    def queue(self, name: str) -> Record:
        """The state of a queue."""
        return self.services["sqs"][name]  # type: ignore[no-any-return]

    def put_messages(self, name: str, messages: Iterable[Record]) -> None:
        """Change the messages of a queue."""
        changed = self.queue(name).with_fields(messages=tuple(messages))
        self.services["sqs"] = self.services["sqs"].with_fields(**{name: changed})

    def messages(self, *queues: str) -> list[Record]:
        """All messages of the queues."""
        return [message for queue in queues for message in self.queue(queue)["messages"]]

    def receivable(self, queue: str, *, together: bool = False) -> list[Record]:
        """The messages that a queue may deliver now."""
        return sqs.receivable(self.queue(queue), self.now, together=together)

    def deliver(self, queue: str, message: Record) -> Record:
        """A queue delivers a message; the message as it was delivered."""
        changed, answer = sqs.receive(self.queue(queue), message, self.now)
        self.services["sqs"] = self.services["sqs"].with_fields(**{queue: changed})
        taken: Record = answer.value["Messages"][0]
        self.log("queue", f"delivers {taken['id']} {taken['body']}, receive {taken['receives']}")
        return taken

    def send(self, queue: str, body: str, **more: Any) -> None:
        """Send a message."""
        sending = {"QueueUrl": queue, "MessageBody": body, **more}
        assert not self.perform(Question("sqs", "send_message", freeze(sending))).error

    # Common to all worlds ------------------------------------------------------------------------------------------

    def arrivals(self) -> list[Choice]:
        """The calls in transit."""
        return [Choice("land", str(number)) for number in range(len(self.in_transit))]

    def key(self) -> Hashable:
        """Equal for two states with the same possible events.

        An actor's state is its node, which is its program, arguments and answers.
        """
        left_out = _left_out(type(self))
        return tuple([_hashable(value) for name, value in self.__dict__.items() if name not in left_out])

    def copy(self) -> Self:
        """A copy that continues independently. States of services never change, so a copy is cheap."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.services = dict(self.services)
        other.actors = dict(self.actors)
        other.older = dict(self.older)
        other.older_at = dict(self.older_at)
        return other

    def take(self, choice: Choice) -> None:
        """Apply an event.

        Raises:
            Violation: the event breaks a guarantee.
        """
        if choice.is_fault:
            self.faults += 1
            self.disturbed_at = self.now
        getattr(self, choice.kind)(choice.subject, choice.how)
        self.check()

    def begin(self, name: str, node: Node, notes: Any = None) -> None:
        """Add an actor, at its first question."""
        self._advance(name, Actor(node, 0, notes))

    def note(self, name: str, **changed: Any) -> Actor:
        """Change the world's notes on an actor."""
        actor = self.actors[name]
        self.actors[name] = changed_actor = actor._replace(notes=actor.notes._replace(**changed))
        return changed_actor

    def call(self, name: str, how: str) -> None:
        """An actor's call of AWS, with the fault `how` if it is not empty."""
        actor = self.actors[name]
        question = actor.question
        if how == DIE:
            self.log(name, "dies before", question)
            del self.actors[name]
            return self.died(name, actor)
        answer = UNSENT if how == NOT_SENT else THROTTLED if how == THROTTLE else None
        if how == CONFLICT:
            answer = dynamodb.conflict(question.operation, question.parameters)
        if how == LATE:
            self.in_transit = (*self.in_transit, (self.now, name, question))
            answer = LOST
        if how == STALE:
            service = self.service_of(question)
            newest, self.services[service] = self.services[service], self.older[service]
            answer = self.perform(question)
            self.services[service] = newest
        if answer is None:
            answer = self.perform(question)
            if how == TWICE:  # the SDK repeats the call, since the first answer was lost
                answer = self.perform(question)
                if answer.error:
                    answer = answer._replace(value=(answer.value or _EMPTY).with_fields(ResponseMetadata=_RETRIED))
        if self.emit is not None:
            self.log(name, _how(how), question, answer)
        if how == DIE_AFTER:
            self.log(name, "dies before it receives the answer")
            del self.actors[name]
            return self.died(name, actor)
        if how == LOSE:
            answer = LOST
        return self._advance(name, actor.after(answer, Answer(self.clock_of(name, actor))))

    def land(self, number: str, how: str) -> None:
        """A call arrives after its sender gave up."""
        self.disturbed_at = self.now
        *_, question = self.in_transit[int(number)]
        self.in_transit = self.in_transit[: int(number)] + self.in_transit[int(number) + 1 :]
        answer = self.perform(question)
        self.log("network", "delivers late", question, answer)

    def wake_up(self, name: str, how: str) -> None:
        """An actor that slept, or waited for an answer of the world, continues."""
        actor = self.actors[name]
        if actor.asleep_until:
            actor = actor.after(Answer(), Answer(self.clock_of(name, actor)))._replace(asleep_until=0)
        self._advance(name, actor)

    def perform(self, question: Question) -> Answer:
        """Apply the question to the services; their answer. Results are cached."""
        state = self.services[question.service]
        # DynamoDB's answers do not depend on the time.
        key = (state, question, 0 if question.service == "dynamodb" else self.now)
        known = _performed.get(key)
        if known is None:
            known = _performed[key] = _SERVICES[question.service](state, *question[1:], self.now)
        self.services[question.service], answer = known
        return answer  # type: ignore[no-any-return]

    def log(self, actor: str, what: str, question: Question | None = None, answer: Answer | None = None) -> None:
        """Add a line to the history, if there is one."""
        if self.emit is not None:
            asked = "" if question is None else " " + _brief(question)
            error = "" if answer is None or not answer.error else f" -> {answer.error}"
            actor, text = (_DIGEST.sub("\\1", each) for each in (actor, f"{what}{asked}{error}"))
            self.emit(f"{self.now - BEGINNING:>7.0f} s  {actor:<18} {text}")

    def _advance(self, name: str, actor: Actor) -> None:
        """Give the actor the world's own answers, until it makes a call, sleeps or ends."""
        while (question := actor.node.question) is not None and question.service in self.immediate:
            if question.operation == "sleep" and self.timeless and not self.may_continue(name):
                break
            if question.operation == "sleep" and not self.timeless:
                self.actors[name] = actor._replace(asleep_until=self.now + max(1, question.parameters))
                return
            answer = Answer() if question.operation == "sleep" else self.own_answer(name, actor, question)
            if answer is None:
                break
            # The answer may have changed the world's notes.
            actor = Actor(
                actor.node.after(answer, Answer(self.clock_of(name, actor))), 0, self.actors.get(name, actor).notes
            )
        self.actors[name] = actor
        if actor.node.question is None:
            del self.actors[name]
            if self.emit is not None:
                self.log(name, f"ends: {actor.node.result}")
            self.finished(name, actor)


# `plan` and the like never change.
_NEVER_IN_KEY = frozenset(
    {"plan", "timeless", "emit", "immediate", "older", "older_at", "suspended_actor", "ever_suspended", "disturbed_at"}
)


@cache
def _left_out(world: type[World]) -> frozenset[str]:
    return _NEVER_IN_KEY | world.NOT_IN_KEY


def _hashable(value: Any) -> Any:
    return frozenset(value.items()) if type(value) is dict else value


def _brief(question: Question) -> str:
    given = question.parameters if isinstance(question.parameters, Record) else _EMPTY
    parts = [given.get(name) for name in ("UpdateExpression", "name", "executionArn", "ReceiptHandle", "MessageBody")]
    values = given.get("ExpressionAttributeNames", _EMPTY).get("#me")
    return " ".join(str(part) for part in (question.operation, *parts, values) if part is not None)[:150]


def _how(how: str) -> str:
    return {
        THROTTLE: "is refused",
        CONFLICT: "meets a transaction with",
        NOT_SENT: "cannot send",
        TWICE: "calls twice",
        LATE: "stops waiting for",
        STALE: "reads an old state with",
        LOSE: "gets no answer to",
    }.get(how, "calls")
