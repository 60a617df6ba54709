"""Restores: one of the two tables is from a time before the other one. No work runs twice, and each row has its end."""

from __future__ import annotations

import pytest

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.starts import AGE_SECONDS
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account
from tests.unit.janitor_scene import JanitorScene

LATER = NOW + GRACE + 1
TOKEN = "AAAA-the-token-of-the-caller"


def _backup(account: Account, table: str) -> list[Item]:
    items: list[Item] = account.dynamodb.scan(TableName=table)["Items"]
    return items


def _restore(account: Account, table: str, items: list[Item]) -> None:
    """Replace what a table has now."""
    names = ("process_name", "execution") if table == account.request_table else ("process_name",)
    for item in _backup(account, table):
        account.dynamodb.delete_item(TableName=table, Key={name: item[name] for name in names})
    for item in items:
        account.dynamodb.put_item(TableName=table, Item=item)


def _run(account: Account, since: float = LATER) -> None:
    """Let the janitor run for ten minutes."""
    for minute in range(10):
        account.run_at(since + minute * 60)


def _ends(account: Account) -> set[str]:
    return {event["deduplication_id"] for event in account.bus.published}


# RequestTable


@pytest.mark.parametrize("before", ["its start", "its mark", "its end"])
@pytest.mark.parametrize(
    ("status", "error", "cause", "end"),
    [
        ("SUCCEEDED", "", "", ("SUCCEEDED", "")),
        ("FAILED", "RequestFailed", "States.TaskFailed: why", ("FAILED", "States.TaskFailed")),
        ("ABORTED", "", "", ("FAILED", "ABORTED")),
    ],
)
def test_a_request_whose_row_is_from_before_its_end_has_its_outcome_and_does_not_run_again(
    status: str, error: str, cause: str, end: tuple[str, str], before: str, account: Account
) -> None:
    """Of a queued row a dispatch reserves a slot, and Step Functions refuses the name: its execution decides."""
    scene = JanitorScene(account, TOKEN)
    account.accept(scene.request)
    backup = _backup(account, account.request_table)
    account.dispatch()
    account.confirm(scene.execution)
    if before != "its start":
        backup = _backup(account, account.request_table)
    if before == "its mark":
        (row,) = backup
        backup = [row | {"state": {"S": "QUEUED"}, "place": row["placed"]}]
    scene.release("SUCCEEDED" if status == "SUCCEEDED" else "FAILED")
    account.endings.publish("p", [scene.execution])
    scene.abort()
    scene.close(status, error, cause)
    published = _ends(account)

    _restore(account, account.request_table, backup)
    account.dispatch()
    _run(account)

    row = account.row(scene.execution)
    assert ((row.state, row.code), row.open) == (end, None)
    assert (account.executions(), account.item().holders) == ([scene.execution], {})
    assert _ends(account) == published  # the same end again, which its consumers know


# SlotTable


@pytest.mark.parametrize("holder", ["RESERVED", "RUNNING"])
@pytest.mark.parametrize("outcome", ["SUCCEEDED", "FAILED"])
def test_a_holder_that_is_from_before_its_end_is_freed_and_its_request_not_recorded_again(
    outcome: str, holder: str, account: Account
) -> None:
    scene = JanitorScene(account, TOKEN)
    scene.reserve()
    if holder == "RUNNING":
        account.confirm(scene.execution)
    backup = _backup(account, account.slot_table)
    if holder == "RESERVED":
        account.confirm(scene.execution)
    scene.release(outcome)
    account.endings.publish("p", [scene.execution])
    scene.abort()
    scene.close(outcome, "RequestFailed" if outcome == "FAILED" else "", "Other: another cause")
    ended = account.raw_row(scene.execution)

    _restore(account, account.slot_table, backup)
    _run(account)

    assert (account.item().holders, account.item().slots_in_use) == ({}, 0)
    assert account.raw_row(scene.execution) == ended
    assert (len(account.answers), len(account.bus.published)) == (1, 1)


def test_a_slot_that_is_from_before_its_reservation_leaves_a_running_execution_alone(account: Account) -> None:
    """It holds no slot, as an operator reads in the run's report: more may be at work than the limit. Its end is its
    workflow's.
    """
    scene = JanitorScene(account)
    backup = _backup(account, account.slot_table)
    scene.start()
    scene.run("RUNNING")
    _restore(account, account.slot_table, backup)
    _run(account)
    assert (account.states, scene.stopped) == ({"order-1/1": "STARTED"}, [])
    account.record(scene.execution, "SUCCEEDED")
    scene.abort()
    scene.close("SUCCEEDED")
    assert account.event_at(scene.execution, LATER + 3600, "SUCCEEDED")[0] is None
    assert _ends(account) == {f"{scene.execution}/SUCCEEDED"}


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_slot_that_is_from_before_its_reservation_is_found_by_the_end_of_the_execution(
    confirmed: bool, account: Account
) -> None:
    """A workflow that has not confirmed finds no slot, and its request is queued again; after that, its end decides."""
    scene = JanitorScene(account)
    backup = _backup(account, account.slot_table)
    scene.reserve()
    _restore(account, account.slot_table, backup)
    scene.abort()
    scene.close("FAILED", *(("WorkUnknown", "Error: why") if confirmed else ("SlotLost", "")))
    account.now = NOW + AGE_SECONDS
    _run(account, account.now)
    second = {"order-1/1": "RETURNED", "order-1/2": "STARTED"}
    assert account.states == ({"order-1/1": "FAILED"} if confirmed else second)
    assert len(account.executions()) == (1 if confirmed else 2)
    assert CHECK_GAP < GRACE
