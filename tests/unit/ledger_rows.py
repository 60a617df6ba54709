"""The steps of a request's row, for the tests of the ledger."""

from __future__ import annotations

from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, SUCCEEDED, WAITING, Claim, Claimed
from slotkeeper.retry.message import Message
from tests.unit.worker_harness import LEASE, NOW, WorkerHarness

ME, OTHER = "me", "another delivery"
FIRST = Message("r", {"a": 1})
SECOND = FIRST.after(NOW)
OTHER_PAYLOAD = Message("r", {"a": 2})
PLAN = {"when": NOW + 60, "counted": True}


def claim(workplace: WorkerHarness, message: Message = FIRST, token: str = ME, now: float = NOW) -> Claim:
    return workplace.ledger.claim(message, token, now, LEASE)


def claimed(workplace: WorkerHarness, message: Message = FIRST, token: str = ME, now: float = NOW) -> Claimed:
    got = claim(workplace, message, token, now)
    assert isinstance(got, Claimed)
    return got


def end(workplace: WorkerHarness, status: str, message: Message = FIRST) -> None:
    """Bring the message's attempt to a status, with the claim of ME."""
    mine = claimed(workplace, message)
    if status in (FAILED, WAITING, DEAD_LETTERED):
        workplace.ledger.record(message, mine, PLAN, "failed")
    if status == WAITING:
        workplace.ledger.settle_waiting(message, mine, NOW + 60)
    if status == DEAD_LETTERED:
        workplace.ledger.settle_dead_lettered(message, mine)
    if status == SUCCEEDED:
        workplace.ledger.settle_succeeded(message, mine, "{}")
