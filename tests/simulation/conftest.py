"""Every test begins with empty caches, since a control changes the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation import small_worlds
from tests.simulation.transcript import Program


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    small_worlds.forget()
    Program.merges = True
    yield
    small_worlds.forget()
    Program.merges = True
