"""The token lock's code as actors: instances that call an API with the shared token, the refresher, and the operator.

The code reads `time` and `datetime`, pauses by backoff and draws release codes. While an actor runs, `Outside` provides
all of these. Both clocks are read once between two calls: no time passes there, because actors freeze at calls only.
"""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import uuid4

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
from tests.simulation.transcript import Outside, Program, Question

TOKENS, NAME = "tokens", "bot"
UNAUTHORIZED = "401"
OWN_FAILURE = "own failure"  # of an instance, before it called the API
PAUSE = 1  # seconds: longer than each pause of the code, and the step of the clock


class Settings(NamedTuple):
    """The settings of an instance.

    Attributes:
        within: seconds for one call.
        probes: whether the instance probes a token after a 401.
        hands_over: whether the refresher function refreshes.
    """

    timing: Timing
    within: float
    probes: bool
    hands_over: bool


class Clocks:
    """An actor's two clocks, pauses and release codes."""

    def __init__(self, outside: Outside, name: str) -> None:
        self._outside = outside
        self._name = name
        self._read_after = -1
        self._wall = self._monotonic = 0.0

    def _read(self) -> None:
        if self._read_after != self._outside.asked:
            self._wall, self._monotonic = self._outside.ask(Question("actor", "clocks", None))
            self._read_after = self._outside.asked

    def wall(self) -> float:
        self._read()
        return self._wall

    def monotonic(self) -> float:
        self._read()
        return self._monotonic

    @property
    def datetime(self) -> Clocks:
        """The double of the class `datetime`; the code uses only `now`."""
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


_running: ContextVar[Clocks | None] = ContextVar("_running", default=None)  # each greenlet has its own


@contextmanager
def outside_only(outside: Outside, name: str, made: type[Clocks] = Clocks) -> Iterator[Clocks]:
    """Provide time, pauses and random values from `outside`."""
    clocks = made(outside, name)
    before = _running.set(clocks)
    try:
        yield clocks
    finally:
        _running.reset(before)


class _Double:
    """A module double with the functions of the running actor's Clocks, or else the module's."""

    def __init__(self, real: ModuleType) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        clocks = _running.get()
        return getattr(clocks if clocks is not None and hasattr(Clocks, name) else self._real, name)


def _uuid4() -> Any:
    clocks = _running.get()
    return uuid4() if clocks is None else clocks.uuid4()


# Code that is suspended at a call continues after other code has run, so these are replaced permanently.
token_lock.time = token_search.time = _sync.time = _Double(time)
_sync.datetime = _Double(datetime)
_jitter.random = _Double(random)
token_search.uuid4 = _uuid4


def _shared_token(outside: Outside, name: str, clocks: Clocks, chat: Chat, settings: Settings) -> SharedToken:
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
    with outside_only(outside, name) as clocks:
        chat = Chat(outside, name)
        token = _shared_token(outside, name, clocks, chat, settings)
        if cached is not None:
            token._cached = KnownToken(*cached)
        while calls:
            calls -= 1
            outside.ask(Question("actor", "begin", None))
            outcome = _outcome(lambda: token.call(chat.answer, settings.within))
            outside.ask(Question("actor", "end", outcome))


def refresh(outside: Outside, name: str, delegated_code: str | None, settings: Settings) -> None:
    """One invocation of the refresher function."""
    with outside_only(outside, name) as clocks:
        chat = Chat(outside, name)
        token = _shared_token(outside, name, clocks, chat, settings._replace(probes=False, hands_over=False))
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
