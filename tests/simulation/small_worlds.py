"""The worlds of random schedules, and the small worlds of the exhaustive search."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from slotkeeper.slots.rate import Rate
from slotkeeper.slots.targets import NO_TARGET
from tests.simulation import (
    downstream_properties,
    downstream_world,
    endings_world,
    frozen,
    queue_world,
    retry_properties,
    retry_world,
    slots_state,
    slots_world,
    targets_world,
    token_state,
    token_world,
    transcript,
    workflow,
    worlds,
)
from tests.simulation.downstream_world import DownstreamWorld, watching_policy
from tests.simulation.endings_world import EndingsWorld
from tests.simulation.queue_world import QueueWorld, Sent
from tests.simulation.retry_world import RetryWorld
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.targets_world import FORBIDDEN, TargetsWorld
from tests.simulation.token_state import DEATHS, FREEZES, LOST, NO_TOKEN, OWN
from tests.simulation.token_world import TokenWorld
from tests.simulation.worlds import World


class Effort(Enum):
    """Where a world is searched, by the number of its states."""

    QUICK = "make test"
    SHORT = "make test-slow"  # each takes 1 to 4 seconds
    LONG = "make simulate"


QUICK, SHORT, LONG = Effort


class Small(NamedTuple):
    """A world of the exhaustive search.

    Attributes:
        faults: the most faults on any path through it.
    """

    make: Callable[[], World]
    faults: int
    effort: Effort


def _slots(
    requests: Sequence[str], limit: int, *, faults: int = 0, effort: Effort = QUICK, cancels: str = "", **more: Any
) -> Small:
    fields = {"janitor_runs": 0, "janitor_ahead": False} | more
    # With more than one request these steps triple the number of states.
    plan = Plan(tuple(requests), limit, cancels=tuple(cancels), event_steps=len(requests) == 1, **fields)
    return Small(lambda: SlotsWorld(plan, timeless=True), faults, effort)


def _target(
    requests: Sequence[str],
    *,
    faults: int = 0,
    effort: Effort = QUICK,
    timeless: bool = True,
    child: bool = True,
    **more: Any,
) -> Small:
    """One process whose target is a state machine, or a Glue job. `requests`: each as in Plan."""
    given = {"machines": ("p",) * child, "janitor_runs": 0, "janitor_ahead": False, "event_steps": False} | more
    plan = Plan(tuple(requests), **given)
    return Small(lambda: TargetsWorld(plan, timeless=timeless), faults, effort)


def _ending(requests: str, *, timeless: bool = True, effort: Effort = QUICK, **more: Any) -> Small:
    """Requests, separated by spaces, of which some are skipped or have a deadline. Without a clock none is too late."""
    given = {"starters": 1, "janitor_runs": 0, "janitor_ahead": False, "event_steps": False} | more
    if not timeless:
        given |= {"aim": "starter"}
    plan = Plan(tuple(requests.split()), **given)
    return Small(lambda: EndingsWorld(plan, timeless=timeless), 1, effort)


def _queue(*requests: Sent, faults: int = 0, effort: Effort = QUICK, **more: Any) -> Small:
    """A process whose waiting requests are rows."""
    plan = queue_world.Plan(requests, **{"dispatchers": 1, **more})
    return Small(lambda: QueueWorld(plan), faults, effort)


_A, _B, _C = Sent("a"), Sent("b"), Sent("c")

_DENIED = {
    "timeless": False,
    "starters": 1,
    "denials": ("starts", "reads"),
    "aim": "denials",
    "run_seconds": (60,),
}


_PACED = {"timeless": False, "child": False, "starters": 1, "run_seconds": (60,), "events_lost": True}


def _retry(payloads: tuple[str, ...], *, faults: int = 0, effort: Effort = QUICK, **given: Any) -> Small:
    plan = retry_world.Plan(tuple(("a", payload) for payload in payloads), **given)
    return Small(lambda: RetryWorld(plan), faults, effort)


def _downstream(requests: str, *, faults: int = 0, effort: Effort = QUICK, **given: Any) -> Small:
    """`requests`: the id of each, one character each."""
    plan = downstream_world.Plan(tuple((request_id, "{}") for request_id in requests), **given)
    return Small(lambda: DownstreamWorld(plan), faults, effort)


_BREAKER = {"policy": watching_policy(limited=False), "limited": False}


def _tokens(
    clients: str, fault_kinds: frozenset[str] = frozenset(), *, faults: int = 0, effort: Effort = QUICK, **plan: Any
) -> Small:
    """`clients`: the cache of each, one character each: l(ive), o(ld) or n(one)."""
    caches = tuple({"l": "live", "o": "old", "n": "none"}[cache] for cache in clients)
    made = token_state.Plan(caches, fault_kinds=fault_kinds, **{"clock_leads": (0.0,) * len(caches), **plan})
    return Small(lambda: TokenWorld(made, timeless=True), faults, effort)


RANDOM_WORLDS: dict[str, Callable[[Random], World]] = {
    "queue": queue_world.random_world,
    "downstream": downstream_world.random_world,
    "endings": endings_world.random_world,
    "retry": retry_world.random_world,
    "slots": slots_world.random_world,
    "rates": slots_world.random_world_with_rate,
    "targets": targets_world.random_world,
    "token": token_world.random_world,
}

# Shares of all random schedules. One of the worker takes as long as three others, because it runs Powertools, and with
# a downstream twice as long.
SHARES = {"downstream": 1, "endings": 2, "queue": 4, "rates": 2, "retry": 2, "slots": 5, "targets": 3, "token": 8}

SMALL: dict[str, Small] = {
    "1 request, 1 slot, janitor at any time": _slots(
        "a", 1, janitor_runs=1, janitor_ahead=True, faults=1, effort=SHORT
    ),
    "1 request, 1 slot, another user of its job": _slots("a", 1, page=1, others=1, faults=1),
    "3 requests, 1 slot, no fault": _slots("abc", 1, effort=SHORT),
    "2 requests, 1 slot, starters read first": _slots("ab", 1, starters_read_first=True, faults=1, effort=LONG),
    "3 requests, 1 slot, no fault, starters read first": _slots(
        "abc", 1, starters_read_first=True, lax=True, effort=SHORT
    ),
    "2 processes, 2 requests, 1 slot each, no fault": _slots("aA", 1),
    "2 processes, 3 requests, 1 slot each, no fault": _slots("abA", 1, effort=LONG),
    "2 processes, 2 requests, 1 slot each": _slots("aA", 1, faults=1, effort=LONG),
    "2 requests, 1 slot, cancelled": _slots("ab", 1, lax=True, cancels="ab", effort=SHORT),
    "1 request, 1 slot, cancelled": _slots("a", 1, cancels="a", faults=1),
    "3 requests, 1 slot, two of them under one id": _slots(("a", "a*", "b"), 1),
    "2 requests of other weights and priorities under one id": _slots(("+a2", "a1"), 2, starters=1, faults=1),
    "2 requests under one id, 1 slot": _slots(("a", "a*"), 1, faults=1, effort=LONG),
    "2 requests, 1 slot, the process removed and added again": _slots(
        "ab", 1, limits=(0,), replacements=1, starters=1, lax=True
    ),
    "1 request, 1 slot, the process removed and added again": _slots(
        "a", 1, limits=(0,), replacements=1, starters=1, lax=True, faults=1, effort=LONG
    ),
    "3 requests, 1 slot, one cancelled": _slots("abc", 1, cancels="b", effort=LONG),
    "2 requests, 1 slot, the second cancelled": _slots("ab", 1, cancels="b", faults=1, effort=LONG),
    "1 request, 1 slot, cancelled, janitor at any time": _slots(
        "a", 1, janitor_runs=1, janitor_ahead=True, cancels="a", faults=1, effort=LONG
    ),
    "2 requests, 1 slot, janitor while others are frozen": _slots("ab", 1, janitor_ahead=True, faults=1, effort=LONG),
    "3 requests, 1 slot": _slots("abc", 1, faults=1, effort=LONG),
    "3 requests, 2 slots": _slots("abc", 2, faults=1, effort=LONG),
    "2 priorities, 3 requests, 1 slot, no fault": _slots(("+a", "+b", "c"), 1, starters=1, effort=SHORT),
    "3 priorities, 1 slot, no fault": _slots(("+a", "b", "-c"), 1, starters=1, effort=LONG),
    "2 priorities, 1 slot, a message removed": _slots(("+a", "b"), 1, removals=1, effort=SHORT),
    "2 priorities, 2 slots, a message removed": _slots(("+a", "-b"), 2, removals=1, lax=True),
    "1 request, 1 slot, a message removed": _slots("a", 1, removals=1, janitor_ahead=True, faults=1),
    "2 requests, 1 slot, a message removed": _slots("ab", 1, removals=1, lax=True),
    "2 requests, 1 slot, a message removed, janitor while others are frozen": _slots(
        "ab", 1, starters=1, removals=1, janitor_ahead=True, faults=1, effort=LONG
    ),
    "2 priorities, 1 slot, cancelled": _slots(("+a", "b"), 1, cancels="a", starters=1),
    "2 priorities, 1 slot": _slots(("+a", "b"), 1, starters=1, faults=1, effort=SHORT),
    "2 priorities, 2 slots, 3 requests, no fault": _slots(("a", "+b", "c"), 2, lax=True, effort=LONG),
    "3 priorities, 2 slots, no fault": _slots(("+a", "b", "-c"), 2, starters=1, lax=True, effort=LONG),
    "2 priorities, 3 requests, 1 slot, a message removed": _slots(
        ("+a", "b", "c"), 1, starters=1, removals=1, effort=LONG
    ),
    "2 priorities, 3 requests, 1 slot, cancelled": _slots(("+a", "b", "c"), 1, cancels="a", starters=1, effort=LONG),
    "2 priorities, 2 slots, 3 requests, cancelled": _slots(
        ("+a", "b", "c"), 2, cancels="a", starters=1, lax=True, effort=LONG
    ),
    "weights 2 and 1, 2 slots, no fault": _slots(("a2", "b", "c"), 2),
    "weights 2, 3 and 1, 3 priorities, 3 slots, no fault": _slots(("+a2", "b3", "-c"), 3, starters=1, effort=SHORT),
    "weight 3, 2 slots, then 3": _slots(("+a3", "b"), 2, limits=(3,), starters=1),
    "weight 2, 2 slots, then 1 and 2": _slots(("a2",), 2, limits=(1, 2)),
    "weight 2, 2 slots, then 1": _slots(("+a2", "b"), 2, limits=(1,), starters=1),
    "default weight 2, 3 slots, no fault": _slots(("+a", "b1"), 3, default_weight=2),
    "weights 2 and 1, 2 slots": _slots(("+a2", "b"), 2, starters=1, faults=1, effort=LONG),
    "leases, 2 callers": _slots("", 1, leases=(0, 0), blocks=(30,), faults=1),
    "leases, 2 callers, the first overruns": _slots("", 1, leases=(0, 65), janitor_ahead=True, faults=1),
    "leases, 2 callers within the skew": _slots("", 1, leases=(0, 64), faults=1),
    "leases, 3 callers, the first exits late, no fault": _slots("", 1, leases=(1, 66, 0), blocks=(30,)),
    "leases, 3 callers, limit 2, one overruns, no fault": _slots("", 2, leases=(0, 0, 65)),
    "leases, 1 caller and 1 request, no fault": _slots("a", 1, leases=(0,)),
    "leases, 1 caller and 1 request": _slots("a", 1, starters=1, leases=(0,), faults=1, effort=LONG),
    "leases, 1 caller and 2 requests, no fault": _slots("ab", 1, starters=1, leases=(0,), effort=LONG),
    "leases, 2 callers within the skew and 1 request, no fault": _slots(
        "a", 1, starters=1, leases=(0, 64), effort=LONG
    ),
    "child, a caller that may leave": _target("a", callers="a", leaves=1, faults=1),
    "child that fails, a caller": _target("a", callers="a", fails=1, faults=1, effort=LONG),
    "child, another workflow starts its name": _target("a", namesakes=1, faults=1),
    "child that fails and is redriven": _target("a", fails=1, child_redrives=1, faults=1, effort=LONG),
    "child, a caller, cancelled": _target("a", callers="a", cancels=("a",), faults=1, effort=LONG),
    "child, a caller, its workflow's answer is refused": _target("a", callers="a", refusals=7, leaves=1),
    "child, a caller, the janitor's answer is refused too": _target("a", callers="a", refusals=8, faults=1),
    "child that fails, a caller, the janitor's answer is refused too": _target(
        "a", callers="a", refusals=8, fails=1, starters=1, faults=1, effort=LONG
    ),
    "child whose start arrives late, its workflow dies": _target(
        "a", timeless=False, starters=1, aim="late", events_lost=True, faults=2
    ),
    "child whose start arrives late, status events": _target("a", timeless=False, starters=1, aim="late", faults=2),
    "child with a large output, a caller": _target("a", callers="a", starters=1, large_outputs=True, faults=1),
    "child with settle time": _target(
        "a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,), aim="ends", faults=1
    ),
    "child that is aborted, and redriven in its settle time": _target(
        "a",
        timeless=False,
        starters=1,
        settle_seconds=250,
        child_redrives=1,
        run_seconds=(150,),
        aim="ends",
        faults=1,
        effort=SHORT,
    ),
    "child that fails and is redriven, with clock": _target(
        "a", timeless=False, starters=1, fails=1, child_redrives=1, run_seconds=(300,)
    ),
    "child, a caller, malformed items": _target("a", callers="a", starters=1, damages=1, faults=1),
    "child, a caller, malformed items, no status event": _target(
        "a", callers="a", starters=1, damages=1, events_lost=True, faults=1
    ),
    "child, no status event, two deaths": _target(
        "a", timeless=False, starters=1, aim="deaths", events_lost=True, run_seconds=(60,), faults=2
    ),
    "Glue run, a caller, no status event, two deaths": _target(
        "a",
        child=False,
        timeless=False,
        starters=1,
        callers="a",
        aim="deaths",
        events_lost=True,
        run_seconds=(60,),
        faults=2,
    ),
    "Glue run, a caller": _target("a", child=False, callers="a", starters=1, faults=1),
    "Glue run, a caller that may leave": _target("a", child=False, callers="a", leaves=1, faults=1, effort=LONG),
    "process for leases, a request": _target("a", target=NO_TARGET, leases=(0,), faults=1),
    "child that no role may touch, a caller": _target("a", target=FORBIDDEN, callers="a", faults=1),
    "Glue run that no role may touch": _target("a", child=False, target="another", faults=1),
    "Glue run, denied from a moment on": _target("a", child=False, faults=1, **_DENIED),
    "Glue run, denied from a moment on, its workflow dies": _target("a", child=False, faults=2, effort=LONG, **_DENIED),
    "child, denied from a moment on": _target("a", faults=1, effort=LONG, **_DENIED),
    "child, a caller, answers denied from a moment on": _target(
        "a", callers="a", faults=1, **_DENIED | {"denials": ("answers",)}
    ),
    "rate, 2 requests, no fault": _target("ab", limit=2, rate=Rate(1, 60), **_PACED),
    "rate, 2 priorities and a burst, no fault": _target(
        ("+a", "b", "-c"), limit=3, rate=Rate(2, 60, 2), ahead=(0.5,), **_PACED
    ),
    "rate, 2 requests, 1 slot, then 2, no fault": _target(
        "ab", limit=1, limits=(2,), rate=Rate(1, 60), effort=LONG, **_PACED
    ),
    "rate, 1 request and 1 lease, no fault": _target(
        "a", limit=2, rate=Rate(1, 30), leases=(4,), lease_wait=200, **_PACED
    ),
    "rate, 2 requests, 1 slot, their workflows die": _target(
        "ab", limit=1, rate=Rate(1, 60), aim="deaths", faults=1, effort=LONG, **_PACED
    ),
    "rate, weights 2 and 1, 2 slots": _target(("a2", "b1"), limit=2, rate=Rate(1, 30), faults=1, effort=LONG, **_PACED),
    "rate, 2 requests": _target("ab", limit=2, rate=Rate(1, 60), faults=1, effort=LONG, **_PACED),
    "2 children, two callers": _target("ab", callers="ab"),
    "2 children": _target("ab", starters=1, faults=1, effort=LONG),
    "child, a caller, janitor at any time": _target(
        "a", callers="a", janitor_runs=1, janitor_ahead=True, faults=1, effort=LONG
    ),
    "child, a caller, two faults": _target("a", callers="a", starters=1, faults=2, effort=LONG),
    "child, another workflow starts its name, two faults": _target("a", namesakes=1, starters=1, faults=2, effort=LONG),
    "child with settle time, its workflow dies": _target(
        "a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,), aim="deaths", faults=2, effort=LONG
    ),
    "child with settle time, any fault": _target(
        "a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,), faults=1, effort=LONG
    ),
    "a request that skips, a caller": _ending("a b", skips="b", callers="b"),
    "a request that skips, one of a lower priority waits": _ending("+a -b", skips="a", effort=LONG),
    "a deadline next to a lost answer": _ending("a", timeless=False, deadlines="a", deadline=10),
    "a deadline while it waits, a caller": _ending(
        "a b", timeless=False, deadlines="b", deadline=70, callers="b", run_seconds=(100,)
    ),
    "a deadline while it waits, one of a lower priority behind it": _ending(
        "a b -c", timeless=False, deadlines="b", deadline=70, run_seconds=(100,), effort=LONG
    ),
    "retry of a request sent twice": _retry(('{"fails": 1}',) * 2, faults=1, effort=SHORT),
    "retry by Scheduler, delivered twice": _retry(
        ('{"fails": 1, "retry_after": 1980}',), copies=1, faults=1, effort=SHORT
    ),
    "retry until the dead-letter queue, redriven": _retry(('{"fails": 9}',), redrives=1, faults=1, effort=SHORT),
    "no retry of poison, sent twice": _retry(('{"poison": "no such thing"}',) * 2, faults=1),
    "retry, and another payload under the same id": _retry(
        ('{"fails": 1}', '{"other": "payload"}'), faults=1, effort=SHORT
    ),
    "retry whose policy read may fail": _retry(('{"fails": 9}',), reads_policy=True, faults=1),
    "retry, cancelled": _retry(('{"fails": 1}',), commands=("cancel",), faults=1),
    "immediate retry, cancelled": _retry(
        ('{"fails": 1, "retry_after": 0}',), commands=("cancel",), faults=1, effort=SHORT
    ),
    "retry by Scheduler, cancelled": _retry(('{"fails": 1, "retry_after": 1980}',), commands=("cancel",), faults=1),
    "retry by Scheduler, brought forward": _retry(
        ('{"fails": 1, "retry_after": 1980}',), commands=("run_now",), faults=1
    ),
    "retry by Scheduler, brought forward, then cancelled": _retry(
        ('{"fails": 1, "retry_after": 1980}',), commands=("run_now", "cancel"), faults=1, effort=LONG
    ),
    "retry, two faults": _retry(('{"fails": 1}',), faults=2, effort=LONG),
    "retry by Scheduler, two faults": _retry(('{"fails": 1, "retry_after": 1980}',), faults=2, effort=LONG),
    "immediate retry, delivered twice": _retry(('{"fails": 1, "retry_after": 0}',), copies=1, faults=1, effort=LONG),
    "downstream down for 90 s, 2 requests, no fault": _downstream("ab", down=(0, 90), effort=SHORT),
    "downstream down for 90 s, a request sent twice, no fault": _downstream("aa", down=(0, 90)),
    "downstream suddenly down, 2 requests, no fault": _downstream(
        "ab", sudden=True, down=(90, 90), effort=SHORT, **_BREAKER
    ),
    "downstream that permits 1 caller, 2 requests, no fault": _downstream("ab", most=1),
    "downstream down for 90 s, a worker is frozen": _downstream(
        "a", down=(0, 90), fault_kinds=("beyond its lease",), faults=1, **_BREAKER
    ),
    # A late hide concerns a message that another worker has. A strict queue refuses it, as documented.
    "downstream down for a minute, a worker is frozen for long": _downstream(
        "a", down=(0, 60), fault_kinds=("until its message is back",), faults=1, effort=SHORT, **_BREAKER
    ),
    "downstream down for a minute, a worker is frozen for long, strict queue": _downstream(
        "a", down=(0, 60), fault_kinds=("until its message is back",), lax=False, faults=1, effort=SHORT, **_BREAKER
    ),
    "downstream down for 90 s, a worker dies": _downstream(
        "a", down=(0, 90), fault_kinds=("die", "die after"), faults=1
    ),
    "downstream that is healthy, a worker dies": _downstream("a", fault_kinds=("die", "die after"), faults=1),
    "downstream whose state cannot be written, one container": _downstream(
        "ab", workers=1, fault_kinds=("throttle", "lose"), faults=1
    ),
    "downstream down for 90 s, its state cannot be written, one container": _downstream(
        "a", workers=1, down=(0, 90), fault_kinds=("throttle", "lose"), faults=2, effort=SHORT
    ),
    "downstream opened by an operator, and a request of another one": Small(
        lambda: DownstreamWorld(downstream_world.Plan((("a", "{}"), ("b", '{"to": "b"}')), commands=("open",))), 0, True
    ),
    "downstream opened and closed by an operator, no fault": _downstream("a", commands=("open", "close"), receives=898),
    "downstream opened and closed by an operator, an answer is lost": _downstream(
        "a", commands=("open", "close"), fault_kinds=("lose", "twice"), faults=1, effort=LONG
    ),
    "downstream opened by an operator": _downstream(
        "a", commands=("open",), receives=898, fault_kinds=("die after",), faults=1, effort=LONG
    ),
    "downstream down for 90 s, 1 request": _downstream("a", down=(0, 90), faults=1, effort=LONG),
    "downstream down for 90 s, breaker only": _downstream("a", down=(0, 90), faults=1, effort=LONG, **_BREAKER),
    "downstream down for 90 s, breaker only, 2 requests": _downstream(
        "ab", down=(0, 90), faults=1, effort=LONG, **_BREAKER
    ),
    "downstream down after a minute, 3 requests, no fault": _downstream("abc", down=(60, 150), effort=LONG),
    "queue, 1 request": _queue(_A, faults=1, dispatchers=2),
    "queue, 1 request, two faults": _queue(_A, faults=2, effort=LONG),
    "queue, 1 request, cancelled": _queue(_A, cancels=("a",), faults=1, effort=SHORT),
    "queue, 2 requests": _queue(_A, _B, dispatchers=2),
    "queue, 2 requests, any fault": _queue(_A, _B, faults=1, dispatchers=2, effort=LONG),
    "queue, 2 requests in a batch, 2 slots, any fault": _queue(_A, _B, limit=2, batch=True, faults=1, effort=LONG),
    "queue, 2 priorities, one dies": _queue(_A, Sent("b", "high"), faults=1, only_deaths=True, effort=LONG),
    "queue, 2 requests, both cancelled": _queue(_A, _B, cancels=("a", "b"), effort=LONG),
    "queue, 2 requests, the limit goes down and up": _queue(
        _A, Sent("b", weight=2), limit=2, limits=(1, 2), effort=SHORT
    ),
    "queue, 2 requests, a lease expires": _queue(_A, _B, leased=30),
    "queue, 2 requests, a rate": _queue(_A, _B, limit=2, rate=Rate(1, 30)),
    "queue, 2 requests, a deadline behind a lease": _queue(_A, Sent("b", deadline=20), leased=30),
    "queue, 1 request, refused, any fault": _queue(_A, rejects=("a",), faults=1),
    "queue, 2 requests, one is refused": _queue(_A, _B, rejects=("a",)),
    "queue, 2 requests, one skips": _queue(_A, Sent("b", skips=True)),
    "queue, 2 requests that skip, one dies": _queue(
        Sent("a", skips=True), Sent("b", skips=True), faults=1, only_deaths=True, effort=LONG
    ),
    "queue, 3 requests, a heavy one between": _queue(_A, Sent("b", weight=2), _C, limit=2, batch=True),
    "queue, a blocked head, the limit is raised": _queue(Sent("a", weight=2), _B, limits=(2,), effort=SHORT),
    "queue, 3 priorities, 1 slot": _queue(_A, Sent("b", "low"), Sent("c", "high"), effort=LONG),
    "token, 3 clients, one dies": _tokens("lll", DEATHS, faults=1),
    "token, 3 clients and no token yet, one dies": _tokens("nnn", DEATHS, faults=1, effort=SHORT, **NO_TOKEN),
    "token, 3 clients, clocks apart, one dies": _tokens("lol", DEATHS, clock_leads=(2.0, 0.0, -2.0), faults=1),
    "token, 3 clients, one fails before its POST": _tokens("lll", frozenset({OWN}), faults=1, effort=SHORT),
    "token, 2 clients, slow probes, one dies": _tokens("ll", DEATHS, slow_probes=True, faults=1),
    "token, 3 clients, an answer is lost": _tokens("lll", LOST, faults=1, effort=SHORT),
    "token, 2 clients, any fault": _tokens("ll", faults=1, effort=LONG),
    "token, 2 clients, refresher function, one dies": _tokens("ll", DEATHS, hands_over=True, faults=1, effort=SHORT),
    "token, 2 clients, dropped": _tokens("ln", drops=1),
    "token, 3 clients, dropped": _tokens("lln", drops=1, effort=LONG),
    "token, 2 clients, dropped, one dies": _tokens("ln", DEATHS, drops=1, revocations=0, faults=1),
    "token, 2 clients, dropped and revoked, an answer is lost": _tokens("ll", LOST, drops=1, faults=1, effort=LONG),
    "token, 3 clients, one is frozen": _tokens("lll", FREEZES, slow=False, faults=1, effort=LONG),
    "token, 3 clients, no probes, any fault": _tokens("lll", probes=False, slow=False, faults=1, effort=LONG),
    "token, 2 clients, refresher function, an answer is lost": _tokens(
        "ll", LOST, hands_over=True, slow=False, faults=1, effort=LONG
    ),
    "token, 2 clients, two die": _tokens("ll", DEATHS, faults=2, effort=LONG),
    "token, 2 clients, two answers are lost": _tokens("ll", LOST, faults=2, effort=LONG),
}

MOST_RECORDS = 600_000  # with their references some 1.3 GB


def forget() -> None:
    """Clear all caches of actors and services, because the code has changed, or to bound memory."""
    for module in (transcript, frozen, worlds, workflow, retry_properties, downstream_properties, slots_state):
        module.forget()


def forget_if_much() -> None:
    """Bound memory between two schedules."""
    if frozen.known() > MOST_RECORDS:
        forget()
        gc.collect()
