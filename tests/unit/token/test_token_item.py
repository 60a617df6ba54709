"""The conditional writes of the token item, and the reasons for their refusal."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.token import MalformedToken, TokenTable
from slotkeeper.token.item import RefreshLock, TokenItem
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.quick_clients import shared_client

NOW = 1_800_000_000.0


@pytest.fixture
def dynamodb(aws: AwsAccount) -> Any:
    return shared_client("dynamodb")


@pytest.fixture
def table(dynamodb: Any) -> TokenTable:
    return TokenTable(dynamodb, "tokens")


def store(table: TokenTable, code: str) -> TokenItem:
    """Make a whole refresh. Returns the item after it."""
    table.acquire("bot", table.read("bot"), code, NOW + 10)
    return table.store("bot", code, f"token of {code}", NOW)[1]


def test_a_lock_is_refused_if_another_instance_took_it_since_the_read(table: TokenTable) -> None:
    seen = table.read("bot")
    assert [table.acquire("bot", seen, code, NOW + 10) for code in ("first", "second")] == [True, False]


def test_a_lock_is_refused_if_another_instance_stored_a_token_since_the_read(table: TokenTable) -> None:
    seen = store(table, "first")
    store(table, "second")
    assert not table.acquire("bot", seen, "third", NOW + 10)


def test_the_first_lock_is_refused_if_the_first_token_was_stored_since_the_read(table: TokenTable) -> None:
    seen = table.read("bot")
    store(table, "first")
    assert not table.acquire("bot", seen, "second", NOW + 10)


def test_an_item_whose_generation_was_set_to_0_can_be_locked(table: TokenTable, dynamodb: Any) -> None:
    dynamodb.put_item(TableName="tokens", Item={"token_name": {"S": "bot"}, "generation": {"N": "0"}})
    assert table.acquire("bot", table.read("bot"), "first", NOW + 10)


def test_a_lock_ends_the_refusal_before_it(table: TokenTable) -> None:
    table.acquire("bot", table.read("bot"), "refused", NOW)
    table.refuse("bot", "refused", NOW + 30, "out of order")
    table.acquire("bot", table.read("bot"), "next", NOW + 60)
    now = table.read("bot")
    assert (now.refused_until, now.refused_reason) == (None, "")


def test_an_expired_lock_is_taken_over_once(table: TokenTable) -> None:
    table.acquire("bot", table.read("bot"), "dead", NOW)
    seen = table.read("bot")
    assert [table.acquire("bot", seen, code, NOW + 10) for code in ("first", "second")] == [True, False]


@pytest.mark.parametrize("until", [NOW + 30, NOW + 30.0004, NOW + 30.9996])
def test_a_refusal_that_was_read_does_not_block_the_lock_after_its_end(table: TokenTable, until: float) -> None:
    table.acquire("bot", table.read("bot"), "refused", NOW)
    table.refuse("bot", "refused", until, "out of order")
    assert table.acquire("bot", table.read("bot"), "next", NOW + 60)


@pytest.mark.parametrize("until", [NOW + 30.01, NOW + 70])
def test_a_refusal_written_since_the_read_blocks_the_lock(table: TokenTable, until: float) -> None:
    table.acquire("bot", table.read("bot"), "first", NOW)
    table.refuse("bot", "first", NOW + 30, "out of order")
    seen = table.read("bot")
    table.acquire("bot", seen, "second", NOW + 40)
    table.refuse("bot", "second", until, "out of order")
    assert not table.acquire("bot", seen, "third", NOW + 41)


def test_t3_only_the_holder_of_the_lock_stores_refuses_and_unlocks(table: TokenTable) -> None:
    table.acquire("bot", table.read("bot"), "mine", NOW + 10)
    table.store("bot", "another", "stale", NOW)
    table.refuse("bot", "another", NOW + 30, "stale")
    table.release("bot", "another")
    assert table.read("bot") == TokenItem(lock=RefreshLock("mine", NOW + 10))


def test_a_step_on_a_malformed_item_names_it(table: TokenTable, dynamodb: Any) -> None:
    seen = table.read("bot")
    dynamodb.put_item(TableName="tokens", Item={"token_name": {"S": "bot"}, "generation": {"S": "7"}})
    with pytest.raises(MalformedToken, match="item 'bot' of the token table: generation is not of its documented type"):
        table.acquire("bot", seen, "mine", NOW + 10)


def test_f33_a_store_whose_answer_was_lost_succeeds_when_it_is_repeated(table: TokenTable) -> None:
    store(table, "first")
    assert table.store("bot", "first", "token of first", NOW) == (True, TokenItem("token of first", 1, NOW))
