"""The parts of a janitor run for queues, leases and ends that were not published, and their order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import run_report
from slotkeeper.slots.grants import EXPIRE_CONDITION
from slotkeeper.slots.janitor import OVERDUE_SECONDS, RUN_SECONDS
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import Leaving
from slotkeeper.slots.rows import Listed
from slotkeeper.slots.starts import AGE_SECONDS
from tests.simulation.account.boundary import Calls, refuse
from tests.unit.conftest import GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene
from tests.unit.slots.queue_scene import leased

MANY = 30
BEHIND_B: Item = {"1": {"S": "b"}}


def _overdue(account: Account, during_sleep: Callable[[], Any] = lambda: None) -> int:
    """StartsOverdue of a run in which something happens while it waits."""

    def sleep(seconds: float) -> None:
        account.slept.append(seconds)
        account.now += seconds
        during_sleep()

    account.janitor.sleep = sleep
    return account.run_at(account.now).counts["StartsOverdue"]


def _expire(account: Account, leases: int = 1) -> None:
    """Add leases whose holders have died."""
    for at in range(leases):
        account.hold(f"lease-dead-{at}", **leased(NOW - CLOCK_SKEW_SECONDS) | {"state": "LEASED"})


def _queue_in(account: Account, *processes: str) -> None:
    """Add other processes, each with a request that can start."""
    for name in processes:
        account.processes.create(name, 1, "job")
        account.accept({"process": name, "request_id": "b"})


# Starts


def test_without_doorbells_the_janitor_starts_what_can_start_and_counts_it(account: Account) -> None:
    account.queue("a")
    account.queue("b")
    assert account.run_at(NOW).counts["StartsOverdue"] == 1
    assert account.states == {"a/1": "STARTED", "b/1": "QUEUED"}
    assert account.slept == [OVERDUE_SECONDS]


@pytest.mark.parametrize(
    ("meanwhile", "started"),
    [
        pytest.param(lambda account: account.dispatch(), "STARTED", id="a doorbell was heard"),
        pytest.param(lambda account: account.write("paused", {"BOOL": True}), "QUEUED", id="it was paused"),
        pytest.param(lambda account: account.hold("p-x", "RUNNING"), "QUEUED", id="a lease came first"),
    ],
)
def test_only_what_could_start_for_some_seconds_and_was_not_started_is_overdue(
    meanwhile: Callable[[Account], Any], started: str, account: Account
) -> None:
    account.queue("a")
    assert _overdue(account, lambda: meanwhile(account)) == 0
    assert account.states == {"a/1": started}


def test_what_can_start_only_since_a_moment_is_started_and_not_counted(account: Account) -> None:
    """Its doorbell may be under way. Another process makes the run wait."""
    account.hold("p-x", "RUNNING")
    account.queue("a")
    _queue_in(account, "q")
    assert _overdue(account, lambda: account.free("p-x")) == 1
    assert account.states == {"a/1": "STARTED"}


@pytest.mark.parametrize("queued", [True, False])
def test_a_run_waits_only_if_something_could_start(queued: bool, account: Account) -> None:
    account.hold("p-x", "RUNNING")
    if queued:
        account.queue("a")
    assert (_overdue(account), account.slept) == (0, [])


def test_a_start_that_fails_is_overdue_and_the_next_process_is_dispatched(account: Account) -> None:
    _queue_in(account, "q")
    account.queue("a")
    failing = execution_name("p", "a", 1)

    def fail(params: Any, **_: Any) -> None:
        if failing in str(params["body"]):
            raise RuntimeError("no start")

    account.stepfunctions.meta.events.register("before-call.stepfunctions.StartExecution", fail)
    counts = account.run_at(NOW).counts
    assert (counts["StartsOverdue"], counts["JanitorErrors"]) == (2, 1)
    assert account.executions() == [execution_name("q", "b", 1)]


def test_an_outage_ends_the_dispatches(account: Account) -> None:
    _queue_in(account, "q", "r", "s")
    made = Calls(account.dynamodb).made
    refuse(account.dynamodb, "BatchGetItem", "ThrottlingException", times=99)
    account.run_at(NOW)
    assert made.count("TransactWriteItems") + made.count("UpdateItem") == 1  # the grant of the first


def test_f15_an_old_reservation_without_a_workflow_is_started_again(account: Account) -> None:
    name = account.queue("a")
    account.hold(name)
    account.run_at(NOW + AGE_SECONDS)
    assert account.executions() == []
    account.run_at(NOW + AGE_SECONDS + 1)
    assert (account.executions(), account.states) == ([name], {"a/1": "STARTED"})


# What is counted


def test_queues_are_measured_and_blocked_requests_counted(
    account: Account, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "logger", logging.getLogger("janitor"))
    account.hold("p-x", "RUNNING")
    account.processes.set_limit("p", 2)
    account.processes.set_key_limit("p", 1, "acme")
    for request_id, weight, key in (("a", 2, {}), ("blocked", 3, {}), ("b", 2, {"key": "acme"}), ("c", 1, {})):
        account.queue(request_id, weight=weight, **key)
    report = account.run_at(NOW + 30)
    (queue,) = report.queues.values()
    assert (queue.length, queue.oldest, report.counts["BlockedRequests"]) == (4, 30, 2)
    logged = [vars(each) for each in caplog.records if "is blocked" in each.message]
    named = [[line.get(name) for name in ("request_id", "key", "weight", "key_limit", "slot_limit")] for line in logged]
    assert named == [["b", "acme", 2, 1, 2], ["blocked", None, 3, None, 2]]


@pytest.mark.parametrize(("turn", "keys", "overdue"), [({}, [{}, {}], 1), (BEHIND_B, [{"key": "a"}, {"key": "z"}], 0)])
def test_of_a_queue_that_was_read_in_part_only_certain_starts_are_counted(
    turn: Item, keys: list[Item], overdue: int, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the turn of b it is that of z, which was not read."""
    account.write("after_keys", {"M": turn})
    account.processes.set_limit("p", 2)
    for request_id, key in zip(("r0", "r1"), keys, strict=True):
        account.queue(request_id, **key)
    account.queue("heavy", weight=3, priority="high")
    read = account.rows.queue("p").rows
    monkeypatch.setattr(account.rows, "queue", lambda _: Listed(read[:2], is_cut=True))
    counts = account.run_at(NOW).counts
    assert (counts["StartsOverdue"], counts["BlockedRequests"]) == (overdue, 1)
    assert account.states == {"heavy/1": "QUEUED", "r0/1": "STARTED", "r1/1": "STARTED"}


