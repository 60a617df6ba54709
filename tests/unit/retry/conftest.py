from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.account.account import AwsAccount
from tests.simulation.account.quick_clients import shared_client


@pytest.fixture
def dynamodb(aws: AwsAccount) -> Any:
    """A client of DynamoDB."""
    return shared_client("dynamodb")
