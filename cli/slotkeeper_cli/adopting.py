"""Executions that run and hold no slot: how the table is made to know of them again.

The protocol has none. They are there after SlotTable was restored to an earlier moment, or written by hand; as many
others would be admitted beside them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from botocore.exceptions import ClientError

from slotkeeper.slots.process import Process
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
    """An execution that runs without a slot. `since` is in seconds since the epoch.

    `job` is the Glue job that it runs, which may not be its process's any more; empty where its history does not say.
    """

    process: str
    execution: str
    since: float
    job: str = ""


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
        jobs = pool.map(lambda one: _job_that_runs(stack, one.execution), astray)
        found = [replace(one, job=job) for one, job in zip(astray, jobs, strict=True) if job is not None]
    return sorted(found, key=lambda one: one.since)


def _running(stack: Stack) -> Iterator[Astray]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield Astray(process, listed["name"], listed["startDate"].timestamp())


def _job_that_runs(stack: Stack, execution: str) -> str | None:
    """The job of an execution that has come to the state that runs it, and not to its release or end; else None."""
    pages = stack.client("stepfunctions").get_paginator("get_execution_history")
    job = None
    try:
        for page in pages.paginate(executionArn=stack.execution_arn(execution), reverseOrder=True):
            for event in page["events"]:
                entered = event.get("stateEnteredEventDetails", {})
                over = event["type"].startswith("Execution") and event["type"] not in _NO_END
                if entered.get("name") == _RELEASE or over:
                    return None
                if entered.get("name") == _RUN:
                    job = json.loads(entered.get("input", "{}")).get("job_name", "")
    except ClientError as error:
        if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
            raise
        return None
    return job
