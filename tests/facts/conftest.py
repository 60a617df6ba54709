"""One engine for all rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.facts.account import Account

SETTINGS = {
    "SLOTKEEPER_GLUE_MINUTE_SECONDS": "1",
    # The engine's threads take turns more often than Python's, so that a row finds a write that is not atomic.
    "SLOTKEEPER_ENGINE_SWITCH_SECONDS": "0.00005",
}


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The engine, without the patches that SLOTKEEPER_ENGINE_WITHOUT names."""
    with EmbeddedAws.start(tmp_path_factory.mktemp("facts"), environment=SETTINGS, faults=True) as engine:
        yield engine


@pytest.fixture
def embedded(engine: EmbeddedAws) -> Iterator[Account]:
    """The embedded AWS. All that a row has created must be removed."""
    account = Account(engine.client, conflict=lambda operation: Faults(engine.state_dir).add(operation, "conflict"))
    yield account
    assert account.clean_up() == []
