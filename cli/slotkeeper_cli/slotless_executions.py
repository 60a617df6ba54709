"""Executions that run and hold no slot: how the table is made to know of them again.

The protocol makes none. They exist after SlotTable was restored to an earlier moment, or edited manually; for each of
them one request too many would be admitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from botocore.exceptions import ClientError

from slotkeeper.slots.process import Process
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection

# A workflow needs a slot from the one state to the other. One that has lost its reservation gives its request back
# before the first, and after the second it only wakes and reports. Neither may be adopted: the first would then run
# its job although another request has its slot by now.
_RUN = "RunGlueJob"
_RELEASE = "ReleaseSlot"
_NO_END = ("ExecutionStarted", "ExecutionRedriven")
_THREADS = 8


@dataclass(frozen=True)
class SlotlessExecution:
    """An execution that runs without a slot. `since` is in seconds since the epoch.

    `job` is the Glue job that it runs, which may not be its process's any more; empty where its history does not say.
    """

    process: str
    execution: str
    since: float
    job: str = ""


def find_slotless_executions(
    stack: StackConnection, control: SlotControl, processes: Iterable[Process]
) -> list[SlotlessExecution]:
    """The executions of these processes that run and hold no slot, oldest first."""
    known = {process.name: process for process in processes}
    # Holders need no further check.
    slotless = [
        listed
        for listed in _running(stack)
        if listed.process in known and listed.execution not in known[listed.process].holders
    ]
    # Read again: a request that was admitted after the first read holds a slot that this read did not return. Before
    # the histories: they show which executions had released their slot by this read.
    fresh = {name: control.process(name) for name in {one.process for one in slotless}}
    slotless = [one for one in slotless if one.execution not in fresh[one.process].holders]
    with ThreadPoolExecutor(_THREADS) as pool:
        jobs = pool.map(lambda one: _job_that_runs(stack, one.execution), slotless)
        with_jobs = [replace(one, job=job) for one, job in zip(slotless, jobs, strict=True) if job is not None]
    return sorted(with_jobs, key=lambda one: one.since)


def _running(stack: StackConnection) -> Iterator[SlotlessExecution]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield SlotlessExecution(process, listed["name"], listed["startDate"].timestamp())


def _job_that_runs(stack: StackConnection, execution: str) -> str | None:
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
