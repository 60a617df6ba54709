"""Find executions that run without a slot, so that a command can adopt them: record them as holders.

They exist only after SlotTable was restored to an earlier time or edited manually. For each of them, the starter would
admit one request too many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.process import Process
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection

# A workflow uses its slot from one of the first of these states to the last. Outside of them it must not be adopted:
# - before the first it may have lost its reservation. It then returns its request; adopted, it would run its job
#   although another request has its slot.
# - after ReleaseSlot it only wakes the next request and publishes its event.
_RUNS = ("RunGlueJob", "RunStateMachine")
_CONFIRM, _RELEASE = "ConfirmSlot", "ReleaseSlot"
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
    targets = in_parallel(lambda one: _target_that_runs(stack, one.execution), slotless)
    found = [replace(one, target=target) for one, target in zip(slotless, targets, strict=True) if target is not None]
    return sorted(found, key=lambda one: one.since)


def _running(stack: StackConnection) -> Iterator[SlotlessExecution]:
    pages = stack.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=stack.outputs["WorkflowArn"], statusFilter="RUNNING"):
        for listed in page["executions"]:
            process = listed["name"].rpartition("-")[0]
            yield SlotlessExecution(process, listed["name"], listed["startDate"].timestamp())


def _target_that_runs(stack: StackConnection, execution: str) -> str | None:
    """What an execution runs that is between _RUNS and ReleaseSlot; None for any other execution."""
    stepfunctions = stack.client("stepfunctions")
    pages = stepfunctions.get_paginator("get_execution_history")
    is_running, target = False, ""
    try:
        for page in pages.paginate(executionArn=stack.execution_arn(execution), reverseOrder=True):
            for event in page["events"]:
                entered, left = (event.get(f"state{each}EventDetails", {}) for each in ("Entered", "Exited"))
                has_ended = event["type"].startswith("Execution") and event["type"] not in _NO_END
                if entered.get("name") == _RELEASE or has_ended:
                    return None
                is_running |= entered.get("name") in _RUNS
                if left.get("name") == _CONFIRM:
                    target = _target_in(left.get("output", "{}"), execution)
    except stepfunctions.exceptions.ExecutionDoesNotExist:
        return None
    return target if is_running else None


def confirmed_target(workflow: Workflow, execution: str) -> str:
    """What an execution has confirmed that it runs; empty if the first events of its history do not state it."""
    left = (event.get("stateExitedEventDetails", {}) for event in workflow.events(execution))
    outputs = (each.get("output", "{}") for each in left if each.get("name") == _CONFIRM)
    return next((_target_in(output, execution) for output in outputs), "")


def _target_in(output: str, execution: str) -> str:
    """The target in the output of ConfirmSlot, which is DynamoDB's answer; empty if it has none."""
    holders = json.loads(output).get("Attributes", {}).get("holders", {}).get("M", {})
    return str(holders.get(execution, {}).get("M", {}).get("job", {}).get("S", ""))
