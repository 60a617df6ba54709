"""The token lock's code as actors: instances that call an API with the shared token, the refresher, and the operator.

The code reads `time` and `datetime`, pauses by backoff and draws release codes. While it runs, `Clocks` replaces all of
these. No time passes between two calls, because actors freeze at calls only.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple

from backoff import _jitter, _sync
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.token import (
    AuthenticationNotAttempted,
    AuthenticationRefused,
    DelegateRefresh,
    SharedToken,
    Timing,
    TokenError,
    TokenTable,
    Unauthorized,
)
from slotkeeper.token import lock as token_lock
from slotkeeper.token import refresh as token_search
from slotkeeper.token.timing import KnownToken
from tests.simulation.frozen import freeze
from tests.simulation.transcript import Outside, Program, Question, replacing

TOKENS, NAME = "tokens", "bot"
UNAUTHORIZED = "401"
OWN_FAILURE = "own failure"  # of an instance, before it called the API
PAUSE = 1  # seconds: longer than each pause of the code, and the step of the clock


class Settings(NamedTuple):
    """The settings of an instance."""

    timing: Timing
    within: float  # seconds for one call
    probes: bool  # whether the instance probes a token after a 401
    hands_over: bool  # whether the refresher function refreshes


class Clocks:
    """An actor's two clocks, pauses and release codes."""

    def __init__(self, outside: Outside, name: str) -> None:
        self._outside = outside
        self._name = name

    def wall(self) -> float:
        return float(self._outside.clock()[0])

    def monotonic(self) -> float:
        return float(self._outside.clock()[1])

    @property
    def datetime(self) -> Clocks:
        """Replaces the class `datetime`, of which the code uses only `now`."""
        return self

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.wall(), datetime.UTC)

    def uniform(self, low: float, _high: float) -> float:
        return low  # the length of a pause makes no difference here

    def sleep(self, _seconds: float) -> None:
        self._outside.sleep(PAUSE)

    def uuid4(self) -> Any:
        return SimpleNamespace(hex=f"{self._name}-{self._outside.identifier()}")


class Chat:
    """The API and the refresher function, as the actor `name` calls them."""

    def __init__(self, outside: Outside, name: str) -> None:
        self._outside = outside
        self._name = name

    def authenticate(self, seconds: float) -> str:
        if seconds <= 0:  # like chatbot/api.py
            raise AuthenticationNotAttempted("no time was left")
        try:
            asked = freeze({"by": self._name, "seconds": seconds})
            return str(self._outside.ask(Question("chat", "post", asked)))
        except ClientError as error:
            code = error.response["Error"]["Code"]
            raise (AuthenticationNotAttempted if code == OWN_FAILURE else AuthenticationRefused)(code) from None

    def accepts(self, token: str, seconds: float) -> bool:
        """Raises ReadTimeoutError if the API takes longer."""
        try:
            self._outside.ask(Question("chat", "probe", freeze({"name": token, "seconds": seconds})))
        except ClientError as error:
            if error.response["Error"]["Code"] == UNAUTHORIZED:
                return False
            raise AuthenticationRefused(error.response["Error"]["Code"]) from None
        return True

    def answer(self, token: str) -> None:
        try:
            self._outside.ask(Question("chat", "get", freeze({"name": token})))
        except ClientError:  # the world has no other error
            raise Unauthorized from None

    def hand_over(self, release_code: str) -> None:
        self._outside.ask(Question("lambda", "invoke", freeze({"name": release_code})))


def _replacing(clocks: Clocks) -> AbstractContextManager[None]:
    """Replace time, pauses and random values while code runs."""
    return replacing(
        (token_lock, "time", clocks),
        (token_search, "time", clocks),
        (token_search, "uuid4", clocks.uuid4),
        (_sync, "time", clocks),
        (_sync, "datetime", clocks),
        (_jitter, "random", clocks),
    )


def _shared_token(outside: Outside, clocks: Clocks, chat: Chat, settings: Settings) -> SharedToken:
    return SharedToken(
        TokenTable(outside.client("dynamodb"), TOKENS),
        NAME,
        DelegateRefresh(chat.hand_over) if settings.hands_over else chat.authenticate,
        still_valid=chat.accepts if settings.probes else None,
        timing=settings.timing,
        clock=clocks.wall,
    )


def _outcome(call: Callable[[], Any]) -> str:
    """How a call ended: "answer", or the name of an exception that token/lock.py documents."""
    try:
        call()
    except (TokenError, BotoCoreError, ClientError) as error:
        return type(error).__name__
    return "answer"


def instance(outside: Outside, name: str, cached: tuple[str, int] | None, calls: int, settings: Settings) -> None:
    """Make calls one after the other with one SharedToken, and report each start and end to the world."""
    clocks, chat = Clocks(outside, name), Chat(outside, name)
    with _replacing(clocks):
        token = _shared_token(outside, clocks, chat, settings)
        if cached is not None:
            token._cached = KnownToken(*cached)
        while calls:
            calls -= 1
            outside.ask(Question("actor", "begin", None))
            outcome = _outcome(lambda: token.call(chat.answer, settings.within))
            outside.ask(Question("actor", "end", outcome))


def refresh(outside: Outside, name: str, delegated_code: str | None, settings: Settings) -> None:
    """One invocation of the refresher function."""
    clocks, chat = Clocks(outside, name), Chat(outside, name)
    with _replacing(clocks):
        token = _shared_token(outside, clocks, chat, settings._replace(probes=False, hands_over=False))
        outside.ask(Question("actor", "begin", None))
        outcome = _outcome(lambda: token.refresh(delegated_code, settings.within))
        outside.ask(Question("actor", "end", outcome))


def operate(outside: Outside, name: str) -> None:
    """An operator reads the token's state and drops the token."""
    outside.ask(Question("actor", "begin", None))
    table = TokenTable(outside.client("dynamodb"), TOKENS)
    _outcome(lambda: table.drop(NAME, table.status(NAME).generation))


instances = Program("instance", instance)
refreshers = Program("refresher", refresh)
operators = Program("operator", operate)
