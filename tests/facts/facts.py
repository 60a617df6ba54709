"""The form of the conformance table: one row is one fact of AWS, with its source and a call that shows it.

    @FACTS.row(
        "A standard queue hides a message again although its visibility timeout has ended.",
        source=localstack("sqs/test_sqs.py", "test_change_message_visibility_after_visibility_timeout_expiration"),
        expected="accepted",
    )
    def hide_after_the_end(queues: Queues) -> str: ...

The call receives what stands for AWS, the embedded or the simulated one, and returns the answer in a short form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any

import pytest
from botocore.exceptions import ClientError


@dataclass(frozen=True)
class Fact[Service]:
    """One row.

    Args:
        statement: the fact.
        source: the recording or the page of AWS that it is from.
        expected: the answer of AWS.
        call: makes the calls and returns the answer.
    """

    statement: str
    source: str
    expected: Any
    call: Callable[[Service], Any]

    @property
    def name(self) -> str:
        """The row's id: the name of its call."""
        return self.call.__name__

    def check(self, **services: Service) -> None:
        """Fail, with every answer, unless each of `services` answers as AWS does."""
        answers = {name: self.call(service) for name, service in services.items()}
        if any(answer != self.expected for answer in answers.values()):
            pytest.fail(self._explain(answers), pytrace=False)

    def _explain(self, answers: Mapping[str, Any]) -> str:
        rows = {"fact": self.statement, "source": self.source, "expected": pformat(self.expected)}
        rows |= {f"{name} AWS": pformat(answer) for name, answer in answers.items()}
        return "\n".join(f"{name + ':':14} {text}" for name, text in rows.items())


class Facts[Service](list[Fact[Service]]):
    """The rows of one module."""

    def row(
        self, statement: str, *, source: str, expected: Any
    ) -> Callable[[Callable[[Service], Any]], Callable[[Service], Any]]:
        """Add the decorated call as a row."""

        def add(call: Callable[[Service], Any]) -> Callable[[Service], Any]:
            self.append(Fact(statement, source, expected, call))
            return call

        return add


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
    """The error code of a call of boto3, or "accepted"."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "accepted"
