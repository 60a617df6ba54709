"""The request ledger: simultaneous deliveries on DynamoDB Local, and a negative control for each condition.

Each delivery has its own client, and all act at the same instant.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.retry import ledger as protocol
from slotkeeper.retry.ledger import AlreadySettled, Claim, Claimed, ClaimLost, InProgress, Ledger, Row
from slotkeeper.retry.message import Message
from tests.races.shared_token import errors_of, simultaneously
from tests.support.tables import create_table

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


def most_who_claim_a_new_attempt(ledgers: list[Ledger]) -> int:
    return max(len(mine(claim_simultaneously(ledgers, [new_message()]))) for _ in range(ROUNDS))


def most_who_take_over_an_ended_lease(ledgers: list[Ledger]) -> int:
    counts = []
    for _ in range(ROUNDS):
        message = new_message()
        ledgers[0].claim(message, "dead", NOW, LEASE)
        counts.append(len(mine(claim_simultaneously(ledgers, [message], NOW + LEASE))))
    return max(counts)


def test_f24_of_many_deliveries_of_one_attempt_exactly_one_has_it(ledgers: list[Ledger]) -> None:
    for _ in range(ROUNDS):
        claims = claim_simultaneously(ledgers, [new_message()])
        assert len(mine(claims)) == 1
        assert sum(isinstance(claim, InProgress) for claim in claims) == CROWD - 1


def test_of_many_deliveries_that_read_the_same_ended_lease_one_takes_over(ledgers: list[Ledger]) -> None:
    assert most_who_take_over_an_ended_lease(ledgers) == 1


def test_f25_of_many_deliveries_of_an_attempt_and_of_the_next_one_exactly_one_has_it(ledgers: list[Ledger]) -> None:
    """The next attempt does not begin while the first one runs, nor the first one after it."""
    for _ in range(ROUNDS):
        first = new_message()
        claims = claim_simultaneously(ledgers, [first, first.after(NOW)])
        assert len(mine(claims)) == 1
        assert all(isinstance(claim, Claimed | InProgress | AlreadySettled) for claim in claims)


def test_a_worker_that_resumes_and_the_worker_that_takes_over_do_not_both_settle(ledgers: list[Ledger]) -> None:
    for _ in range(ROUNDS):
        message = new_message()
        late = ledgers[0].claim(message, "late", NOW, LEASE)
        assert isinstance(late, Claimed)
        assert both_settle(ledgers, message, late) <= 1


def both_settle(ledgers: list[Ledger], message: Message, late: Claimed) -> int:
    """One worker settles its work while another takes it over and settles it. Returns the number that could."""

    def takes_over() -> None:
        claim = ledgers[1].claim(message, "quick", NOW + LEASE, LEASE)
        if not isinstance(claim, Claimed):
            raise ClaimLost
        ledgers[1].settle_waiting(message, claim, NOW + 60)

    errors = errors_of([lambda: ledgers[0].settle_succeeded(message, late, "{}"), takes_over])
    assert all(error is None or isinstance(error, ClaimLost) for error in errors)
    return errors.count(None)


def test_a_succeeded_request_cannot_be_claimed_again(ledgers: list[Ledger]) -> None:
    message = new_message()
    claim = ledgers[0].claim(message, "first", NOW, LEASE)
    assert isinstance(claim, Claimed)
    ledgers[0].settle_succeeded(message, claim, "{}")
    later = [message, message.after(NOW), message.after(NOW).after(NOW)]
    assert {type(claim) for claim in claim_simultaneously(ledgers, later, NOW + 10**6)} == {AlreadySettled}


CANCELLED = {"code": "Cancelled", "reason": "manually"}


def waiting_attempt(ledger: Ledger) -> tuple[Message, Row]:
    """The message of a waiting attempt, and its row as the operator has read it."""
    first = new_message()
    claim = ledger.claim(first, "first", NOW, LEASE)
    assert isinstance(claim, Claimed)
    ledger.settle_waiting(first, claim, NOW + 60)
    seen = ledger.read(first.request_id)
    assert seen is not None
    return first.after(NOW), seen


def test_r2_of_a_cancel_and_many_deliveries_one_takes_effect(ledgers: list[Ledger]) -> None:
    for _ in range(ROUNDS):
        message, seen = waiting_attempt(ledgers[0])
        cancel = partial(ledgers[0].cancel, message.request_id, seen, "operator", CANCELLED, "Cancelled", NOW)
        claims = [_claim(ledger, message, f"token-{n}", NOW) for n, ledger in enumerate(ledgers[1:])]
        cancelled, *claims_made = simultaneously([cancel, *claims])
        works = [claim for claim in mine(claims_made) if claim.plan != CANCELLED]
        assert (cancelled is not None, len(works)) in ((True, 0), (False, 1))


def test_control_a_cancel_without_the_waiting_condition_takes_effect_during_the_work(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = "attempts >= :before AND (#status = :waiting OR #status <> :waiting)"
    monkeypatch.setattr(protocol, "WAITING_CONDITION", weakened)
    message, seen = waiting_attempt(ledgers[0])
    assert isinstance(ledgers[1].claim(message, "at work", NOW, LEASE), Claimed)
    assert ledgers[0].cancel(message.request_id, seen, "operator", CANCELLED, "Cancelled", NOW) is not None


def test_control_without_the_claims_condition_many_have_one_attempt(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = protocol.CLAIM_CONDITION.replace("not_exists(request_id)", "not_exists(no_such_attribute)")
    monkeypatch.setattr(protocol, "CLAIM_CONDITION", weakened)
    assert most_who_claim_a_new_attempt(ledgers) > 1


def test_control_with_a_claim_of_the_same_attempt_many_have_it(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = protocol.CLAIM_CONDITION.replace("attempts <", "attempts <=").replace(" < :clock", " <> :clock")
    monkeypatch.setattr(protocol, "CLAIM_CONDITION", weakened)
    assert most_who_claim_a_new_attempt(ledgers) > 1


def test_control_a_take_over_without_the_claim_that_was_read_succeeds_for_many(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = protocol.TAKE_OVER_CONDITION.replace("claim = :seen", "claim <> :mine AND :seen <> :mine")
    monkeypatch.setattr(protocol, "TAKE_OVER_CONDITION", weakened)
    assert most_who_take_over_an_ended_lease(ledgers) > 1


def test_control_without_the_claims_token_a_worker_settles_after_a_take_over(
    ledgers: list[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened = protocol.HELD_CONDITION.replace("claim = :mine", "claim <> :attempt AND :mine <> :attempt")
    monkeypatch.setattr(protocol, "HELD_CONDITION", weakened)
    message = new_message()
    late = ledgers[0].claim(message, "late", NOW, LEASE)
    assert isinstance(late, Claimed)
    ledgers[1].claim(message, "quick", NOW + LEASE, LEASE)
    with pytest.raises(ClaimLost, match="its row is SUCCEEDED"):  # refused, but after the write
        ledgers[0].settle_succeeded(message, late, "{}")
