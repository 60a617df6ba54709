"""The requests, the faults and their times, drawn from the seed alone, so that a run can be repeated. Pure.

Their interleaving with the workflows depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from dev.scenarios.runner.whole_run import STARTED
from dev.scenarios.slots.slot_requests import Request

PROCESSES = ("soak-a", "soak-b", "soak-c")
KEYED = "soak-b"  # its requests have these keys, one after another
KEYS = ("", "x", "y")
# Seconds. Some runs outlive their workflow by more than the grace time and two janitor runs.
SHORT_JOB, LONG_JOB = (0.2, 2.5), (7.0, 11.0)
SHARE_LONG, SHARE_FAIL, SHARE_HANG = 0.15, 0.10, 0.03
SHARE_SKIP, SHARE_LATE = 0.04, 0.06
SHARE_CALLERS = 0.25  # of the others: requests whose caller waits for the answer
SLOT_SECONDS = 4.0  # approximate seconds for which a request holds a slot, to compute the number of requests
LOAD = 0.55  # share of the slots' capacity without faults; a disturbed request takes more than twice its time
CALM = 0.93  # share of the minutes after which no new fault acts
RESTARTED = ENGINE_RESTARTED, ENGINE_KILLED = "engine restarted", "engine killed"
RESTARTS = ((0.35, ENGINE_RESTARTED), (0.55, ENGINE_KILLED), (0.75, ENGINE_KILLED))  # share of the minutes
SHORT = 1.0  # minutes; a shorter run has time for one restart only
FAULT_EVERY = 2.0  # seconds

# The number of each kind in a deck. A plan takes shuffled decks, so that no kind is rare and none is periodic.
DECK: Mapping[str, int] = {
    "abort": 5,
    "abort at a step": 6,
    "abort, run left alive": 2,
    "fault in a task": 9,
    "fault in StartExecution": 4,
    "fault in an API call": 4,
    "containers killed": 3,
    "limit changed": 3,
    "paused": 1,
    "status events lost": 1,
    "bad message": 2,
    "sent again": 2,
    "cancelled": 2,
    "rung for nothing": 1,
    "redriven": 2,
}


@dataclass(frozen=True)
class Fault:
    """A fault `at` seconds after the start. `seed`: its process and details are drawn from it."""

    at: float
    kind: str
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    sends: list[Request]
    faults: list[Fault]
    limits: Mapping[str, int]
    seconds: float


def draw(minutes: float, seed: int, limit: int) -> Plan:
    """The plan of one run. The slots of the three processes: `limit`, one less, and one."""
    random_ = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    seconds, limits = minutes * 60, dict(zip(PROCESSES, (limit, max(1, limit - 1), 1), strict=True))
    sends = [send for process in PROCESSES for send in _sends(random_, process, limits[process], seconds)]
    restarts = RESTARTS if minutes >= SHORT else ((0.5, ENGINE_KILLED),)
    faults = [*_faults(random_, seconds), *(Fault(round(share * seconds, 2), kind) for share, kind in restarts)]
    return Plan(sorted(sends, key=lambda send: send.at), sorted(faults, key=lambda fault: fault.at), limits, seconds)


def burst(limits: Mapping[str, int], each: int) -> list[Request]:
    """The requests after the faults: for each process as many as it has slots, and `each` more."""
    return [
        _request(process, f"calm-{process}-{number}", 0.3, has_caller=number % 3 == 0)
        for process, limit in limits.items()
        for number in range(limit + each)
    ]


def _request(
    process: str,
    request_id: str,
    seconds: float,
    ending: str = "succeed",
    leaves: str = "",
    *,
    has_caller: bool = False,
    at: float = 0.0,
) -> Request:
    """A request whose job takes so many seconds, and ends as `ending` states."""
    work = {"arguments": {"--seconds": f"{seconds:.2f}", "--ending": ending}}
    key = KEYS[int(request_id.rpartition("-")[2]) % len(KEYS)] if process == KEYED else ""
    return Request(request_id, work, STARTED, process, leaves=leaves, has_caller=has_caller, key=key, at=at)


def _sends(random_: random.Random, process: str, limit: int, seconds: float) -> list[Request]:
    """Groups of requests with pauses, so that queues grow and become empty."""
    rate = LOAD * limit / SLOT_SECONDS
    made, at, numbers = [], random_.uniform(0, 1), count(1)
    while at < seconds:
        together = random_.randint(1, 2 * limit + 1)
        for _ in range(together):
            drawn = random_.random()
            ending = "fail" if drawn < SHARE_FAIL else "hang" if drawn < SHARE_FAIL + SHARE_HANG else "succeed"
            request_id = f"{process}-{next(numbers):04d}"
            working = random_.uniform(*(LONG_JOB if random_.random() < SHARE_LONG else SHORT_JOB))
            left = random_.random()
            leaves = "SKIPPED" if left < SHARE_SKIP else "TOO_LATE" if left < SHARE_SKIP + SHARE_LATE else ""
            has_caller = not leaves and random_.random() < SHARE_CALLERS
            made.append(_request(process, request_id, working, ending, leaves, has_caller=has_caller, at=round(at, 2)))
        at += random_.expovariate(rate / together)
    return made


def _faults(random_: random.Random, seconds: float) -> list[Fault]:
    made: list[Fault] = []
    deck: list[str] = []
    at = 1.0
    while at < seconds * CALM:
        if not deck:
            deck = [kind for kind, number in DECK.items() for _ in range(number)]
            random_.shuffle(deck)
        made.append(Fault(round(at, 2), deck.pop(), random_.randrange(2**32)))
        at += random_.uniform(0.2, 2 * FAULT_EVERY - 0.2)
    return made
