"""The worlds: those that random schedules are made in, and the small ones that are explored to their end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from tests.simulation import (
    frozen,
    retry_actors,
    retry_properties,
    retry_world,
    slots_actors,
    slots_state,
    slots_world,
    token_actors,
    token_world,
    transcript,
    workflow,
    worlds,
)
from tests.simulation.retry_world import RetryWorld
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.token_world import DEATHS, LOST, NO_TOKEN, OWN, STANDING_STILL, TokenWorld
from tests.simulation.worlds import World


class Small(NamedTuple):
    """A world whose every state is visited.

    Attributes:
        faults: how many there may be on any way through it.
        quick: few enough states for `make test`.
    """

    make: Callable[[], World]
    faults: int
    quick: bool


def _slots(
    requests: Sequence[str],
    limit: int,
    rounds: int,
    standing_still: bool,
    lax: bool = False,
    cancels: str = "",
    looking: bool = False,
    **more: Any,
) -> Callable[[], World]:
    plan = Plan(
        tuple(requests),
        limit,
        cancels=tuple(cancels),
        rounds=rounds,
        standing_still=standing_still,
        lax=lax,
        looking=looking,
        news=len(requests) == 1,  # as steps among those of others they make three times as many states
        **more,
    )
    return lambda: SlotsWorld(plan, timeless=True)


def _retry(payloads: tuple[str, ...], **given: Any) -> Callable[[], World]:
    plan = retry_world.Plan(tuple(("a", payload) for payload in payloads), **given)
    return lambda: RetryWorld(plan)


def _tokens(clients: str, hows: frozenset[str] = frozenset(), **plan: Any) -> Callable[[], World]:
    """`clients`: what each has in its cache, a letter each: l(ive), o(ld) or n(one)."""
    caches = tuple({"l": "live", "o": "old", "n": "none"}[letter] for letter in clients)
    made = token_world.Plan(caches, hows=hows, **{"aheads": (0.0,) * len(caches), **plan})
    return lambda: TokenWorld(made, timeless=True)


DRAWN: dict[str, Callable[[Random], World]] = {
    "retry": retry_world.drawn,
    "slots": slots_world.drawn,
    "token": token_world.drawn,
}

# Of all random schedules. One of the worker's takes as long as three of the others: Powertools is in it.
SHARES = {"retry": 1, "slots": 5, "token": 4}

SMALL: dict[str, Small] = {
    "1 request, 1 slot, janitor at any time": Small(_slots("a", 1, 1, True), 1, True),
    "1 request, 1 slot, another user of its job": Small(_slots("a", 1, 0, False, page=1, others=1), 1, True),
    "3 requests, 1 slot, no fault": Small(_slots("abc", 1, 0, False), 0, True),
    "3 requests, 1 slot, no fault, lax queue": Small(_slots("abc", 1, 0, False, True), 0, True),
    "2 requests, 1 slot, starters look first": Small(_slots("ab", 1, 0, False, looking=True), 1, False),
    "3 requests, 1 slot, no fault, starters look first": Small(_slots("abc", 1, 0, False, True, looking=True), 0, True),
    "3 requests, 2 slots, no fault": Small(_slots("abc", 2, 0, False), 0, True),
    "2 processes, 3 requests, 1 slot each, no fault": Small(_slots("abA", 1, 0, False), 0, True),
    "2 processes, 2 requests, 1 slot each": Small(_slots("aA", 1, 0, False), 1, False),
    "2 requests, 1 slot, cancelled": Small(_slots("ab", 1, 0, False, True, "ab"), 0, True),
    "1 request, 1 slot, cancelled": Small(_slots("a", 1, 0, False, False, "a"), 1, True),
    "3 requests, 1 slot, two of them under one id": Small(_slots(("a", "a*", "b"), 1, 0, False), 0, True),
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
    "2 requests, 1 slot, janitor beside those who stand still": Small(_slots("ab", 1, 0, True), 1, False),
    "3 requests, 1 slot": Small(_slots("abc", 1, 0, False), 1, False),
    "3 requests, 2 slots": Small(_slots("abc", 2, 0, False), 1, False),
    "retry of a request that is sent twice": Small(_retry(('{"fails": 1}',) * 2), 1, True),
    "retry by Scheduler, its messages come twice": Small(
        _retry(('{"fails": 1, "retry_after": 1980}',), copies=1), 1, True
    ),
    "retry until the dead-letter queue, redriven": Small(_retry(('{"fails": 9}',), redrives=1), 1, True),
    "retry of no poison, sent twice": Small(_retry(('{"poison": "no such thing"}',) * 2), 1, True),
    "retry, and another payload under the same id": Small(_retry(('{"fails": 1}', '{"other": "payload"}')), 1, True),
    "retry whose policy may not be read": Small(_retry(('{"fails": 9}',), asks=True), 1, True),
    "retry, cancelled": Small(_retry(('{"fails": 1}',), commands=("cancel",)), 1, True),
    "retry at once, cancelled": Small(_retry(('{"fails": 1, "retry_after": 0}',), commands=("cancel",)), 1, True),
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
    "retry at once, its messages come twice": Small(_retry(('{"fails": 1, "retry_after": 0}',), copies=1), 1, False),
    "token, 3 clients, no fault": Small(_tokens("lll"), 0, True),
    "token, 3 clients, one dies": Small(_tokens("lll", DEATHS), 1, True),
    "token, 3 clients and no token yet, one dies": Small(_tokens("nnn", DEATHS, **NO_TOKEN), 1, True),
    "token, 3 clients, clocks apart, one dies": Small(_tokens("lol", DEATHS, aheads=(2.0, 0.0, -2.0)), 1, True),
    "token, 3 clients, one fails before it asks": Small(_tokens("lll", frozenset({OWN})), 1, True),
    "token, 2 clients, slow probes, one dies": Small(_tokens("ll", DEATHS, slow_probes=True), 1, True),
    "token, 3 clients, an answer is lost": Small(_tokens("lll", LOST), 1, True),
    "token, 2 clients, any fault": Small(_tokens("ll"), 1, False),
    "token, 2 clients, another refreshes, one dies": Small(_tokens("ll", DEATHS, hands_over=True), 1, True),
    "token, 2 clients, dropped": Small(_tokens("ln", drops=1), 0, True),
    "token, 3 clients, dropped": Small(_tokens("lln", drops=1), 0, False),
    "token, 2 clients, dropped, one dies": Small(_tokens("ln", DEATHS, drops=1, revocations=0), 1, True),
    "token, 2 clients, dropped beside a revocation, an answer is lost": Small(_tokens("ll", LOST, drops=1), 1, False),
    "token, 3 clients, one stands still": Small(_tokens("lll", STANDING_STILL, slow=False), 1, False),
    "token, 3 clients, nobody asks if it is valid, any fault": Small(
        _tokens("lll", probes=False, slow=False), 1, False
    ),
    "token, 2 clients, another refreshes, an answer is lost": Small(
        _tokens("ll", LOST, hands_over=True, slow=False), 1, False
    ),
    "token, 2 clients, two die": Small(_tokens("ll", DEATHS), 2, False),
    "token, 2 clients, two answers are lost": Small(_tokens("ll", LOST), 2, False),
}

_FORGET: list[Callable[[], None]] = [
    frozen.forget,
    worlds.forget,
    workflow.forget,
    retry_actors.worker.forget,
    retry_actors.operator.forget,
    retry_properties.forget,
    slots_state.forget,
    slots_actors.starter.forget,
    slots_actors.janitor_round.forget,
    slots_actors.closed_execution.forget,
    slots_actors.canceller.forget,
    slots_actors.replacer.forget,
    token_actors.forget,
]
MOST_RECORDS = 600_000  # some 1.3 GB with what hangs on them


def forget() -> None:
    """Drops all that is known of actors and services: for other code, or for memory."""
    transcript.let_go()
    for each in _FORGET:
        each()


def forget_if_much() -> None:
    """Bounds memory between two schedules."""
    if frozen.known() > MOST_RECORDS:
        forget()
        gc.collect()
