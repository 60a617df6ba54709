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

# A workflow needs a slot from the one state to the other. One that has lost its reservation gives its request back
# before the first, and beyond the second it wakes who waits, and tells. Neither may be adopted: the one would then run
# its job beside whoever has its slot by now.
_RUN = "RunGlueJob"
_RELEASE = "ReleaseSlot"
_NO_END = ("ExecutionStarted", "ExecutionRedriven")
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
    # Read again: a request that was admitted after the first look holds a slot of which that look knew nothing. Before
    # the histories: they tell of who had given its slot back by this look.
    fresh = {name: control.process(name) for name in {one.process for one in astray}}
    astray = [one for one in astray if one.execution not in fresh[one.process].holders]
    with ThreadPoolExecutor(_LOOKERS) as pool:
        needs = pool.map(lambda one: _needs_slot(stack, one.execution), astray)
        found = [one for one, needed in zip(astray, needs, strict=True) if needed]
    return sorted(found, key=lambda one: one.since)


def _running(stack: Stack) -> Iterator[Astray]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield Astray(process, listed["name"], listed["startDate"].timestamp())


def _needs_slot(stack: Stack, execution: str) -> bool:
    """Whether it has come to the state that runs the job, and not to the one that gives its slot back or to its end."""
    pages = stack.client("stepfunctions").get_paginator("get_execution_history")
    runs = False
    try:
        for page in pages.paginate(
            executionArn=stack.execution_arn(execution), includeExecutionData=False, reverseOrder=True
        ):
            for event in page["events"]:
                entered = event.get("stateEnteredEventDetails", {}).get("name")
                over = event["type"].startswith("Execution") and event["type"] not in _NO_END
                if entered == _RELEASE or over:
                    return False
                runs = runs or entered == _RUN
    except ClientError as error:
        if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
            raise
        return False
    return runs
