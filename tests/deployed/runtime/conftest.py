"""One embedded AWS for the folder; each function has its own stack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.emulator.aws import EmbeddedAws


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    state_dir: Path = tmp_path_factory.mktemp("embedded-aws")
    with EmbeddedAws.start(state_dir) as started:
        yield started
