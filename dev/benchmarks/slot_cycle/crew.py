"""Contenders: processes of threads, each an execution after the other, for so long as they are told.

More processes than one, since the threads of one share an interpreter, and the client would be what is measured. They
are kept from one measurement to the next: what stays is warm.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.benchmarks.slot_cycle.counter_designs import (
    PROCESS,
    Counter,
    Design,
    Floor,
    LooksFirst,
    Slotkeeper,
    SmallFloor,
    Transaction,
)
from dev.benchmarks.slot_cycle.lock_client import LockClient
from dev.emulator.local_clients import local_client
from dev.scenarios.runner.scenario import CannotGoOn
from slotkeeper.slots.request import execution_name

DESIGNS: dict[str, type[Design]] = {
    "slotkeeper": Slotkeeper,
    "floor": Floor,
    "small-floor": SmallFloor,
    "counter": Counter,
    "transaction": Transaction,
    "lock-client": LockClient,
    "looks-first": LooksFirst,
}
THREADS = 32  # of a process, at the most
PATIENCE = 120.0  # seconds for any answer of a process


@dataclass(frozen=True)
class Orders:
    """What a process is to do.

    Args:
        threads: how many contend in this process.
        seconds: after so long nobody begins another cycle; each has had one.
        full: ask for a place where there is none, instead of a cycle.
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
    """What it took, in seconds.

    Args:
        steps: by the step's name, each time that it was taken.
        tries: how many locks were tried, by the lock client.
        processor: of the contenders' processes.
    """

    steps: dict[str, list[float]] = field(default_factory=dict)
    cycles: list[float] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    processor: float = 0.0
    tries: int = 0

    @property
    def calls(self) -> int:
        """How many steps were taken."""
        return sum(map(len, self.steps.values()))

    @property
    def span(self) -> float:
        """From the first beginning to the last end."""
        return self.ended - self.began

    def add(self, other: Taken) -> None:
        """Count another's in."""
        for step, seconds in other.steps.items():
            self.steps.setdefault(step, []).extend(seconds)
        self.cycles += other.cycles
        self.began = min(self.began or other.began, other.began)
        self.ended = max(self.ended, other.ended)
        self.processor += other.processor
        self.tries += other.tries


class Crew:
    """The parent's side. A context manager that ends the processes."""

    def __init__(self, endpoint: str, processes: int) -> None:
        context = multiprocessing.get_context("spawn")  # a copy of a process with threads would be a gamble
        self._members = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, endpoint, number), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))

    def work(self, design: str, table: str, holders: int, limit: int, contenders: int, seconds: float) -> Taken:
        """So many contend; what it took them all."""
        taken = Taken()
        shares = [len(part) for part in _dealt(contenders, len(self._members)) if part]
        busy = [connection for _, connection in self._members[: len(shares)]]
        for connection, threads in zip(busy, shares, strict=True):
            connection.send(Orders(design, table, holders, limit, threads, seconds))
        for connection in busy:
            taken.add(self._answer(connection))
        return taken

    def refused(self, design: str, table: str, holders: int, seconds: float) -> Taken:
        """One asks, again and again, and is refused each time."""
        _, connection = self._members[0]
        connection.send(Orders(design, table, holders, holders, 1, seconds, full=True))
        return self._answer(connection)

    def _answer(self, connection: Connection[Any, Any]) -> Taken:
        try:
            if not connection.poll(PATIENCE):
                raise CannotGoOn(f"a process of contenders has said nothing for {PATIENCE:.0f} s")
            answer = connection.recv()
        except (EOFError, ConnectionError):
            raise CannotGoOn("a process of contenders has ended; what it said stands above") from None
        if isinstance(answer, str):
            raise CannotGoOn(f"a contender has failed: {answer}")
        taken: Taken = answer
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, connection in self._members:
            connection.close()
            process.terminate()
            process.join()


def _dealt(contenders: int, processes: int) -> list[range]:
    return [range(first, contenders, processes) for first in range(processes)]


def serve(connection: Connection[Any, Any], endpoint: str, number: int) -> None:
    """The process's side: it does what it is told until nobody is there to tell."""
    dynamodb = local_client("dynamodb", endpoint, connections=THREADS)
    names = (execution_name(PROCESS, f"{number}/{count}", 1) for count in itertools.count())
    while True:
        try:
            orders = connection.recv()
        except EOFError:
            return
        try:
            answer: Taken | str = _contend(dynamodb, orders, names)
        except Exception as error:  # told, whatever it is
            answer = repr(error)
        connection.send(answer)


def _contend(dynamodb: Any, orders: Orders, names: Any) -> Taken:
    design = DESIGNS[orders.design](dynamodb, orders.table, orders.holders, orders.limit)
    steps = (("refused", design.full),) if orders.full else design.steps()
    together = threading.Barrier(orders.threads)
    naming = threading.Lock()

    def contend(_: int) -> Taken:
        taken = Taken({step: [] for step, _ in steps})
        together.wait()
        taken.began = now = time.perf_counter()
        until = now + orders.seconds
        while not taken.cycles or now < until:
            with naming:
                me = next(names)
            started = now
            for step, take in steps:
                before = now
                take(me)
                now = time.perf_counter()
                taken.steps[step].append(now - before)
            taken.cycles.append(now - started)
        taken.ended = now
        return taken

    before = time.process_time()
    whole = Taken()
    with ThreadPoolExecutor(orders.threads) as pool:
        for taken in pool.map(contend, range(orders.threads)):
            whole.add(taken)
    whole.processor = time.process_time() - before
    whole.tries = design.tries
    return whole


def processor_seconds(process: int) -> float | None:
    """What another process has used of the processors so far; None where /proc does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / 100
