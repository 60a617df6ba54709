"""Faults at the botocore boundary: what a caller sees when a network or a service fails it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError


class Killed(BaseException):
    """The process died here: no except clause of the code under test may see it."""


def _hook(client: Any, event: str, operation: str, error: BaseException, times: int) -> None:
    left = [times]

    def raise_it(**_: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    client.meta.events.register(f"{event}.{client.meta.service_model.service_name}.{operation}", raise_it)


def lose_answer(client: Any, operation: str, times: int = 1) -> None:
    """The call is made and takes effect; its answer never arrives."""
    _hook(client, "after-call", operation, ReadTimeoutError(endpoint_url="the service"), times)


def lose_answers(client: Any, operation: str, lost: Callable[[], bool]) -> None:
    """As `lose_answer`, of every call of which `lost` says so when its answer comes."""

    def raise_it(**_: Any) -> None:
        if lost():
            raise ReadTimeoutError(endpoint_url="the service")

    client.meta.events.register(f"after-call.{client.meta.service_model.service_name}.{operation}", raise_it)


def kill_before(client: Any, operation: str) -> None:
    """The caller dies just before the call."""
    _hook(client, "before-call", operation, Killed(), 1)


def kill_after(client: Any, operation: str) -> None:
    """The caller dies just after the call took effect."""
    _hook(client, "after-call", operation, Killed(), 1)


def refuse(client: Any, operation: str, code: str, times: int = 1, retry_attempts: int = 0, **parameters: Any) -> None:
    """The service refuses the call with this error code; nothing takes effect. `told` is added to its answer."""
    response: Any = {
        **parameters,
        "Error": {"Code": code, "Message": f"refused with {code}"},
        "ResponseMetadata": {"RetryAttempts": retry_attempts},
    }
    _hook(client, "before-call", operation, ClientError(response, operation), times)


class Calls:
    """Counts the calls that clients make, by operation name."""

    def __init__(self, *clients: Any) -> None:
        self.made: list[str] = []
        for client in clients:
            client.meta.events.register("before-call", self._note)

    def _note(self, model: Any, **_: Any) -> None:
        self.made.append(model.name)
