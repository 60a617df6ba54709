"""The common part of the services of an account: its clock, and their answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.simulation.frozen import thaw
from tests.simulation.transcript import Answer

ACCOUNT_ID = "123456789012"
REGION = "us-east-1"

Parameters = dict[str, Any]


class Refusal(Exception):
    """An error answer of the service."""

    def __init__(self, code: str, message: str = "", **more: Any) -> None:
        super().__init__(code)
        self.answer = {"Error": {"Code": code, "Message": message or f"refused with {code}"}, **more}


class Service:
    """A service has a method for each operation, named by it: `_SendMessage` takes parameters and returns the answer.

    Attributes:
        clock: seconds since the epoch.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.time


def unfrozen(answer: Answer) -> Any:
    """The answer of a pure state machine in boto3's form. Raises Refusal."""
    value = thaw(answer.value) or {}
    if answer.error:
        raise Refusal(answer.error, **value)
    return value


def arn(service: str, name: str) -> str:
    """The ARN of a resource of the account."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT_ID}:{name}"
