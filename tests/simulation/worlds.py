"""What all simulated worlds have in common: services, actors, faults, and a scheduler's choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Self

from tests.simulation.aws import dynamodb, glue, sqs, stepfunctions
from tests.simulation.frozen import Record, record
from tests.simulation.transcript import LOST, UNSENT, Answer, Node, Question

THROTTLED = Answer(error="ThrottlingException")
_EMPTY = record({})
_DIGEST = re.compile(r"-[0-9a-f]{28}([0-9a-f]{4})")  # of a request: four digits of it are enough in a story
BEGINNING = 1_000_020.0  # seconds since the epoch at which every world begins: a multiple of most grains of a clock


class Choice(NamedTuple):
    """One thing that may happen next. `kind` names a method of the world, `who` and `how` are its arguments."""

    kind: str
    who: str = ""
    how: str = ""
    is_fault: bool = False


class Violation(AssertionError):
    """A property of the design page does not hold here."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Actor(NamedTuple):
    """Code that runs: where it is, until when it sleeps, and what its world wants to remember of it."""

    node: Node
    asleep_until: float = 0
    notes: Any = None


# How a call can go, if not well: each is one fault.
THROTTLE, NOT_SENT, LOSE, TWICE, STALE = "throttle", "unsent", "lose", "twice", "stale"
DIE, DIE_AFTER, LATE = "die", "die after", "late"

_SERVICES: dict[str, Callable[..., Any]] = {
    "dynamodb": lambda state, operation, parameters, _: dynamodb.perform(state, operation, parameters),
    "sqs": sqs.perform,
    "stepfunctions": stepfunctions.perform,
    "glue": glue.perform,
}
_performed: dict[Any, Any] = {}


