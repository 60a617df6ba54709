"""One HTTP request: sent once, ended by its deadline, and its failure says whether it was sent.

For requests that must not be made twice without the caller's knowledge, such as a `POST /auth` that ends the token
before, in containers that Lambda freezes between two invocations.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

CONNECT_SECONDS = 2.0
LARGEST_ANSWER = 1_000_000  # bytes
LONGEST_RETRY_AFTER = 86_400.0  # seconds
# For how many seconds a connection may have been idle and is still used. A container is frozen between two messages.
# That the other end has hung up, or a NAT gateway forgotten the connection, it learns only by writing, and then the
# request has failed. Nothing is asked twice here, so after a `POST /auth` all instances would be refused for a while.
LONGEST_IDLE = 5.0


class HttpFailed(Exception):
    """There is no answer. The text names the request, and holds nothing that was sent or received."""


class NotSent(HttpFailed):
    """The request was certainly not sent: no time was left for it."""


class NoConnection(NotSent):
    """The request was certainly not sent: no connection was made."""


class NoAnswer(HttpFailed):
    """The request may have been carried out."""


@dataclass(frozen=True)
class HttpAnswer:
    """`retry_after`: for how many seconds the server wants not to be asked again, a day at most, if it said so."""

    status: int
    body: bytes = field(repr=False)
    retry_after: float | None = None

    def fields(self) -> dict[str, Any]:
        """The body as a JSON object; empty if it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            value = {}
        return value if isinstance(value, dict) else {}


class HttpClient:
    """Keeps connections for a few seconds. Safe to use from many threads."""

    def __init__(self) -> None:
        self._http = urllib3.PoolManager(retries=False, maxsize=2)
        self._http.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
        self._last_asked = 0.0

    def request(
        self,
        method: str,
        url: str,
        seconds: float,
        *,
        json_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """The answer, whatever its status. No redirect is followed.

        At the deadline the connection is closed, so an answer that comes in drops ends too. Only a name server may take
        longer than `seconds`; then nothing is sent.

        Raises:
            NotSent, NoConnection, NoAnswer: see there.
        """
        asked = f"{method} {urlsplit(url).path}"
        if seconds <= 0:
            raise NotSent(f"no time was left for {asked}")
        self._forget_idle_connections()
        sent = dict(headers or {}) | ({"Content-Type": "application/json"} if json_body is not None else {})
        with _Deadline(seconds) as deadline:
            try:
                response = self._http.request(
                    method,
                    url,
                    body=json.dumps(json_body).encode() if json_body is not None else None,
                    headers=sent,
                    timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), total=seconds),
                    # Credentials must not go to wherever an answer says. Without this urllib3 reads a Location all the
                    # same, and an error of its own repeats what is wrong with it.
                    redirect=False,
                    preload_content=False,
                )
                body = response.read(LARGEST_ANSWER + 1)
            except urllib3.exceptions.ConnectTimeoutError:  # of which NewConnectionError is a kind
                raise NoConnection(f"{asked} failed: no connection") from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if deadline.is_over or isinstance(error, urllib3.exceptions.TimeoutError):
                    raise NoAnswer(f"{asked} was not answered within {seconds:.1f} s") from None
                raise NoAnswer(f"{asked} failed: {type(error).__name__}") from None
            if deadline.is_over:  # what closed the connection looks like the end of an answer without a length
                raise NoAnswer(f"{asked} was not answered within {seconds:.1f} s")
        if len(body) > LARGEST_ANSWER:
            response.close()
            raise NoAnswer(f"the answer to {asked} was larger than {LARGEST_ANSWER:,} bytes")
        response.release_conn()
        return HttpAnswer(
            response.status, body, parse_retry_after(response.headers.get("Retry-After", ""), time.time())
        )

    def _forget_idle_connections(self) -> None:
        now = time.time()  # the monotonic clock may stand still while a container is frozen
        if not 0 <= now - self._last_asked <= LONGEST_IDLE:
            self._http.clear()
        self._last_asked = now


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds from a Retry-After, which has them or a date (RFC 9110, 10.2.3); None if it has neither."""
    if re.fullmatch(r"[0-9]+", value, re.ASCII):
        return min(float(value), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)


class _Deadline:
    """Breaks the connection of the request that is made while it lasts. urllib3's own timeouts begin anew with every
    piece that is read, so a server that sends its headers one by one is never too slow for them."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._guard = threading.Lock()
        self._line: socket.socket | None = None

    def __enter__(self) -> Self:
        self._before = _deadline.set(self)
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _deadline.reset(self._before)
        self.watch(None)

    def watch(self, connected: socket.socket | None) -> None:
        """From here on this connection is the request's. A descriptor of its own, since TLS replaces the socket in the
        middle of the handshake, and an answer that ends its connection takes the socket with it."""
        line = None if connected is None else socket.socket(fileno=os.dup(connected.fileno()))
        with self._guard:
            before, self._line = self._line, line
        if before is not None:
            before.close()

    def _end(self) -> None:
        with self._guard:
            self.is_over = True
            if self._line is not None:
                with suppress(OSError):  # the server was first
                    self._line.shutdown(socket.SHUT_RDWR)


_deadline: ContextVar[_Deadline] = ContextVar("_deadline")


class _Ended(HTTPConnection):
    """A connection that the deadline of its request ends, whether it is new or used again."""

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        deadline = _deadline.get()
        deadline.watch(connected)
        if deadline.is_over:  # the name server was slow: nothing may be sent any more
            connected.close()
            raise urllib3.exceptions.ConnectTimeoutError(self, "the deadline was over")
        return connected

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:
            _deadline.get().watch(self.sock)
        super().request(*args, **kwargs)


class _EndedTls(_Ended, HTTPSConnection):
    pass


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Ended


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _EndedTls
