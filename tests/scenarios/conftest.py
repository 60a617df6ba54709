"""Fixtures of the scenarios' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.support.tables import create_table


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Clients of moto by service, with an empty ledger."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        create_table(boto3.client("dynamodb", region_name="us-east-1"), "ledger", "request_id")
        yield lambda service: boto3.client(service, region_name="us-east-1")
