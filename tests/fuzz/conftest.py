"""The functions' own handlers over an account in the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.fuzz.functions import Functions
from tests.support.profiles import profile


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For the tests of this folder only: the others keep Hypothesis's own settings."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            profile(config)(item.obj)


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """Shared, because it reads the services' descriptions only once."""
    return boto3.Session("local", "local", region_name="us-east-1")


@pytest.fixture
def functions(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    with Functions(session, monkeypatch) as made:
        yield made
