"""The request ledger: simultaneous deliveries on DynamoDB Local, and a negative control.

Each delivery has its own client, and all act at the same instant. The small worlds of tests/simulation try every order
of claims, take-overs and cancels, with a control for each condition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.retry import ledger as protocol
from slotkeeper.retry.ledger import AlreadySettled, Claim, Claimed, InProgress, Ledger
from slotkeeper.retry.message import Message
from tests.deployed.races.shared_token import simultaneously
from tests.simulation.account.tables import create_table

TABLE = "ledger"
CROWD = 12
ROUNDS = 5
NOW, LEASE = 1_800_000_000.0, 125.0

_names = itertools.count(1)


@pytest.fixture(scope="module")
def ledgers(dynamodb_local: DynamoDbLocal) -> list[Ledger]:
    """One for each delivery."""
    create_table(dynamodb_local.client(), TABLE, "request_id")
    return [Ledger(dynamodb_local.client(), TABLE) for _ in range(CROWD)]


def new_message() -> Message:
    return Message(f"request-{next(_names)}", {"a": 1})


def claim_simultaneously(ledgers: list[Ledger], messages: list[Message], now: float = NOW) -> list[Claim]:
    """Each ledger claims one of the messages, in turn."""
    dealt = zip(ledgers, itertools.cycle(messages), strict=False)
    works = [_claim(ledger, message, f"token-{n}", now) for n, (ledger, message) in enumerate(dealt)]
    return simultaneously(works)


def _claim(ledger: Ledger, message: Message, token: str, now: float) -> Callable[[], Claim]:
    return lambda: ledger.claim(message, token, now, LEASE)


def mine(claims: list[Claim]) -> list[Claimed]:
    return [claim for claim in claims if isinstance(claim, Claimed)]


def test_f24_of_many_deliveries_of_one_attempt_exactly_one_has_it(ledgers: list[Ledger]) -> None:
    for _ in range(ROUNDS):
        claims = claim_simultaneously(ledgers, [new_message()])
        assert len(mine(claims)) == 1
        assert sum(isinstance(claim, InProgress) for claim in claims) == CROWD - 1


def test_f25_of_many_deliveries_of_an_attempt_and_of_the_next_one_exactly_one_has_it(ledgers: list[Ledger]) -> None:
    """The next attempt does not begin while the first one runs, nor the first one after it."""
    for _ in range(ROUNDS):
        first = new_message()
        claims = claim_simultaneously(ledgers, [first, first.after(NOW)])
        assert len(mine(claims)) == 1
        assert all(isinstance(claim, Claimed | InProgress | AlreadySettled) for claim in claims)


def test_control_with_a_claim_of_the_same_attempt_many_have_it(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = protocol.CLAIM_CONDITION.replace("attempts <", "attempts <=").replace(" < :clock", " <> :clock")
    monkeypatch.setattr(protocol, "CLAIM_CONDITION", weakened)
    rounds = (claim_simultaneously(ledgers, [new_message()]) for _ in range(ROUNDS))
    assert max(len(mine(claims)) for claims in rounds) > 1
