"""The worlds of random schedules, and the small worlds of the exhaustive search."""

from __future__ import annotations

import gc
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.rate import Rate
from tests.simulation import (
    audited_world,
    downstream_world,
    frozen,
    random_slots,
    retry_world,
    token_state,
    token_world,
)
from tests.simulation.downstream_world import DownstreamWorld, watching_policy
from tests.simulation.retry_world import RetryWorld
from tests.simulation.slots_state import Plan, Sent
from tests.simulation.slots_world import FORBIDDEN, SlotsWorld
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
    """A world of the exhaustive search."""

    make: Callable[[], World]
    faults: int  # the most faults on any path through it
    effort: Effort


def _slots(*requests: Sent, faults: int = 0, effort: Effort = QUICK, **plan: Any) -> Small:
    """One process with Glue runs in its slots, or two. `plan`: further fields of Plan."""
    made = Plan(requests, **plan)
    return Small(lambda: SlotsWorld(made), faults, effort)


def _child(*requests: Sent, **plan: Any) -> Small:
    """One process with child executions in its slots."""
    return _slots(*requests, machines=("p",), **plan)


_A, _B, _C = Sent("a"), Sent("b"), Sent("c")
_CALLER = Sent("a", caller=True)
# Two requests of a key, and one of another key.
_K1, _K2, _M = Sent("a", key="k"), Sent("b", key="k"), Sent("c", key="m")
_KEYED: dict[str, Any] = {"limit": 2, "key_limit": 1}
_DEATHS: dict[str, Any] = {"aim": "deaths", "events_lost": True, "run_seconds": (60,), "faults": 2}
_REDRIVEN: dict[str, Any] = {"fails": 1, "child_redrives": 1, "janitor_runs": 1, "run_seconds": (300,), "aim": "ends"}
_PUBLISHES: dict[str, Any] = {"aim": "publishing", "event_steps": True}
_LATE: dict[str, Any] = {"aim": "late", "run_seconds": (60,), "faults": 2}
_DENIED: dict[str, Any] = {"denials": ("starts", "reads"), "aim": "denials", "run_seconds": (60,)}


def _retry(payloads: tuple[str, ...], *, faults: int = 0, effort: Effort = QUICK, **given: Any) -> Small:
    plan = retry_world.Plan(tuple(("a", payload) for payload in payloads), **given)
    return Small(lambda: RetryWorld(plan), faults, effort)


def _downstream(requests: str, *, faults: int = 0, effort: Effort = QUICK, **given: Any) -> Small:
    """`requests`: the id of each, one character each."""
    plan = downstream_world.Plan(tuple((request_id, "{}") for request_id in requests), **given)
    return Small(lambda: DownstreamWorld(plan), faults, effort)


_TWO = downstream_world.Plan((("a", "{}"), ("b", '{"to": "b"}')), commands=("open",))
_BREAKER = {"policy": watching_policy(limited=False), "limited": False}


def _tokens(
    clients: str, fault_kinds: frozenset[str] = frozenset(), *, faults: int = 0, effort: Effort = QUICK, **plan: Any
) -> Small:
    """`clients`: the cache of each, one character each: l(ive), o(ld) or n(one)."""
    caches = tuple({"l": "live", "o": "old", "n": "none"}[cache] for cache in clients)
    made = token_state.Plan(caches, fault_kinds=fault_kinds, **{"clock_leads": (0.0,) * len(caches), **plan})
    return Small(lambda: TokenWorld(made, timeless=True), faults, effort)


RANDOM_WORLDS: dict[str, Callable[[Random], World]] = {
    "audit": audited_world.random_world,
    "downstream": downstream_world.random_world,
    "keys": random_slots.random_world_of_keys,
    "rates": random_slots.random_world_with_rate,
    "retry": retry_world.random_world,
    "slots": random_slots.random_world,
    "targets": random_slots.random_world_of_targets,
    "token": token_world.random_world,
}

# Shares of all random schedules. One of the worker takes as long as three others, because it runs Powertools, and with
# a downstream twice as long.
SHARES = {"audit": 1, "downstream": 1, "keys": 2, "rates": 2, "retry": 2, "slots": 6, "targets": 4, "token": 8}

