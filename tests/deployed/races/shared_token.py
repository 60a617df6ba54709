"""Instances that share one token on DynamoDB Local, with the real client of the simulated chat API.

Each instance is a thread with its own cache.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import time
from typing import Any

from dev.emulator.chat_service import ChatService
from dev.emulator.local_clients import local_client
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Credentials
from slotkeeper.token import SharedToken, Timing, TokenTable
from tests.waiting import NEVER

TABLE = "tokens"
SKEW = 2.0  # seconds, either way
# For a hundred instances on two cores: no time-out ends during a test.
LONG_LEASE = Timing(api=20.0, store=10.0, clock_skew=SKEW, patience=NEVER)

_names = itertools.count(1)


class TokenSharers:
    """One token, its API, and the instances that share it."""

    def __init__(self, endpoint: str, service: ChatService) -> None:
        self.endpoint, self.service = endpoint, service
        self.name = f"token-{next(_names)}"
        self.api = {"url": service.url, "id": service.client_id, "secret": service.client_secret}


def instance(dynamodb: Any, name: str, api: dict[str, str], skew: float = 0.0) -> SharedToken:
    """An instance whose clock is ahead by `skew`."""
    client = ChatApi(api["url"], lambda: Credentials(api["id"], api["secret"]))
    return SharedToken(
        TokenTable(dynamodb, TABLE),
        name,
        authenticate=client.authenticate,
        still_valid=client.is_valid,
        timing=LONG_LEASE,
        clock=lambda: time() + skew,
    )


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


def errors_of(works: Sequence[Callable[[], Any]]) -> list[BaseException | None]:
    """Run them with `start` and return the exception of each, or None."""
    return [future.exception() for future in start(works)]


def cold(endpoint: str, name: str, api: dict[str, str], skews: Sequence[float]) -> Callable[[], list[str]]:
    """Instances of one process, each with a clock that is ahead; then the tokens that they get."""
    client = local_client("dynamodb", endpoint, connections=len(skews))
    instances = [instance(client, name, api, skew) for skew in skews]
    return lambda: [future.result() for future in start([each.get for each in instances])]
