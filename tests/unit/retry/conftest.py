from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from tests.support.prepared_account import prepared_account
from tests.support.quick_clients import shared_client
from tests.support.tables import create_table
from tests.unit.worker_harness import WorkerHarness


@pytest.fixture
def ledger(workplace: WorkerHarness) -> Ledger:
    return workplace.ledger


@pytest.fixture
def operator(workplace: WorkerHarness) -> RetryOperations:
    return RetryOperations(workplace.ledger, workplace.retries, lambda: workplace.now)


def _downstream_table() -> None:
    create_table(shared_client("dynamodb"), "downstreams", "downstream")


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    """A client of DynamoDB, which has a table of downstreams."""
    with prepared_account(_downstream_table):
        yield shared_client("dynamodb")
