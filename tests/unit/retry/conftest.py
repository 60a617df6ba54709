from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.account.prepared_account import prepared_account
from tests.simulation.account.quick_clients import shared_client
from tests.simulation.account.tables import create_table


def _downstream_table() -> None:
    create_table(shared_client("dynamodb"), "downstreams", "downstream")


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    """A client of DynamoDB, which has a table of downstreams."""
    with prepared_account(_downstream_table):
        yield shared_client("dynamodb")
