"""How long the work of a target, and the executions of a process, have recently taken."""

from __future__ import annotations

from statistics import median

from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.targets import NO_TARGET, is_state_machine
from slotkeeper_cli.stack_connection import StackConnection

NEWEST = 100  # runs of a target that are read: one page
_NEWEST_EXECUTIONS = 1000  # of the workflow, of all processes: one page


def usual_seconds(stack: StackConnection, target: str) -> float | None:
    """The median duration of a target's newest successful runs; None if it has none."""
    if target == NO_TARGET:
        return None
    times = _of_executions(stack, target) if is_state_machine(target) else _of_runs(stack, target)
    return median(times) if times else None


def slot_seconds(stack: StackConnection) -> dict[str, list[float]]:
    """For how long the newest ended executions of each process held their slots, in seconds, in one call.

    An execution runs for some tenths of a second longer than it holds its slot. Executions that failed are included,
    since their slots became free too.
    """
    listed = stack.client("stepfunctions").list_executions(
        stateMachineArn=stack.outputs["WorkflowArn"], maxResults=_NEWEST_EXECUTIONS
    )
    found: dict[str, list[float]] = {}
    for each in listed["executions"]:
        if stopped := each.get("stopDate"):
            seconds = (stopped - each["startDate"]).total_seconds()
            found.setdefault(process_of_execution(each["name"]), []).append(seconds)
    return found


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
