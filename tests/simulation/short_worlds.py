"""The small worlds of some seconds, searched as those of test_small_worlds.py."""

from __future__ import annotations

import pytest

from tests.simulation.small_worlds import Effort
from tests.simulation.test_small_worlds import of_effort, search


@pytest.mark.parametrize("name", of_effort(Effort.SHORT))
def test_every_guarantee_holds_in_every_state(name: str) -> None:
    search(name)
