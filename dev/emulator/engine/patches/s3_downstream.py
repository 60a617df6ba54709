"""GetObject of named keys follows a script, and is recorded. Applied with a script file only.

AWS: "Amazon S3 API Reference: Error responses" (SlowDown, 503: "Please reduce your request rate."; InternalError, 500;
ServiceUnavailable, 503); "Retry behavior" of the SDKs' guide (a connection that ends without an answer; Retry-After).
`dev.emulator.downstream` writes and explains the scripts.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from hypercorn.events import Closed

from dev.emulator.engine.downstream_script import Script
from dev.emulator.engine.emulator import replace

ERRORS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "unavailable": (503, "ServiceUnavailable", "Service is unable to handle request."),
    "error": (500, "InternalError", "We encountered an internal error. Please try again."),
}
App = Callable[[Any, Any, Any], Awaitable[None]]


def apply() -> None:
    """Wrap the whole application, which sees a caller disconnect, and can close a connection.

    The import binds the handlers of all services, so this patch is applied after those of the services.
    """
    replace(import_module("ministack.app"), "app", lambda original: _fragile(original, Script.from_environment()))


def _fragile(original: App, script: Script) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        call_and_step = script.begin(_key(scope)) if scope["type"] == "http" and scope["method"] == "GET" else None
        if call_and_step is None:
            await original(scope, receive, send)
            return
        step, call = call_and_step
        answer = "gone"
        try:
            body = await _waited(receive, step["seconds"])
            if body is not None:
                answer = await _answer(original, scope, _again(body, receive), send, step)
        finally:
            script.end(call, answer)

    return app


def _key(scope: Any) -> str:
    """The object's key in a path-style address, which clients use if the host is an IP address."""
    return str(scope["path"]).lstrip("/").partition("/")[2]


async def _waited(receive: Any, seconds: float) -> list[Any] | None:
    """The request's body after `seconds`; None as soon as the caller has closed the connection."""
    body: list[Any] = []

    async def until_disconnected() -> None:
        while (message := await receive())["type"] != "http.disconnect":
            body.append(message)

    disconnected = asyncio.create_task(until_disconnected())
    done, _ = await asyncio.wait({disconnected}, timeout=seconds)
    disconnected.cancel()
    return None if done else body


def _again(body: list[Any], receive: Any) -> Callable[[], Awaitable[Any]]:
    """A `receive` that returns the body's messages again."""
    kept = list(body)

    async def again() -> Any:
        return kept.pop(0) if kept else await receive()

    return again


async def _answer(original: App, scope: Any, receive: Any, send: Any, step: dict[str, Any]) -> str:
    """Answer as the step requires; return the answer for the record."""
    if step["answer"] == "drop":
        await send.__self__.send.__self__.send(Closed())  # through hypercorn's stream and protocol to the connection
        return "dropped"
    statuses: list[int] = []

    async def noting(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        await send(message)

    if step["answer"] == "normal":
        await original(scope, receive, noting)
    else:
        await _refuse(noting, *ERRORS[step["answer"]], step.get("retry_after"))
    return str(statuses[0]) if statuses else "gone"


async def _refuse(send: Any, status: int, code: str, message: str, retry_after: int | None) -> None:
    error_body = f"<Code>{code}</Code><Message>{message}</Message><RequestId>{uuid.uuid4()}</RequestId>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{error_body}</Error>'.encode()
    headers = [(b"content-type", b"application/xml"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
