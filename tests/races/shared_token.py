"""Instances that share one token on DynamoDB Local, through the real client of the chat API's stand-in.

What would be containers are threads, each with a cache and connections to the API of its own; `elsewhere` has them in
processes of their own.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dev.emulator.chat_service import ChatService
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Credentials
from slotkeeper.chatbot.messages import ChatMessage
from slotkeeper.token import SharedToken, Timing, TokenEvent, TokenTable
from slotkeeper.token.item import TokenItem
from tests.support.waiting import NEVER

TABLE = "tokens"

SKEW = 2.0  # seconds, either way

# For holders whose process stands still, which go by the true time: a lease whose end a test can wait for, and which
# yet lasts several times as long as a healthy holder needs on a busy machine.
QUICK = Timing(api=6.0, store=3.0, clock_skew=0.05, min_interval=0.0, patience=NEVER)

# For crowds, whose hundreds a machine of two cores serves slowly, and for held clocks: nothing here ends by time.
UNHURRIED = Timing(api=20.0, store=10.0, clock_skew=SKEW, patience=NEVER)

_names = itertools.count(1)


class Clock:
    """The true time in seconds since the epoch; a test may hold it and move it."""

    def __init__(self) -> None:
        self._held: float | None = None

    def __call__(self) -> float:
        return time.time() if self._held is None else self._held

    def hold(self) -> None:
        self._held = time.time()

    def move(self, seconds: float) -> None:
        self._held = self() + seconds


class Instance:
    """One SharedToken and its own way to the API.

    Args:
        skew: by how many seconds its clock is ahead.
        changes: of SharedToken's own arguments.
    """

    def __init__(
        self,
        dynamodb: Any,
        name: str,
        api: ChatApi,
        timing: Timing,
        *,
        clock: Callable[[], float] = time.time,
        skew: float = 0.0,
        **changes: Any,
    ) -> None:
        self.api = api
        self.events: list[TokenEvent] = []
        arguments: dict[str, Any] = {"authenticate": api.authenticate, "still_valid": api.is_valid, "timing": timing}
        arguments |= {"report": self.events.append, "clock": lambda: clock() + skew}
        self.token = SharedToken(TokenTable(dynamodb, TABLE), name, **arguments | changes)
        self.get = self.token.get

    def ask(self, text: str = "hello") -> str:
        """What a chatbot does with a message."""
        return self.token.call(lambda token: self.api.answer(ChatMessage("any", text), token, 10.0))


class TokenSharers:
    """One token, the API that gives it, and the instances that share it."""

    def __init__(self, dynamodb: Any, service: ChatService, timing: Timing = UNHURRIED) -> None:
        self.dynamodb = dynamodb
        self.service = service
        self.timing = timing
        self.clock = Clock()
        self.name = f"token-{next(_names)}"
        self.client_secret = service.client_secret
        self.instances: list[Instance] = []

    def new(self, dynamodb: Any = None, **changes: Any) -> Instance:
        """An instance, with a client of its own if one is given."""
        arguments: dict[str, Any] = {"timing": self.timing, "clock": self.clock} | changes
        instance = Instance(dynamodb or self.dynamodb, self.name, self.api(), **arguments)
        self.instances.append(instance)
        return instance

    def several(self, count: int, skew: float = 0.0, **changes: Any) -> list[Instance]:
        """Instances whose clocks are ahead by `skew`, behind by it, and right, in turn."""
        skews = itertools.cycle((skew, -skew, 0.0))
        return [self.new(skew=next(skews), **changes) for _ in range(count)]

    def api(self) -> ChatApi:
        """A client of the API."""
        credentials = Credentials(self.service.client_id, self.client_secret)
        return ChatApi(self.service.url, lambda: credentials)

    def item(self) -> TokenItem:
        return TokenTable(self.dynamodb, TABLE).read(self.name)

    def stored_is_live(self) -> bool:
        return self.service.is_live(self.item().access_token or "")

    def count(self, kind: type[TokenEvent]) -> int:
        """How many events of one kind the instances here have reported."""
        return sum(isinstance(event, kind) for instance in self.instances for event in instance.events)


def start[Result](works: Sequence[Callable[[], Result]]) -> list[Future[Result]]:
    """Runs them on a thread each, all from the same instant."""
    together = threading.Barrier(len(works))

    def run(work: Callable[[], Result]) -> Result:
        together.wait()
        return work()

    pool = ThreadPoolExecutor(len(works))
    futures = [pool.submit(run, work) for work in works]
    pool.shutdown(wait=False)
    return futures


def at_once[Result](works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Runs them as `start` does and waits: their results, in order. Raises what the first of them raised."""
    return [future.result() for future in start(works)]


def errors_of(works: Sequence[Callable[[], Any]]) -> list[BaseException | None]:
    """Runs them as `start` does and waits: what each raised, None for those that raised nothing."""
    return [future.exception() for future in start(works)]
