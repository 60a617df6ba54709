"""Find executions that run without a slot, so that a command can adopt them: record them as holders.

They exist only after SlotTable was restored to an earlier time or edited manually. For each of them, the starter would
admit one request too many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slotkeeper.slots.process import Process
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection

# A workflow uses its slot from the first of these states to the second. Outside of them it must not be adopted:
# - before RunGlueJob it may have lost its reservation. It then returns its request; adopted, it would run its job
#   although another request has its slot.
# - after ReleaseSlot it only wakes the next request and publishes its event.
_RUN = "RunGlueJob"
_RELEASE = "ReleaseSlot"
_NO_END = ("ExecutionStarted", "ExecutionRedriven")


@dataclass(frozen=True)
class SlotlessExecution:
    """An execution that runs without a slot. `since` is in seconds since the epoch.

    `target` is what it runs, which may be an earlier one of its process; empty if its history has no name.
    """

    process: str
    execution: str
    since: float
    target: str = ""


def find_slotless_executions(
    stack: StackConnection, control: SlotControl, processes: Iterable[Process]
) -> list[SlotlessExecution]:
    """The executions of these processes that run without a slot, oldest first.

    The order of reads matters:
      1. List the running executions. An execution of a known holder needs no further check.
      2. Read the processes again: a request admitted after the first read holds a slot only in this one.
      3. Read the histories: they show the executions that had released their slot before step 2.
    """
    known = {process.name: process for process in processes}
    slotless = [
        listed
        for listed in _running(stack)
        if listed.process in known and listed.execution not in known[listed.process].holders
    ]
    fresh = {name: control.process(name) for name in {one.process for one in slotless}}
    slotless = [one for one in slotless if one.execution not in fresh[one.process].holders]
    jobs = in_parallel(lambda one: _job_that_runs(stack, one.execution), slotless)
    with_jobs = [replace(one, target=job) for one, job in zip(slotless, jobs, strict=True) if job is not None]
    return sorted(with_jobs, key=lambda one: one.since)


def _running(stack: StackConnection) -> Iterator[SlotlessExecution]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield SlotlessExecution(process, listed["name"], listed["startDate"].timestamp())


def _job_that_runs(stack: StackConnection, execution: str) -> str | None:
    """The job of an execution that is between RunGlueJob and ReleaseSlot; None for any other execution."""
    stepfunctions = stack.client("stepfunctions")
    pages = stepfunctions.get_paginator("get_execution_history")
    job = None
    try:
        for page in pages.paginate(executionArn=stack.execution_arn(execution), reverseOrder=True):
            for event in page["events"]:
                entered = event.get("stateEnteredEventDetails", {})
                has_ended = event["type"].startswith("Execution") and event["type"] not in _NO_END
                if entered.get("name") == _RELEASE or has_ended:
                    return None
                if entered.get("name") == _RUN:
                    job = json.loads(entered.get("input", "{}")).get("target", "")
    except stepfunctions.exceptions.ExecutionDoesNotExist:
        return None
    return job
