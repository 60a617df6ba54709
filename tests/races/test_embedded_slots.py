"""Slots on the embedded AWS: its conditional writes are atomic too, which `make run` and the end-to-end tests rely on.

DynamoDB Local is the engine that judges (test_slot_races.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from slotkeeper.slots import protocol
from slotkeeper.slots.process import Processes
from slotkeeper.slots.protocol import Granted, Slots

CLIENTS = 8
ROUNDS = 10
LIMIT = 3
TABLE = "slots"


NewClient = Callable[[], Any]


@pytest.fixture(scope="module")
def embedded_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start(tmp_path_factory.mktemp("embedded-aws")) as running:
        yield running


@pytest.fixture(scope="module")
def new_client(embedded_aws: EmbeddedAws) -> NewClient:
    """Makes clients of the engine, which has the table."""
    client = partial(embedded_aws.client, "dynamodb")
    client().create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
    )
    return client


class Contention:
    """Clients that take a slot and give it back, all from the same instant, and what they saw at the worst moment."""

    def __init__(self, new_client: NewClient, process: str) -> None:
        self._new_client = new_client
        self.process = process
        self._together = threading.Barrier(CLIENTS)
        self.seen: list[int] = []  # holders at each grant; appending is one step, adding to a number is not
        Processes(new_client(), TABLE).create(process, LIMIT, "job")

    def run(self) -> Any:
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._client, range(CLIENTS)))
        return Slots(self._new_client(), TABLE).read(self.process)

    def _client(self, number: int) -> None:
        slots = Slots(self._new_client(), TABLE)
        self._together.wait()
        for n in range(ROUNDS):
            name = f"{self.process}-{number}-{n}"
            if isinstance(slots.reserve(self.process, name, 0), Granted):
                item = slots.read(self.process)
                assert item is not None
                self.seen.append(len(item.holders))
                slots.cancel(self.process, name)


def test_s1_s2_clients_at_once_never_hold_more_than_the_limit_and_lose_no_slot(new_client: NewClient) -> None:
    contention = Contention(new_client, "guarded")
    left = contention.run()
    assert 0 < max(contention.seen) <= LIMIT
    assert len(contention.seen) > ROUNDS
    assert (left.slots_in_use, left.holders) == (0, {})


def test_control_without_the_condition_the_same_clients_hold_more(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "RESERVE_CONDITION", "attribute_not_exists(holders.#me) AND NOT paused = :false")
    contention = Contention(new_client, "unguarded")
    contention.run()
    assert max(contention.seen) > LIMIT


def test_s2_two_that_give_the_same_slot_back_give_one_back(new_client: NewClient) -> None:
    Processes(new_client(), TABLE).create("twice", CLIENTS + 1, "job")
    clients = [Slots(new_client(), TABLE) for _ in range(CLIENTS)]
    clients[0].reserve("twice", "twice-other", 0)
    together = threading.Barrier(CLIENTS)

    def give_back(mine: Slots, name: str) -> bool:
        together.wait()
        return mine.cancel("twice", name)

    with ThreadPoolExecutor(CLIENTS) as pool:
        for n in range(ROUNDS):
            clients[0].reserve("twice", f"twice-{n}", 0)
            assert list(pool.map(give_back, clients, [f"twice-{n}"] * CLIENTS)).count(True) == 1
    item = clients[0].read("twice")
    assert item is not None
    assert (item.slots_in_use, set(item.holders)) == (1, {"twice-other"})
