"""The steps of a request's row, for the tests of the ledger."""

from __future__ import annotations

from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, SUCCEEDED, WAITING, Claim, Claimed, Ledger
from slotkeeper.retry.message import Message
from tests.unit.worker_harness import LEASE, NOW

ME, OTHER = "me", "another delivery"
FIRST = Message("r", {"a": 1})
SECOND = FIRST.after(NOW)
OTHER_PAYLOAD = Message("r", {"a": 2})
PLAN = {"when": NOW + 60, "counted": True}


def claim(ledger: Ledger, message: Message = FIRST, token: str = ME, now: float = NOW) -> Claim:
    return ledger.claim(message, token, now, LEASE)


def claimed(ledger: Ledger, message: Message = FIRST, token: str = ME, now: float = NOW) -> Claimed:
    got = claim(ledger, message, token, now)
    assert isinstance(got, Claimed)
    return got


def end(ledger: Ledger, status: str, message: Message = FIRST) -> None:
    """Bring the message's attempt to a status, with the claim of ME."""
    mine = claimed(ledger, message)
    if status in (FAILED, WAITING, DEAD_LETTERED):
        ledger.record(message, mine, PLAN, "failed")
    if status == WAITING:
        ledger.settle_waiting(message, mine, NOW + 60)
    if status == DEAD_LETTERED:
        ledger.settle_dead_lettered(message, mine)
    if status == SUCCEEDED:
        ledger.settle_succeeded(message, mine, "{}")
