"""Callers of leases in a separate process, in threads that race for the slots of one process.

Each caller has a clock that is wrong by less than half the skew. Time runs RATE times faster than it is, so that leases
expire within a race. Some answers are lost, and some calls arrive again, late. A caller uses one holder's name for all
its leases, so that a late call of an earlier lease meets the next one: random names would hide a missing condition.
"""

from __future__ import annotations

import logging
import math
import random
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from botocore.exceptions import ReadTimeoutError

from dev.emulator.local_clients import local_client
from slotkeeper.slots import grants, lease_protocol
from slotkeeper.slots.lease_protocol import LeaseSteps, LeaseTerm, Taken
from slotkeeper.slots.process import Process
from tests.deployed.races.lease_judge import MAX_ERROR, LeaseHistory, LeaseRecord
from tests.deployed.races.shared_token import errors_of
from tests.simulation.account.boundary import lose_answers

Change = tuple[str, str, str]  # a constant of a module of MODULES, a part of it, and the replacement

PROCESS = "p"
MODULES = {"OWN_LEASE": lease_protocol, "ONLY_LATER": lease_protocol, "EXPIRE_CONDITION": grants}
LOST = 0.04  # the share of UpdateItem's answers that is lost
RATE = 200  # race seconds per second
LENGTHS = (4.0, 30.0)  # race seconds of a lease


def true_time() -> float:
    """Race seconds, the same in all processes of the machine."""
    return time.monotonic() * RATE


@dataclass(frozen=True)
class LeaseOrders:
    """One race: it ends when `seconds` have passed and each thread has made `min_cycles`."""

    endpoint: str
    table: str
    threads: int  # of each process
    heaviest: int
    seconds: float
    min_cycles: int
    changes: Sequence[Change]


class _Steps(LeaseSteps):
    """Notes which leases a caller has removed, or tried to.

    Attributes:
        now: the time that the caller's clock has shown.
    """

    now = 0.0

    def __init__(self, dynamodb: Any, table: str, history: LeaseHistory) -> None:
        super().__init__(dynamodb, table)
        self._history = history

    def expire(self, seen: Process, name: str) -> None:
        self._history.removals.append((seen.holders[name].code, self.now))
        super().expire(seen, name)


class Caller:
    """One thread."""

    def __init__(self, dynamodb: Any, orders: LeaseOrders, number: int) -> None:
        self.history = LeaseHistory()
        self.cycles = 0
        self._orders, self._number = orders, number
        self._steps = _Steps(dynamodb, orders.table, self.history)
        self._random = random.Random(number)  # noqa: S311
        self._error = self._random.uniform(-MAX_ERROR, MAX_ERROR)
        self._name = f"lease-{number}"
        self._earlier: str | None = None  # the code of the lease before

    def run(self, until: float) -> None:
        while time.monotonic() < until or self.cycles < self._orders.min_cycles:
            self.cycles += 1
            self._lease()

    def _clock(self) -> float:
        return true_time() + self._error

    def _until(self) -> tuple[float, int]:
        """A lease's end by true time, and as it is stored."""
        end = self._clock() + self._random.uniform(*LENGTHS)
        return end - self._error, math.ceil(end)

    def _lease(self) -> None:
        ends, until = self._until()
        term = LeaseTerm(until, uuid.uuid4().hex)
        weight = self._random.randint(1, self._orders.heaviest)

        def take() -> Any:
            self._steps.now = self._clock()
            return self._steps.take(PROCESS, self._name, weight, term, self._steps.now)

        answer, _ = self._repeat(take)
        if not isinstance(answer, Taken):
            self.history.refusals += 1
            self._pause(2)
            return
        lease = LeaseRecord(term.code, weight, true_time(), ends)
        self.history.leases.append(lease)
        if self._earlier and self._random.random() < 0.5:
            self._late_release(self._earlier)
        self._earlier = term.code
        term = self._extend(lease, term)
        end = self._random.random()
        if end < 0.1:
            self._name += "'"  # it dies, and a new caller takes its place
            self._earlier = None
        else:
            self._pause(40 if end < 0.2 else 2)
            self._release(lease)

    def _extend(self, lease: LeaseRecord, term: LeaseTerm) -> LeaseTerm:
        for _ in range(self._random.choice([0, 0, 1, 2])):
            before = term
            ends, until = self._until()
            term = LeaseTerm(until, term.code)
            held, _ = self._repeat(lambda term=term: self._steps.extend(PROCESS, self._name, term))
            if not held:
                break
            lease.ends = max(lease.ends, ends)
            if self._random.random() < 0.5:  # an extension arrives again, late
                self._steps_late(lambda before=before: self._steps.extend(PROCESS, self._name, before))
        return term

    def _release(self, lease: LeaseRecord) -> None:
        lease.left = true_time()
        lease.released, lost = self._repeat(lambda: self._steps.release(PROCESS, self._name, lease.code))
        lease.may_have_released = lost > 0

    def _late_release(self, code: str) -> None:
        """The release of an earlier lease arrives again, when its caller already has the next one."""
        if self._steps_late(lambda: self._steps.release(PROCESS, self._name, code)):
            self.history.faults.append(f"a late release of an earlier lease of {self._name} had an effect")

    def _steps_late(self, call: Callable[[], bool]) -> bool:
        try:
            return call()
        except ReadTimeoutError:
            return False

    def _pause(self, most: float) -> None:
        """At most these race seconds."""
        time.sleep(self._random.uniform(0, most) / RATE)

    def _repeat(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """Call until an answer arrives; return it, and the number of lost ones."""
        lost = 0
        while True:
            try:
                return call(), lost
            except ReadTimeoutError:
                lost += 1
                self.history.lost_answers += 1


@contextmanager
def changed(changes: Iterable[Change]) -> Iterator[None]:
    """Replace parts of modules' constants for one race."""
    before = {constant: getattr(module, constant) for constant, module in MODULES.items()}
    try:
        for constant, old, new in changes:
            assert old in before[constant], f"{old!r} is not in {constant}"
            setattr(MODULES[constant], constant, before[constant].replace(old, new))
        yield
    finally:
        for constant, value in before.items():
            setattr(MODULES[constant], constant, value)


@cache
def _client(endpoint: str, number: int) -> Any:
    dynamodb = local_client("dynamodb", endpoint)
    chance = random.Random(number)  # noqa: S311
    lose_answers(dynamodb, "UpdateItem", lambda: chance.random() < LOST)
    logging.getLogger(lease_protocol.__name__).setLevel(logging.ERROR)  # each skipped wake is a warning
    return dynamodb


def callers(orders: LeaseOrders, number: int) -> Callable[[], list[LeaseHistory]]:
    """The race of one process, by its number; it returns what each thread did."""
    threads = range(number * orders.threads, (number + 1) * orders.threads)
    made = [Caller(_client(orders.endpoint, number), orders, thread) for thread in threads]

    def race() -> list[LeaseHistory]:
        until = time.monotonic() + orders.seconds
        with changed(orders.changes):
            errors = errors_of([partial(caller.run, until) for caller in made])
        # As text: some errors of botocore are not sent from process to process.
        assert not any(errors), "".join(text for each in errors if each for text in traceback.format_exception(each))
        return [caller.history for caller in made]

    return race
