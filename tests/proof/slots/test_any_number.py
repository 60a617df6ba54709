"""S1, S1c's writes and S2 for any number of holders, any limit, any weights and any drift: z3 finds no counterexample.
S11 for any rate, any burst and any clocks. S12 for any number of keys and of writes between a read and its grant.

Each step is performed by the product's own code, with symbols for the numbers that it reads and is given. Its condition
and its update are parsed by the grammar of the simulated DynamoDB, and z3 searches an item for which the write happens
and the claim is false. S1 has three premises, one of which is enough:

- `slots_in_use` is the sum of the weights (S2).
- Each weight is 1. Then the counter may be wrong by any number.
- The step has read the item, and the counter is wrong by as much as at the read: each step keeps that number.
"""

from __future__ import annotations

import re

import pytest
from z3 import And, ArithRef, BoolRef, Implies, Int, Ints, Or

from slotkeeper.slots.plan import _Free
from slotkeeper.slots.process import Process
from tests.guards.mutations import mutations
from tests.proof.slots.claims import (
    ALL,
    CLAIMS,
    INTERVAL,
    LEAD,
    admits_what_fits,
    broken_claim,
    counterexamples,
    keeps_the_limit_of_its_keys,
    perform,
    performed,
    starts_when_due,
    writes,
)
from tests.proof.slots.steps import GRANTS, PREMISES, Recorder, writing_functions
from tests.proof.slots.symbols import Search, counterexample


@pytest.mark.parametrize(("claim", "step"), [(claim, step) for claim, (_, steps) in CLAIMS.items() for step in steps])
def test_s1_s1c_s2_s11_and_s12_hold_for_any_number_of_holders(claim: str, step: str) -> None:
    holds, steps = CLAIMS[claim]
    assert counterexamples(performed(steps[step]), holds) == []


def test_s11_the_starts_of_any_time_are_within_the_rate() -> None:
    """By induction over the starts from any first one, by their clocks: `later` is their number without the first.

    `between` is `later x interval`. What "due" proves of each write is given.
    """
    first, now, next_start, after, between = (Int(name) for name in ("first", "now", "next", "after", "between"))
    due, moved = next_start <= now + LEAD, And(after >= next_start + INTERVAL, after >= now + INTERVAL)
    is_counted = next_start >= first + INTERVAL + between
    base = counterexample(after >= first + INTERVAL + 0, due, moved, now == first)
    step = counterexample(after >= first + INTERVAL + (between + INTERVAL), is_counted, due, moved)
    # So of `later + 1` starts the last comes `(later - (burst - 1)) x interval` after the first, or later still.
    bound = counterexample(between + INTERVAL - LEAD <= now - first, is_counted, due)
    assert (base, step, bound) == ({}, {}, {})


def test_s12_while_grants_is_as_read_a_key_holds_at_most_as_much_and_its_limit_is_the_same() -> None:
    """By induction over the writes since a read. What "noted" proves of each write is given, "key fits" needs this."""
    seen, held_read, limit_read = Int("grants read"), Int("held read"), Int("limit read")
    grants, held, limit, grants_after, held_after, limit_after = Ints("grants held limit grants' held' limit'")

    def is_kept(now: ArithRef, weight: ArithRef, most: ArithRef) -> BoolRef:
        return And(now >= seen, Implies(now == seen, And(weight <= held_read, most == limit_read)))

    noted = Or(grants_after > grants, And(grants_after == grants, held_after <= held, limit_after == limit))
    base = counterexample(is_kept(seen, held_read, limit_read))
    step = counterexample(is_kept(grants_after, held_after, limit_after), is_kept(grants, held, limit), noted)
    assert (base, step) == ({}, {})


def test_every_function_that_writes_an_item_is_a_step() -> None:
    recorder, search = Recorder(), Search(*PREMISES)
    for step in ALL.values():
        list(search.paths(lambda step=step: step(recorder, search)))  # type: ignore[misc]
    assert writing_functions() <= recorder.callers


OTHER_TERMS = re.compile(r"paused|target|default_weight")  # no claim is about them
SEEN, CHANGED = "without grants = :seen", "without SET grants = grants + :one"
RESERVED, EXISTS = "without holders.#n.#state = :reserved", "without attribute_exists(process_name)"
# Steps, and their terms that no claim needs. `make guards` tries the terms of the other steps.
CONTROLLED: dict[str, set[str]] = {
    "lease, weight 1": {CHANGED},
    "grant, 1 starts, with a rate": {SEEN},
    "grant, keys ('k', '', 'k')": set(),
    "extend a lease": {"holders.#me.#until < :until with <>"},
    "release a lease": set(),
    "expire": set(),
    "put_back, weight any": {RESERVED, CHANGED},
    "free": {CHANGED},
    "adopt": {EXISTS},
    "set the limit of each key": {EXISTS, "without SET key_limit = :limit"},
    "repair the counter": {EXISTS, "without slots_in_use = :counted"},
}


@pytest.mark.parametrize("step", CONTROLLED)
def test_without_a_term_a_claim_has_a_counterexample(step: str) -> None:
    kept = {
        name
        for write in writes(step)
        for name in mutations("update_item", *write)
        if not OTHER_TERMS.search(name) and not broken_claim(write.__eq__, frozenset([name]), [step])
    }
    assert kept == CONTROLLED[step]


@pytest.mark.parametrize("step", ["grant, 2 starts", "lease, weight any"])
def test_a_counter_below_its_holders_is_corrected_by_the_read(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "missing", 0)
    assert counterexamples(perform(GRANTS[step]), admits_what_fits)


def test_a_plan_that_does_not_count_its_own_starts_has_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Free, "take", lambda *_: None)
    assert counterexamples(perform(GRANTS["grant, 3 starts, with a rate"]), starts_when_due)
    assert counterexamples(perform(GRANTS["grant, keys ('k', '', 'k')"]), keeps_the_limit_of_its_keys)


def test_s12_a_plan_that_ignores_the_limit_of_a_key_has_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Free, "refuses_key", lambda *_: None)
    assert counterexamples(perform(GRANTS["grant, keys ('',)"]), keeps_the_limit_of_its_keys)
