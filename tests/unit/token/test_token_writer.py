"""The refresher, which refreshes on a schedule or by delegation, and the instances that delegate to it."""

from __future__ import annotations

import pytest

from slotkeeper.token import (
    DelegateRefresh,
    Timing,
    TokenTimeout,
    TookOver,
)
from tests.simulation.account.boundary import lose_answer
from tests.unit.token_instances import NOW, Instances, lock_of_another


def test_the_scheduled_writer_replaces_a_valid_token(instances: Instances) -> None:
    instances.new().get()
    writer = instances.new(timing=Timing(min_interval=0), still_valid=instances.api.accepts)
    assert [writer.refresh(), writer.refresh()] == [2, 3]


def test_f33_the_scheduled_writer_retries_an_unanswered_read(instances: Instances) -> None:
    lose_answer(instances.dynamodb, "GetItem")
    assert instances.new().refresh() == 1


def test_t4_the_scheduled_writer_waits_at_most_its_limit(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10)
    with pytest.raises(TokenTimeout, match=r"within 0\.0 s"):
        instances.new().refresh(within=0)


def test_readers_delegate_once_and_use_the_writers_token(instances: Instances) -> None:
    timing = Timing()
    writer = instances.new(timing=timing)
    asked: list[str] = []

    def ask(code: str) -> None:
        asked.append(code)
        writer.refresh(delegated_code=code)

    readers = [instances.new(authenticate=DelegateRefresh(ask), timing=timing) for _ in range(3)]
    assert [reader.get() for reader in readers] == ["token-1"] * 3
    assert (len(asked), instances.api.posts, TookOver() in instances.events) == (1, 1, False)


def test_a_delegation_for_a_lost_lock_does_nothing(instances: Instances) -> None:
    lock_of_another(instances, NOW + 10, generation={"N": "4"})
    assert (instances.new().refresh(delegated_code="asker", within=0), instances.api.posts) == (4, 0)
