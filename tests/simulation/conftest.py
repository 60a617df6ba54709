"""Every test begins with empty caches, since a control changes the code.

Garbage collection is disabled: there is hardly any garbage, and collections take longer the larger the caches are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation.frozen import forget


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    forget()
    gc.disable()
    yield
    gc.enable()
    forget()
