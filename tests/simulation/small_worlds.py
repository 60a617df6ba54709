"""The worlds of random schedules, and the small worlds of the exhaustive search."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from slotkeeper.slots.targets import NO_TARGET
from tests.simulation import (
    downstream_properties,
    downstream_world,
    frozen,
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
from tests.simulation.retry_world import RetryWorld
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.targets_world import FORBIDDEN, TargetsWorld
from tests.simulation.token_state import DEATHS, FREEZES, LOST, NO_TOKEN, OWN
from tests.simulation.token_world import TokenWorld
from tests.simulation.worlds import World


class Small(NamedTuple):
    """A world of the exhaustive search.

    Attributes:
        faults: the most faults on any path through it.
        quick: the world has few enough states for `make test`.
    """

    make: Callable[[], World]
    faults: int
    quick: bool


def _slots(
    requests: Sequence[str],
    limit: int,
    janitor_runs: int,
    janitor_ahead: bool,
    lax: bool = False,
    cancels: str = "",
    starters_read_first: bool = False,
    **more: Any,
) -> Callable[[], World]:
    plan = Plan(
        tuple(requests),
        limit,
        cancels=tuple(cancels),
        janitor_runs=janitor_runs,
        janitor_ahead=janitor_ahead,
        lax=lax,
        starters_read_first=starters_read_first,
        event_steps=len(requests) == 1,  # with more requests these steps triple the number of states
        **more,
    )
    return lambda: SlotsWorld(plan, timeless=True)


def _target(requests: str, *, timeless: bool = True, child: bool = True, **more: Any) -> Callable[[], World]:
    """One process whose target is a state machine, or a Glue job. `requests`: the id of each, one character each."""
    given = {"machines": ("p",) * child, "janitor_runs": 0, "janitor_ahead": False, "event_steps": False} | more
    plan = Plan(tuple(requests), **given)
    return lambda: TargetsWorld(plan, timeless=timeless)


_DENIED = {
    "timeless": False,
    "starters": 1,
    "denials": ("starts", "reads"),
    "aim": "denials",
    "run_seconds": (60,),
}


def _retry(payloads: tuple[str, ...], **given: Any) -> Callable[[], World]:
    plan = retry_world.Plan(tuple(("a", payload) for payload in payloads), **given)
    return lambda: RetryWorld(plan)


def _downstream(requests: str, **given: Any) -> Callable[[], World]:
    """`requests`: the id of each, one character each."""
    plan = downstream_world.Plan(tuple((request_id, "{}") for request_id in requests), **given)
    return lambda: DownstreamWorld(plan)


_BREAKER = {"policy": watching_policy(limited=False), "limited": False}


def _tokens(clients: str, fault_kinds: frozenset[str] = frozenset(), **plan: Any) -> Callable[[], World]:
    """`clients`: the cache of each, one character each: l(ive), o(ld) or n(one)."""
    caches = tuple({"l": "live", "o": "old", "n": "none"}[cache] for cache in clients)
    made = token_state.Plan(caches, fault_kinds=fault_kinds, **{"clock_leads": (0.0,) * len(caches), **plan})
    return lambda: TokenWorld(made, timeless=True)


RANDOM_WORLDS: dict[str, Callable[[Random], World]] = {
    "downstream": downstream_world.random_world,
    "retry": retry_world.random_world,
    "slots": slots_world.random_world,
    "targets": targets_world.random_world,
    "token": token_world.random_world,
}

# Shares of all random schedules. One of the worker takes as long as three others, because it runs Powertools, and with
# a downstream twice as long.
SHARES = {"downstream": 1, "retry": 2, "slots": 7, "targets": 3, "token": 8}

SMALL: dict[str, Small] = {
    "1 request, 1 slot, janitor at any time": Small(_slots("a", 1, 1, True), 1, True),
    "1 request, 1 slot, another user of its job": Small(_slots("a", 1, 0, False, page=1, others=1), 1, True),
    "3 requests, 1 slot, no fault": Small(_slots("abc", 1, 0, False), 0, True),
    "3 requests, 1 slot, no fault, lax queue": Small(_slots("abc", 1, 0, False, True), 0, True),
    "2 requests, 1 slot, starters read first": Small(_slots("ab", 1, 0, False, starters_read_first=True), 1, False),
    "3 requests, 1 slot, no fault, starters read first": Small(
        _slots("abc", 1, 0, False, True, starters_read_first=True), 0, True
    ),
    "2 processes, 2 requests, 1 slot each, no fault": Small(_slots("aA", 1, 0, False), 0, True),
    "2 processes, 3 requests, 1 slot each, no fault": Small(_slots("abA", 1, 0, False), 0, False),
    "2 processes, 2 requests, 1 slot each": Small(_slots("aA", 1, 0, False), 1, False),
    "2 requests, 1 slot, cancelled": Small(_slots("ab", 1, 0, False, True, "ab"), 0, True),
    "1 request, 1 slot, cancelled": Small(_slots("a", 1, 0, False, False, "a"), 1, True),
    "3 requests, 1 slot, two of them under one id": Small(_slots(("a", "a*", "b"), 1, 0, False), 0, True),
    "2 requests of other weights and priorities under one id": Small(
        _slots(("+a2", "a1"), 2, 0, False, starters=1), 1, True
    ),
    "2 requests under one id, 1 slot": Small(_slots(("a", "a*"), 1, 0, False), 1, False),
    "2 requests, 1 slot, the process removed and added again": Small(
        _slots("ab", 1, 0, False, True, limits=(0,), replacements=1, starters=1), 0, True
    ),
    "1 request, 1 slot, the process removed and added again": Small(
        _slots("a", 1, 0, False, True, limits=(0,), replacements=1, starters=1), 1, False
    ),
    "3 requests, 1 slot, one cancelled": Small(_slots("abc", 1, 0, False, False, "b"), 0, False),
    "2 requests, 1 slot, the second cancelled": Small(_slots("ab", 1, 0, False, False, "b"), 1, False),
    "1 request, 1 slot, cancelled, janitor at any time": Small(_slots("a", 1, 1, True, False, "a"), 1, False),
    "2 requests, 1 slot, janitor while others are frozen": Small(_slots("ab", 1, 0, True), 1, False),
    "3 requests, 1 slot": Small(_slots("abc", 1, 0, False), 1, False),
    "3 requests, 2 slots": Small(_slots("abc", 2, 0, False), 1, False),
    "2 priorities, 3 requests, 1 slot, no fault": Small(_slots(("+a", "+b", "c"), 1, 0, False, starters=1), 0, True),
    "3 priorities, 1 slot, no fault": Small(_slots(("+a", "b", "-c"), 1, 0, False, starters=1), 0, True),
    "2 priorities, 1 slot, a message removed": Small(_slots(("+a", "b"), 1, 0, False, removals=1), 0, True),
    "2 priorities, 2 slots, a message removed": Small(_slots(("+a", "-b"), 2, 0, False, True, removals=1), 0, True),
    "1 request, 1 slot, a message removed": Small(_slots("a", 1, 0, True, removals=1), 1, True),
    "2 requests, 1 slot, a message removed": Small(_slots("ab", 1, 0, False, True, removals=1), 0, True),
    "2 requests, 1 slot, a message removed, janitor while others are frozen": Small(
        _slots("ab", 1, 0, True, starters=1, removals=1), 1, False
    ),
    "2 priorities, 1 slot, cancelled": Small(_slots(("+a", "b"), 1, 0, False, cancels="a"), 0, True),
    "2 priorities, 1 slot": Small(_slots(("+a", "b"), 1, 0, False, starters=1), 1, True),
    "2 priorities, 2 slots, 3 requests, no fault": Small(_slots(("a", "+b", "c"), 2, 0, False, True), 0, False),
    "3 priorities, 2 slots, no fault": Small(_slots(("+a", "b", "-c"), 2, 0, False, True, starters=1), 0, False),
    "2 priorities, 3 requests, 1 slot, a message removed": Small(
        _slots(("+a", "b", "c"), 1, 0, False, starters=1, removals=1), 0, False
    ),
    "2 priorities, 3 requests, 1 slot, cancelled": Small(
        _slots(("+a", "b", "c"), 1, 0, False, cancels="a", starters=1), 0, False
    ),
    "2 priorities, 2 slots, 3 requests, cancelled": Small(
        _slots(("+a", "b", "c"), 2, 0, False, True, cancels="a", starters=1), 0, False
    ),
    "weights 2 and 1, 2 slots, no fault": Small(_slots(("a2", "b", "c"), 2, 0, False), 0, True),
    "weights 2, 3 and 1, 2 priorities, 3 slots, no fault": Small(
        _slots(("+a2", "b3", "-c"), 3, 0, False, starters=1), 0, True
    ),
    "weight 3, 2 slots, then 3": Small(_slots(("+a3", "b"), 2, 0, False, limits=(3,), starters=1), 0, True),
    "weight 2, 2 slots, then 1 and 2": Small(_slots(("+a2", "b"), 2, 0, False, limits=(1, 2), starters=1), 0, True),
    "default weight 2, 3 slots, no fault": Small(_slots(("+a", "b1"), 3, 0, False, default_weight=2), 0, True),
    "weight 2, 2 slots, then 1": Small(_slots(("+a2", "b"), 2, 0, False, limits=(1,)), 0, False),
    "weights 2 and 1, 2 slots": Small(_slots(("+a2", "b"), 2, 0, False, starters=1), 1, False),
    "leases, 2 callers": Small(_slots("", 1, 0, False, leases=(0, 0), blocks=(30,)), 1, True),
    "leases, 2 callers, the first overruns": Small(_slots("", 1, 0, True, leases=(0, 65)), 1, True),
    "leases, 2 callers within the skew": Small(_slots("", 1, 0, False, leases=(0, 64)), 1, True),
    "leases, 3 callers, the first exits late, no fault": Small(
        _slots("", 1, 0, False, leases=(1, 66, 0), blocks=(30,)), 0, True
    ),
    "leases, 3 callers, limit 2, one overruns, no fault": Small(_slots("", 2, 0, False, leases=(0, 0, 65)), 0, True),
    "leases, 1 caller and 1 request, no fault": Small(_slots("a", 1, 0, False, leases=(0,)), 0, True),
    "leases, 1 caller and 1 request": Small(_slots("a", 1, 0, False, starters=1, leases=(0,)), 1, False),
    "leases, 1 caller and 2 requests, no fault": Small(_slots("ab", 1, 0, False, starters=1, leases=(0,)), 0, False),
    "leases, 2 callers within the skew and 1 request, no fault": Small(
        _slots("a", 1, 0, False, starters=1, leases=(0, 64)), 0, False
    ),
    "child, a caller that may leave": Small(_target("a", callers="a", leaves=1), 1, True),
    "child that fails, a caller": Small(_target("a", callers="a", fails=1), 1, False),
    "child, another workflow starts its name": Small(_target("a", namesakes=1), 1, True),
    "child that fails and is redriven": Small(_target("a", fails=1, child_redrives=1), 1, False),
    "child, a caller, cancelled": Small(_target("a", callers="a", cancels=("a",)), 1, False),
    "child, a caller, its workflow's answer is refused": Small(
        _target("a", callers="a", refusals=7, leaves=1), 0, True
    ),
    "child, a caller, the janitor's answer is refused too": Small(_target("a", callers="a", refusals=8), 1, True),
    "child that fails, a caller, the janitor's answer is refused too": Small(
        _target("a", callers="a", refusals=8, fails=1, starters=1), 1, False
    ),
    "child whose start arrives late, its workflow dies": Small(
        _target("a", timeless=False, starters=1, aim="late", events_lost=True), 2, True
    ),
    "child whose start arrives late, status events": Small(
        _target("a", timeless=False, starters=1, aim="late"), 2, True
    ),
    "child with a large output, a caller": Small(_target("a", callers="a", starters=1, large_outputs=True), 1, True),
    "child with settle time": Small(
        _target("a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,), aim="ends"), 1, True
    ),
    "child that is aborted, and redriven in its settle time": Small(
        _target("a", timeless=False, starters=1, settle_seconds=250, child_redrives=1, run_seconds=(400,), aim="ends"),
        1,
        True,
    ),
    "child that fails and is redriven, with clock": Small(
        _target("a", timeless=False, starters=1, fails=1, child_redrives=1, run_seconds=(300,)), 0, True
    ),
    "child, a caller, malformed items": Small(_target("a", callers="a", starters=1, damages=1), 1, True),
    "child, a caller, malformed items, no status event": Small(
        _target("a", callers="a", starters=1, damages=1, events_lost=True), 1, True
    ),
    "child, no status event, two deaths": Small(
        _target("a", timeless=False, starters=1, aim="deaths", events_lost=True, run_seconds=(60,)), 2, True
    ),
    "Glue run, a caller, no status event, two deaths": Small(
        _target(
            "a",
            child=False,
            timeless=False,
            starters=1,
            callers="a",
            aim="deaths",
            events_lost=True,
            run_seconds=(60,),
        ),
        2,
        True,
    ),
    "Glue run, a caller": Small(_target("a", child=False, callers="a", starters=1), 1, True),
    "Glue run, a caller that may leave": Small(_target("a", child=False, callers="a", leaves=1), 1, False),
    "process for leases, a request": Small(_target("a", target=NO_TARGET, leases=(0,)), 1, True),
    "child that no role may touch, a caller": Small(_target("a", target=FORBIDDEN, callers="a"), 1, True),
    "Glue run that no role may touch": Small(_target("a", child=False, target="another"), 1, True),
    "Glue run, denied from a moment on": Small(_target("a", child=False, **_DENIED), 1, True),
    "Glue run, denied from a moment on, its workflow dies": Small(_target("a", child=False, **_DENIED), 2, False),
    "child, denied from a moment on": Small(_target("a", **_DENIED), 1, False),
    "child, a caller, answers denied from a moment on": Small(
        _target("a", callers="a", **(_DENIED | {"denials": ("answers",)})), 1, True
    ),
    "2 children, two callers": Small(_target("ab", callers="ab"), 0, True),
    "2 children": Small(_target("ab", starters=1), 1, False),
    "child, a caller, janitor at any time": Small(
        _target("a", callers="a", janitor_runs=1, janitor_ahead=True), 1, False
    ),
    "child, a caller, two faults": Small(_target("a", callers="a", starters=1), 2, False),
    "child, another workflow starts its name, two faults": Small(_target("a", namesakes=1, starters=1), 2, False),
    "child with settle time, its workflow dies": Small(
        _target("a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,), aim="deaths"), 2, False
    ),
    "child with settle time, any fault": Small(
        _target("a", timeless=False, starters=1, settle_seconds=100, run_seconds=(60,)), 1, False
    ),
    "retry of a request sent twice": Small(_retry(('{"fails": 1}',) * 2), 1, True),
    "retry by Scheduler, delivered twice": Small(_retry(('{"fails": 1, "retry_after": 1980}',), copies=1), 1, True),
    "retry until the dead-letter queue, redriven": Small(_retry(('{"fails": 9}',), redrives=1), 1, True),
    "no retry of poison, sent twice": Small(_retry(('{"poison": "no such thing"}',) * 2), 1, True),
    "retry, and another payload under the same id": Small(_retry(('{"fails": 1}', '{"other": "payload"}')), 1, True),
    "retry whose policy read may fail": Small(_retry(('{"fails": 9}',), reads_policy=True), 1, True),
    "retry, cancelled": Small(_retry(('{"fails": 1}',), commands=("cancel",)), 1, True),
    "immediate retry, cancelled": Small(_retry(('{"fails": 1, "retry_after": 0}',), commands=("cancel",)), 1, True),
    "retry by Scheduler, cancelled": Small(
        _retry(('{"fails": 1, "retry_after": 1980}',), commands=("cancel",)), 1, True
    ),
    "retry by Scheduler, brought forward": Small(
        _retry(('{"fails": 1, "retry_after": 1980}',), commands=("run_now",)), 1, True
    ),
    "retry by Scheduler, brought forward, then cancelled": Small(
        _retry(('{"fails": 1, "retry_after": 1980}',), commands=("run_now", "cancel")), 1, False
    ),
    "retry, two faults": Small(_retry(('{"fails": 1}',)), 2, False),
    "retry by Scheduler, two faults": Small(_retry(('{"fails": 1, "retry_after": 1980}',)), 2, False),
    "immediate retry, delivered twice": Small(_retry(('{"fails": 1, "retry_after": 0}',), copies=1), 1, False),
    "downstream down for 90 s, 2 requests, no fault": Small(_downstream("ab", down=(0, 90)), 0, True),
    "downstream down for 90 s, a request sent twice, no fault": Small(_downstream("aa", down=(0, 90)), 0, True),
    "downstream suddenly down, 2 requests, no fault": Small(
        _downstream("ab", sudden=True, down=(90, 90), **_BREAKER), 0, True
    ),
    "downstream that permits 1 caller, 2 requests, no fault": Small(_downstream("ab", most=1), 0, True),
    "downstream down for 90 s, a worker is frozen": Small(
        _downstream("a", down=(0, 90), fault_kinds=("beyond its lease",), **_BREAKER), 1, True
    ),
    # A late hide concerns a message that another worker has. A strict queue refuses it, as documented.
    "downstream down for 90 s, a worker is frozen for long": Small(
        _downstream("a", down=(0, 90), fault_kinds=("until its message is back",), **_BREAKER), 1, True
    ),
    "downstream down for 90 s, a worker is frozen for long, strict queue": Small(
        _downstream("a", down=(0, 90), fault_kinds=("until its message is back",), lax=False, **_BREAKER), 1, True
    ),
    "downstream down for 90 s, a worker dies": Small(
        _downstream("a", down=(0, 90), fault_kinds=("die", "die after")), 1, True
    ),
    "downstream that is healthy, a worker dies": Small(_downstream("a", fault_kinds=("die", "die after")), 1, True),
    "downstream opened by an operator, and a request of another one": Small(
        lambda: DownstreamWorld(downstream_world.Plan((("a", "{}"), ("b", '{"to": "b"}')), commands=("open",))), 0, True
    ),
    "downstream opened and closed by an operator, no fault": Small(
        _downstream("a", commands=("open", "close"), receives=898), 0, True
    ),
    "downstream opened and closed by an operator, an answer is lost": Small(
        _downstream("a", commands=("open", "close"), fault_kinds=("lose", "twice")), 1, False
    ),
    "downstream opened by an operator": Small(
        _downstream("a", commands=("open",), receives=898, fault_kinds=("die after",)), 1, False
    ),
    "downstream down for 90 s, 1 request": Small(_downstream("a", down=(0, 90)), 1, False),
    "downstream down for 90 s, breaker only": Small(_downstream("a", down=(0, 90), **_BREAKER), 1, False),
    "downstream down for 90 s, breaker only, 2 requests": Small(_downstream("ab", down=(0, 90), **_BREAKER), 1, False),
    "downstream down after a minute, 3 requests, no fault": Small(_downstream("abc", down=(60, 150)), 0, False),
    "token, 3 clients, one dies": Small(_tokens("lll", DEATHS), 1, True),
    "token, 3 clients and no token yet, one dies": Small(_tokens("nnn", DEATHS, **NO_TOKEN), 1, True),
    "token, 3 clients, clocks apart, one dies": Small(_tokens("lol", DEATHS, clock_leads=(2.0, 0.0, -2.0)), 1, True),
    "token, 3 clients, one fails before its POST": Small(_tokens("lll", frozenset({OWN})), 1, True),
    "token, 2 clients, slow probes, one dies": Small(_tokens("ll", DEATHS, slow_probes=True), 1, True),
    "token, 3 clients, an answer is lost": Small(_tokens("lll", LOST), 1, True),
    "token, 2 clients, any fault": Small(_tokens("ll"), 1, False),
    "token, 2 clients, refresher function, one dies": Small(_tokens("ll", DEATHS, hands_over=True), 1, True),
    "token, 2 clients, dropped": Small(_tokens("ln", drops=1), 0, True),
    "token, 3 clients, dropped": Small(_tokens("lln", drops=1), 0, False),
    "token, 2 clients, dropped, one dies": Small(_tokens("ln", DEATHS, drops=1, revocations=0), 1, True),
    "token, 2 clients, dropped and revoked, an answer is lost": Small(_tokens("ll", LOST, drops=1), 1, False),
    "token, 3 clients, one is frozen": Small(_tokens("lll", FREEZES, slow=False), 1, False),
    "token, 3 clients, no probes, any fault": Small(_tokens("lll", probes=False, slow=False), 1, False),
    "token, 2 clients, refresher function, an answer is lost": Small(
        _tokens("ll", LOST, hands_over=True, slow=False), 1, False
    ),
    "token, 2 clients, two die": Small(_tokens("ll", DEATHS), 2, False),
    "token, 2 clients, two answers are lost": Small(_tokens("ll", LOST), 2, False),
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
