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
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from greenlet import GreenletExit, getcurrent, greenlet

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
    """A question or the result that the code has reached."""

    question: Question | None
    result: Any


class Program:
    """Code that takes the outside and arguments that can be hashed.

    Other code runs while it is suspended at a question, so it must not change a global value while it runs.

    Args:
        name: for histories.
        code: must use AWS, clock, sleep and identifiers only through `outside`.
    """

    def __init__(self, name: str, code: Callable[..., Any]) -> None:
        self.name = name
        self._code = code
        self._begun: dict[tuple[Any, ...], Node] = {}
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
        if node.suspended is not None:
            _suspended_nodes.append(node)
            if len(_suspended_nodes) > MOST_SUSPENDED:
                _suspended_nodes.popleft().drop_suspended()
        return node

    def run(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...]) -> tuple[Reached, _Suspended]:
        """Run the code to the question after these answers, or to its end."""
        outside, code = Outside(answers), greenlet(self._go)
        reached: Reached = code.switch(outside, arguments)
        # With an unused answer the code is not deterministic, and the simulation would prove nothing.
        assert outside.asked >= len(answers), f"{self.name} has not used all of {answers}"
        return reached, _Suspended(outside, code)

    def _go(self, outside: Outside, arguments: tuple[Any, ...]) -> Reached:
        try:
            return Reached(None, self._code(outside, *arguments))
        except Exception as error:
            return Reached(None, Raised(type(error).__name__, str(error)))

    def forget(self) -> None:
        """Drop all nodes, to bound memory. The caller must drop its own nodes too."""
        self._begun.clear()


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

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self._answers = answers
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
            self.asked += 1
            answer = getcurrent().parent.switch(Reached(question, None))
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
        return pages(self._call, parameters)


# The token in a page, and the parameter that takes it.
_TOKENS = (("NextToken", "NextToken"), ("LastEvaluatedKey", "ExclusiveStartKey"))


def pages(call: Callable[..., Any], parameters: dict[str, Any]) -> Iterator[Any]:
    """The pages of a paginated operation."""
    page = call(**parameters)
    yield page
    while following := {name: page[token] for token, name in _TOKENS if page.get(token)}:
        page = call(**parameters | following)
        yield page
