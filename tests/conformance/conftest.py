"""One engine for all rows of the conformance table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.aws import EmbeddedAws


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The engine, without the patches that SLOTKEEPER_ENGINE_WITHOUT names."""
    with EmbeddedAws.start(tmp_path_factory.mktemp("conformance"), faults=True) as engine:
        yield engine
