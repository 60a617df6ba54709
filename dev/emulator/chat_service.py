"""The simulated chat API: an HTTP server on 127.0.0.1 with one live token per account.

Every `POST /auth` creates a token and invalidates the one before it, as APIs with sessions do. The server

- requires client id and secret as JSON, and answers wrong ones with 401;
- checks a token when a request arrives: a request with a live token is answered even if the token is invalidated
  meanwhile;
- answers 401 to an invalid token and to a missing one;
- fails on demand: 429 or 503 with Retry-After, no answer, or a closed connection, before or after the effect.

| route | request | answers |
|---|---|---|
| `POST /auth` | `{"client_id", "client_secret"}` | 200 `{"access_token", "token_type"}`, 400, 401 |
| `GET /me` | Bearer token | 200 `{"client_id"}`, 401 |
| `POST /answers` | Bearer token, `{"text", "conversation"?}` | 200 `{"answer"}`, 400, 401 |
| `POST /_control/invalidate` | | 200: invalidates the live token, for manual tests |

An error is `{"error": <sentence>}`; an invalid body is 400. There is no TLS, no expiry of a token by age, no quota.

The log has a token's number, never the token.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http.server import ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from dev.emulator.programs_only import ProgramsOnlyHandler

AUTH, ME, ANSWERS = ROUTES = ("POST /auth", "GET /me", "POST /answers")
# Of `make local-up`. They protect nothing. Latencies are seconds.
CLIENT_ID, CLIENT_SECRET = "slotkeeper", "stand-in"
AUTH_LATENCY, ANSWER_LATENCY = 0.5, 0.05
INVALIDATE = "/_control/invalidate"  # a POST, which is not in the log, invalidates the live token
MAX_BODY = 1_000_000  # bytes
BACKLOG = 1024  # connections that wait for accept; the system's limit (somaxconn) applies too
END_SECONDS = 5.0  # for the threads of closed connections to end
Kind = Literal["answer", "drop", "hang", "hold"]


@dataclass(frozen=True)
class Request:
    """One request. Its instants are epoch seconds."""

    number: int  # from 1
    method: str
    path: str
    began: float
    token: int | None = None  # the request's token, or the token that POST /auth created; None: none, or unknown
    text: str | None = None  # of POST /answers
    # None: not decided, or ended without an answer. A 401 is written when the token is checked.
    status: int | None = None
    ended: float | None = None  # None: in flight. Written before the answer is sent


@dataclass(frozen=True)
class Reply:
    """An HTTP answer with a JSON body."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenLife:
    """The end of one token."""

    until: float | None = None  # epoch seconds; None: live
    ended_by: Literal["auth", "invalidate"] | None = None  # a newer token, or an invalidation


@dataclass(frozen=True)
class Outage:
    """The way in which a route fails.

    Kinds:
    - `answer`: answers `status` immediately, with Retry-After if `retry_after` (seconds) is set;
    - `drop`: closes the connection without an answer;
    - `hang`: gives no answer until the outage ends, then closes the connection;
    - `hold`: delays the request until the outage ends, then serves it. A test stops a client there without sleeping.

    Args:
        takes_effect: process the request first, and lose or replace only its answer. `POST /auth` creates a token.
        times: the number of requests that fail; None: all until the outage ends.
    """

    kind: Kind = "answer"
    status: int = 503
    retry_after: int | None = None
    takes_effect: bool = False
    times: int | None = None


def answer_to(text: str) -> str:
    """The number of words of the text, and its longest word (of several, the first).

    A text always has the same answer, so a test notices an answer that reached the wrong caller.
    """
    words = re.findall(r"\w+", text)
    if not words:
        return "You said something without a word in it."
    counted = "one word" if len(words) == 1 else f"{len(words)} words"
    return f"You said {counted}; the longest is “{max(words, key=len)}”."


UNAUTHORIZED = Reply(401, {"error": "the token is not valid"}, {"WWW-Authenticate": "Bearer"})


