"""GetObject of named keys follows a script, and is recorded. Applied with a script file only.

`dev.emulator.downstream` writes and explains the scripts.
"""

import asyncio
import itertools
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hypercorn.events import Closed

from dev.emulator.engine.emulator import patch, wrap

ERRORS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "unavailable": (503, "ServiceUnavailable", "Service is unable to handle request."),
    "error": (500, "InternalError", "We encountered an internal error. Please try again."),
}
App = Callable[[Any, Any, Any], Awaitable[None]]


@patch
def s3_downstream() -> None:
    """Calls of named objects are slow, refused or cut off.

    AWS: "Amazon S3 API Reference: Error responses" (SlowDown, 503: "Please reduce your request rate."; InternalError,
    500; ServiceUnavailable, 503); "Retry behavior" of the SDKs' guide (a connection that ends without an answer;
    Retry-After).

    The whole application is wrapped, which sees a caller disconnect, and can close a connection. The import binds the
    handlers of all services, so this patch is applied after those of the services.
    """
    script = Script(Path(os.environ["SLOTKEEPER_ENGINE_DOWNSTREAM"]))
    wrap(import_module("ministack.app"), "app", partial(_app, script))


class Script:
    """The steps of one file, read again after each change. Used by the event loop only."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._version: tuple[int, int] | None = None
        self._script: dict[str, Any] = {"steps": {}, "outage": None}
        self._calls: Counter[str] = Counter()
        self._failed_in_outage = 0
        self._after_outage: set[int] = set()
        self._is_recovered = False
        self._ids = itertools.count(1)

    def begin(self, key: str) -> tuple[dict[str, Any], int] | None:
        """The step for this call of `key`, and the call's id in the record; None for a key without a script."""
        script = self._read()
        steps = script["steps"].get(key)
        if steps is None:
            return None
        if script["outage"] and time.time() >= script["outage"]["begins"] and not self._is_recovered:
            return self._without_step(key, script["outage"])
        self._calls[key] += 1
        number = self._calls[key]
        step = steps[number - 1] if number <= len(steps) else {"seconds": 0.0, "answer": "normal"}
        return step, self._begin(key, number)

    def _without_step(self, key: str, outage: dict[str, Any]) -> tuple[dict[str, Any], int]:
        call = self._begin(key, 0)
        if time.time() >= outage["ends"]:
            self._after_outage.add(call)
            return {"seconds": outage["seconds"], "answer": "normal"}, call
        answer = outage["answers"][self._failed_in_outage % len(outage["answers"])]
        self._failed_in_outage += 1
        return {"seconds": outage["seconds"], "answer": answer}, call

    def _begin(self, key: str, number: int) -> int:
        call = next(self._ids)
        self._record({"call": call, "key": key, "number": number, "began": time.time()})
        return call

    def _record(self, line: dict[str, Any]) -> None:
        """Append to the record, which has one line of JSON when a call begins, and one when it ends."""
        with self._file.with_suffix(".jsonl").open("a") as record:
            record.write(json.dumps(line) + "\n")

    def end(self, call: int, answer: str) -> None:
        """Record the end of a call."""
        self._record({"call": call, "ended": time.time(), "answer": answer})
        if call in self._after_outage and answer == "200":
            self._is_recovered = True

    def _read(self) -> dict[str, Any]:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return self._script
        version = (status.st_mtime_ns, status.st_ino)  # dev.emulator.downstream replaces the file at each change
        if version != self._version:
            script, self._version = json.loads(self._file.read_text()), version
            self._is_recovered = self._is_recovered and script["outage"] == self._script["outage"]
            self._script = script
        return self._script


async def _app(script: Script, original: App, scope: Any, receive: Any, send: Any) -> None:
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
