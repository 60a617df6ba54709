"""One engine for all rows of the conformance table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.aws import EmbeddedAws

SETTINGS = {
    "SLOTKEEPER_GLUE_MINUTE_SECONDS": "1",
    # The engine's threads take turns more often than Python's, so that a row finds a write that is not atomic.
    "SLOTKEEPER_ENGINE_SWITCH_SECONDS": "0.00005",
}


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The engine, without the patches that SLOTKEEPER_ENGINE_WITHOUT names."""
    with EmbeddedAws.start(tmp_path_factory.mktemp("conformance"), environment=SETTINGS, faults=True) as engine:
        yield engine
