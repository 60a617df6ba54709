"""Leases next to executions: the starter, the janitor and the other checks judge a lease by its end alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import run_report
from slotkeeper.slots.admission import Admitted
from slotkeeper.slots.process import MAX_HIDE_SECONDS, MAX_REMOVALS, Holder
from tests.support.boundary import Calls, passed_values, refuse
from tests.unit.conftest import GRACE, NOW, VISIBILITY, Account, delivery
from tests.unit.janitor_scene import JanitorScene
from tests.unit.slots.lease_scene import LeaseScene

MANY = 60  # expired leases
REQUEST = {"process": "p", "request_id": "order-1"}
LEASE = Holder("LEASED", int(NOW), "", None, {}, until=int(NOW) + 60, code="c")


@pytest.fixture
def leased(account: Account) -> LeaseScene:
    return LeaseScene(account)


def test_a_lease_expires_when_the_clock_skew_has_passed_after_its_end() -> None:
    assert not LEASE.has_expired(NOW + 60 + CLOCK_SKEW_SECONDS - 0.1)
    assert LEASE.has_expired(NOW + 60 + CLOCK_SKEW_SECONDS)
    assert not Holder("RUNNING", 0, "job", None, {}).has_expired(NOW)


# the starter


def test_a_request_that_removes_a_heavy_lease_wakes_the_next_one_too(leased: LeaseScene) -> None:
    leased.account.processes.set_limit("p", 2)
    leased.expired(weight=2)
    leased.account.wait_in_queue(priority="low")
    leased.account.starter.admit(delivery(REQUEST), NOW)
    assert leased.is_visible()


@pytest.mark.parametrize(("left", "hidden"), [(60, 65), (0, 5), (-4, 1), (600, int(VISIBILITY * 1.25))])
def test_a_refused_head_is_hidden_no_longer_than_until_the_first_lease_can_expire(
    leased: LeaseScene, left: int, hidden: int
) -> None:
    leased.account.processes.set_limit("p", 2)
    leased.expired(age=-1000, name="lease-later-0")
    leased.expired(age=-left)
    times = passed_values(leased.account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    leased.account.starter.admit(leased.account.send(REQUEST), NOW + 0.25)
    assert times == [hidden]


def test_a_head_that_was_received_often_is_hidden_longer_than_a_lease_lasts(leased: LeaseScene) -> None:
    """A lease that is extended for days would use up its receives, and it would be dead-lettered."""
    leased.expired(age=-10)
    times = passed_values(leased.account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    sent = replace(leased.account.send(REQUEST), receives=201, sent_at=NOW - 86_400)
    leased.account.starter.admit(sent, NOW)
    assert times == [MAX_HIDE_SECONDS]


# the janitor


def test_the_janitor_removes_an_expired_lease_and_wakes_the_next_request(
    leased: LeaseScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings: list[dict[str, Any]] = []
    # Not through the log: another test of this process may have loaded the logger again, or silenced it.
    log = SimpleNamespace(warning=lambda _, extra: findings.append(extra))
    monkeypatch.setattr(run_report, "logger", log)
    name = leased.expired()
    leased.account.wait_in_queue()
    made = Calls(leased.account.stepfunctions, leased.account.glue).made
    report = leased.account.run_at(NOW)
    assert (report.counts["LeasesExpired"], report.counts["SlotsReclaimed"]) == (1, 0)
    assert (leased.holders(), leased.account.item().slots_in_use) == ({}, 0)
    assert leased.is_visible()
    assert not [call for call in made if call in ("DescribeExecution", "GetJobRuns")]
    (finding,) = [finding for finding in findings if "lease" in finding]
    assert (finding["lease"], finding["age"]) == (name, 65)


def test_the_janitor_leaves_an_old_lease_that_has_not_ended(leased: LeaseScene) -> None:
    """Step Functions knows no execution of its name, which would prove that a reservation is dead."""
    with leased.leases.lease("p", seconds=10 * GRACE):
        report = leased.account.run_at(NOW + 5 * GRACE)
        assert leased.owners() == ["me"]
    assert not report.counts


def test_the_janitor_wakes_also_if_another_caller_removed_the_lease(leased: LeaseScene) -> None:
    """That caller may have died before its wake."""
    leased.expired()
    leased.account.wait_in_queue()
    seen = leased.account.item()
    leased.account.processes.all = lambda: iter([seen])  # type: ignore[method-assign]
    leased.account.slots.release("p", "lease-dead-0", seen.holders["lease-dead-0"].raw)
    report = leased.account.run_at(NOW)
    assert report.counts["LeasesExpired"] == 0
    assert leased.is_visible()


def test_a_failed_removal_is_reported_and_the_next_lease_is_removed(leased: LeaseScene) -> None:
    leased.account.processes.set_limit("p", 2)
    for number in range(2):
        leased.expired(name=f"lease-dead-{number}")
    refuse(leased.account.dynamodb, "UpdateItem", "InternalServerError")
    counts = leased.account.run_at(NOW).counts
    assert (counts["JanitorErrors"], counts["LeasesExpired"]) == (1, 1)


def test_a_status_event_of_an_execution_with_a_leases_name_frees_no_slot(aborted: JanitorScene) -> None:
    """An execution that was started manually can have any name."""
    account = aborted.account
    entry = {"state": {"S": "LEASED"}, "since": {"N": "1"}, "until": {"N": "2"}, "code": {"S": "c"}}
    account.write("holders", {"M": {aborted.execution: {"M": entry}}})
    assert account.event_at(aborted.execution, NOW + 3600)[0] is None
    assert list(account.item().holders) == [aborted.execution]


def _many_expired(leased: LeaseScene) -> None:
    leased.account.processes.set_limit("p", MANY)
    for number in range(MANY):
        leased.expired(name=f"lease-dead-{number}")


def test_a_refused_request_removes_a_bounded_number_of_leases(leased: LeaseScene) -> None:
    _many_expired(leased)
    made = Calls(leased.account.dynamodb).made
    assert isinstance(leased.account.starter.admit(delivery(REQUEST), NOW), Admitted)
    assert made.count("UpdateItem") == 1 + MAX_REMOVALS + 1


def test_a_request_of_a_paused_process_removes_expired_leases_and_is_hidden_for_long(leased: LeaseScene) -> None:
    leased.account.write("paused", {"BOOL": True})
    leased.expired()
    hidden = passed_values(leased.account.sqs, "ChangeMessageVisibility", "VisibilityTimeout")
    leased.account.starter.admit(leased.account.send(REQUEST), NOW)
    assert leased.holders() == {}
    assert min(hidden) > CLOCK_SKEW_SECONDS


def test_removing_leases_leaves_the_janitor_time_for_the_other_work(leased: LeaseScene) -> None:
    def slow(**_: Any) -> None:
        leased.account.now += 1

    _many_expired(leased)
    leased.account.wait_in_queue()
    leased.account.dynamodb.meta.events.register("after-call.dynamodb.UpdateItem", slow)
    leased.account.now = NOW
    leased.account.janitor.run()
    assert leased.is_visible()


def test_a_table_that_does_not_answer_ends_the_removal_of_leases(leased: LeaseScene) -> None:
    _many_expired(leased)
    calls = Calls(leased.account.dynamodb).made
    refuse(leased.account.dynamodb, "UpdateItem", "InternalServerError", times=MANY)
    leased.account.run_at(NOW)
    assert calls.count("UpdateItem") < MANY
