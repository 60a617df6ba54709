"""The claims about each step, and the search for an item for which one is false."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, NamedTuple

from z3 import And, BoolRef, BoolVal, If, Implies, Int, Or

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.process import MAX_HOLDERS
from tests.guards.mutations import mutated
from tests.guards.sent import Write, write_of
from tests.proof.slots.any_item import AnyItem, Effect, Unknown, effect, text_number
from tests.proof.slots.steps import (
    ADOPT,
    GRANTS,
    KEYED,
    NOW,
    OTHERS,
    PREMISES,
    REPAIRS,
    SET_RATE,
    Recorder,
    Step,
)
from tests.proof.slots.symbols import Search, counterexample
from tests.simulation.frozen import freeze, thaw

ALL = GRANTS | OTHERS | REPAIRS | ADOPT | SET_RATE

# A claim about a write: the item before it, its effect, and the request.
Claim = Callable[[AnyItem, Effect, dict[str, Any]], BoolRef]
Change = Callable[[dict[str, Any]], dict[str, Any]]


class NothingIsPermitted(AssertionError):
    """The condition of a write never holds."""


class Performed(NamedTuple):
    """The writes of a step on each path that it can take, with what the path assumes."""

    search: Search
    paths: list[tuple[list[dict[str, Any]], list[BoolRef]]]


def perform(step: Step) -> Performed:
    """Perform a step, by the product's own code."""
    search = Search(*PREMISES)

    def writes_of_a_path() -> list[dict[str, Any]]:
        recorder = Recorder()
        step(recorder, search)
        return recorder.writes

    return Performed(search, list(search.paths(writes_of_a_path)))


performed = cache(perform)


def counterexamples(step: Performed, claim: Claim, change: Change = lambda request: request) -> list[dict[str, str]]:
    """For each write on each path of a step for which the claim can be false, the values that show it.

    Args:
        change: another form of each write.
    """
    found, writes = [], 0
    for requests, assumed in step.paths:
        writes += len(requests)  # none on a path on which no start is due
        for request in map(change, requests):
            item = AnyItem()
            after = effect(item, request, step.search)
            happens = (*PREMISES, *assumed, item.is_possible, after.happens)
            if not counterexample(BoolVal(False), *happens):
                raise NothingIsPermitted("no item permits the write, so any claim would hold")
            found.append(counterexample(claim(item, after, request), *happens))
    assert writes, "the step writes nothing"
    return [each for each in found if each]


def admits_what_fits(item: AnyItem, after: Effect, request: dict[str, Any]) -> BoolRef:
    as_at_the_read = Int("held read") - Int("in use read") == item.drift
    premises = [And(item.drift == 0, as_at_the_read), item.held == item.count]
    if ":counted" in request["ExpressionAttributeValues"]:
        premises.append(as_at_the_read)
    fits = Or(after.held <= item.limit, after.held <= item.held)
    return And(after.limit == item.limit, Implies(Or(*premises), fits))


def extends_only_its_own(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    before, now = item.holder("me").numbers, after.named["me"].numbers
    return And(now["until"] > before["until"], before["code"] == now["code"], before["code"] == text_number("own"))


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


def is_noted_in_grants(item: AnyItem, after: Effect, _: Any) -> BoolRef:
    """`grants` changes, and to a new value, if a request of any key has come, or a limit of a key may be another."""
    is_same = And(after.grants == item.grants, after.held_of_key <= item.held_of_key, BoolVal(after.keeps_key_limits))
    return Or(after.grants > item.grants, is_same)


def keeps_the_limit_of_its_keys(item: AnyItem, after: Effect, request: dict[str, Any]) -> BoolRef:
    """Of each key that has a start, given what `is_noted_in_grants` proves of the writes since the read."""
    given = request["ExpressionAttributeValues"]
    entries = [value["M"] for name, value in given.items() if re.fullmatch(r":h\d+", name)]
    claims = []
    for key in {entry.get("key", {"S": ""})["S"] for entry in entries}:
        held, limit = Int(f"held of {key!r} read"), Int(f"limit of {key!r} read")
        is_known = Implies(item.grants == Int("grants read"), And(item.held_of_key <= held, item.limit_of_key == limit))
        fits = after.held_of_key <= item.limit_of_key
        claims.append(Implies(And(item.key == text_number(key), is_known), fits))
    return And(*claims)


CLAIMS: dict[str, tuple[Claim, dict[str, Step]]] = {
    "kept": (lambda item, after, _: after.drift == item.drift, GRANTS | OTHERS | ADOPT | SET_RATE),
    "repaired": (lambda _, after, __: after.drift == 0, REPAIRS),
    "fits": (admits_what_fits, GRANTS),
    "most": (lambda item, after, _: Implies(after.count > item.count, after.count <= MAX_HOLDERS), GRANTS),
    "adds nothing": (
        lambda item, after, _: And(after.held <= item.held, after.count <= item.count),
        OTHERS | REPAIRS | SET_RATE,
    ),
    "due": (starts_when_due, GRANTS),
    "no start": (
        lambda item, after, _: And(after.next_start == item.next_start, after.keeps_rate),
        OTHERS | REPAIRS | ADOPT,
    ),
    "noted": (is_noted_in_grants, ALL),
    "key fits": (keeps_the_limit_of_its_keys, KEYED),
    "extension": (extends_only_its_own, {"extend a lease": OTHERS["extend a lease"]}),
    "expired": (
        lambda item, *_: item.holder("x").numbers["until"] + CLOCK_SKEW_SECONDS <= NOW,
        {"expire": OTHERS["expire"]},
    ),
    "end": (
        lambda item, *_: item.holder("me").numbers["code"] == text_number("own"),
        {"release a lease": OTHERS["release a lease"]},
    ),
}


def writes(step: str) -> set[Write]:
    """The writes of a step, on all of its paths."""
    return {write_of(request) for requests, _ in performed(ALL[step]).paths for request in requests}


def broken_claim(is_weaker: Callable[[Write], bool], names: frozenset[str], steps: Collection[str] = ALL) -> str:
    """A claim that is false of a step if some writes have these mutations (tests/guards); empty if there is none."""

    def change(request: dict[str, Any]) -> dict[str, Any]:
        if not is_weaker(write_of(request)):
            return request
        changed: dict[str, Any] = thaw(mutated("update_item", freeze(request), names))
        return changed

    for step in steps:
        if not any(map(is_weaker, writes(step))):
            continue
        for claim, (holds, of) in CLAIMS.items():
            if step in of and _is_broken(performed(ALL[step]), holds, change):
                return f"{claim} of {step}"
    return ""


def _is_broken(step: Performed, holds: Claim, change: Change) -> bool:
    try:
        return bool(counterexamples(step, holds, change))
    except (Unknown, NothingIsPermitted):
        return False
