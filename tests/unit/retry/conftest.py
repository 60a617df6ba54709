from __future__ import annotations

import pytest

from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from tests.unit.worker_harness import WorkerHarness


@pytest.fixture
def ledger(workplace: WorkerHarness) -> Ledger:
    return workplace.ledger


@pytest.fixture
def operator(workplace: WorkerHarness) -> RetryOperations:
    return RetryOperations(workplace.ledger, workplace.retries, lambda: workplace.now)
