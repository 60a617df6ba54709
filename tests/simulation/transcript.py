"""The real code as an actor: its next question, as a function of the answers so far.

Code between two calls of AWS is deterministic if the clock, identifiers and jitter come from outside. So the list of
answers that an actor has received is its whole state. A `Node` is such a list, with the next question or the result.
Nodes are cached. The code itself runs only for a new list of answers, up to the first question without an answer: from
the question before, if it is still suspended there, or else from its beginning, with these answers.

    program = Program(lambda outside, message: Starter(Slots(outside.client("dynamodb"), ...)).admit(message))
    node = program.begin(message)
    node.question          Question("dynamodb", "update_item", ...)
    node = node.after(Answer(...))
    node.result            the code's result, when it has no further question

Two lists of answers after which the code is at the same place with the same variables are one node, if the code keeps
its whole state in variables (`Program.stack_is_state`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.call_stack import stack_below
from tests.simulation.frozen import freeze, thaw

ENDPOINT = "https://simulated"


class Question(NamedTuple):
    """A question of an actor: an AWS operation, or a clock or a sleep as the service "actor"."""

    service: str
    operation: str
    parameters: Any  # frozen


class Answer(NamedTuple):
    """The answer to a question. `error`: empty after success; LOST, UNSENT, or an AWS error code."""

    value: Any = None  # frozen; with an error: further fields of the response, such as DynamoDB's Item
    error: str = ""


LOST = Answer(error="LOST")  # no answer arrived; the request may have taken effect
UNSENT = Answer(error="UNSENT")  # no connection: the request had no effect


class Raised(NamedTuple):
    """The result of code that raised an exception: its type and text."""

    error: str
    text: str


class Node:
    """An actor after a list of answers."""

    __slots__ = ("_known", "_program", "answers", "arguments", "question", "result", "suspended")

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        answers: tuple[Answer, ...],
        reached: Reached,
        suspended: _Suspended | None = None,
    ) -> None:
        self._program = program
        self.suspended = suspended
        self._known: dict[Answer, Node] = {}
        self.arguments = arguments
        self.answers = answers
        self.question: Question | None = reached.question
        self.result: Any = reached.result

    def behaves_as(self, other: Node) -> bool:
        """Whether the code, run after these answers, continues as recorded for `other`."""
        for answer, following in other._known.items():
            reached, suspended = self._program.run(self.arguments, (*self.answers, answer))
            suspended.outside.is_dropped = True
            if (reached.question, reached.result) != (following.question, following.result):
                return False
        return True

    def after(self, answer: Answer) -> Node:
        """The actor after this answer to its question."""
        node = self._known.get(answer)
        if node is None:
            suspended, self.suspended = self.suspended, None
            node = self._program.node(self.arguments, (*self.answers, answer), suspended)
            self._known[answer] = node
        return node

    def drop_suspended(self) -> None:
        """End the code that is suspended at the question, if any: when it is needed, it runs from the beginning."""
        if self.suspended is not None:
            self.suspended.outside.is_dropped = True
            self.suspended = None


class Reached(NamedTuple):
    """A question or the result that the code has reached. `stack` identifies place and variables."""

    question: Question | None
    result: Any
    stack: Hashable


class Program:
    """Code that takes the outside and arguments that can be hashed.

    Other code runs while it is suspended at a question, so it must not change a global value while it runs.

    Args:
        name: for histories.
        code: must use AWS, clock, sleep and identifiers only through `outside`.
        written_only: types whose objects the code never reads, such as counters of metrics.
        stack_is_state: at each question, the variables of the code's frames hold its whole state. Not true for a
            question inside a comprehension, or in a loop over an object that no variable holds.
        unread: names of variables and attributes that do not affect the code's questions, such as counts for reports.
    """

    merged: list[tuple[Node, Node]] | None = None  # pairs of nodes that became one; a list if a test collects them
    merges = True  # False in random schedules, which hardly ever reach the same state twice

    def __init__(
        self,
        name: str,
        code: Callable[..., Any],
        *,
        stack_is_state: bool = False,
        written_only: tuple[type, ...] = (),
        unread: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self._code = code
        self._stack_is_state = stack_is_state
        self._written_only = written_only
        self._unread = unread
        self._begun: dict[tuple[Any, ...], Node] = {}
        self._nodes: dict[Hashable, Node] = {}
        _programs.append(self)

    def begin(self, *arguments: Any) -> Node:
        """The actor before its first answer."""
        node = self._begun.get(arguments)
        if node is None:
            node = self._begun[arguments] = self.node(arguments, ())
        return node

    def node(
        self, arguments: tuple[Any, ...], answers: tuple[Answer, ...], suspended: _Suspended | None = None
    ) -> Node:
        """The actor after these answers. Runs its code from where it is suspended, or else from the beginning."""
        if suspended is None:
            reached, suspended = self.run(arguments, answers)
        else:
            reached = suspended.code.switch(answers[-1])
        node = Node(self, arguments, answers, reached, suspended if reached.question is not None else None)
        known = node if reached.stack is None else self._nodes.setdefault(reached, node)
        if known is not node:
            node.drop_suspended()
            if Program.merged is not None:
                Program.merged.append((node, known))
        elif node.suspended is not None:
            _suspended_nodes.append(node)
            if len(_suspended_nodes) > MOST_SUSPENDED:
                _suspended_nodes.popleft().drop_suspended()
        return known

    def run(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...]) -> tuple[Reached, _Suspended]:
        """Run the code to the question after these answers, or to its end."""
        outside, code = Outside(answers, self._stack()), greenlet(self._go)
        reached: Reached = code.switch(outside, arguments)
        # With an unused answer the code is not deterministic, and the simulation would prove nothing.
        assert outside.asked >= len(answers), f"{self.name} has not used all of {answers}"
        return reached, _Suspended(outside, code)

    def _go(self, outside: Outside, arguments: tuple[Any, ...]) -> Reached:
        try:
            return Reached(None, self._code(outside, *arguments), None)
        except Exception as error:
            return Reached(None, Raised(type(error).__name__, str(error)), None)

    def _stack(self) -> Callable[[], Hashable] | None:
        if not Program.merges or not self._stack_is_state:
            return None
        return partial(stack_below, Program._go.__code__, _OUTSIDE, self._written_only, self._unread)

    def forget(self) -> None:
        """Drop all nodes, to bound memory. The caller must drop its own nodes too."""
        self._begun.clear()
        self._nodes.clear()


class _Suspended(NamedTuple):
    """Code that is suspended at a question."""

    outside: Outside
    code: greenlet


MOST_SUSPENDED = 2_000  # to bound memory
_suspended_nodes: deque[Node] = deque()  # the oldest first, which a depth-first search needs last
_programs: list[Program] = []


def forget() -> None:
    """Drop the nodes of all programs; see Program.forget."""
    drop_suspended()
    for program in _programs:
        program.forget()


def drop_suspended() -> None:
    """End all suspended code, to bound memory."""
    while _suspended_nodes:
        _suspended_nodes.pop().drop_suspended()


class Outside:
    """Replaces AWS, time and random values for the code."""

    def __init__(self, answers: tuple[Answer, ...], stack: Callable[[], Hashable] | None = None) -> None:
        self._answers = answers
        self._stack = stack
        self.identifiers = 0
        self.asked = 0
        self.is_dropped = False

    def client(self, service: str) -> Any:
        """A double of a boto3 client: each operation is a question."""
        return _Client(self, service)

    def clock(self) -> float:
        """Seconds since the epoch, by this actor's clock."""
        return float(self.ask(Question("actor", "clock", None)))

    def sleep(self, seconds: float) -> None:
        """Wait; the world decides what happens meanwhile."""
        self.ask(Question("actor", "sleep", seconds))

    def identifier(self) -> str:
        """A new identifier. It is the same when this actor runs again, and not unique among actors."""
        self.identifiers += 1
        return str(self.identifiers)

    def ask(self, question: Question) -> Any:
        """The answer, thawed.

        Raises:
            ClientError, ReadTimeoutError, ConnectTimeoutError: the answer is this error.
        """
        if self.is_dropped:  # a question of a `finally` on the way out: it has no effect
            raise GreenletExit
        if self.asked < len(self._answers):
            answer = self._answers[self.asked]
            self.asked += 1
        else:
            stack = None if self._stack is None else (self._stack(), self.identifiers)
            self.asked += 1
            answer = getcurrent().parent.switch(Reached(question, None, stack))
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


# The token in a page, and the parameter that takes it.
_TOKENS = (("NextToken", "NextToken"), ("LastEvaluatedKey", "ExclusiveStartKey"))


def _pages(call: Callable[..., Any], parameters: dict[str, Any]) -> Iterator[Any]:
    """Not a method of _Paginator: the page that it is at is part of the code's state."""
    page = call(**parameters)
    yield page
    while following := {name: page[token] for token, name in _TOKENS if page.get(token)}:
        page = call(**parameters | following)
        yield page


_OUTSIDE = (Outside, _Client, _Paginator)
