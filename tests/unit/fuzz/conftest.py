"""The functions' handlers with an AWS account in the process."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from tests.simulation.account.cold_functions import Functions


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """Shared, so that it loads the services' descriptions only once."""
    return boto3.Session("local", "local", region_name="us-east-1")


@pytest.fixture
def functions(session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    with Functions(session, monkeypatch) as made:
        yield made
