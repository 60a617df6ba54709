"""The simulated chat API without HTTP: its routes, settings, outages, tokens and log. `server` serves it."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .exchanges import Outage, Reply, Request, TokenLife, answer_to

AUTH, ME, ANSWERS = ROUTES = ("POST /auth", "GET /me", "POST /answers")
# Of `make local-up`. They protect nothing. Latencies are seconds.
CLIENT_ID, CLIENT_SECRET = "slotkeeper", "stand-in"
AUTH_LATENCY, ANSWER_LATENCY = 0.5, 0.05
UNAUTHORIZED = Reply(401, {"error": "the token is not valid"}, {"WWW-Authenticate": "Bearer"})


class Struck:
    """An outage in progress: the number of requests that it still affects, and its end."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage
        self.left = outage.times
        self.ended = threading.Event()


class ChatApi:
    """The API's state and behavior, thread-safe.

    Settings, which apply from the next request on:
    - `auth_latency`, `answer_latency`: seconds of `POST /auth`, and of an admitted `POST /answers`.
    - `forbidden`: texts that are answered 401 with any token.

    `POST /auth` creates its token on arrival, so a client that dies or stops waiting has invalidated the one before it.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        client_id: str = CLIENT_ID,
        client_secret: str | None = None,
        auth_latency: float = 0.0,
        answer_latency: float = 0.0,
    ) -> None:
        """`port` 0 takes a free one; `client_secret` is random by default."""
        self.client_id = client_id
        self.client_secret = client_secret or secrets.token_urlsafe(12)
        self.auth_latency = auth_latency
        self.answer_latency = answer_latency
        self.forbidden: set[str] = set()
        self._port = port
        self._lock = threading.RLock()
        self._log: list[Request] = []
        self._lives: list[TokenLife] = []  # only the newest can be live
        self._numbers: dict[str, int] = {}
        self._struck: dict[str, Struck] = {}
        self._stopping = threading.Event()

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

    def invalidate(self, when: Callable[[list[Request]], bool] = lambda _log: True) -> float | None:
        """Invalidate the live token if `when(log)` is true. Returns the time in epoch seconds, or None without effect.

        No token is checked between the call of `when` and the invalidation.
        """
        with self._lock:
            if not when(self.log) or not self._is_any_live():
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
            now = time.time()
            if self._is_any_live():
                self._lives[-1] = replace(self._lives[-1], until=now, ended_by="auth")
            self._lives.append(TokenLife(len(self._lives) + 1, now))
            self._numbers[token] = len(self._lives)
            self._note(number, token=len(self._lives))
        self._stopping.wait(self.auth_latency)
        return Reply(200, {"access_token": token, "token_type": "Bearer"})

    def _answer(self, number: int, authorization: str, body: bytes) -> Reply:
        given = _strings(body, required=("text",), optional=("conversation",))
        self._note(number, text=given["text"])
        if not self._admits(number, authorization) or given["text"] in self.forbidden:
            return UNAUTHORIZED  # the same answer for both, as from a real API
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
