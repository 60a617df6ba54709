"""The form of the table: one row is one fact of AWS, with its source and a call that shows it.

    FACTS = Facts("sqs", EVERYWHERE, given=lambda aws: partial(Queue, aws))

    @FACTS.row(
        "A standard queue hides a message again although its visibility timeout has ended.",
        source=localstack("sqs/test_sqs.py", "test_change_message_visibility_after_visibility_timeout_expiration"),
        expected="accepted",
    )
    def hide_after_the_end(make: MakeQueue) -> str: ...

The call receives an account (account.py), or what `given` makes of it, and returns the answer in a short form.
The tests call it with the simulated and the embedded AWS, and the smoke test with a real account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pprint import pformat
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.facts.account import Account

SIMULATED, EMBEDDED, REAL = "simulated", "embedded", "real"
EVERYWHERE = (SIMULATED, EMBEDDED, REAL)
DEPLOYED = (EMBEDDED, REAL)
HAND_OFF = 10.0  # seconds until an event or a message has its effect; the janitor's next run takes up to a minute
DENIED = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")


class Failed(Exception):
    """AWS did not do what the row expects, or not in time. The text states the observation."""


class NotShown(Exception):
    """Nothing happened that could have disproved the fact, or something is missing. The text states what."""


@dataclass(frozen=True)
class Fact:
    """One row.

    Args:
        statement: the fact.
        source: the recording or the page of AWS that it is from, or that it is assumed.
        expected: the answer of AWS, or a predicate of it.
        call: makes the calls and returns the answer.
        given: makes the argument of `call` of an account.
        on: which of the simulated, the embedded and the real AWS can show it.
        group: a name for the facts that belong together.
        depends: what in the product depends on it, and what to change if AWS answers otherwise.
        unlike: of a predicate: an answer that it must refuse.
    """

    statement: str
    source: str
    expected: Any
    call: Callable[[Any], Any]
    given: Callable[[Account], Any]
    on: tuple[str, ...]
    group: str
    depends: str = ""
    unlike: Any = None

    @property
    def name(self) -> str:
        """The row's id: the name of its call."""
        return self.call.__name__

    def ask(self, aws: Account) -> Any:
        """The answer of this account."""
        return self.call(self.given(aws))

    def agrees(self, answer: Any) -> bool:
        """Whether the answer is as expected. One of another form is not."""
        if not callable(self.expected):
            return bool(answer == self.expected)
        try:
            return bool(self.expected(answer))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False

    def difference(self, answer: Any) -> str:
        """The report of an answer that is not as expected."""
        expected = "see the fact" if callable(self.expected) else pformat(self.expected)
        rows = {"fact": self.statement, "source": self.source, "expected": expected, "answer": pformat(answer)}
        return "\n".join(f"{name + ':':9} {text}" for name, text in rows.items())


class Facts(list[Fact]):
    """The rows of one group.

    Args:
        on: where they are shown, unless a row states otherwise.
        given: makes the argument of each call of an account.
    """

    def __init__(self, group: str, on: tuple[str, ...], given: Callable[[Account], Any] = lambda aws: aws) -> None:
        self.group, self.on, self.given = group, on, given

    def row(
        self,
        statement: str,
        *,
        source: str | tuple[str, ...],
        expected: Any,
        on: tuple[str, ...] = (),
        depends: str = "",
        unlike: Any = None,
    ) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Add the decorated call as a row."""
        sources = source if isinstance(source, str) else "; ".join(source)

        def add(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
            self.append(
                Fact(statement, sources, expected, call, self.given, on or self.on, self.group, depends, unlike)
            )
            return call

        return add


ASSUMED = "assumed: no recording, and no page of AWS"


def localstack(module: str, test: str) -> str:
    """A recording in LocalStack's repository; `module` is a path below tests/aws/services."""
    return f"recorded by LocalStack's snapshot test {test} (tests/aws/services/{module})"


def localstack_validated(module: str, test: str) -> str:
    """A test of LocalStack that passed against AWS, without a recording."""
    return f"LocalStack's test {test}, validated against AWS (tests/aws/services/{module})"


def moto_verified(module: str, test: str) -> str:
    """A test of moto that passed against AWS; `module` is a path below tests."""
    return f"moto's test {test}, verified against AWS (tests/{module})"


def documented(page: str) -> str:
    """A page of AWS's documentation."""
    return f"documented: {page}"


def code_of(call: Callable[[], Any]) -> str:
    """The error code of a call of boto3, or "accepted". Raises the error if the user lacks the permission."""
    try:
        call()
    except ClientError as error:
        if is_denied(error):
            raise
        return str(error.response["Error"]["Code"])
    return "accepted"


def is_denied(error: Exception) -> bool:
    """Whether the user lacks the permission for a call."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] in DENIED