SMALL: dict[str, Small] = {
    # The queue, its dispatches and its doorbells.
    "1 request, any fault": _slots(_A, faults=1),
    "1 request, any fault, sending an event is a step": _slots(_CALLER, event_steps=True, faults=1),
    "1 request, two faults": _slots(_A, faults=2, effort=LONG),
    "1 request, two invocations die": _slots(_A, aim="invocations", faults=2, effort=SHORT),
    "2 requests": _slots(_A, _B, dispatchers=2),
    "2 requests in a batch, 2 slots, one invocation dies": _slots(
        _A, _B, limit=2, batch=True, aim="invocations", faults=1
    ),
    "2 requests, any fault": _slots(_A, _B, faults=1, effort=LONG),
    "2 requests, doorbells late, lost and doubled": _slots(_A, _B, aim="doorbells", faults=1, effort=LONG),
    "2 requests in a batch, 2 slots, any fault of a dispatch": _slots(
        _A, _B, limit=2, batch=True, aim="dispatches", faults=1, effort=LONG
    ),
    "2 priorities, one invocation dies": _slots(_A, Sent("b", "high"), aim="invocations", faults=1, effort=LONG),
    "2 requests, no doorbell": _slots(_A, _B, has_doorbell=False),
    "2 requests, no doorbell, an aborted workflow": _slots(_A, _B, has_doorbell=False, aim="ends", faults=1),
    "2 requests, a janitor run alongside": _slots(_A, _B, janitor_runs=1, effort=LONG),
    "3 priorities, 1 slot": _slots(_A, Sent("b", "low"), Sent("c", "high"), effort=LONG),
    "3 requests, a heavy one between": _slots(_A, Sent("b", weight=2), _C, limit=2, batch=True),
    "a blocked head, the limit is raised": _slots(Sent("a", weight=2), _B, limits=(2,), effort=SHORT),
    "2 requests, the limit goes down and up": _slots(_A, Sent("b", weight=2), limit=2, limits=(1, 2), effort=LONG),
    "default weight 2, 3 slots": _slots(_A, Sent("b", weight=1), default_weight=2, limit=3, batch=True),
    "1 request, paused and resumed": _slots(_A, limits=(0, -1), effort=SHORT),
    "1 request, the process removed and added again": _slots(_A, limits=(0,), replacements=1),
    "2 processes": _slots(_A, Sent("b", process="q"), effort=SHORT),
    "2 processes in a batch, one invocation dies": _slots(
        _A, Sent("b", process="q"), batch=True, aim="invocations", faults=1
    ),
    "2 requests with one id": _slots(_A, _A),
    "2 requests with one id, other content": _slots(_CALLER, Sent("a", caller=True, other=True), effort=SHORT),
    # Ends without a start.
    "1 request, cancelled": _slots(_CALLER, cancels=("a",)),
    "1 request, cancelled, invocations die": _slots(_A, cancels=("a",), aim="invocations", faults=1),
    "1 request, cancelled, any fault": _slots(_A, cancels=("a",), faults=1, effort=LONG),
    "2 requests, both cancelled": _slots(_A, _B, cancels=("a", "b"), effort=LONG),
    "2 requests, one skips": _slots(_A, Sent("b", skips=True, caller=True)),
    "2 requests that skip, one invocation dies": _slots(
        Sent("a", skips=True), Sent("b", skips=True), aim="invocations", faults=1, effort=LONG
    ),
    "a deadline behind a lease": _slots(_A, Sent("b", deadline=20, caller=True), leased=30),
    "a deadline behind a lease, any fault of a dispatch": _slots(
        Sent("a", deadline=20, caller=True), leased=30, aim="dispatches", faults=1, effort=SHORT
    ),
    "1 request, refused, any fault of a dispatch": _slots(_CALLER, rejects=("a",), aim="dispatches", faults=1),
    "2 requests in a batch, one is refused": _slots(_A, _B, rejects=("a",), batch=True),
    # Reservations that are freed, and requests that are queued again.
    "1 request, its reservation is freed": _slots(_CALLER, frees=1, effort=SHORT),
    "1 request, its reservation is freed, an aborted workflow": _slots(_A, frees=1, aim="ends", faults=1, effort=LONG),
    "1 request, fails and is queued again": _slots(_CALLER, fails=1, again=("a",), effort=LONG),
    "1 request, aborted, queued again": _slots(_A, again=("a",), aim="ends", faults=1),
    "1 request, redriven executions": _slots(_CALLER, aim="redrives", faults=2, effort=SHORT),
    # How ends are published.
    "ends: 1 request, those who publish it die": _slots(_CALLER, **_PUBLISHES, faults=1),
    "ends: 1 failure, those who publish it die": _slots(_CALLER, fails=1, **_PUBLISHES, faults=1),
    "ends: 1 failure, those who publish it die twice": _slots(_CALLER, fails=1, **_PUBLISHES, faults=2, effort=LONG),
    "ends: 1 failure, two redrives": _slots(_A, fails=1, again=("a", "a"), rests=True),
    "ends: 1 failure, a redrive and a discard": _slots(_A, fails=1, again=("a",), discards=("a",), rests=True),
    "ends: 1 failure, two redrives and a discard": _slots(
        _A, fails=1, again=("a", "a"), discards=("a",), rests=True, effort=SHORT
    ),
    "ends: 1 failure, a redrive while it is published": _slots(
        _CALLER, fails=1, again=("a",), event_steps=True, effort=LONG
    ),
    "ends: three writers settle 1 request": _slots(_CALLER, janitor_runs=1, run_seconds=(60,), aim="ends", faults=1),
    "ends: three writers settle 1 child": _child(
        _CALLER, fails=1, janitor_runs=1, run_seconds=(60,), aim="ends", faults=1, effort=SHORT
    ),
    "ends: a message that is no request": _slots(
        Sent("a", caller=True, malformed=True), Sent("b"), batch=True, **_PUBLISHES, faults=1
    ),
    # Rates.
    "rate, 2 requests": _slots(_A, _B, limit=2, rate=Rate(1, 30)),
    "rate, 2 requests, doorbells late, lost and doubled": _slots(
        _A, _B, limit=2, rate=Rate(1, 30), aim="doorbells", faults=1, effort=SHORT
    ),
    "rate, 2 priorities, a burst, clocks apart": _slots(
        Sent("a", "high"), _B, Sent("c", "low"), limit=3, rate=Rate(2, 60, 2), ahead=(0.5, -0.5), effort=LONG
    ),
    "rate, 1 request and 1 lease": _slots(_A, limit=2, rate=Rate(1, 30), leases=(4,), lease_wait=200),
    "rate, 2 requests, any fault of a dispatch": _slots(
        _A, _B, limit=2, rate=Rate(1, 60), aim="dispatches", faults=1, effort=LONG
    ),
    # Keys.
    "keys, 3 requests in a batch": _slots(_K1, _K2, _M, batch=True),
    "keys, 2 priorities": _slots(
        _K1, _K2, _M, Sent("d", "high", key="m"), batch=True, has_doorbell=False, effort=SHORT
    ),
    "key limit, two dispatches": _slots(_K1, _K2, **_KEYED, dispatchers=2),
    "key limit, 2 requests in a batch, one invocation dies": _slots(
        _K1, _K2, **_KEYED, batch=True, aim="invocations", faults=1
    ),
    "key limit, 3 requests in a batch": _slots(_K1, _K2, _M, **_KEYED, batch=True, effort=LONG),
    "key limit, it goes down": _slots(_K1._replace(weight=2), limit=2, key_limit=2, limits=((1, ""),)),
    "key limit, that of a key goes down": _slots(_K1._replace(weight=2), limit=2, limits=((1, "k"),)),
    "key limit, that of a key goes up": _slots(_K1._replace(weight=2), **_KEYED, limits=((2, "k"),)),
    "key limit, one skips": _slots(_K1, _K2._replace(skips=True, caller=True), **_KEYED, batch=True),
    "key limit, a lease and a request without a key": _slots(_A, **_KEYED, leased=30),
    "key limit, 1 caller of a lease": _slots(_K1, **_KEYED, leases=(0,)),
    "key limit, a child and its request are redriven": _child(
        _K1, **_KEYED, **_REDRIVEN, again=("a",), rests=True, effort=LONG
    ),
    # Leases.
    "2 requests, a lease expires": _slots(_A, _B, leased=30),
    "leases, 2 callers": _slots(leases=(0, 0), blocks=(30,), lease_wait=30, faults=1),
    "leases, 2 callers, the first overruns": _slots(
        leases=(0, 0), blocks=(-90, 0), lease_wait=200, faults=1, effort=SHORT
    ),
    "leases, 2 callers within the skew": _slots(leases=(0, 4), blocks=(-90, 0), lease_wait=200, faults=1),
    "leases, 3 callers, the first exits late": _slots(leases=(4, 0, 4), blocks=(-90, 30, 0), lease_wait=200),
    "leases, 1 caller and 1 request": _slots(_A, leases=(0,), effort=SHORT),
    "leases, 1 caller and 1 request, any fault": _slots(_A, leases=(0,), faults=1, effort=LONG),
    "leases, 1 caller and 2 requests": _slots(_A, _B, leases=(0,), effort=LONG),
    # The work, and holders whose workflow has died.
    "1 request, another user of its job": _slots(_A, page=1, others=1, faults=1),
    "Glue run, a caller that may leave": _slots(_CALLER, leaves=1, faults=1, effort=SHORT),
    "Glue run, a caller, no status event, two deaths": _slots(_CALLER, **_DEATHS, effort=SHORT),
    "child, a caller that may leave": _child(_CALLER, leaves=1, faults=1, effort=SHORT),
    "child that fails, a caller": _child(_CALLER, fails=1, faults=1, effort=SHORT),
    "child, another workflow starts its name": _child(_A, namesakes=1, faults=1, effort=SHORT),
    "child that fails and is redriven": _child(_A, fails=1, child_redrives=1, run_seconds=(300,)),
    "child, a caller, its workflow's answer is refused": _child(_CALLER, refusals=7, leaves=1),
    "child, a caller, the janitor's answer is refused too": _child(_CALLER, refusals=8),
    "child whose start arrives late, its workflow dies": _child(_A, events_lost=True, **_LATE),
    "child whose start arrives late, status events": _child(_A, **_LATE),
    "child with a large output, a caller": _child(_CALLER, large_outputs=True, faults=1),
    "child with settle time": _child(_A, settle_seconds=100, run_seconds=(60,), aim="ends", faults=1),
    "child with settle time, two ends": _child(_A, settle_seconds=100, run_seconds=(60,), aim="ends", faults=2),
    "child that is aborted, and redriven in its settle time": _child(
        _A, settle_seconds=250, child_redrives=1, run_seconds=(150,), aim="ends", faults=1
    ),
    "child, a caller, malformed items": _child(_CALLER, damages=1, aim="ends", faults=1),
    "child, a caller, malformed items, no status event": _child(
        _CALLER, damages=1, events_lost=True, aim="ends", faults=1
    ),
    "child, no status event, two deaths": _child(_A, **_DEATHS),
    "2 children, two callers": _child(_CALLER, Sent("b", caller=True), effort=SHORT),
    "child, a caller, two faults": _child(_CALLER, faults=2, effort=LONG),
    # Permissions.
    "process for leases, a request": _slots(_CALLER, target=NO_TARGET, leases=(0,)),
    "child that no role may touch, a caller": _child(_CALLER, target=FORBIDDEN, faults=1, effort=SHORT),
    "Glue run that no role may touch": _slots(_A, target="another", faults=1),
    "Glue run, denied from a moment on": _slots(_A, **_DENIED, faults=1),
    "Glue run, denied from a moment on, its workflow dies": _slots(_A, **_DENIED, faults=2, effort=SHORT),
    "child, denied from a moment on": _child(_A, **_DENIED, faults=1),
    "child, a caller, answers denied from a moment on": _child(
        _CALLER, **(_DENIED | {"denials": ("answers",)}), faults=1
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
    "downstream opened by an operator, and a request of another one": Small(lambda: DownstreamWorld(_TWO), 0, QUICK),
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


def forget_if_much() -> None:
    """Bound memory between two schedules."""
    if frozen.known() > MOST_RECORDS:
        frozen.forget()
        gc.collect()