def test_a_drifted_counter_is_repaired_and_reported(account: Account) -> None:
    account.hold("p-1", "RUNNING", weight=2)
    account.write("slots_in_use", number(1))  # the number of holders
    assert account.run_at(NOW).counts["CounterDrift"] == 1
    assert account.item().slots_in_use == 2


def test_a_malformed_item_and_a_malformed_row_keep_back_no_other_request(account: Account) -> None:
    _queue_in(account, "q")
    account.write("slot_limit", {"S": "1"})
    counts = account.run_at(NOW).counts
    assert (counts["MalformedProcesses"], account.executions()) == (1, [execution_name("q", "b", 1)])

    account.write("slot_limit", number(1))
    malformed = account.queue("a")
    account.queue("c")
    account.set_row(malformed, start_before={"S": "soon"})
    counts = account.run_at(NOW + 60).counts
    assert (counts["MalformedRequests"], account.item().holders.keys()) == (1, {execution_name("p", "c", 1)})


# Ends that were not published


def _end(account: Account, *ids: str) -> list[str]:
    names = [account.queue(each, task_token="token") for each in ids]
    account.requests.leave("p", [Leaving(name, "CANCELLED", "Cancelled", "why") for name in names], NOW)
    return names


def test_an_end_that_cannot_be_published_is_counted_and_the_others_are_published(account: Account) -> None:
    malformed, other = _end(account, "a", "b")
    account.set_row(malformed, attempt={"S": "1"})
    counts = account.run_at(NOW).counts
    assert (counts["RequestsUnpublished"], account.counted) == (1, ["MalformedRequests"])
    assert [name for name, _ in account.rows.unpublished("p").rows] == [malformed]
    account.set_row(malformed, state={"S": "DONE"})
    assert account.run_at(NOW + 60).counts["MalformedRequests"] == 1
    assert (account.row(other).open, account.answers) == (None, [("token", "Cancelled", "why")])


# Leases


def test_expired_leases_are_removed_and_rung_for(account: Account) -> None:
    account.processes.set_limit("p", 2)
    _expire(account, 2)
    account.hold("lease-alive", **leased(NOW + 10 * GRACE) | {"state": "LEASED"})
    made = Calls(account.stepfunctions, account.glue).made
    counts = account.run_at(NOW).counts
    assert (counts["LeasesExpired"], counts["SlotsReclaimed"]) == (2, 0)
    assert (list(account.item().holders), account.rings) == (["lease-alive"], [{"process": "p"}])
    assert "DescribeExecution" not in made
    account.run_at(NOW + 5 * GRACE)
    assert list(account.item().holders) == ["lease-alive"]


