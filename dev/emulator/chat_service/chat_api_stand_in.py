"""The stand-in without HTTP: its routes, its switches and its log. `server` serves it."""

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
# By hand (`make local-up`, `python -m dev.emulator.chat_service`). They guard nothing, and latencies are seconds.
CLIENT_ID, CLIENT_SECRET = "slotkeeper", "stand-in"
AUTH_LATENCY, ANSWER_LATENCY = 0.5, 0.05
UNAUTHORIZED = Reply(401, {"error": "the token is not valid"}, {"WWW-Authenticate": "Bearer"})


class ChatApi:
    """The API's state and behaviour. All of it is thread-safe.

    Switches, each obeyed by the next request:
    - `auth_latency`, `answer_latency`: seconds that `POST /auth`, or a `POST /answers` that is served, takes.
    - `auth_effect`: when in its latency `POST /auth` makes the new token and kills the old. "start" (the default): as
      it arrives, so a client that dies or stops waiting has killed the old token all the same. "end": just before the
      answer, so the old one serves on meanwhile, and a client that stopped waiting kills others' newer token late.
    - `forbidden`: texts that are answered 401 whatever the token.
    - `strike(route, outage)` and `mend(route)`.
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
        say: Callable[[Request], None] | None = None,
    ) -> None:
        """`port` 0 takes a free one; without `client_secret` it makes one; `say` hears of every request as it ends."""
        self.client_id = client_id
        self.client_secret = client_secret or secrets.token_urlsafe(12)
        self.auth_latency = auth_latency
        self.answer_latency = answer_latency
        self.auth_effect: Effect = auth_effect
        self.forbidden: set[str] = set()
        self._say = say
        self._port = port
        self._lock = threading.Lock()
        self._judging = threading.Lock()
        self._log: list[Request] = []
        self._tokens = Tokens()
        self._outages = Outages()
        self._stopping = threading.Event()

    # --------------------------------------------------------------------------------------------------- switches

    def strike(self, route: str, outage: Outage | None = None) -> None:
        """Let `route` ("POST /auth") fail; without `outage` it answers 503. It replaces the outage before it."""
        if route not in ROUTES:
            raise ValueError(f"no route {route!r}; expected one of {', '.join(ROUTES)}")
        self._outages.strike(route, outage or Outage())

    def mend(self, route: str | None = None) -> None:
        """End the outage of `route`, or every one; what it held or left hanging goes on."""
        self._outages.mend(route)

    def invalidate(self, when: Callable[[list[Request]], bool] = lambda _log: True) -> float | None:
        """Kill the live token, as an operator of the API would; epoch seconds, None if there was no live one.

        Only if `when` says so of the log; no token is judged between its check and the kill.
        """
        with self._judging:
            return self._tokens.kill() if when(self.log) else None

    # ------------------------------------------------------------------------------------------------ what it saw

    @property
    def log(self) -> list[Request]:
        """All requests so far, in the order of their arrival; those that are in flight have no `ended`."""
        with self._lock:
            return list(self._log)

    @property
    def auths(self) -> int:
        """How many `POST /auth` have arrived, whatever became of them; `token_history` has those that made a token."""
        return sum(f"{request.method} {request.path}" == AUTH for request in self.log)

    @property
    def token_history(self) -> list[TokenLife]:
        """Every token that was made, oldest first."""
        return self._tokens.history()

    def is_live(self, token: str) -> bool:
        """Whether `token` is the one that the API accepts now."""
        return self._tokens.find(token)[1]

    def number_of(self, token: str) -> int | None:
        """Which of `token_history` it is; None for a token that was never made here."""
        return self._tokens.find(token)[0]

    @property
    def outages(self) -> dict[str, Outage]:
        """By route, the outages that strike the next request."""
        return self._outages.now()

    # --------------------------------------------------------------------------------------------------- serving

    def serve(self, method: str, path: str, authorization: str, body: bytes) -> Reply | None:
        """Carry out one request, on the thread of its connection. None ends the connection without an answer."""
        route = f"{method} {path}"
        with self._lock:
            number = len(self._log) + 1
            self._log.append(Request(number, method, path, time.time(), time.monotonic()))
        struck = self._outages.meet(route)
        if struck is not None and struck.outage.kind == "hold":
            struck.mended.wait()
            struck = None
        reply: Reply | None = None
        if struck is None or struck.outage.takes_effect:
            reply = self._carry_out(route, number, authorization, body)
        if struck is not None:
            reply = _fail(struck)
        ended = self._note(
            number, status=reply.status if reply else None, ended=time.time(), ended_monotonic=time.monotonic()
        )
        if self._say is not None:
            self._say(ended)
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
            return UNAUTHORIZED  # a real API does not say which of the two it is, either
        self._stopping.wait(self.answer_latency)
        return Reply(200, {"answer": answer_to(given["text"])})

    def _admits(self, number: int, authorization: str) -> bool:
        """Whether the request bears the live token, judged now."""
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
        struck.mended.wait()
    if outage.kind != "answer":
        return None
    headers = {} if outage.retry_after is None else {"Retry-After": str(outage.retry_after)}
    return Reply(outage.status, {"error": f"the service has an outage and answers {outage.status}"}, headers)


def _strings(body: bytes, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The body as an object of strings with these keys. Raises ValueError, which never repeats what was sent."""
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
