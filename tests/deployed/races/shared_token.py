"""Instances that share one token on DynamoDB Local, with the real client of the simulated chat API.

Each instance is a thread with its own cache and connections. `instance_process` has instances in separate processes.
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
from tests.waiting import NEVER

TABLE = "tokens"

SKEW = 2.0  # seconds, either way

# For frozen processes, which use the true time: short enough to wait for, and several times as long as a healthy holder
# needs on a busy machine.
SHORT_LEASE = Timing(api=6.0, store=3.0, clock_skew=0.05, min_interval=0.0, patience=NEVER)

# For hundreds of instances on two cores, and for held clocks: no time-out ends during a test.
LONG_LEASE = Timing(api=20.0, store=10.0, clock_skew=SKEW, patience=NEVER)

_names = itertools.count(1)


class Clock:
    """The true time in seconds since the epoch. A test can hold it and move it."""

    def __init__(self) -> None:
        self._held: float | None = None

    def __call__(self) -> float:
        return time.time() if self._held is None else self._held

    def hold(self) -> None:
        self._held = time.time()

    def move(self, seconds: float) -> None:
        self._held = self() + seconds


class Instance:
    """One SharedToken with its own client of the API.

    Args:
        skew: seconds by which its clock is ahead.
        changes: other arguments of SharedToken.
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
        """Answer a message as the chatbot does."""
        return self.token.call(lambda token: self.api.answer(ChatMessage("any", text), token, 10.0))


class TokenSharers:
    """One token, its API, and the instances that share it."""

    def __init__(self, dynamodb: Any, service: ChatService, timing: Timing = LONG_LEASE) -> None:
        self.dynamodb = dynamodb
        self.service = service
        self.timing = timing
        self.clock = Clock()
        self.name = f"token-{next(_names)}"
        self.client_secret = service.client_secret
        self.instances: list[Instance] = []

    def new(self, dynamodb: Any = None, **changes: Any) -> Instance:
        """Another instance; `dynamodb` replaces the common client."""
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
        """The number of events of one kind that the instances have reported."""
        return sum(isinstance(event, kind) for instance in self.instances for event in instance.events)


def start[Result](works: Sequence[Callable[[], Result]]) -> list[Future[Result]]:
    """Run each on a thread; all begin at the same instant."""
    together = threading.Barrier(len(works))

    def run(work: Callable[[], Result]) -> Result:
        together.wait()
        return work()

    pool = ThreadPoolExecutor(len(works))
    futures = [pool.submit(run, work) for work in works]
    pool.shutdown(wait=False)
    return futures


def simultaneously[Result](works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run them with `start` and return their results in order. Raises the first exception."""
    return [future.result() for future in start(works)]


def errors_of(works: Sequence[Callable[[], Any]]) -> list[BaseException | None]:
    """Run them with `start` and return the exception of each, or None."""
    return [future.exception() for future in start(works)]
