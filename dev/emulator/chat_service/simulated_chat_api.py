"""The simulated chat API without HTTP: its routes, settings, outages and log. `server` serves it."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from .exchanges import Reply, Request, answer_to
from .outages import Outage, Outages, Struck
from .tokens import TokenLife, Tokens

AUTH, ME, ANSWERS = ROUTES = ("POST /auth", "GET /me", "POST /answers")
Effect = Literal["start", "end"]
# For manual use (`make local-up`, `python -m dev.emulator.chat_service`). They protect nothing. Latencies are seconds.
CLIENT_ID, CLIENT_SECRET = "slotkeeper", "stand-in"
AUTH_LATENCY, ANSWER_LATENCY = 0.5, 0.05
UNAUTHORIZED = Reply(401, {"error": "the token is not valid"}, {"WWW-Authenticate": "Bearer"})


class ChatApi:
    """The API's state and behavior, thread-safe.

    Settings, which apply from the next request on:
    - `auth_latency`, `answer_latency`: seconds of `POST /auth`, and of an admitted `POST /answers`.
    - `auth_effect`: the instant at which `POST /auth` creates the token and invalidates the old one. "start" (the
      default): on arrival, so a client that dies or stops waiting has still invalidated the old token. "end": just
      before the answer, so the old token serves meanwhile, and a client that stopped waiting invalidates a newer token
      late.
    - `forbidden`: texts that are answered 401 with any token.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        client_id: str = CLIENT_ID,
        client_secret: str | None = None,
        auth_latency: float = 0.0,
        answer_latency: float = 0.0,
        auth_effect: Effect = "start",
        on_request: Callable[[Request], None] | None = None,
    ) -> None:
        """`port` 0 takes a free one; `client_secret` is random by default; `on_request` receives each ended request."""
        self.client_id = client_id
        self.client_secret = client_secret or secrets.token_urlsafe(12)
        self.auth_latency = auth_latency
        self.answer_latency = answer_latency
        self.auth_effect: Effect = auth_effect
        self.forbidden: set[str] = set()
        self._on_request = on_request
        self._port = port
        self._lock = threading.Lock()
        self._judging = threading.Lock()
        self._log: list[Request] = []
        self._tokens = Tokens()
        self._outages = Outages()
        self._stopping = threading.Event()

    # --------------------------------------------------------------------------------------------------- outages

    def strike(self, route: str, outage: Outage | None = None) -> None:
        """Let `route` ("POST /auth") fail; without `outage` it answers 503. Replaces an earlier outage of the route."""
        if route not in ROUTES:
            raise ValueError(f"no route {route!r}; expected one of {', '.join(ROUTES)}")
        self._outages.strike(route, outage or Outage())

    def end_outage(self, route: str | None = None) -> None:
        """End the outage of `route`, or all. Requests that it holds or leaves hanging continue."""
        self._outages.end_outage(route)

    def invalidate(self, when: Callable[[list[Request]], bool] = lambda _log: True) -> float | None:
        """Invalidate the live token if `when(log)` is true. Returns the time in epoch seconds, or None without effect.

        No token is checked between the call of `when` and the invalidation.
        """
        with self._judging:
            return self._tokens.kill() if when(self.log) else None

    # ------------------------------------------------------------------------------------------------------- log

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
        return self._tokens.history()

    def is_live(self, token: str) -> bool:
        """Whether the API accepts `token` now."""
        return self._tokens.find(token)[1]

    def number_of(self, token: str) -> int | None:
        """The token's number in `token_history`; None for an unknown token."""
        return self._tokens.find(token)[0]

    @property
    def outages(self) -> dict[str, Outage]:
        """By route, the outages that apply to the next request."""
        return self._outages.now()

    # --------------------------------------------------------------------------------------------------- serving

    def serve(self, method: str, path: str, authorization: str, body: bytes) -> Reply | None:
        """Process one request on the thread of its connection. None closes the connection without an answer."""
        route = f"{method} {path}"
        with self._lock:
            number = len(self._log) + 1
            self._log.append(Request(number, method, path, time.time(), time.monotonic()))
        struck = self._outages.meet(route)
        if struck is not None and struck.outage.kind == "hold":
            struck.ended.wait()
            struck = None
        reply: Reply | None = None
        if struck is None or struck.outage.takes_effect:
            reply = self._carry_out(route, number, authorization, body)
        if struck is not None:
            reply = _fail(struck)
        ended = self._note(
            number, status=reply.status if reply else None, ended=time.time(), ended_monotonic=time.monotonic()
        )
        if self._on_request is not None:
            self._on_request(ended)
        return reply

    def _carry_out(self, route: str, number: int, authorization: str, body: bytes) -> Reply:
        try:
            match route:
                case "POST /auth":
                    return self._auth(number, _strings(body, required=("client_id", "client_secret")))
                case "GET /me":
                    return self._me(number, authorization)
                case "POST /answers":
                    return self._answer(number, authorization, body)
        except ValueError as error:
            return Reply(400, {"error": str(error)})
        return Reply(404, {"error": f"no route {route}; there are {', '.join(ROUTES)}"})

    def _auth(self, number: int, given: dict[str, str]) -> Reply:
        accepted = given == {"client_id": self.client_id, "client_secret": self.client_secret}
        at_start = accepted and self.auth_effect == "start"
        token = self._make_token(number) if at_start else ""
        self._stopping.wait(self.auth_latency)
        if not accepted:
            return Reply(401, {"error": "client_id and client_secret are not known together"})
        return Reply(200, {"access_token": token or self._make_token(number), "token_type": "Bearer"})

    def _me(self, number: int, authorization: str) -> Reply:
        return Reply(200, {"client_id": self.client_id}) if self._admits(number, authorization) else UNAUTHORIZED

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
        with self._judging:
            known, live = self._tokens.find(token) if scheme.lower() == "bearer" else (None, False)
            unknown = bool(token) and known is None
            self._note(number, token=known, unknown_token=unknown, status=None if live else UNAUTHORIZED.status)
        return live

    def _make_token(self, number: int) -> str:
        token, known = self._tokens.make()
        self._note(number, token=known)
        return token

    def _note(self, number: int, **what: Any) -> Request:
        with self._lock:
            self._log[number - 1] = noted = replace(self._log[number - 1], **what)
        return noted


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
    if not isinstance(given, dict):
        raise ValueError("the body is not a JSON object")
    if not set(given) <= {*required, *optional}:
        raise ValueError(f"the body has a field that is none of {', '.join(required + optional)}")
    for name in required:
        if not given.get(name):
            raise ValueError(f"{name} is missing or empty")
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a string")
    return given
