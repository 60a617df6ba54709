"""An HTTP client that sends each request once, enforces a deadline, and reports whether a failed request was sent.

For requests that must not be repeated without the caller's knowledge, such as a `POST /auth` that ends the previous
token, in containers that Lambda freezes between two invocations.
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
# Seconds after which an idle connection is not used again. A container is frozen between two messages, and detects only
# by writing that the server or a NAT gateway has closed the connection. The request has then failed and is not
# repeated. After a failed `POST /auth` the API is not asked for a token again for `Timing.refusal`.
LONGEST_IDLE = 5.0


class HttpFailed(Exception):
    """The request has no answer. The message names the request, and contains nothing that was sent or received."""


class NotSent(HttpFailed):
    """The request was certainly not sent: no time was left for it."""


class NoConnection(NotSent):
    """The request was certainly not sent: no connection was made."""


class NoAnswer(HttpFailed):
    """The request has no answer, and may have been carried out."""


@dataclass(frozen=True)
class HttpAnswer:
    """An HTTP response. `retry_after`: the server's Retry-After in seconds, at most a day; None if it sent none."""

    status: int
    body: bytes = field(repr=False)
    retry_after: float | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a JSON object in the body; empty if the body is not a JSON object."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            value = {}
        return value if isinstance(value, dict) else {}


class HttpClient:
    """Sends requests, and reuses connections that were idle for at most LONGEST_IDLE seconds. Thread-safe."""

    def __init__(self) -> None:
        self._http = urllib3.PoolManager(retries=False, maxsize=2)
        self._http.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
        self._last_request = 0.0

    def request(
        self,
        method: str,
        url: str,
        seconds: float,
        *,
        json_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a request and return the answer, with any status. Redirects are not followed.

        The connection is closed after `seconds`, which also ends an answer that arrives slowly. Only a DNS lookup may
        take longer; then the request is not sent.

        Raises:
            NotSent: no time was left for the request.
            NoConnection: no connection was made, so the request was not sent.
            NoAnswer: the request may have been carried out.
        """
        name = f"{method} {urlsplit(url).path}"
        if seconds <= 0:
            raise NotSent(f"{name} was not sent: no time was left for it")
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
                    # Credentials must not follow a redirect. Without this urllib3 also parses the Location header, and
                    # its error messages contain it.
                    redirect=False,
                    preload_content=False,
                )
                body = response.read(LARGEST_ANSWER + 1)
            except urllib3.exceptions.ConnectTimeoutError:  # the base class of NewConnectionError
                raise NoConnection(f"{name} was not sent: no connection was made") from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if deadline.has_passed or isinstance(error, urllib3.exceptions.TimeoutError):
                    raise NoAnswer(f"{name} was not answered within {seconds:.1f} s") from None
                raise NoAnswer(f"{name} failed: {type(error).__name__}") from None
            if deadline.has_passed:  # closing the connection looks like the end of an answer without a length
                raise NoAnswer(f"{name} was not answered within {seconds:.1f} s")
        if len(body) > LARGEST_ANSWER:
            response.close()
            raise NoAnswer(f"the answer to {name} was larger than {LARGEST_ANSWER:,} bytes")
        response.release_conn()
        return HttpAnswer(
            response.status, body, parse_retry_after(response.headers.get("Retry-After", ""), time.time())
        )

    def _forget_idle_connections(self) -> None:
        now = time.time()  # the monotonic clock may stop while a container is frozen
        if not 0 <= now - self._last_request <= LONGEST_IDLE:
            self._http.clear()
        self._last_request = now


def parse_retry_after(value: str, now: float) -> float | None:
    """Parse a Retry-After header, which contains seconds or a date (RFC 9110, 10.2.3); None if it has neither."""
    if re.fullmatch(r"[0-9]+", value, re.ASCII):
        return min(float(value), LONGEST_RETRY_AFTER)
    try:
        at = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)


class _Deadline:
    """Closes the connection of a request at its deadline.

    urllib3's timeouts start again with each piece that is read, so they never end an answer that arrives slowly.
    """

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
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
        """Close this connection at the deadline.

        The descriptor is duplicated, because TLS replaces the socket during the handshake, and the end of an answer may
        close the socket.
        """
        line = None if connected is None else socket.socket(fileno=os.dup(connected.fileno()))
        with self._guard:
            before, self._line = self._line, line
        if before is not None:
            before.close()

    def _end(self) -> None:
        with self._guard:
            self.has_passed = True
            if self._line is not None:
                with suppress(OSError):  # the server has closed it already
                    self._line.shutdown(socket.SHUT_RDWR)


_deadline: ContextVar[_Deadline] = ContextVar("_deadline")


class _Ended(HTTPConnection):
    """A new or reused connection that is closed at the deadline of its request."""

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        deadline = _deadline.get()
        deadline.watch(connected)
        if deadline.has_passed:  # the DNS lookup was slow: the request must not be sent any more
            connected.close()
            raise urllib3.exceptions.ConnectTimeoutError(self, "the deadline has passed")
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
