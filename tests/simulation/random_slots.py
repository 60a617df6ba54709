"""Random plans of the slots' world, for random schedules."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES
from tests.simulation.slots_state import PERIOD, PROCESS, SECOND, Plan, Sent
from tests.simulation.slots_world import FORBIDDEN, SlotsWorld

# The part of random worlds in which blocks overrun their leases, so that other callers take these over.
_OVERRUNS = 0.25


def random_world(random: Random, **given: Any) -> SlotsWorld:
    """A random world. `given`: fields of its plan that are not random."""
    return SlotsWorld(replace(random_plan(random), **given))


def random_world_with_rate(random: Random) -> SlotsWorld:
    """A random world whose processes have a rate, and whose starters' clocks differ."""
    count, seconds = random.choice(((1, 60), (3, 60), (1, 30), (6, 60)))
    rate = Rate(count, seconds, random.randint(1, min(2, count)))
    return random_world(random, rate=rate, ahead=random.choice(((0.0, 0.0), (0.0, 4.5), (-4.25, 0.0))))


def random_world_of_keys(random: Random) -> SlotsWorld:
    """A random world of requests with keys, whose limits change, and of children that are redriven."""
    plan = random_plan(random)
    keys = {each.id: random.choice(("", "k", "k", "m")) for each in plan.requests}
    changes = random.choice(((), ((1, ""),), ((None, ""),), ((1, "k"), (2, "")), ((3, "k"),)))
    at = random.randint(0, len(plan.limits))
    return SlotsWorld(
        replace(
            plan,
            requests=tuple(each._replace(key=keys[each.id]) for each in plan.requests),
            key_limit=random.choice((None, 1, 1, 2)),
            limits=(*plan.limits[:at], *changes, *plan.limits[at:]),
            machines=random.choice(((), (), (PROCESS,))),
            child_redrives=random.choice((0, 1)),
        )
    )


def random_world_of_targets(random: Random, **given: Any) -> SlotsWorld:
    """A random world of children and callers, with more that happens to them."""
    plan = random_plan(random)
    plan = replace(
        plan,
        machines=random.choice(((PROCESS,), (PROCESS,), (PROCESS, SECOND), (SECOND,), (), ())),
        settle_seconds=random.choice((0, 0, 100)),
        requests=tuple(each._replace(caller=random.random() < 0.6) for each in plan.requests),
        leaves=random.choice((0, 0, 1)),
        refusals=random.choice((0, 0, 0, 0, 7, 9)),
        namesakes=random.choice((0, 0, 0, 1)),
        child_redrives=random.choice((0, 0, 1)),
        large_outputs=random.random() < 0.1,
        denials=random.choice(((),) * 8 + (("starts",), ("reads",), ("answers",), ("starts", "reads"))),
        damages=random.choice((0, 0, 0, 1)),
    )
    if random.random() < 0.1:
        first = plan.requests[0]._replace(other=True)
        plan = replace(plan, requests=(first, *plan.requests[1:]), wrong_kind=True)
    if random.random() < 0.1:
        plan = replace(plan, target=random.choice((NO_TARGET, FORBIDDEN if PROCESS in plan.machines else "another")))
    if random.random() < 0.3:
        plan = replace(plan, run_seconds=(1200,), timeout_minutes=1)
    if random.random() < 0.4:
        plan = replace(plan, aim=random.choice(("redrives", "polls", "ends")))
    return SlotsWorld(replace(plan, **given))


def random_plan(random: Random) -> Plan:
    """The plan of a random world. The last limit is as large as any weight, so that every request can start."""
    limit = random.choice((1, 1, 2, 3))
    requests = tuple(_random_request(random, name) for name in "abcde"[: random.choice((1, 2, 2, 3, 4))])
    if random.random() < 0.2:
        requests = (*requests, requests[0]._replace(other=random.random() < 0.5))
    if random.random() < 0.25:
        requests = (*requests, *(Sent(name, process=SECOND) for name in random.choice(("A", "AB"))))
    changes = random.choice(((3,), (3,), (0, 3, -1), (1, 3), (2, 0, 3, -1)))
    leases, blocks, lease_wait = _random_leases(random)
    if leases and min(blocks) < 0:  # a waiting request keeps leases out
        requests, limit, changes = requests[:1], 1, ()
        requests = tuple(request._replace(weight=None) for request in requests)
    ids = [request.id for request in requests if request.process == PROCESS]
    return Plan(
        requests,
        limit,
        default_weight=random.choice((1, 1, 1, 2)) if changes else 1,
        limits=changes,
        cancels=tuple(random.sample(ids, random.choice((0, 0, min(1, len(ids)), min(2, len(ids)))))),
        frees=random.choice((0, 0, 0, 1)),
        again=random.choice(((), (requests[0].id,), (requests[0].id,) * 2)),
        discards=random.choice(((), (), (requests[0].id,))),
        replacements=random.choice((0, 0, 1)) if 0 in changes and limit == 1 else 0,
        batch=random.random() < 0.5,
        dispatchers=random.choice((1, 2, 3)),
        has_doorbell=random.random() < 0.9,
        rejects=tuple(random.sample(ids, random.choice((0, 0, 0, 1)))),
        first_run=random.randrange(10, PERIOD + 1, 10),
        rate=random.choice((None, None, None, Rate(1, 30), Rate(2, 60, 2))),
        ahead=random.choice(((0.0,), (0.0,), (0.0, 4.0), (-4.0, 0.0))),
        leased=random.choice((0, 0, 0, 40)),
        leases=leases,
        blocks=blocks,
        lease_wait=lease_wait,
        run_seconds=random.choice(((60,), (60, 120), (60, 300))),
        fails=random.choice((0, 0, 0, 1, 2)),
        stop_seconds=random.choice((0, 20, 100)),
        job_limit=random.choice((3, 100)),
        lag=random.choice((0, 0, 10)),
        page=random.choice((1, 2, 200)),
        others=random.choice((0, 0, 4)),
        event_steps=random.random() < 0.5,
        events_lost=random.random() < 0.3,
        aim=random.choice(("", "", "", "deaths", "dispatches", "doorbells", "publishing")),
    )


def _random_request(random: Random, name: str) -> Sent:
    return Sent(
        name,
        random.choice((*PRIORITIES, "normal")),
        random.choice((None, None, 1, 2, 3)),
        skips=random.random() < 0.15,
        deadline=random.choice((None, None, None, 0, 5, 70, 300)),
        caller=random.random() < 0.3,
    )


def _random_leases(random: Random) -> tuple[tuple[float, ...], tuple[int, ...], int]:
    """The clocks of callers of leases, their blocks and how long they wait."""
    if random.random() < _OVERRUNS:
        leases = random.choice(((0, 0), (4, 0), (0, 0, 4), (0, 4, 4)))
        return leases, random.choice(((-90,), (-150, -70), (-90, -70, 0))), 200
    leases = random.choice(((), (), (0,), (4, 0), (0, 0, 4)))
    return leases, random.choice(((0,), (30,), (60, 0), (150, 30))), random.choice((0, 30, 200))
