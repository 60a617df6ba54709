"""Fixtures of the scenarios' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Clients of moto by service, with an empty ledger."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        boto3.client("dynamodb", region_name="us-east-1").create_table(
            TableName="ledger",
            KeySchema=[{"AttributeName": "request_id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "request_id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield lambda service: boto3.client(service, region_name="us-east-1")
