"""A request is cancelled while its deliveries reserve a slot: it is cancelled or holds the slot, never both."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots import processes
from slotkeeper.slots import protocol as slots
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import CancelOutcome, Processes
from slotkeeper.slots.protocol import AlreadyHeld, Cancelled, Candidate, Granted, Slots
from tests.races.shared_token import simultaneously
from tests.support.tables import create_table

TABLE = "cancelled-slots"
STARTERS = 4
ROUNDS = 40  # nearly always a few are enough
NOW = 1_800_000_000.0

_names = itertools.count(1)


class Contest:
    """Starters with deliveries of the same request, and an operator who cancels it, all from the same instant."""

    def __init__(self, dynamodb_local: DynamoDbLocal) -> None:
        self._starters = [Slots(dynamodb_local.client(), TABLE) for _ in range(STARTERS)]
        self._operator = Processes(dynamodb_local.client(), TABLE)

    def run(self) -> tuple[Process, list[object]]:
        """The final process, and the answers of all, the operator's last."""
        name = f"p{next(_names)}"
        self._operator.create(name, 1, "job")
        reserves = [partial(_reserve, starter, name, reads) for reads, starter in enumerate(self._starters, 1)]
        answers = simultaneously([*reserves, partial(self._operator.cancellations.add, name, f"{name}-1", NOW)])
        left = self._starters[0].read(name)
        assert left is not None
        return left, [*answers[:-1], answers[-1][0]]  # type: ignore[index]

    def are_both(self) -> bool:
        """Whether in one of ROUNDS rounds the request is cancelled and holds its slot."""
        left = (self.run()[0] for _ in range(ROUNDS))
        return any(one.holders and one.cancelled for one in left)


def _reserve(starter: Slots, name: str, reads: int) -> object:
    """Reserve after some reads, because to cancel takes two calls, and each of the two must win some rounds."""
    for _ in range(reads):
        starter.read(name)
    return starter.reserve(Candidate(name, f"{name}-1"), NOW)


@pytest.fixture(scope="module")
def contest(dynamodb_local: DynamoDbLocal) -> Contest:
    create_table(dynamodb_local.client(), TABLE, "process_name")
    return Contest(dynamodb_local)


def test_s3_a_request_is_cancelled_or_holds_its_slot_as_the_operator_is_answered(contest: Contest) -> None:
    ends = set()
    for _ in range(ROUNDS):
        left, (*starters, operator) = contest.run()
        ends.add(operator)
        assert bool(left.holders) != bool(left.cancelled)
        assert operator is (CancelOutcome.CANCELLED if left.cancelled else CancelOutcome.HOLDS_SLOT)
        granted = starters.count(Granted())
        assert granted + starters.count(AlreadyHeld()) + starters.count(Cancelled(int(NOW), "")) == STARTERS
        assert granted == len(left.holders)
        if len(ends) == 2:
            return
    pytest.fail(f"all {ROUNDS} rounds had the same outcome: {ends}")


def test_control_a_reserve_without_its_condition_grants_a_slot_to_a_cancelled_request(
    contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = slots.RESERVE_CONDITION.replace("attribute_not_exists(cancelled.#me) AND ", "")
    monkeypatch.setattr(slots, "RESERVE_CONDITION", condition)
    assert contest.are_both()


def test_control_a_cancel_without_its_condition_cancels_a_holder(
    contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = processes.CANCEL_CONDITION.replace("AND attribute_not_exists(holders.#me) ", "")
    monkeypatch.setattr(processes, "CANCEL_CONDITION", condition)
    assert contest.are_both()
