"""S1, S1c's writes and S2 for any number of holders, any limit, any weights and any drift: z3 finds no counterexample.
S11 for any rate, any burst and any clocks.

Each step is performed by the product's own code, with symbols for the numbers that it reads and is given. Its condition
and its update are parsed by the grammar of the simulated DynamoDB, and z3 searches an item for which the write happens
and the claim is false. S1 has three premises, one of which is enough:

- `slots_in_use` is the sum of the weights (S2).
- Each weight is 1. Then the counter may be wrong by any number.
- The step has read the item, and the counter is wrong by as much as at the read: each step keeps that number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from z3 import And, BoolRef, BoolVal, If, Implies, Int, Or

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import grants, lease_protocol, protocol, rate, request_table
from slotkeeper.slots.plan import _Free
from slotkeeper.slots.process import MAX_HOLDERS, Process
from tests.proof.slots.any_item import AnyItem, Effect, effect, text_number
from tests.proof.slots.steps import (
    ADOPT,
    GRANTS,
    NOW,
    OTHERS,
    PREMISES,
    REPAIRS,
    SET_RATE,
    Recorder,
    Step,
    writing_functions,
)
from tests.proof.slots.symbols import Search, counterexample

ALL = GRANTS | OTHERS | REPAIRS | ADOPT | SET_RATE

# What must hold for a write: the item before it, what is after it, and the request.
Claim = Callable[[AnyItem, Effect, dict[str, Any]], BoolRef]


def counterexamples(step: Step, claim: Claim) -> list[dict[str, str]]:
    """For each write on each path of a step for which the claim can be false, the values that show it."""
    search, found = Search(*PREMISES), []

    def perform() -> list[dict[str, Any]]:
        recorder = Recorder()
        step(recorder, search)
        return recorder.writes

    writes = 0
    for requests, assumed in search.paths(perform):
        writes += len(requests)  # none on a path on which no start is due
        for request in requests:
            item = AnyItem()
            after = effect(item, request, search)
            happens = (*PREMISES, *assumed, item.is_possible, after.happens)
            assert counterexample(BoolVal(False), *happens), "no item permits the write, so any claim would hold"
            found.append(counterexample(claim(item, after, request), *happens))
    assert writes, "the step writes nothing"
    return [each for each in found if each]


def keeps_the_drift(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    return after.drift == item.drift


def admits_what_fits(item: AnyItem, after: Effect, request: dict[str, Any]) -> BoolRef:
    as_at_the_read = Int("held read") - Int("in use read") == item.drift
    premises = [And(item.drift == 0, as_at_the_read), item.held == item.count]
    if ":counted" in request["ExpressionAttributeValues"]:
        premises.append(as_at_the_read)
    fits = Or(after.held <= item.limit, after.held <= item.held)
    return And(after.limit == item.limit, Implies(Or(*premises), fits))


def adds_no_weight(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    return And(after.held <= item.held, after.count <= item.count)


def corrects_the_counter(_: AnyItem, after: Effect, __: Any) -> BoolRef:
    return after.drift == 0


def adds_no_holder_above_the_most(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    return Implies(after.count > item.count, after.count <= MAX_HOLDERS)


def removes_an_expired_lease(item: AnyItem, _: Effect, __: Any) -> BoolRef:
    return item.holder("x").numbers["until"] + CLOCK_SKEW_SECONDS <= NOW


def extends_only_its_own(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    before, now = item.holder("me").numbers, after.named["me"].numbers
    return And(now["until"] > before["until"], before["code"] == now["code"], before["code"] == text_number("own"))


def ends_only_its_own(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    return item.holder("me").numbers["code"] == text_number("own")


INTERVAL, LEAD = Int("interval read"), Int("lead read")


def starts_when_due(item: AnyItem, after: Effect, request: dict[str, Any]) -> BoolRef:
    """A start at NOW comes not before it is due, and moves the next one by an interval, and to one after itself.

    A grant has several starts, of which each moves the next.
    """
    starts = sum(bool(re.fullmatch(r":h\d+", name)) for name in request["ExpressionAttributeValues"]) or 1
    next_start, due = item.next_start, []
    for _ in range(starts):
        due.append(next_start <= NOW * 1000 + LEAD)
        next_start = If(next_start > NOW * 1000, next_start, NOW * 1000) + INTERVAL
    return Implies(item.has_rate, And(item.is_as_read, *due, after.next_start >= next_start))


def is_no_start(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    return And(after.next_start == item.next_start, after.keeps_rate)


CLAIMS: dict[str, tuple[Claim, dict[str, Step]]] = {
    "kept": (keeps_the_drift, GRANTS | OTHERS | ADOPT | SET_RATE),
    "repaired": (corrects_the_counter, REPAIRS),
    "fits": (admits_what_fits, GRANTS),
    "most": (adds_no_holder_above_the_most, GRANTS),
    "adds nothing": (adds_no_weight, OTHERS | REPAIRS | SET_RATE),
    "due": (starts_when_due, GRANTS),
    "no start": (is_no_start, OTHERS | REPAIRS | ADOPT),
    "extension": (extends_only_its_own, {"extend a lease": OTHERS["extend a lease"]}),
    "expired": (removes_an_expired_lease, {"expire": OTHERS["expire"]}),
    "end": (ends_only_its_own, {"release a lease": OTHERS["release a lease"]}),
}


@pytest.mark.parametrize(("claim", "step"), [(claim, step) for claim, (_, steps) in CLAIMS.items() for step in steps])
def test_s1_s1c_s2_and_s11_hold_for_any_number_of_holders(claim: str, step: str) -> None:
    holds, steps = CLAIMS[claim]
    assert counterexamples(steps[step], holds) == []


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


def test_every_function_that_writes_an_item_is_a_step() -> None:
    recorder, search = Recorder(), Search(*PREMISES)
    for step in ALL.values():
        list(search.paths(lambda step=step: step(recorder, search)))  # type: ignore[misc]
    assert writing_functions() <= recorder.callers


ANY, IS_THERE = "attribute_exists(process_name)", "attribute_exists(holders.#me)"
# An expression, a term of it, what replaces that, and the claim and the step that then fail.
WEAKENED = [
    (lease_protocol, "UNREAD_CONDITION", "slots_in_use < slot_limit AND ", "", "fits", "lease, weight 1"),
    (lease_protocol, "UNREAD_CONDITION", "slots_in_use < ", "slots_in_use <= ", "fits", "lease, weight 1"),
    (lease_protocol, "UNREAD_CONDITION", "size(holders) < slot_limit AND ", "", "fits", "lease, weight 1"),
    (lease_protocol, "UNREAD_CONDITION", "holders) < slot", "holders) <= slot", "fits", "lease, weight None"),
    (lease_protocol, "UNREAD_CONDITION", "attribute_not_exists(rate)", ANY, "due", "lease, weight 1"),
    (lease_protocol, "UNREAD_CONDITION", "attribute_not_exists(holders.#me) AND ", "", "kept", "lease, weight 1"),
    (lease_protocol, "TAKE_CONDITION", "slots_in_use <= :counted AND ", "", "fits", "lease, weight any"),
    (lease_protocol, "TAKE_CONDITION", "size(holders) <= :room ", f"{ANY} ", "fits", "lease, weight 1, reads first"),
    (lease_protocol, "TAKE_CONDITION", " AND slot_limit = :limit", "", "fits", "lease behind requests, weight any"),
    (lease_protocol, "TAKE_CONDITION", "attribute_not_exists(holders.#me) AND ", "", "kept", "lease, weight any"),
    (lease_protocol, "TAKE_UPDATE", "slots_in_use + :weight", "slots_in_use", "kept", "lease, weight any"),
    (lease_protocol, "RELEASE_UPDATE", "if_not_exists(holders.#me.weight, :one)", ":one", "kept", "release a lease"),
    (lease_protocol, "OWN_LEASE", "holders.#me.code = :code", IS_THERE, "end", "release a lease"),
    (lease_protocol, "OWN_LEASE", "holders.#me.code = :code", IS_THERE, "extension", "extend a lease"),
    (lease_protocol, "ONLY_LATER", " < ", " <= ", "extension", "extend a lease"),
    (protocol, "FREE_UPDATE", "if_not_exists(holders.#me.weight, :one)", ":one", "kept", "free"),
    (protocol, "FREE_UPDATE", " REMOVE holders.#me", "", "kept", "free"),
    (protocol, "UNCHANGED_CONDITION", "holders.#me = :seen", ANY, "kept", "free"),
    (protocol, "ADOPT_CONDITION", "attribute_not_exists(holders.#me)", ANY, "kept", "adopt"),
    (rate, "NO_RATE", "attribute_not_exists(rate)", ANY, "due", "lease, weight any"),
    (rate, "SAME_START", "rate = :rate AND ", "", "due", "lease, weight 1, with a rate"),
    (rate, "SAME_START", " AND next_start = :seen_start", "", "due", "lease behind requests, with a rate"),
    (grants, "GRANT_CONDITION", "slots_in_use <= :counted AND ", "", "fits", "grant, 2 starts"),
    (grants, "GRANT_CONDITION", "slot_limit = :limit AND ", "", "fits", "grant, 2 starts"),
    (grants, "GRANT_CONDITION", "size(holders) <= :room ", f"{ANY} ", "fits", "grant, 2 starts of weight 1"),
    (grants, "GRANT_CONDITION", "size(holders) <= :room ", f"{ANY} ", "most", "grant, 2 starts"),
    (grants, "GRANT_ABSENT", "attribute_not_exists(holders.#n{0})", ANY, "kept", "grant, 2 starts"),
    (grants, "GRANT_UPDATE", "slots_in_use + :weight", "slots_in_use", "kept", "grant, 3 starts"),
    (grants, "PUT_BACK_UPDATE", "slots_in_use - :weight", "slots_in_use", "kept", "put_back, weight any"),
    (grants, "OF_WEIGHT", "holders.#n{0}.weight = :w{0}", ANY, "kept", "put_back, weight any"),
    (grants, "OF_WEIGHT_ONE", "(attribute_not_exists(holders.#n{0}.weight) OR", f"({ANY} OR", "kept", "drop, weight 1"),
    (grants, "DROP_UPDATE", "slots_in_use - :weight", "slots_in_use", "kept", "drop, weight any"),
    (grants, "EXPIRE_UPDATE", "if_not_exists(holders.#n.weight, :one)", ":one", "kept", "expire"),
    (grants, "EXPIRE_CONDITION", "holders.#n.#until = :until", "attribute_exists(holders.#n)", "expired", "expire"),
    (grants, "NO_RATE", "attribute_not_exists(rate)", ANY, "due", "grant, 2 starts"),
    (grants, "SAME_START", " AND next_start = :seen_start", "", "due", "grant, 3 starts, with a rate"),
    (request_table, "REFUSE_PROCESS_CONDITION", "holders.#me.#state = :reserved", ANY, "kept", "refuse"),
    (request_table, "REFUSE_PROCESS_UPDATE", "if_not_exists(holders.#me.weight, :one)", ":one", "kept", "refuse"),
    (rate, "START_UPDATE", ":next_start", ":seen_start", "due", "lease, weight any, with a rate"),
]


@pytest.mark.parametrize(("module", "name", "old", "new", "claim", "step"), WEAKENED)
def test_without_its_term_a_claim_has_a_counterexample(
    module: Any, name: str, old: str, new: str, claim: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expression = getattr(module, name)
    assert old in expression
    monkeypatch.setattr(module, name, expression.replace(old, new))
    holds, steps = CLAIMS[claim]
    (found, *_) = counterexamples(steps[step], holds)
    assert {"slot_limit", "slots_in_use", "holders", "their weights"} & found.keys()


@pytest.mark.parametrize("step", ["grant, 2 starts", "lease, weight any"])
def test_a_counter_below_its_holders_is_corrected_by_the_read(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Process, "missing", 0)
    assert counterexamples(GRANTS[step], admits_what_fits)


def test_a_plan_that_starts_more_than_the_rate_permits_has_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Free, "take", lambda *_: None)
    assert counterexamples(GRANTS["grant, 3 starts, with a rate"], starts_when_due)
