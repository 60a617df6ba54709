"""Requests whose task tokens do not fit into the item wait, in every order of events, and are woken in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotkeeper.slots import process, protocol
from slotkeeper.slots.protocol import Slots
from tests.simulation.slots_state import Plan, token_of
from tests.simulation.targets_world import TargetsWorld
from tests.simulation.world_runs import first_violation

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def one_token_fits(monkeypatch: Patch) -> None:
    monkeypatch.setattr(process, "MAX_TOKEN_BYTES", len(token_of("a", "a")))
    monkeypatch.setattr(protocol, "ALWAYS_FIT", 1)


def _world(requests: tuple[str, ...], callers: str, starters: int = 1) -> TargetsWorld:
    return TargetsWorld(Plan(requests, 2, callers=callers, starters=starters, event_steps=False, janitor_runs=0))


@pytest.mark.parametrize(
    ("requests", "callers", "starters"),
    [
        pytest.param(("a", "b"), "ab", 1, id="two callers"),
        pytest.param(("a", "-b"), "ab", 2, id="two callers of two priorities"),
        pytest.param(("a", "b", "-c"), "ab", 1, id="a request without a caller behind them"),
    ],
)
def test_a_token_that_does_not_fit_waits_and_is_woken(requests: tuple[str, ...], callers: str, starters: int) -> None:
    assert first_violation(lambda: _world(requests, callers, starters), 0) == ("", "")


def a_token_is_not_measured(patch: Patch) -> None:
    patch.setattr(protocol, "ALWAYS_FIT", 500)


def a_refused_token_registers_although_a_holder_has_left(patch: Patch) -> None:
    patch.setattr(Slots, "can_proceed", lambda *_: False)
    patch.setattr(protocol, "WAIT_CONDITION", "({refused} OR attribute_exists(slot_limit)) AND {newer}")


@pytest.mark.parametrize(
    ("change", "broken"),
    [(a_token_is_not_measured, "S2b"), (a_refused_token_registers_although_a_holder_has_left, "S6")],
)
def test_the_worlds_find_a_bug(change: Callable[[Patch], None], broken: str, monkeypatch: Patch) -> None:
    change(monkeypatch)
    assert first_violation(lambda: _world(("a", "b"), "ab"), 0)[0] == broken
