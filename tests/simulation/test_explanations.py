"""An explanation of the operator command that is wrong in a state of a small world is found. See explained.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.process import Process
from slotkeeper_cli import conditions
from slotkeeper_cli.conditions import Condition
from tests.simulation import small_worlds
from tests.simulation.explained import note_items, wrong_explanations
from tests.simulation.frozen import Record
from tests.simulation.world_runs import first_violation

QUICK = (
    "2 requests, 1 slot, the process removed and added again",
    "leases, 1 caller and 1 request, no fault",
    "process for leases, a request",
    "weight 3, 2 slots, then 3",
    "1 request, 1 slot, cancelled",
)


@pytest.fixture(scope="module")
def items() -> list[Record]:
    """The items of processes with pauses, leases, weights, priorities, limits and cancellations."""
    with pytest.MonkeyPatch.context() as patch:
        reached = note_items(patch)
        for name in QUICK:
            small = small_worlds.SMALL[name]
            assert first_violation(small.make, small.faults) == ("", "")
    return list(reached)


def test_the_explanation_is_right_in_every_state(items: list[Record]) -> None:
    assert wrong_explanations(items) == []


@pytest.mark.parametrize("part", ["_never", "_by_operator", "_occupied", "counting"])
def test_an_explanation_without_a_condition_is_wrong_in_a_state(
    part: str, items: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, part, lambda *_: iter(()))
    assert wrong_explanations(items)


def test_a_condition_that_does_not_fail_is_wrong_in_a_state(
    items: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied: Any = conditions._occupied

    def too_many(process: Process, weight: int) -> Iterator[Condition]:
        return iter(occupied(replace(process, slots_in_use=process.slots_in_use + 1), weight))

    monkeypatch.setattr(conditions, "_occupied", too_many)
    assert wrong_explanations(items)
