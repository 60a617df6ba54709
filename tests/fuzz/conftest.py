"""The functions' own handlers over an account in the process, and how hard they are tried.

`make test` tries each property with the same examples every time, so that it is never red by chance. More, by chance:

    python -m pytest tests/fuzz --hypothesis-profile=long
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.functions import Functions

SHORT, LONG = "short", "long"
_ALL_CHECKS_BUT_TIME = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    SHORT,
    max_examples=40,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=_ALL_CHECKS_BUT_TIME,
)
settings.register_profile(
    LONG, max_examples=3000, deadline=None, print_blob=True, suppress_health_check=_ALL_CHECKS_BUT_TIME
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For the tests of this folder only: the others keep Hypothesis's own settings."""
    profile = settings.get_profile(config.getoption("--hypothesis-profile") or SHORT)
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            profile(item.obj)


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """Shared, because it reads the services' descriptions only once."""
    return boto3.Session("local", "local", region_name="us-east-1")


@pytest.fixture
def functions(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    with Functions(session, monkeypatch) as made:
        yield made
