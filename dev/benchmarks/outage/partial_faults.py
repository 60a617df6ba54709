"""Partial faults: what part of the work is completed, and what a full outage, a hang and a second downstream cost.

Each case is one world with one design. The figures are counted from the downstream's own record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from slotkeeper.retry.downstream.downstreams import Admission
from slotkeeper.retry.message import instant

from .fragile_downstream import REFUSAL_SECONDS, VARIATION, Call, Unavailable
from .other_breakers import RULES
from .retry_designs import INVOCATION, UNWATCHED, WATCHING, Stopped, World
from .virtual_time import START, VirtualTime

BREAKERS = (UNWATCHED, WATCHING, *RULES)
CONTAINERS = (3, 10)
MINUTES = 10
CALL_SECONDS = 0.5
HELD_BACK = 20_000
REDRIVEN, REDRIVE_CONTAINERS, REDRIVE_ERRORS = 2000, 10, 0.05
WITHOUT_BUDGET = "worker without budget"


@dataclass
class FaultyDownstream:
    """A downstream that fails at times.

    Args:
        fails: whether a call that begins at a second fails.
        hangs: whether it never answers, until the function is stopped.
    """

    time: VirtualTime
    random: Random
    seconds: float
    fails: Callable[[float, Random], bool]
    hangs: Callable[[float], bool] = lambda _second: False
    is_late: bool = False  # an error comes as late as a success

    def __post_init__(self) -> None:
        self.calls: list[Call] = []

    def call(self) -> None:
        """Call it. Raises Unavailable or Stopped."""
        began = self.time.elapsed
        if self.hangs(began):
            self.calls.append(Call(began, began + INVOCATION, "down"))
            self.time.sleep(INVOCATION)
            raise Stopped
        is_down = self.fails(began, self.random)
        seconds = self.seconds * self.random.uniform(1 - VARIATION, 1 + VARIATION)
        self.time.sleep(REFUSAL_SECONDS if is_down and not self.is_late else seconds)
        self.calls.append(Call(began, self.time.elapsed, "down" if is_down else "succeeded"))
        if is_down:
            raise Unavailable("503")


def _blips(period: float, down: float) -> Callable[[float, Random], bool]:
    return lambda second, _random: second % period >= period - down


def _random_errors(share: float) -> Callable[[float, Random], bool]:
    return lambda _second, random: random.random() < share


@dataclass(frozen=True)
class Fault:
    """A partial fault. `per_second`: arrivals per container, below what it can complete."""

    title: str
    fails: Callable[[float, Random], bool]
    per_second: float
    seconds: float = CALL_SECONDS
    is_late: bool = False


FAULTS = {
    "blips-60": Fault("down 2 s of each 60 s", _blips(60, 2), 4 / 3),
    "blips-30": Fault("down 2 s of each 30 s", _blips(30, 2), 4 / 3),
    "errors-40": Fault("40 % of calls fail", _random_errors(0.4), 0.5, 1.0, is_late=True),
    "errors-50": Fault("50 % of calls fail", _random_errors(0.5), 0.45, 1.0, is_late=True),
}


def partial(name: str, containers: int, design: str, scale: float) -> dict[str, Any]:
    """The share of the requests that are completed, at the end of the arrivals."""
    fault, seconds = FAULTS[name], 60 * MINUTES * scale
    world = World(
        design,
        lambda time, random: FaultyDownstream(time, random, fault.seconds, fault.fails, is_late=fault.is_late),
        containers,
        seed=1,
    )
    sent = _arrivals(world, fault.per_second * containers, seconds)
    world.time.run(seconds)
    return _figures(world) | {"completed": _succeeded(world) / max(1, sent)}


def outage(containers: int, design: str, scale: float) -> dict[str, Any]:
    """The calls and attempts that a full outage of five minutes costs."""
    down, back = 120 * scale, 420 * scale

    def fails(second: float, _: Random) -> bool:
        return down <= second < back

    world = World(design, lambda time, random: FaultyDownstream(time, random, CALL_SECONDS, fails), containers, seed=1)
    _arrivals(world, 4 / 3 * containers, back + 30 * scale)
    world.time.run(back + 120 * scale)
    return _figures(world) | {"calls": sum(down <= call.began < back for call in world.downstream.calls)}


def hang(design: str, scale: float) -> dict[str, Any]:
    """Two hours in which each call is kept until the function is stopped; a request each 50 seconds."""
    begins, ends = 300 * scale, 7500 * scale
    exit_ = Admission.__exit__

    def exit_unless_stopped(self: Admission, kind: Any = None, *_: object) -> None:
        if kind is not Stopped:  # a stopped function runs no more code
            exit_(self)

    Admission.__exit__ = exit_unless_stopped  # type: ignore[method-assign]
    try:
        world = World(
            design,
            lambda time, random: FaultyDownstream(
                time, random, CALL_SECONDS, lambda *_: False, lambda second: begins <= second < ends
            ),
            CONTAINERS[0],
            seed=1,
        )
        _arrivals(world, 0.02, ends)
        world.time.run(ends + 14_400 * scale, lambda: world.time.elapsed > ends and not world.backlog)
        figures = _figures(world)
    finally:
        Admission.__exit__ = exit_  # type: ignore[method-assign]
    return figures | {"calls": sum(begins <= call.began < ends for call in world.downstream.calls)}


def shared_queue(containers: int, design: str, held_back: int, scale: float) -> dict[str, Any]:
    """How long requests of a healthy downstream wait next to messages of one that is down, on the same queue."""
    begins, seconds = 420 * scale, 300 * scale
    world = World(
        design,
        lambda time, random: FaultyDownstream(time, random, CALL_SECONDS, lambda *_: False),
        containers,
        seed=1,
    )
    down = FaultyDownstream(world.time, world.random, CALL_SECONDS, lambda *_: True)
    world.others["a"] = down
    for number in range(int(held_back * scale)):
        # As after a while of the outage: the messages return one after the other.
        world.send(number, "a", delay=world.random.uniform(0, begins))
    starts = {}
    for number in range(int(seconds)):
        starts[f"request-b{number}"] = begins + number
        world.time.at(START + begins + number, lambda number=number: world.send(f"b{number}"))  # type: ignore[misc]
    world.time.run(begins + seconds + 60)
    end = world.time.elapsed
    waits = sorted(world.done.get(request_id, end) - began for request_id, began in starts.items())
    return _figures(world) | {"wait": waits[int(len(waits) * 0.99)], "median": waits[len(waits) // 2]}


def redrive(design: str, scale: float) -> dict[str, Any]:
    """How long a redrive takes until 95 % of it is completed, if a few calls fail."""
    world = World(
        WATCHING,
        lambda time, random: FaultyDownstream(time, random, 1.0, _random_errors(REDRIVE_ERRORS), is_late=True),
        REDRIVE_CONTAINERS,
        seed=1,
        policy={"downstream": {"budget": {"enabled": False}}} if design == WITHOUT_BUDGET else {},
    )
    count = int(REDRIVEN * scale)
    for number in range(count):
        world.send(number, retries=[instant(START - 3600)])
    world.time.run(7200, lambda: not world.backlog)
    ended = sorted(world.done.values())
    return _figures(world) | {"seconds": ended[int(0.95 * count) - 1]}


Job = tuple[str, Mapping[str, Any]]
CASES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "partial": partial,
    "outage": outage,
    "hang": hang,
    "shared-queue": shared_queue,
    "redrive": redrive,
}


def jobs(scale: float) -> list[Job]:
    """All cases, with the arguments of each."""
    found: list[Job] = []
    for containers in CONTAINERS:
        for design in BREAKERS:
            found += [
                ("partial", {"name": name, "containers": containers, "design": design, "scale": scale})
                for name in FAULTS
            ]
            found.append(("outage", {"containers": containers, "design": design, "scale": scale}))
        for design in (WATCHING, next(iter(RULES))):
            found += [
                ("shared-queue", {"containers": containers, "design": design, "held_back": held, "scale": scale})
                for held in (0, HELD_BACK)
            ]
    found += [("hang", {"design": design, "scale": scale}) for design in (UNWATCHED, WATCHING)]
    return found + [("redrive", {"design": design, "scale": scale}) for design in (WATCHING, WITHOUT_BUDGET)]


def run_case(job: Job) -> dict[str, Any]:
    """Run one case."""
    case, arguments = job
    return CASES[case](**arguments)


def _arrivals(world: World, per_second: float, seconds: float) -> int:
    count = int(per_second * seconds)
    for number in range(count):
        world.time.at(START + number / per_second, lambda number=number: world.send(number))  # type: ignore[misc]
    return count


def _succeeded(world: World) -> int:
    return len(world.done)


def _figures(world: World) -> dict[str, Any]:
    """The figures of every case, and the end of its world."""
    found = {"spent": world.spent, "dead_letters": len(world.queue.dead), "opened": world.opened}
    world.time.end()
    return found
