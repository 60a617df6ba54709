"""The small worlds of some seconds, searched as those of test_small_worlds.py."""

from __future__ import annotations

import pytest

from tests.simulation.small_worlds import Effort
from tests.simulation.test_queue_worlds import LONGER
from tests.simulation.test_small_worlds import of_slots, others, search, search_and_explain


@pytest.mark.parametrize("name", others(Effort.SHORT))
def test_every_guarantee_holds_in_every_state(name: str) -> None:
    search(name)


@pytest.mark.parametrize("name", of_slots(Effort.SHORT))
def test_s1_to_s8_hold_and_the_explanation_is_right_in_every_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search_and_explain(name, monkeypatch)


@pytest.mark.parametrize("name", LONGER)
def test_without_its_guard_a_queue_breaks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LONGER[name].check(monkeypatch)