def test_the_janitor_rings_also_if_another_caller_removed_the_lease(account: Account) -> None:
    """That caller may have died before its ring."""
    _expire(account)
    seen = account.item()
    account.processes.all = lambda: iter([seen])  # type: ignore[method-assign]
    account.free("lease-dead-0")
    assert account.run_at(NOW).counts["LeasesExpired"] == 0
    assert account.rings == [{"process": "p"}]


@pytest.mark.parametrize(
    ("times", "code", "removed"),
    [(1, "InternalFault", MANY - 1), (99, "ThrottlingException", 0)],
    ids=["one", "outage"],
)
def test_a_failed_removal_is_reported_and_only_an_outage_ends_them(
    times: int, code: str, removed: int, account: Account
) -> None:
    _expire(account, MANY)
    refuse(account.dynamodb, "UpdateItem", code, times=times)
    counts = account.run_at(NOW).counts
    assert (counts["JanitorErrors"], counts["LeasesExpired"]) == (1, removed)


# Order, rings and time


def test_a_run_publishes_settles_dispatches_and_frees_in_this_order(aborted: JanitorScene) -> None:
    """Each part needs more services than the part before it, whose failure must not affect that."""
    account = aborted.account
    account.processes.set_limit("p", 3)
    lost = account.queue("lost")
    account.dispatch()
    account.free(lost)
    account.finish(lost)
    account.queue("starts")
    _end(account, "published")
    made = Calls(account.stepfunctions).made
    account.glue.meta.events.register("provide-client-params.glue", lambda model, **_: made.append(model.name))
    account.run_at(NOW + GRACE + 1)
    parts = ["SendTaskFailure", "DescribeExecution", "StartExecution", "GetJobRuns"]
    assert [name for name in dict.fromkeys(made) if name in parts] == parts


def test_a_ring_that_fails_is_reported_and_the_others_follow(account: Account) -> None:
    account.processes.create("q", 1, "job")
    _expire(account)
    seen = account.item()
    account.processes.all = lambda: iter([seen, account.item("q")])  # type: ignore[method-assign]
    refuse(account.sqs, "SendMessage", "AccessDenied")
    assert account.run_at(NOW).counts["JanitorErrors"] == 1
    assert account.item().holders == {}


def test_after_its_time_a_run_starts_no_further_work(account: Account) -> None:
    _queue_in(account, "q", "r", "s")

    def slow(**_: Any) -> None:
        account.now += RUN_SECONDS / 2

    account.stepfunctions.meta.events.register("before-call.stepfunctions.StartExecution", slow)
    account.now = NOW
    counts = account.janitor.run().counts
    assert (counts["JanitorRunsCutShort"], len(account.executions())) == (1, 2)


def _many_unsettled(account: Account) -> None:
    for at in range(9):
        name = account.queue(str(at))
        account.dispatch()
        account.free(name)
        account.finish(name)


@pytest.mark.parametrize(
    ("prepare", "operation"),
    [
        (lambda account: _expire(account, MANY), "dynamodb.UpdateItem"),
        (lambda account: _end(account, *map(str, range(MANY))), "stepfunctions.SendTaskFailure"),
        (_many_unsettled, "stepfunctions.DescribeExecution"),
    ],
)
def test_each_part_leaves_a_run_time_for_its_other_work(
    prepare: Callable[[Account], object], operation: str, account: Account
) -> None:
    """The service hardly answers: each call takes the timeouts of a call."""

    def slow(params: Item, **_: Any) -> None:
        is_of_part = params.get("ConditionExpression", EXPIRE_CONDITION) == EXPIRE_CONDITION
        account.now += 24 * is_of_part

    prepare(account)
    _queue_in(account, "q")
    getattr(account, operation.partition(".")[0]).meta.events.register(f"provide-client-params.{operation}", slow)
    account.now = NOW
    account.janitor.run()
    assert account.item("q").holders


def test_without_the_whole_table_nothing_is_settled(account: Account) -> None:
    """A holder that was not read decides whether its request has succeeded."""
    refuse(account.dynamodb, "Scan", "InternalFault")
    made = Calls(account.stepfunctions).made
    assert account.run_at(NOW + GRACE).counts["JanitorErrors"] == 1
    assert made == ["ListExecutions"]  # of those that run


def test_queues_are_dispatched_although_step_functions_lists_nothing(account: Account) -> None:
    account.queue("a")
    refuse(account.stepfunctions, "ListExecutions", "AccessDenied", times=9)
    assert account.run_at(NOW).counts["JanitorErrors"] == 1
    assert account.states == {"a/1": "STARTED"}
