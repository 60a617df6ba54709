"""Contenders: threads in several processes, each of which runs one cycle after another.

The threads of one process share an interpreter, so with a single process the client would be measured. The processes
serve all measurements, so they are warm.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Self

from dev.benchmarks.slot_cycle.counter_designs import (
    PROCESS,
    Counter,
    Design,
    Floor,
    ReadsFirst,
    Slotkeeper,
    SmallFloor,
    Step,
    ThreePriorities,
    Transaction,
    Weighted,
    WithoutPriorities,
    WithoutPrioritiesWaited,
)
from dev.benchmarks.slot_cycle.lock_client import LockClient
from dev.emulator.local_clients import local_client
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.request import execution_name

DESIGNS: dict[str, type[Design]] = {
    "slotkeeper": Slotkeeper,
    "floor": Floor,
    "small-floor": SmallFloor,
    "counter": Counter,
    "transaction": Transaction,
    "lock-client": LockClient,
    "reads-first": ReadsFirst,
    "without-priorities": WithoutPriorities,
    "without-priorities-waited": WithoutPrioritiesWaited,
    "three-priorities": ThreePriorities,
    "weighted": Weighted,
}
THREADS = 32  # per process, at most
PATIENCE = 120.0  # seconds to wait for an answer of a process


@dataclass(frozen=True)
class Orders:
    """An order to a process.

    Args:
        threads: the number of contenders in this process.
        seconds: the time after which no contender starts another cycle. Each completes at least one.
        full: call `Design.full` instead of a cycle.
    """

    design: str
    table: str
    holders: int
    limit: int
    threads: int
    seconds: float
    full: bool = False


@dataclass
class Taken:
    """The duration of each cycle, and the instants of the first start and the last end. Seconds."""

    cycles: list[float] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def span(self) -> float:
        return self.ended - self.started

    def add(self, other: Taken) -> None:
        self.cycles += other.cycles
        self.started = min(self.started or other.started, other.started)
        self.ended = max(self.ended, other.ended)


class Crew:
    """The processes. A context manager that ends them."""

    def __init__(self, endpoint: str, processes: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads is unsafe
        self._members = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, endpoint, number), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))

    def work(self, design: str, table: str, holders: int, limit: int, contenders: int, seconds: float) -> Taken:
        """The cycles of so many contenders."""
        shares = [len(range(first, contenders, len(self._members))) for first in range(len(self._members))]
        return self._order(*(Orders(design, table, holders, limit, share, seconds) for share in shares if share))

    def _order(self, *orders: Orders) -> Taken:
        """Send each order to a process; the sum of their answers."""
        taken = Taken()
        busy = [connection for _, connection in self._members[: len(orders)]]
        for connection, order in zip(busy, orders, strict=True):
            connection.send(order)
        for connection in busy:
            taken.add(self._answer(connection))
        return taken

    def refused(self, design: str, table: str, holders: int, seconds: float) -> Taken:
        """The refused reserves of one contender."""
        return self._order(Orders(design, table, holders, holders, 1, seconds, full=True))

    def _answer(self, connection: Connection[Any, Any]) -> Taken:
        try:
            if not connection.poll(PATIENCE):
                raise CannotContinue(f"a process of contenders has not answered for {PATIENCE:.0f} s")
            answer = connection.recv()
        except (EOFError, ConnectionError):
            raise CannotContinue("a process of contenders has ended; its output is above") from None
        if isinstance(answer, str):
            raise CannotContinue(f"a contender has failed: {answer}")
        taken: Taken = answer
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._members:
            connection.close()
            process.terminate()
            process.join()


def serve(connection: Connection[Any, Any], endpoint: str, number: int) -> None:
    """Carry out orders until the connection is closed. Runs in the process."""
    dynamodb = local_client("dynamodb", endpoint, connections=THREADS)
    names = (execution_name(PROCESS, f"{number}/{count}", 1) for count in itertools.count())
    while True:
        try:
            orders = connection.recv()
        except EOFError:
            return
        try:
            answer: Taken | str = _contend(dynamodb, orders, names)
        except Exception as error:  # the parent reports it
            answer = repr(error)
        connection.send(answer)


def _contend(dynamodb: Any, orders: Orders, names: Any) -> Taken:
    design = DESIGNS[orders.design](dynamodb, orders.table, orders.holders, orders.limit)
    steps: Sequence[Step] = (("refused", design.full),) if orders.full else design.steps()
    together = threading.Barrier(orders.threads)
    naming = threading.Lock()

    def contend(_number: int) -> Taken:
        taken = Taken()
        together.wait()
        taken.started = now = time.perf_counter()
        until = now + orders.seconds
        while not taken.cycles or now < until:
            with naming:
                me = next(names)
            started = now
            for _, take in steps:
                take(me)
            now = time.perf_counter()
            taken.cycles.append(now - started)
        taken.ended = now
        return taken

    whole = Taken()
    with ThreadPoolExecutor(orders.threads) as pool:
        for taken in pool.map(contend, range(orders.threads)):
            whole.add(taken)
    return whole
