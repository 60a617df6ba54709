"""The functions' handlers with an AWS account in the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.account.cold_functions import Functions


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    with Functions(monkeypatch) as made:
        yield made
