"""The lease of a janitor run: one run at a time, until its invocation's deadline at the latest."""

from __future__ import annotations

import pytest

from slotkeeper.slots.janitor import CLOCK_SKEW, RunLease
from tests.support.boundary import lose_answer
from tests.unit.conftest import NOW, Account


class Runs:
    """Creates leases over one table with one clock."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.now = NOW

    def new(self) -> RunLease:
        return RunLease(self.account.dynamodb, self.account.settled_table, lambda: self.now)


@pytest.fixture
def runs(account: Account) -> Runs:
    return Runs(account)


def test_no_other_run_starts_until_the_lease_is_released(runs: Runs) -> None:
    first = runs.new()
    assert first.take(120)
    assert not runs.new().take(120)
    first.release()
    assert runs.new().take(120)


def test_a_run_that_was_killed_keeps_the_lease_until_lambda_would_have_stopped_it(runs: Runs) -> None:
    assert runs.new().take(120)
    runs.now = NOW + 120 + CLOCK_SKEW
    assert not runs.new().take(120)
    runs.now += 1
    assert runs.new().take(120)


def test_a_late_run_does_not_release_the_next_runs_lease(runs: Runs) -> None:
    late = runs.new()
    assert late.take(1)
    runs.now = NOW + 60
    assert runs.new().take(120)
    late.release()
    assert not runs.new().take(120)


def test_a_lease_whose_answer_was_lost_is_held_by_the_call_that_the_sdk_repeats(runs: Runs) -> None:
    """The repeated write finds the item of the first, and is refused."""
    lease = RunLease(runs.account.dynamodb, runs.account.settled_table, lambda: NOW, lambda: "code")
    lose_answer(runs.account.dynamodb, "PutItem")
    with pytest.raises(Exception, match="Read timeout"):
        lease.take(120)
    assert lease.take(120)
