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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

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
    """How the code ended, if not by returning."""

    error: BaseException


class Node:
    """An actor after some answers."""

    __slots__ = ("_arguments", "_known", "_program", "answers", "question", "result")

    def __init__(self, program: Program, arguments: tuple[Any, ...], answers: tuple[Answer, ...]) -> None:
        self._program = program
        self._arguments = arguments
        self._known: dict[Answer, Node] = {}
        self.answers = answers
        self.question: Question | None
        self.result: Any
        self.question, self.result = program.run(arguments, answers)

    def after(self, answer: Answer) -> Node:
        """The actor when it has had this answer to its question."""
        node = self._known.get(answer)
        if node is None:
            node = self._known[answer] = Node(self._program, self._arguments, (*self.answers, answer))
        return node


class Program:
    """Code that takes the outside and arguments that can be hashed.

    Args:
        name: for stories.
        code: must reach AWS, clock, sleep and identifiers through `outside` only.
    """

    def __init__(self, name: str, code: Callable[..., Any]) -> None:
        self.name = name
        self._code = code
        self._begun: dict[tuple[Any, ...], Node] = {}

    def begin(self, *arguments: Any) -> Node:
        """The actor before its first answer."""
        node = self._begun.get(arguments)
        if node is None:
            node = self._begun[arguments] = Node(self, arguments, ())
        return node

    def run(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...]) -> tuple[Question | None, Any]:
        """The question that follows these answers, or None and the result."""
        outside = Outside(answers)
        try:
            result = self._code(outside, *arguments)
        except _Unanswered as unanswered:
            return unanswered.question, None
        except Exception as error:
            result = Raised(error.with_traceback(None))
        # An answer that the code no longer asks for means that it is not deterministic, and nothing would be proved.
        assert outside.asked == len(answers), f"{self.name} has not asked for all of {answers}"
        return None, result

    def forget(self) -> None:
        """Drops what is known, to bound memory. Nodes made before must be dropped with it."""
        self._begun.clear()


class _Unanswered(BaseException):
    """Leaves the code at its first question without an answer, past every `except Exception`."""

    def __init__(self, question: Question) -> None:
        self.question = question


class Outside:
    """What the code sees instead of AWS, of time and of chance."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self._answers = answers
        self._left_at: Question | None = None
        self._identifiers = 0
        self.asked = 0

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
        self._identifiers += 1
        return str(self._identifiers)

    def ask(self, question: Question) -> Any:
        """The answer, thawed.

        Raises:
            ClientError, ReadTimeoutError, ConnectTimeoutError: as the answer says.
        """
        if self._left_at is not None:  # a `finally` on the way out asks once more; nothing of it happens
            raise _Unanswered(self._left_at)
        if self.asked == len(self._answers):
            self._left_at = question
            raise _Unanswered(question)
        answer = self._answers[self.asked]
        self.asked += 1
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
    """One page: the worlds are small."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def paginate(self, *, PaginationConfig: Any = None, **parameters: Any) -> Iterator[Any]:  # noqa: N803 (boto3's name)
        yield self._call(**parameters)