class World:
    """A state of everything. `steps` says what can happen, `take` makes one of it happen, `key` tells states apart.

    Args:
        now: seconds since the epoch.
        timeless: the clock stands still. Every order of events is then possible that any clock would allow, and more.
    """

    def __init__(self, now: float = BEGINNING, *, timeless: bool = False) -> None:
        self.now = now
        self.timeless = timeless
        self.services: dict[str, Any] = {}
        self.actors: dict[str, Actor] = {}
        self.on_their_way: tuple[tuple[float, Question], ...] = ()  # requests that land later
        self.older_at: dict[str, float] = {}
        self.older: dict[str, Any] = {}  # states of services that a read which lags may still see
        self.faults = 0  # so far
        self.at_once = frozenset({"actor"})  # services that answer without a step of their own
        # When a fault last happened or took effect, or the clock moved beside code at work: bounds in time count from
        # here.
        self.disturbed_at = now
        self.stands_still = ""  # whom the scheduler lets stand still now
        self.held_up: frozenset[str] = frozenset()  # and whom it ever did: no bound is theirs
        self.tell: Callable[[str], None] | None = None

    # What a world has to say ---------------------------------------------------------------------------------------

    def steps(self) -> list[Choice]:
        """What may happen next without a fault."""
        raise NotImplementedError

    def time_steps(self) -> list[Choice]:
        """What may happen when `steps` are none, because time passes; empty at the end."""
        raise NotImplementedError

    def mishaps(self) -> list[Choice]:
        """What may go wrong next."""
        raise NotImplementedError

    def finished(self, name: str, actor: Actor) -> None:
        """An actor's code has ended: `actor.node.result`."""
        raise NotImplementedError

    def died(self, name: str, actor: Actor) -> None:
        """An actor is gone in the middle of its code."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises Violation if a property does not hold now. Called after every step."""
        raise NotImplementedError

    def check_end(self) -> None:
        """Raises Violation if a property does not hold when nothing is left to happen."""
        raise NotImplementedError

    def key(self) -> Hashable:
        """Equal for two states from which the same can happen."""
        raise NotImplementedError

    def summary(self) -> str:
        """The state in a line, for stories."""
        raise NotImplementedError

    def local(self, name: str, actor: Actor, question: Question) -> Answer | None:
        """The answer to a question that is the world's own, or None if the actor has to wait for it."""
        raise NotImplementedError

    def slowness(self) -> list[Choice]:
        """How time may pass although somebody could go on."""
        return []

    def hold_up(self, name: str) -> None:
        """The scheduler lets an actor stand still for a while: a fault."""
        self.faults += 1
        self.disturbed_at = self.now
        self.stands_still = name
        self.held_up |= {name}
        self.say(name, "stands still")

    def go_on(self) -> None:
        """The actor that stood still, if any, continues."""
        if self.stands_still:
            self.stands_still = ""
            self.disturbed_at = self.now

    def may_go_on(self, name: str) -> bool:
        """Whether a sleeper may wake up in a world without time; not if it would find nothing new, for ever."""
        raise NotImplementedError

    # What they share -----------------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """A world that goes on from here by itself. States of services never change, so this is cheap."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.services = dict(self.services)
        other.actors = dict(self.actors)
        other.older = dict(self.older)
        other.older_at = dict(self.older_at)
        return other

    def take(self, choice: Choice) -> None:
        """Makes it happen.

        Raises:
            Violation: and it breaks a property.
        """
        if choice.is_fault:
            self.faults += 1
            self.disturbed_at = self.now
        getattr(self, choice.kind)(choice.who, choice.how)
        self.check()

    def begin(self, name: str, node: Node, notes: Any = None) -> None:
        """A new actor, at its first question."""
        self._settle(name, Actor(node, 0, notes))

    def call(self, name: str, how: str) -> None:
        """An actor's call of AWS, well or ill."""
        actor = self.actors[name]
        question = actor.node.question
        assert question is not None
        if how == DIE:
            self.say(name, "dies before", question)
            del self.actors[name]
            return self.died(name, actor)
        answer = UNSENT if how == NOT_SENT else THROTTLED if how == THROTTLE else None
        if how == LATE:
            self.on_their_way = (*self.on_their_way, (self.now, question))
            answer = LOST
        if how == STALE:
            newest, self.services[question.service] = self.services[question.service], self.older[question.service]
            answer = self.perform(question)
            self.services[question.service] = newest
        if answer is None:
            answer = self.perform(question)
            if how == TWICE:  # the SDK has lost the first answer and asked again
                answer = self.perform(question)
        if self.tell is not None:
            self.say(name, _how(how), question, answer)
        if how == DIE_AFTER:
            self.say(name, "dies before it has the answer")
            del self.actors[name]
            return self.died(name, actor)
        if how == LOSE:
            answer = LOST
        return self._settle(name, Actor(actor.node.after(answer), actor.asleep_until, actor.notes))

    def land(self, number: str, how: str) -> None:
        """A request whose sender has given up on it arrives after all."""
        self.disturbed_at = self.now
        _, question = self.on_their_way[int(number)]
        self.on_their_way = self.on_their_way[: int(number)] + self.on_their_way[int(number) + 1 :]
        answer = self.perform(question)
        self.say("network", "brings late", question, answer)

    def wake_up(self, name: str, how: str) -> None:
        """A sleeper, or somebody who waited for an answer of the world's own, goes on."""
        actor = self.actors[name]
        if actor.asleep_until:
            actor = actor._replace(node=actor.node.after(Answer()), asleep_until=0)
        self._settle(name, actor)

    def perform(self, question: Question) -> Answer:
        """The question's effect on the services, and their answer; looked up if it is known."""
        state = self.services[question.service]
        # DynamoDB looks at no clock, so what is known of it is known at any time.
        key = (state, question, 0 if question.service == "dynamodb" else self.now)
        known = _performed.get(key)
        if known is None:
            known = _performed[key] = _SERVICES[question.service](state, *question[1:], self.now)
        self.services[question.service], answer = known
        return answer  # type: ignore[no-any-return]

    def say(self, who: str, what: str, question: Question | None = None, answer: Answer | None = None) -> None:
        """Adds to the story, if it is told."""
        if self.tell is not None:
            asked = "" if question is None else " " + _brief(question)
            error = "" if answer is None or not answer.error else f" -> {answer.error}"
            line = f"{self.now - BEGINNING:>7.0f} s  {who:<18} {what}{asked}{error}"
            self.tell(_DIGEST.sub("\\1", line))

    def _settle(self, name: str, actor: Actor) -> None:
        """Answers what the world answers itself, until there is a call to choose, a sleep, or the end."""
        while (question := actor.node.question) is not None and question.service in self.at_once:
            if question.operation == "sleep" and self.timeless and not self.may_go_on(name):
                break
            if question.operation == "sleep" and not self.timeless:
                self.actors[name] = actor._replace(asleep_until=self.now + max(1, question.parameters))
                return
            answer = Answer() if question.operation == "sleep" else self.local(name, actor, question)
            if answer is None:
                break
            # What the world remembers of it may have changed with the answer.
            actor = Actor(actor.node.after(answer), 0, self.actors.get(name, actor).notes)
        self.actors[name] = actor
        if actor.node.question is None:
            del self.actors[name]
            if self.tell is not None:
                self.say(name, f"is done: {actor.node.result}")
            self.finished(name, actor)


def forget() -> None:
    """Drops what is known of services, to bound memory."""
    _performed.clear()


def _brief(question: Question) -> str:
    given = question.parameters if isinstance(question.parameters, Record) else _EMPTY
    parts = [given.get(name) for name in ("UpdateExpression", "name", "executionArn", "ReceiptHandle", "MessageBody")]
    values = given.get("ExpressionAttributeNames", _EMPTY).get("#me")
    return " ".join(str(part) for part in (question.operation, *parts, values) if part is not None)[:150]


def _how(how: str) -> str:
    return {
        THROTTLE: "is refused",
        NOT_SENT: "cannot send",
        TWICE: "asks twice",
        LATE: "gives up waiting for",
        STALE: "reads too old a state by",
        LOSE: "gets no answer to",
    }.get(how, "asks")
