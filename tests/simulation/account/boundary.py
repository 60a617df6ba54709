"""Faults at the botocore boundary: lost answers, refusals, and a caller that dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError


class Killed(BaseException):
    """The process dies here. A BaseException, so that no `except Exception` of the code under test catches it."""


def _hook(client: Any, event: str, operation: str, error: BaseException, times: int) -> None:
    left = [times]

    def raise_it(**_: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise error

    client.meta.events.register(f"{event}.{client.meta.service_model.service_name}.{operation}", raise_it)


def lose_answer(client: Any, operation: str, times: int = 1) -> None:
    """Let the call take effect and lose its answer."""
    _hook(client, "after-call", operation, ReadTimeoutError(endpoint_url="the service"), times)


def lose_answers(client: Any, operation: str, lost: Callable[[], bool]) -> None:
    """As `lose_answer`, for each call for which `lost` returns true when its answer arrives."""

    def raise_it(**_: Any) -> None:
        if lost():
            raise ReadTimeoutError(endpoint_url="the service")

    client.meta.events.register(f"after-call.{client.meta.service_model.service_name}.{operation}", raise_it)


def kill_before(client: Any, operation: str) -> None:
    """Kill the caller just before the call."""
    _hook(client, "before-call", operation, Killed(), 1)


def before_write(client: Any, *acts: Callable[[dict[str, Any]], Any], operation: str = "UpdateItem") -> None:
    """Call the first act, with the parameters of the call, just before the next UpdateItem; then the second, and so on.

    No act is called before the updates that an act makes.

    Args:
        operation: another one than UpdateItem.
    """
    left, acting = list(acts), [False]

    def before(params: dict[str, Any], **_: Any) -> None:
        if left and not acting[0]:
            acting[0] = True
            left.pop(0)(dict(params))
            acting[0] = False

    service = client.meta.service_model.service_name
    client.meta.events.register(f"before-parameter-build.{service}.{operation}", before)


def refuse(
    client: Any,
    operation: str,
    code: str,
    times: int = 1,
    retry_attempts: int = 0,
    message: str = "refused",
    **parameters: Any,
) -> None:
    """Refuse the call with this error code, without effect. `parameters` are added to the answer."""
    response: Any = {
        **parameters,
        "Error": {"Code": code, "Message": f"{message} with {code}"},
        "ResponseMetadata": {"RetryAttempts": retry_attempts},
    }
    _hook(client, "before-call", operation, ClientError(response, operation), times)


class Calls:
    """The operation names of the calls that clients make, in order."""

    def __init__(self, *clients: Any) -> None:
        self.made: list[str] = []
        for client in clients:
            client.meta.events.register("before-call", self._note)

    def _note(self, model: Any, **_: Any) -> None:
        self.made.append(model.name)


def passed_values(client: Any, operation: str, parameter: str) -> list[Any]:
    """A list to which each later call of the operation adds its value of a parameter."""
    values: list[Any] = []
    event = f"provide-client-params.{client.meta.service_model.service_name}.{operation}"
    client.meta.events.register(event, lambda params, **_: values.append(params[parameter]))
    return values


def note_parameters(params: Any, context: dict[str, Any], **_: Any) -> None:
    """For `before-parameter-build`: keeps the call's parameters for the hooks of `before-call`."""
    context["parameters"] = params