class Struck:
    """An outage in progress: the number of requests that it still affects, and its end."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage
        self.left = outage.times
        self.ended = threading.Event()


class ChatService:
    """The API, thread-safe. It serves on 127.0.0.1 from `__enter__` (or `start`) to `__exit__` (or `stop`).

    Settings, which apply from the next request on:
    - `auth_latency`, `answer_latency`: seconds of `POST /auth`, and of an admitted `POST /answers`.

    `POST /auth` creates its token on arrival, so a client that dies or stops waiting has invalidated the one before it.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        container_host: str = "",
        client_secret: str | None = None,
        auth_latency: float = 0.0,
        answer_latency: float = 0.0,
    ) -> None:
        """`port` 0 takes a free one; containers reach it by `container_host`; `client_secret` is random by default."""
        self.container_host = container_host
        self.client_id = CLIENT_ID
        self.client_secret = client_secret or secrets.token_urlsafe(12)
        self.auth_latency = auth_latency
        self.answer_latency = answer_latency
        self._port = port
        self._http: _Http | None = None
        self._lock = threading.RLock()
        self._log: list[Request] = []
        self._lives: list[TokenLife] = []  # only the newest can be live
        self._numbers: dict[str, int] = {}
        self._struck: dict[str, Struck] = {}
        self._stopping = threading.Event()

    def start(self) -> Self:
        """Serve on a separate thread. Raises OSError if the port is taken."""
        self._stopping.clear()
        self._http = _Http(self._port, self)
        self._port = self._http.server_address[1]  # another start serves at the same address
        threading.Thread(target=self._http.serve_forever, args=[0.02], name="chat-service", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close every connection and free the port. Log and tokens stay."""
        self._stopping.set()
        self.end_outage()
        if self._http is not None:
            self._http.close()
            self._http = None

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def strike(self, route: str, outage: Outage | None = None) -> None:
        """Let `route` ("POST /auth") fail; without `outage` it answers 503. Replaces an earlier outage of the route."""
        if route not in ROUTES:
            raise ValueError(f"no route {route!r}; expected one of {', '.join(ROUTES)}")
        self.end_outage(route)
        with self._lock:
            self._struck[route] = Struck(outage or Outage())

    def end_outage(self, route: str | None = None) -> None:
        """End the outage of `route`, or all. Requests that it holds or leaves hanging continue."""
        with self._lock:
            ended = [self._struck.pop(name) for name in list(self._struck) if route in (None, name)]
        for struck in ended:
            struck.ended.set()

    def invalidate(self) -> float | None:
        """Invalidate the live token. Returns the time in epoch seconds, or None without effect."""
        with self._lock:
            if not self._is_any_live():
                return None
            now = time.time()
            self._lives[-1] = replace(self._lives[-1], until=now, ended_by="invalidate")
            return now

    @property
    def log(self) -> list[Request]:
        """All requests, in the order of their arrival. Those in flight have no `ended`."""
        with self._lock:
            return list(self._log)

    @property
    def auths(self) -> int:
        """The number of `POST /auth` that have arrived; `token_history` has those that created a token."""
        return sum(f"{request.method} {request.path}" == AUTH for request in self.log)

    @property
    def token_history(self) -> list[TokenLife]:
        """Every token, oldest first."""
        with self._lock:
            return list(self._lives)

    def is_live(self, token: str) -> bool:
        """Whether the API accepts `token` now."""
        with self._lock:
            return self._is_any_live() and self._numbers.get(token) == len(self._lives)

    def number_of(self, token: str) -> int | None:
        """The token's number in `token_history`; None for an unknown token."""
        with self._lock:
            return self._numbers.get(token)

    def serve(self, method: str, path: str, authorization: str, body: bytes) -> Reply | None:
        """Process one request on the thread of its connection. None closes the connection without an answer."""
        route = f"{method} {path}"
        with self._lock:
            number = len(self._log) + 1
            self._log.append(Request(number, method, path, time.time()))
            struck = self._met(route)
        if struck is not None and struck.outage.kind == "hold":
            struck.ended.wait()
            struck = None
        reply: Reply | None = None
        if struck is None or struck.outage.takes_effect:
            reply = self._carry_out(route, number, authorization, body)
        if struck is not None:
            reply = _fail(struck)
        self._note(number, status=reply.status if reply else None, ended=time.time())
        return reply

    def _met(self, route: str) -> Struck | None:
        """The outage for a request that has just arrived, if any."""
        struck = self._struck.get(route)
        if struck is None or struck.left == 0:
            return None
        if struck.left is not None:
            struck.left -= 1
        return struck

    def _carry_out(self, route: str, number: int, authorization: str, body: bytes) -> Reply:
        try:
            match route:
                case "POST /auth":
                    return self._auth(number, _strings(body, required=("client_id", "client_secret")))
                case "GET /me":
                    admitted = self._admits(number, authorization)
                    return Reply(200, {"client_id": self.client_id}) if admitted else UNAUTHORIZED
                case "POST /answers":
                    return self._answer(number, authorization, body)
        except ValueError as error:
            return Reply(400, {"error": str(error)})
        return Reply(404, {"error": f"no route {route}; there are {', '.join(ROUTES)}"})

    def _auth(self, number: int, given: dict[str, str]) -> Reply:
        if given != {"client_id": self.client_id, "client_secret": self.client_secret}:
            self._stopping.wait(self.auth_latency)
            return Reply(401, {"error": "client_id and client_secret are not known together"})
        token = secrets.token_urlsafe(24)
        with self._lock:
            if self._is_any_live():
                self._lives[-1] = replace(self._lives[-1], until=time.time(), ended_by="auth")
            self._lives.append(TokenLife())
            self._numbers[token] = len(self._lives)
            self._note(number, token=len(self._lives))
        self._stopping.wait(self.auth_latency)
        return Reply(200, {"access_token": token, "token_type": "Bearer"})

    def _answer(self, number: int, authorization: str, body: bytes) -> Reply:
        given = _strings(body, required=("text",), optional=("conversation",))
        self._note(number, text=given["text"])
        if not self._admits(number, authorization):
            return UNAUTHORIZED
        self._stopping.wait(self.answer_latency)
        return Reply(200, {"answer": answer_to(given["text"])})

    def _admits(self, number: int, authorization: str) -> bool:
        """Whether the request has the live token at this instant."""
        scheme, _, token = authorization.partition(" ")
        with self._lock:
            live = scheme.lower() == "bearer" and self.is_live(token)
            self._note(number, token=self.number_of(token), status=None if live else UNAUTHORIZED.status)
        return live

    def _is_any_live(self) -> bool:
        return bool(self._lives) and self._lives[-1].until is None

    def _note(self, number: int, **what: Any) -> None:
        with self._lock:
            self._log[number - 1] = replace(self._log[number - 1], **what)


def _fail(struck: Struck) -> Reply | None:
    outage = struck.outage
    if outage.kind == "hang":
        struck.ended.wait()
    if outage.kind != "answer":
        return None
    headers = {} if outage.retry_after is None else {"Retry-After": str(outage.retry_after)}
    return Reply(outage.status, {"error": f"the service has an outage and answers {outage.status}"}, headers)


def _strings(body: bytes, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The body as an object of strings with these keys. Raises ValueError without the body's content."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(given, dict) or not set(required) <= set(given) <= {*required, *optional}:
        raise ValueError(f"expected a JSON object with {', '.join(required)}, and no field but {', '.join(optional)}")
    if not all(isinstance(value, str) and value for value in given.values()):
        raise ValueError(f"{', '.join(given)}: expected texts that are not empty")
    return given


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, service: ChatService) -> None:
        self.service = service
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def close(self) -> None:
        """End the listener and the open connections, which otherwise outlive it and still give answers."""
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):  # its client has closed it
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=END_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tests disconnect clients in the middle of a request: log nothing."""


class _Handler(ProgramsOnlyHandler):
    protocol_version = "HTTP/1.1"
    server_version = "chat-service"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet: the second of two would wait for the acknowledgement of the first
    server: _Http

    @property
    def container_host(self) -> str:
        return self.server.service.container_host

    def _handle(self) -> None:
        path, length = urlsplit(self.path).path, self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(Reply(400, {"error": f"expected a body with Content-Length, of at most {MAX_BODY} bytes"}))
            return
        body = self.rfile.read(int(length))
        if (self.command, path) == ("POST", INVALIDATE):
            self._send(Reply(200, {"invalidated_at": self.server.service.invalidate()}))
            return
        reply = self.server.service.serve(self.command, path, self.headers.get("Authorization", ""), body)
        if reply is None:
            self.close_connection = True
            return
        self._send(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _send(self, reply: Reply) -> None:
        content = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the service has its own log."""
