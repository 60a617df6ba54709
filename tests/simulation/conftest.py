"""Every test begins with empty caches, since a control changes the code.

Garbage collection is disabled: there is hardly any garbage, and collections take longer the larger the caches are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation import small_worlds


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    small_worlds.forget()
    gc.disable()
    yield
    gc.enable()
    small_worlds.forget()
