"""Instances, one thread each in several processes, that all receive a 401 at the same instant."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Self

from dev.benchmarks.token.thin_client import ThinDynamoDb
from dev.benchmarks.token.token_designs import DESIGNS, NAME, Store, last_share, serve
from dev.emulator.aws import EngineError
from dev.emulator.chat_service import ChatService
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Credentials

PROCESSES = max(1, min(4, os.cpu_count() or 1))
MEETING_SECONDS = 60.0  # to wait until all are warm, which takes one
ENDING_SECONDS = 10.0


@dataclass(frozen=True)
class CrowdOrders:
    design: str
    instances: int
    dynamodb: str
    api: str
    credentials: Credentials
    token: str  # the token that is invalidated


@dataclass(frozen=True)
class Invalidation:
    """The measurement of one invalidation.

    Attributes:
        posts: the number of `POST /auth`.
        failed: the number of messages without an answer.
        waits: seconds of the instances that did not refresh, sorted.
        counts: reads, writes, and refused writes.
        latencies: seconds of each call of DynamoDB.
    """

    posts: int = 0
    failed: int = 0
    waits: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)


def waits_for_others(messages: list[tuple[float, bool]], posts: int) -> list[float]:
    """The seconds of the instances that waited for another one, sorted.

    With one POST the fastest instance is left out: it made the POST, so it waited for the API.
    """
    return sorted(seconds for seconds, _ in messages)[1 if posts == 1 else 0 :]


class Crowds:
    """The processes, which serve all invalidations. A context manager that ends them."""

    def __init__(self, endpoint: str, auth_seconds: float, processes: int = PROCESSES) -> None:
        self._endpoint = endpoint
        self._auth_seconds = auth_seconds
        self._processes = processes
        # Not forked, since this process has threads.
        context = multiprocessing.get_context("spawn")
        self._meet = context.Barrier(processes + 1)
        self._pool = ProcessPoolExecutor(processes, context, initializer=_remember, initargs=(self._meet,))

    def meet_401(self, design: str, instances: int, seed: int = 1) -> Invalidation:
        """One invalidation that all instances notice together, with open connections. Raises EngineError.

        `seed` draws the duration of the previous refresh.
        """
        store = Store(ThinDynamoDb(self._endpoint))
        with ChatService(auth_latency=self._auth_seconds) as service:
            credentials = Credentials(service.client_id, service.client_secret)
            token = ChatApi(service.url, lambda: credentials).authenticate(30.0)
            store.put(token, last_share(seed) * self._auth_seconds)
            shares = [len(range(first, instances, self._processes)) for first in range(self._processes)]
            orders = [CrowdOrders(design, share, self._endpoint, service.url, credentials, token) for share in shares]
            works = [self._pool.submit(carry_out, order) for order in orders]
            try:
                self._meet.wait(MEETING_SECONDS)
                service.invalidate()
                self._meet.wait(MEETING_SECONDS)
                parts = [work.result() for work in works]
            except (BrokenBarrierError, BrokenProcessPool) as error:
                why = [str(work.exception() or "") for work in wait(works, ENDING_SECONDS).done if not work.cancelled()]
                raise EngineError(f"a process of instances failed: {' '.join(filter(None, why))}") from error
            posts = service.auths - 1
        counts: Counter[str] = Counter()
        for part in parts:
            counts.update(part.counts)
        messages = [message for part in parts for message in part.messages]
        return Invalidation(
            posts,
            sum(not answered for _, answered in messages),
            waits_for_others(messages, posts),
            counts,
            [seconds for part in parts for seconds in part.latencies],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._meet.abort()
        self._pool.shutdown(cancel_futures=True)


# In the processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The result of one process. `messages`: seconds of each, and whether it was answered."""

    messages: list[tuple[float, bool]]
    counts: Counter[str]
    latencies: list[float]


_meet: list[Barrier] = []


def _remember(meet: Barrier) -> None:
    _meet.append(meet)


def carry_out(orders: CrowdOrders) -> Part:
    """Create the instances, open their connections, and start them after the invalidation."""
    try:
        return _carry_out(orders)
    except BaseException:
        _meet[0].abort()
        raise


def _carry_out(orders: CrowdOrders) -> Part:
    dynamodb = ThinDynamoDb(orders.dynamodb)
    store = Store(dynamodb)
    ready = threading.Semaphore(0)
    go = threading.Event()
    one_at_a_time = threading.Lock()  # a server refuses hundreds of simultaneous connections

    def live() -> tuple[float, bool]:
        api = ChatApi(orders.api, lambda: orders.credentials)
        instance = DESIGNS[orders.design](store, api)
        try:
            with one_at_a_time:
                store.read(NAME)
                api.is_valid(orders.token, 30.0)
        finally:
            ready.release()
        go.wait()
        return serve(instance, api, orders.token)

    with ThreadPoolExecutor(max(1, orders.instances)) as pool:
        messages = [pool.submit(live) for _ in range(orders.instances)]
        try:
            for _ in messages:
                ready.acquire()
            for message in messages:
                if message.done():
                    message.result()  # raises the error of an instance that ended early
            dynamodb.forget()
            for _ in range(2):
                _meet[0].wait(MEETING_SECONDS)
        finally:
            go.set()
    return Part([message.result() for message in messages], dynamodb.counts, dynamodb.latencies)
