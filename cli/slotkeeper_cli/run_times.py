"""How long the work of a target usually takes, by its newest runs."""

from __future__ import annotations

from statistics import median

from slotkeeper.slots.targets import NO_TARGET, is_state_machine
from slotkeeper_cli.stack_connection import StackConnection

NEWEST = 100  # runs of a target that are read: one page


def usual_seconds(stack: StackConnection, target: str) -> float | None:
    """The median duration of a target's newest successful runs; None if it has none."""
    if target == NO_TARGET:
        return None
    times = _of_executions(stack, target) if is_state_machine(target) else _of_runs(stack, target)
    return median(times) if times else None


def _of_runs(stack: StackConnection, job: str) -> list[float]:
    glue = stack.client("glue")
    try:
        runs = glue.get_job_runs(JobName=job, MaxResults=NEWEST)["JobRuns"]
    except glue.exceptions.EntityNotFoundException:
        return []
    return [float(run["ExecutionTime"]) for run in runs if run["JobRunState"] == "SUCCEEDED" and "ExecutionTime" in run]


def _of_executions(stack: StackConnection, arn: str) -> list[float]:
    stepfunctions = stack.client("stepfunctions")
    try:
        listed = stepfunctions.list_executions(stateMachineArn=arn, statusFilter="SUCCEEDED", maxResults=NEWEST)
    except stepfunctions.exceptions.StateMachineDoesNotExist:
        return []
    return [(each["stopDate"] - each["startDate"]).total_seconds() for each in listed["executions"]]
