"""Contenders: threads in several processes, each of which runs one cycle after another.

The threads of one process share an interpreter, so with a single process the client would be measured. The processes
serve all measurements, so they are warm.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from dev.benchmarks.slot_cycle.counter_designs import PROCESS, Design, Floor, Slotkeeper
from dev.emulator.local_clients import local_client
from slotkeeper.slots.request import execution_name

DESIGNS: dict[str, type[Design]] = {"slotkeeper": Slotkeeper, "floor": Floor}
THREADS = 32  # per process, at most


@dataclass(frozen=True)
class Work:
    """What a process does.

    Args:
        threads: the number of contenders in this process.
        seconds: the time after which no contender starts another cycle. Each completes at least one.
    """

    design: str
    table: str
    holders: int
    limit: int
    threads: int
    seconds: float


@dataclass(frozen=True)
class Taken:
    """The duration of each cycle, and the instants of the first start and the last end. Seconds."""

    cycles: list[float]
    started: float
    ended: float


class Crew:
    """One executor for each process, so that each receives its share. A context manager that ends them."""

    def __init__(self, endpoint: str) -> None:
        spawned = multiprocessing.get_context("spawn")  # a fork of a process with threads is unsafe
        self._members = [
            ProcessPoolExecutor(1, spawned, initializer=_prepare, initargs=(endpoint, number))
            for number in range(min(4, max(2, os.cpu_count() or 2)))
        ]

    def work(self, design: str, table: str, holders: int, limit: int, contenders: int, seconds: float) -> Taken:
        """The cycles of so many contenders."""
        shares = [len(range(first, contenders, len(self._members))) for first in range(len(self._members))]
        answers = [
            member.submit(_contend, Work(design, table, holders, limit, share, seconds))
            for member, share in zip(self._members, shares, strict=True)
            if share
        ]
        return _together([answer.result() for answer in answers])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for member in self._members:
                stack.callback(member.shutdown, cancel_futures=True)


class Contender:
    """What a process keeps between its works: a client, and names that no other contender has."""

    dynamodb: Any
    names: Iterator[str]


def _prepare(endpoint: str, number: int) -> None:
    Contender.dynamodb = local_client("dynamodb", endpoint, connections=THREADS)
    Contender.names = (execution_name(PROCESS, f"{number}/{count}", 1) for count in itertools.count())


def _contend(work: Work) -> Taken:
    """Runs in the process."""
    design = DESIGNS[work.design](Contender.dynamodb, work.table, work.holders, work.limit)
    steps, start, naming = design.steps(), threading.Barrier(work.threads), threading.Lock()

    def contend(_number: int) -> Taken:
        cycles: list[float] = []
        start.wait()
        first = now = time.perf_counter()
        while not cycles or now < first + work.seconds:
            with naming:
                me = next(Contender.names)
            started = now
            for step in steps:
                step(me)
            now = time.perf_counter()
            cycles.append(now - started)
        return Taken(cycles, first, now)

    with ThreadPoolExecutor(work.threads) as pool:
        return _together(list(pool.map(contend, range(work.threads))))


def _together(parts: list[Taken]) -> Taken:
    """`perf_counter` counts from the same instant in all processes (Linux and macOS: since the machine's start)."""
    cycles = [seconds for part in parts for seconds in part.cycles]
    return Taken(cycles, min(part.started for part in parts), max(part.ended for part in parts))
