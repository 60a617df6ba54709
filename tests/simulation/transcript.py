"""The real code as an actor: its next question, as a function of the answers so far.

Code between two calls of AWS is deterministic if the clock, identifiers and jitter come from outside. So the list of
answers that an actor has received is its whole state. A `Node` is such a list, with the next question or the result.
For a new list the code runs from its beginning, with these answers, up to the first question without one, which raises
`Unanswered`. Nodes are cached, so this happens once for each list.

    program = Program("reader", lambda outside, process: Slots(outside.client("dynamodb"), "slots").read(process))
    node = program.begin("p")
    node.question          Question("dynamodb", "get_item", ...)
    node = node.after(Answer(...))
    node.result            the code's result, when it has no further question
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from tests.simulation.frozen import freeze, table, thaw

ENDPOINT = "https://simulated"


class Question(NamedTuple):
    """A question of an actor: an AWS operation, or a clock or a sleep as the service "actor"."""

    service: str
    operation: str
    parameters: Any  # frozen


CLOCK = Question("actor", "clock", None)


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


class Again(NamedTuple):
    """The result of code that continues as if it began with these arguments. Its answers so far make no difference."""

    arguments: tuple[Any, ...]


class Unanswered(BaseException):
    """Ends code at a question that has no answer yet.

    `except Exception` does not catch it. Code that does, or that asks again in a `finally`, has no effect by that: each
    further question raises it again, and the actor is at the first one.
    """


class Node:
    """An actor after a list of answers: at a question, or at its end with a result."""

    __slots__ = ("_program", "answers", "arguments", "known", "question", "result")

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        answers: tuple[Answer, ...],
        question: Question | None,
        result: Any = None,
    ) -> None:
        self._program = program
        self.arguments = arguments
        self.answers = answers
        self.question = question
        self.result = result
        self.known: dict[Answer, Node] = {}  # after the answers so far

    def after(self, answer: Answer, clock: Answer | None = None) -> Node:
        """The actor after this answer to its question. `clock`: see Program.node."""
        node = self.known.get(answer)
        if node is None:
            node = self.known[answer] = self._program.node(self.arguments, (*self.answers, answer), clock)
        return node


class Program:
    """Code that takes the outside and arguments that can be hashed.

    Args:
        name: for histories.
        code: must use AWS, clock, sleep and identifiers only through `outside`.
    """

    def __init__(self, name: str, code: Callable[..., Any]) -> None:
        self.name = name
        self._code = code
        self._begun: dict[tuple[Any, ...], Node] = table()

    def begin(self, *arguments: Any) -> Node:
        """The actor before its first answer."""
        node = self._begun.get(arguments)
        if node is None:
            node = self._begun[arguments] = self.node(arguments, ())
        return node

    def node(self, arguments: tuple[Any, ...], answers: tuple[Answer, ...], clock: Answer | None = None) -> Node:
        """Run the code from its beginning with these answers.

        Args:
            clock: the answer if the next question is CLOCK, as it often is. Then this run also makes the node after it.
        """
        outside, result = Outside(answers, clock), None
        try:
            result = self._code(outside, *arguments)
        except Unanswered:
            pass
        except Exception as error:
            result = Raised(type(error).__name__, str(error))
        # With an unused answer the code is not deterministic, and the simulation would prove nothing.
        assert outside.asked == len(outside.answers), f"{self.name} has not used all of {answers}"
        if outside.unanswered:
            node = Node(self, arguments, outside.answers, outside.unanswered)
        elif isinstance(result, Again):
            node = self.begin(*result.arguments)
        else:
            node = Node(self, arguments, outside.answers, None, result)
        if clock is None or len(outside.answers) == len(answers):
            return node
        before = Node(self, arguments, answers, CLOCK)
        before.known[clock] = node
        return before


class Outside:
    """Replaces AWS, time and random values for the code."""

    def __init__(self, answers: tuple[Answer, ...], clock: Answer | None = None) -> None:
        self.answers = answers
        self.asked = 0
        self.unanswered: Question | None = None  # the first question without an answer
        self._next_clock = clock
        self._shown: Any = None  # by the clock, after `_shown_after` answers
        self._shown_after = -1
        self._identifiers = 0

    def client(self, service: str) -> Any:
        """A double of a boto3 client: each operation is a question."""
        return _Client(self, service)

    def clock(self) -> Any:
        """The time that this actor's clock shows. It is read once between two calls, where no time passes."""
        if self._shown_after != self.asked:
            self._shown = self.ask(CLOCK)
            self._shown_after = self.asked
        return self._shown

    def sleep(self, seconds: float) -> None:
        """Wait; the world decides what happens meanwhile."""
        self.ask(Question("actor", "sleep", seconds))

    def identifier(self) -> str:
        """A new identifier. It is the same when this actor runs again, and not unique among actors."""
        self._identifiers += 1
        return str(self._identifiers)

    def ask(self, question: Question) -> Any:
        """The answer, thawed.

        Raises:
            ClientError, ReadTimeoutError, ConnectTimeoutError: the answer is this error.
            Unanswered: there is no answer yet.
        """
        if self.is_answered:
            return self.answer(question.operation)
        if self.unanswered is None and question is CLOCK and self._next_clock is not None:
            self.answers, self._next_clock = (*self.answers, self._next_clock), None
            return self.answer(question.operation)
        self.unanswered = self.unanswered or question
        raise Unanswered

    @property
    def is_answered(self) -> bool:
        """Whether the next question has an answer. It need not be composed: its answer depends on the ones before."""
        return self.asked < len(self.answers)

    def answer(self, operation: str) -> Any:
        """The next answer; see `ask`."""
        answer = self.answers[self.asked]
        self.asked += 1
        if not answer.error:
            return thaw(answer.value)
        if answer.error == LOST.error:
            raise ReadTimeoutError(endpoint_url=ENDPOINT)
        if answer.error == UNSENT.error:
            raise ConnectTimeoutError(endpoint_url=ENDPOINT)
        response = {"Error": {"Code": answer.error, "Message": "simulated"}, "ResponseMetadata": {"RetryAttempts": 0}}
        raise ClientError(response | (thaw(answer.value) or {}), operation)


class _Client:
    def __init__(self, outside: Outside, service: str) -> None:
        self._outside = outside
        self._service = service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**parameters: Any) -> Any:
            if self._outside.is_answered:
                return self._outside.answer(operation)
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


@contextmanager
def replacing(*replaced: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes of modules while code runs that does not take their values as arguments."""
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
