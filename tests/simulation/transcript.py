"""The real code as an actor: what it asks next, as a function of the answers so far.

Code between two calls of AWS is deterministic once the clock, identifiers and jitter come from outside. So an actor's
whole inner state is the list of answers it has had. A `Node` is such a list; it holds the next question or the result.
Nodes are remembered: the code itself runs only when a list of answers is new, from its beginning, with the answers read
out to it, up to the first question that nobody has answered yet.

    program = Program(lambda outside, message: Starter(Slots(outside.client("dynamodb"), ...)).admit(message))
    node = program.begin(message)
    node.question          Question("dynamodb", "update_item", ...)
    node = node.after(Answer(...))
    node.result            what the code returned, once there is no question any more

Two lists of answers after which the code stands at the same place with the same variables are one node, for code that
keeps all that it knows in variables (`Program.stack_tells`): what is known of one is known of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.call_stack import stack_below
from tests.simulation.frozen import freeze, thaw

ENDPOINT = "https://simulated"


class Question(NamedTuple):
    """What an actor asks of the outside: an AWS operation, or the service "actor" for clock and sleep."""

    service: str
    operation: str
    parameters: Any  # frozen


class Answer(NamedTuple):
    """What comes back. `error` is empty for a success, LOST or UNSENT, or an AWS error code."""

    value: Any = None  # frozen; of an error: further members of the response, as DynamoDB's Item
    error: str = ""


LOST = Answer(error="LOST")  # no answer came; the request may have taken effect
UNSENT = Answer(error="UNSENT")  # no connection: it took none


class Raised(NamedTuple):
    """How the code ended, if not by returning: the type of the exception, and its text."""

    error: str
    text: str


class Node:
    """An actor after some answers."""

    __slots__ = ("_known", "_program", "answers", "arguments", "question", "result", "standing")

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        answers: tuple[Answer, ...],
        ended: Ended,
        standing: _Standing | None = None,
    ) -> None:
        self._program = program
        self.standing = standing
        self._known: dict[Answer, Node] = {}
        self.arguments = arguments
        self.answers = answers
        self.question: Question | None = ended.question
        self.result: Any = ended.result

    def behaves_as(self, other: Node) -> bool:
        """Whether the code itself, run again, does after these answers what is known of `other`."""
        for answer, following in other._known.items():
            ended = self._program.run(self.arguments, (*self.answers, answer))
            if (ended.question, ended.result) != (following.question, following.result):
                return False
        return True

    def after(self, answer: Answer) -> Node:
        """The actor when it has had this answer to its question."""
        node = self._known.get(answer)
        if node is None:
            standing, self.standing = self.standing, None
            node = self._program.node(self.arguments, (*self.answers, answer), standing)
            self._known[answer] = node
        return node


class Ended(NamedTuple):
    """How far the code came: to a question, or to its result. `stack` tells places and variables apart."""

    question: Question | None
    result: Any
    stack: Hashable


class Program:
    """Code that takes the outside and arguments that can be hashed.

    Args:
        name: for stories.
        code: must reach AWS, clock, sleep and identifiers through `outside` only.
        written_only: types whose objects the code writes to and never reads: counters of metrics.
        stack_tells: at each of its questions, the variables of its frames hold all that it has learnt. Not so if it
            asks in the middle of building a collection, or from a loop over something that no variable holds.
        stands_still: the code may be left standing at a question, and go on from there when it is answered, while other
            code runs. Not so if it changes something global for as long as it runs.
        unread: names of variables and attributes that make no difference to what the code asks: counts for reports.
    """

    merged: list[tuple[Node, Node]] | None = None  # pairs that were taken for one, if somebody wants to know
    merges = True  # random schedules hardly ever come to the same place twice, so they save themselves the looking

    def __init__(
        self,
        name: str,
        code: Callable[..., Any],
        *,
        stack_tells: bool = False,
        written_only: tuple[type, ...] = (),
        unread: frozenset[str] = frozenset(),
        stands_still: bool = False,
    ) -> None:
        self.name = name
        self._stands_still = stands_still
        self._code = code
        self._stack_tells = stack_tells
        self._written_only = written_only
        self._unread = unread
        self._begun: dict[tuple[Any, ...], Node] = {}
        self._nodes: dict[Hashable, Node] = {}

    def begin(self, *arguments: Any) -> Node:
        """The actor before its first answer."""
        node = self._begun.get(arguments)
        if node is None:
            node = self._begun[arguments] = self.node(arguments, ())
        return node

    def node(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...], standing: _Standing | None = None) -> Node:
        """The actor after these answers, by running its code; or only on from where it stands still."""
        if self._stands_still and not Program.merges:
            if standing is None:
                standing = _Standing(Outside(answers), greenlet(self._go))
                came_to = standing.code.switch(standing.outside, arguments)
            else:
                came_to = standing.code.switch(answers[-1])
            if isinstance(came_to, Ended):
                return Node(self, arguments, answers, came_to)
            node = Node(self, arguments, answers, Ended(came_to, None, None), standing)
            _left_standing.append(node)
            return node
        ended = self.run(arguments, answers)
        node = Node(self, arguments, answers, ended)
        if ended.stack is None:
            return node
        known = self._nodes.setdefault(ended, node)
        if known is not node and Program.merged is not None:
            Program.merged.append((node, known))
        return known

    def _go(self, outside: Outside, arguments: tuple[Any, ...]) -> Ended:
        outside.stands_still = True
        try:
            return Ended(None, self._code(outside, *arguments), None)
        except Exception as error:
            return Ended(None, Raised(type(error).__name__, str(error)), None)

    def run(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...]) -> Ended:
        """Runs the code up to the question that follows these answers, or to its end."""
        stack = partial(stack_below, Program.run.__code__, _OUTSIDE, self._written_only, self._unread)
        outside = Outside(answers, stack if Program.merges and self._stack_tells else None)
        try:
            result = self._code(outside, *arguments)
        except _Unanswered as unanswered:
            return Ended(unanswered.question, None, unanswered.stack)
        except Exception as error:
            result = Raised(type(error).__name__, str(error))
        # An answer that the code no longer asks for means that it is not deterministic, and nothing would be proved.
        assert outside.asked == len(answers), f"{self.name} has not asked for all of {answers}"
        return Ended(None, result, None)

    def forget(self) -> None:
        """Drops what is known, to bound memory. Nodes made before must be dropped with it."""
        self._begun.clear()
        self._nodes.clear()


class _Standing(NamedTuple):
    """Code that stands still at a question."""

    outside: Outside
    code: greenlet


_left_standing: list[Node] = []


def let_go() -> None:
    """Ends all code that stands still, to bound memory. What is asked of its nodes runs it from its beginning."""
    for node in _left_standing:
        if node.standing is not None:
            node.standing.outside.is_left = True
            node.standing = None
    _left_standing.clear()


class _Unanswered(BaseException):
    """Leaves the code at its first question without an answer, past every `except Exception`."""

    def __init__(self, question: Question, stack: Hashable) -> None:
        self.question = question
        self.stack = stack


class Outside:
    """What the code sees instead of AWS, of time and of chance."""

    def __init__(self, answers: tuple[Answer, ...], stack: Callable[[], Hashable] | None = None) -> None:
        self._answers = answers
        self._stack = stack
        self._left_by: _Unanswered | None = None
        self.identifiers = 0
        self.asked = 0
        self.stands_still = False  # at a question, until it is answered
        self.is_left = False

    def client(self, service: str) -> Any:
        """A boto3 client's double: every operation of it is a question."""
        return _Client(self, service)

    def clock(self) -> float:
        """Seconds since the epoch, as this actor's clock shows them."""
        return float(self.ask(Question("actor", "clock", None)))

    def sleep(self, seconds: float) -> None:
        """Stands still; the world decides what happens meanwhile."""
        self.ask(Question("actor", "sleep", seconds))

    def identifier(self) -> str:
        """A new one each time, and the same ones in the same order whenever this actor runs again.

        Not unique among actors: whoever needs that puts the actor's own name before it.
        """
        self.identifiers += 1
        return str(self.identifiers)

    def ask(self, question: Question) -> Any:
        """The answer, thawed.

        Raises:
            ClientError, ReadTimeoutError, ConnectTimeoutError: as the answer says.
        """
        if self._left_by is not None:  # a `finally` on the way out asks once more; nothing of it happens
            raise self._left_by
        if self.is_left:
            raise GreenletExit
        if self.asked < len(self._answers):
            answer = self._answers[self.asked]
            self.asked += 1
        elif self.stands_still:
            self.asked += 1
            answer = getcurrent().parent.switch(question)
        else:
            # The stack is looked at here: what a `finally` does on the way out is not the code's state any more.
            stack = None if self._stack is None else (self._stack(), self.identifiers)
            self._left_by = _Unanswered(question, stack)
            raise self._left_by
        if not answer.error:
            return thaw(answer.value)
        if answer.error == LOST.error:
            raise ReadTimeoutError(endpoint_url=ENDPOINT)
        if answer.error == UNSENT.error:
            raise ConnectTimeoutError(endpoint_url=ENDPOINT)
        response = {"Error": {"Code": answer.error, "Message": "simulated"}, "ResponseMetadata": {"RetryAttempts": 0}}
        raise ClientError(response | (thaw(answer.value) or {}), question.operation)


class _Client:
    def __init__(self, outside: Outside, service: str) -> None:
        self._outside = outside
        self._service = service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            return self._outside.ask(Question(self._service, operation, freeze(parameters)))

        return call

    def get_paginator(self, operation: str) -> _Paginator:
        return _Paginator(getattr(self, operation))


class _Paginator:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def paginate(self, *, PaginationConfig: Any = None, **parameters: Any) -> Iterator[Any]:
        return _pages(self._call, parameters)


def _pages(call: Callable[..., Any], parameters: dict[str, Any]) -> Iterator[Any]:
    """Not a method of _Paginator: which page it is at is a part of what the code knows."""
    page = call(**parameters)
    yield page
    while token := page.get("NextToken"):
        page = call(**parameters, NextToken=token)
        yield page


_OUTSIDE = (Outside, _Client, _Paginator)
