"""A downstream's item on DynamoDB Local: containers that ask and report at the same instant, and a negative control.

Each container has its own client.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.aws.dynamodb import Table, Write
from slotkeeper.retry.downstream.downstreams import Admission, Downstreams, DownstreamTable, Rejection
from slotkeeper.retry.downstream.health import Breaker, Concurrency, Health, State
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.policy import BUILT_IN
from tests.deployed.races.shared_token import simultaneously
from tests.simulation.account.tables import create_table

TABLE = "downstreams"
CROWD = 12
ROUNDS = 3
NOW, LEASE = 1_800_000_000.0, 125.0
THROTTLED = Failure(("ThrottlingException", "ClientError"), "slow down")
PROBE_DUE = Health(Breaker(state=State.OPEN, epoch=7, probe_at=NOW - 1))

_names = itertools.count(1)


class Containers:
    """Containers that share one downstream. Reports that could not be made are in `unreported`."""

    def __init__(self, tables: Sequence[DownstreamTable], health: Health) -> None:
        self.name = f"downstream-{next(_names)}"
        self.table = tables[0]
        self.table.change(self.name, lambda _new: (health, None))
        self.unreported: list[str] = []
        self.asks = [self._ask(table) for table in tables]

    def _ask(self, table: DownstreamTable) -> Callable[[], Admission | Rejection]:
        watched = Downstreams(table, most=CROWD, on_unreported=self.unreported.append, clock=lambda: NOW)
        return lambda: watched.ask(self.name, BUILT_IN, is_retry=False, lease=LEASE)

    def ask(self) -> list[Admission]:
        """Ask by all containers at the same instant; returns the permitted attempts."""
        return [answer for answer in simultaneously(self.asks) if isinstance(answer, Admission)]

    @property
    def health(self) -> Health:
        return self.table.read(self.name)


@pytest.fixture(scope="module")
def tables(dynamodb_local: DynamoDbLocal) -> list[DownstreamTable]:
    """One for each container."""
    create_table(dynamodb_local.client(), TABLE, "downstream")
    return [DownstreamTable(dynamodb_local.client(), TABLE) for _ in range(CROWD)]


def test_of_many_containers_that_ask_when_the_probe_is_due_exactly_one_begins_it(
    tables: Sequence[DownstreamTable],
) -> None:
    for _ in range(ROUNDS):
        containers = Containers(tables, PROBE_DUE)
        (probe,) = containers.ask()
        assert (containers.health.breaker.state, containers.health.breaker.epoch) == (State.HALF_OPEN, 8)
        probe.succeeded(1.0)
        assert containers.health.breaker.state == State.CLOSED


def test_many_throttled_answers_of_one_window_halve_the_limit_once(tables: Sequence[DownstreamTable]) -> None:
    containers = Containers(tables, Health(concurrency=Concurrency(window=NOW)))
    permitted = containers.ask()
    assert len(permitted) == CROWD
    simultaneously([partial(admission.failed, THROTTLED, 1.0) for admission in permitted])
    health = containers.health
    limited = health.concurrency
    assert (containers.unreported, limited.limit, limited.cut, health.permits) == (
        [],
        CROWD // 2,
        NOW,
        {},
    )


def test_control_without_the_version_many_probes_begin(
    tables: Sequence[DownstreamTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Table.put

    def unconditional(self: Table, item: Any, condition: str, values: Any = None) -> Write:
        weakened = condition.replace("version = :seen", "version <> :seen OR version = :seen")
        return put(self, item, weakened, values)

    monkeypatch.setattr(Table, "put", unconditional)
    assert max(len(Containers(tables, PROBE_DUE).ask()) for _ in range(ROUNDS)) > 1
