"""docs/upgrades.md, "Restore", of each table on the deployed stack, and a negative control."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dev.emulator.environment import ACCESS_KEY, REGION, ROOT
from slotkeeper_cli.errors import CommandRefused
from tests.deployed.deployed_stack import DeployedStack

Slotkeeper = Callable[..., Any]


@pytest.fixture
def lost(stack: DeployedStack) -> Iterator[tuple[str, str, str]]:
    """A process with one slot whose item was deleted while a request runs: its name, the execution, a restored table.

    The holder in the restored table is an earlier execution, which has ended.
    """
    process = stack.process(limit=1)
    earlier = stack.send(process, "earlier")
    stack.wait_until_running(earlier)
    copy = f"restored-{process}"
    stack.dynamodb.restore_table_to_point_in_time(
        SourceTableName=stack.table, TargetTableName=copy, UseLatestRestorableTime=True
    )
    stack.end(process, "earlier")
    runs = stack.send(process, "now")
    stack.wait_until_running(runs)
    stack.dynamodb.delete_item(TableName=stack.table, Key={"process_name": {"S": process}})
    yield process, runs, copy
    stack.end(process, "now", "next")
    stack.dynamodb.delete_table(TableName=copy)


def test_a_running_execution_holds_its_slot_again_before_a_request_is_admitted(
    stack: DeployedStack, slotkeeper: Slotkeeper, lost: tuple[str, str, str]
) -> None:
    process, runs, copy = lost
    assert process in slotkeeper("stack", "restore", "--from", copy)["taken"]
    assert stack.item(process).paused
    assert stack.holders(process) == set()
    with pytest.raises(CommandRefused, match="reconcile first"):
        slotkeeper("process", "resume", process)

    assert slotkeeper("stack", "reconcile", process)["adopted"] == [runs]
    assert stack.holders(process) == {runs}
    slotkeeper("process", "resume", process)
    after = stack.send(process, "next")
    stack.wait_until_queued(process, after)
    assert stack.alive(process) == 1
    stack.end(process, "now")
    stack.wait_until_running(after)
    assert stack.holders(process) == {after}


def test_lost_rows_are_added_again_from_a_restored_table_and_newer_ones_stay(
    stack: DeployedStack, slotkeeper: Slotkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the page's code. Requests that were cancelled after the backup stay cancelled if their rows are there."""
    process, rows = stack.process(limit=1), stack.outputs["RequestTableName"]
    slotkeeper("process", "pause", process)
    lost, cancelled = stack.send(process, "lost"), stack.send(process, "cancelled")
    stack.wait_until_queued(process, lost, cancelled)
    stack.dynamodb.restore_table_to_point_in_time(
        SourceTableName=rows, TargetTableName="requests-restored", UseLatestRestorableTime=True
    )
    slotkeeper("request", "cancel", "cancelled", "--process", process)
    stack.dynamodb.delete_item(TableName=rows, Key={"process_name": {"S": process}, "execution": {"S": lost}})
    assert stack.queued(process) == []

    page = (ROOT / "docs" / "upgrades.md").read_text()
    (code,) = re.findall(r"### RequestTable: rows were deleted or damaged\n.*?```python\n(.*?)```", page, re.DOTALL)
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": ACCESS_KEY, "AWS_DEFAULT_REGION": REGION}
    for name, value in (keys | {"AWS_ENDPOINT_URL": stack.aws.endpoint, "REQUEST_TABLE_NAME": rows}).items():
        monkeypatch.setenv(name, value)
    exec(code, {})

    assert stack.queued(process) == [lost]
    slotkeeper("process", "resume", process)
    stack.end(process, "lost")
    stack.wait_for_status(lost, "SUCCEEDED")
    assert (stack.row(process, cancelled).state, stack.status(cancelled)) == ("CANCELLED", "NONE")
    stack.dynamodb.delete_table(TableName="requests-restored")
