"""The scenarios, and the figures of one run of a design: counted from the downstream's own record and the queue."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from .fragile_downstream import CALL_SECONDS, Call, FragileDownstream
from .retry_designs import World
from .virtual_time import START

CONCURRENCY = 16  # of the event source
CAPACITY = 10  # callers of the healthy downstream
WINDOW = 10.0  # seconds, of the concurrency limit
SAMPLE = 5.0  # seconds
DRAIN_SECONDS = 3600.0  # after the last message, at most
TOLERANCE = 0.1
SHOWN = 2.0  # times the scenario's seconds


@dataclass(frozen=True)
class Scenario:
    """What arrives, and what the downstream takes.

    Args:
        capacity: (from this second on, callers); 0 callers: down.
        per_second: arrivals until `seconds`.
        bursts: (second, messages).
        endless: the queue always has messages.
    """

    name: str
    capacity: tuple[tuple[float, int], ...]
    seconds: float
    per_second: float = 0.0
    bursts: tuple[tuple[float, int], ...] = ()
    endless: bool = False


def scenarios(scale: float = 1.0) -> dict[str, Scenario]:
    """The scenarios by name. `scale`: of all durations, below one for a smaller run."""
    third = 300 * scale
    healthy, down = (0.0, CAPACITY), (third, 0)
    steps = ((0.0, 10), (third, 4), (2 * third, 12))
    made = (
        # The returns are at different times between two probes.
        Scenario("steady", (healthy, down, (2 * third, CAPACITY)), 3 * third, 6.0, ((0.0, int(300 * scale)),)),
        Scenario(
            "burst",
            (healthy, down, (2 * third + 8, CAPACITY)),
            3 * third,
            bursts=((third - 60 * scale, int(4000 * scale)),),
        ),
        Scenario("half", (healthy, down, (2 * third + 16, CAPACITY // 2)), 3 * third, 3.0),
        Scenario("steps", steps, 3 * third, endless=True),
    )
    return {scenario.name: scenario for scenario in made}


def run(design: str, scenario: Scenario, seed: int) -> dict[str, Any]:
    """Run one design, and return its figures and its samples."""
    world = World(design, lambda time, random: FragileDownstream(time, scenario.capacity, random), CONCURRENCY, seed)
    samples: list[dict[str, float]] = []
    _arrivals(world, scenario)

    def sample() -> None:
        permitted = world.permitted[-1][1] if world.permitted else CONCURRENCY
        if world.time.elapsed > SHOWN * scenario.seconds:
            return
        samples.append({"at": world.time.elapsed, "permitted": permitted, "backlog": world.backlog})
        world.time.at(world.time.now + SAMPLE, sample)

    sample()
    world.time.run(scenario.seconds)
    if not scenario.endless:
        world.time.run(scenario.seconds + DRAIN_SECONDS, lambda: not world.backlog)
    figures = _steps(world, scenario) if scenario.endless else _outage(world, scenario)
    figures |= {
        "spent": world.spent,
        "dead_letters": len(world.queue.dead),
        "receives": world.queue.receives,
        "throttled": sum(call.answer == "throttled" for call in world.downstream.calls),
        "succeeded": sum(call.answer == "succeeded" for call in world.downstream.calls),
        "unreported": world.unreported,
        "samples": _with_rates(samples, world.downstream.calls),
    }
    world.time.end()
    return figures


def _arrivals(world: World, scenario: Scenario) -> None:
    numbers = iter(range(10**9))

    def send(count: int) -> None:
        for _ in range(count):
            world.send(next(numbers))

    def refill() -> None:
        send(500 - len(world.queue.messages))
        world.time.at(world.time.now + 1, refill)

    for second, count in scenario.bursts:
        world.time.at(START + second, partial(send, count))
    for number in range(int(scenario.seconds * scenario.per_second)):
        world.time.at(START + number / scenario.per_second, partial(send, 1))
    if scenario.endless:
        refill()


def _outage(world: World, scenario: Scenario) -> dict[str, Any]:
    down, back = (second for second, _ in scenario.capacity[1:])
    calls = world.downstream.calls
    recovered = [call.ended for call in calls if call.began >= back and call.answer == "succeeded"]
    return {
        "calls_in_outage": sum(down <= call.began < back for call in calls),
        "first_success": min(recovered) - back if recovered else None,
        # Without an end after DRAIN_SECONDS: None.
        "empty_after": max(recovered) - back if recovered and not world.backlog else None,
        "overshoot": sum(call.began >= back and call.answer == "throttled" for call in calls),
    }


def _steps(world: World, scenario: Scenario) -> dict[str, Any]:
    """Per step: windows until the throughput is within TOLERANCE of the capacity, and the mean after that."""
    steps = []
    ends = [*(second for second, _ in scenario.capacity[1:]), scenario.seconds]
    done = [call.ended for call in world.downstream.calls if call.answer == "succeeded"]
    for (begin, callers), end in zip(scenario.capacity, ends, strict=True):
        rates = []
        for number in range(int((end - begin) / WINDOW)):
            since = begin + number * WINDOW
            count = sum(since <= ended < since + WINDOW for ended in done)
            rates.append(count * CALL_SECONDS / (WINDOW * callers))
        # The first window of a step down has calls that began before it, so it proves nothing.
        settled = next((at for at, rate in enumerate(rates) if at and abs(rate - 1) <= TOLERANCE), None)
        kept = rates[settled:] if settled is not None else []
        steps.append(
            {"callers": callers, "windows": settled, "mean": sum(kept) / len(kept) if kept else None, "rates": rates}
        )
    return {"steps": steps}


def _with_rates(samples: list[dict[str, float]], calls: list[Call]) -> list[dict[str, float]]:
    """The samples with the calls per second that ended in the time before each."""
    ended = Counter((int(call.ended // SAMPLE), call.answer == "succeeded") for call in calls)
    return [
        each
        | {
            name: ended[int(each["at"] // SAMPLE) - 1, good] / SAMPLE
            for name, good in (("succeeded", True), ("failed", False))
        }
        for each in samples
    ]
