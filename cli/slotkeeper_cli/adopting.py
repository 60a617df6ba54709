"""Executions that run and hold no slot: how the table is made to know of them again.

The protocol has none. They are there after SlotTable was restored to an earlier moment, or written by hand; as many
others would be admitted beside them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from botocore.exceptions import ClientError

from slotkeeper.processes import Process
from slotkeeper_cli.control import Control
from slotkeeper_cli.stack import Stack

# Where the workflow gives its slot back. From there on it runs without one, as it should.
_RELEASE = "ReleaseSlot"
_LOOKERS = 8


@dataclass(frozen=True)
class Astray:
    """An execution that runs without a slot. `since` is in seconds since the epoch."""

    process: str
    execution: str
    since: float


def unslotted(stack: Stack, control: Control, processes: Iterable[Process]) -> list[Astray]:
    """The executions of these processes that run and hold no slot, oldest first."""
    known = {process.name: process for process in processes}
    # Those who hold a slot need no further look; who seems to hold none has it taken once more.
    astray = [
        listed
        for listed in _running(stack)
        if listed.process in known and listed.execution not in known[listed.process].holders
    ]
    with ThreadPoolExecutor(_LOOKERS) as pool:
        over = pool.map(lambda one: _has_released(stack, one.execution), astray)
    # Read again: a request that was admitted after the first look holds a slot of which that look knew nothing.
    fresh = {name: control.process(name) for name in {one.process for one in astray}}
    return sorted(
        (
            one
            for one, released in zip(astray, over, strict=True)
            if not released and one.execution not in fresh[one.process].holders
        ),
        key=lambda one: one.since,
    )


def _running(stack: Stack) -> Iterator[Astray]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield Astray(process, listed["name"], listed["startDate"].timestamp())


def _has_released(stack: Stack, execution: str) -> bool:
    """Whether it has come to the state that gives its slot back, or is over by now."""
    pages = stack.client("stepfunctions").get_paginator("get_execution_history")
    try:
        for page in pages.paginate(
            executionArn=stack.execution_arn(execution), includeExecutionData=False, reverseOrder=True
        ):
            for event in page["events"]:
                if event.get("stateEnteredEventDetails", {}).get("name") == _RELEASE:
                    return True
                if event["type"].startswith("Execution") and event["type"] not in (
                    "ExecutionStarted",
                    "ExecutionRedriven",
                ):
                    return True
    except ClientError as error:
        if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
            raise
        return True
    return False
