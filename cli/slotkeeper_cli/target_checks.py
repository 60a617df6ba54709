"""Targets of processes, Glue jobs and state machines: whether a process can use one, and how long its work takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.targets import NO_TARGET, check_key, check_place, check_type, is_state_machine, matches
from slotkeeper_cli.stack_connection import StackConnection

NEWEST = 100  # runs of a target that are read: one page
_NEWEST_EXECUTIONS = 1000  # of the workflow, of all processes: one page


def get_job(stack: StackConnection, name: str) -> dict[str, Any] | None:
    """The job as Glue describes it (GetJob); None if it does not exist."""
    glue = stack.client("glue")
    try:
        job: dict[str, Any] = glue.get_job(JobName=name)["Job"]
    except glue.exceptions.EntityNotFoundException:
        return None
    return job


def allowed_jobs(stack: StackConnection) -> set[str]:
    """The names of the jobs that the workflow's role may run. They may have IAM's wildcards * and ?."""
    more = [arn for arn in stack.parameters.get("MoreGlueJobArns", "").split(",") if arn]
    return {stack.outputs["GlueJobName"]} | {arn.rpartition("/")[2] for arn in more}


def job_problems(name: str, job: dict[str, Any] | None, allowed: set[str]) -> list[str]:
    """Why requests would fail, or run without a slot, with this job. Each text ends with what to do."""
    if job is None:
        return [f"Glue job {name!r} does not exist: create it first"]
    problems = []
    if job.get("MaxRetries", 0):
        problems.append(
            f"Glue job {name} has MaxRetries {job['MaxRetries']}: set it to 0, since a retry by Glue takes no slot"
        )
    if job.get("JobRunQueuingEnabled"):
        # Step Functions' StartJobRun has no documented field that disables queuing for one run.
        problems.append(
            f"Glue job {name} has JobRunQueuingEnabled: disable it with UpdateJob, since Glue fails a run that it has "
            "queued for 15 minutes, whereas the workflow retries a start that Glue refuses"
        )
    if not matches(name, allowed):
        problems.append(f"the workflow may not run Glue job {name}: add its ARN to the parameter MoreGlueJobArns")
    return problems


def most_holders(slot_limit: int, default_weight: int) -> int:
    """The most requests of the default weight that hold slots of a process at the same time."""
    return min(MAX_HOLDERS, slot_limit // default_weight)


def max_concurrent_runs(job: Mapping[str, Any]) -> int:
    return int(job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1))


def concurrency_problems(name: str, job: dict[str, Any], slots: int) -> list[str]:
    """Why Glue may refuse runs that have a slot: it counts a run for some seconds after it reports SUCCEEDED.

    Args:
        slots: `most_holders` of all processes that use the job.
    """
    most = max_concurrent_runs(job)
    if most > slots:
        return []
    return [
        f"Glue job {name} allows {most} concurrent runs (MaxConcurrentRuns) for {slots} slots: set MaxConcurrentRuns "
        "higher, since Glue counts a run for some seconds after it has ended"
    ]


def target_text(target: str) -> str:
    """A target with its kind: `Glue job load`, `state machine arn:...`, `leases only`."""
    if target == NO_TARGET:
        return "leases only"
    return f"{'state machine' if is_state_machine(target) else 'Glue job'} {target}"


def check_account_and_region(stack: StackConnection, target: str) -> None:
    """Raise ValueError if a state machine is not in the stack's account and Region."""
    _, _, _, region, account, *_ = stack.outputs["WorkflowArn"].split(":")
    check_place(target, account, region)


def target_problems(stack: StackConnection, target: str) -> list[str]:
    """Why requests would fail, or run without a slot, with this target. Each text ends with what to do.

    Raises:
        ValueError: it is an Express workflow, which no workflow can wait for.
    """
    if target == NO_TARGET:
        return []
    if not is_state_machine(target):
        return job_problems(target, get_job(stack, target), allowed_jobs(stack))
    machine = get_machine(stack, target)
    if machine is not None:
        check_type(target, machine)
    return machine_problems(target, machine, allowed_machines(stack), stack.parameters.get("KmsKeyArn", ""))


def get_machine(stack: StackConnection, arn: str) -> dict[str, Any] | None:
    """The state machine as Step Functions describes it (DescribeStateMachine); None if it does not exist."""
    stepfunctions = stack.client("stepfunctions")
    try:
        machine: dict[str, Any] = stepfunctions.describe_state_machine(
            stateMachineArn=arn,
            includedData="METADATA_ONLY",  # without the definition, which a key of its own may encrypt
        )
    except stepfunctions.exceptions.StateMachineDoesNotExist:
        return None
    return machine


def allowed_machines(stack: StackConnection) -> set[str]:
    """The ARNs of the state machines that the workflow's role may start, with IAM's wildcards * and ?."""
    named = [stack.parameters.get("TargetStateMachineArn", "")]
    return {arn for arn in [*named, *stack.parameters.get("MoreStateMachineArns", "").split(",")] if arn}


def machine_problems(arn: str, machine: dict[str, Any] | None, allowed: Iterable[str], key: str) -> list[str]:
    """Why requests would fail with this state machine. Each text ends with what to do.

    Args:
        key: the ARN of the stack's key; empty if it has none.
    """
    if machine is None:
        return [f"state machine {arn} does not exist: create it first"]
    problems = []
    if machine.get("type", "STANDARD") != "STANDARD":
        problems.append(f"state machine {arn} is of type {machine['type']}: it must be STANDARD")
    if machine.get("status") == "DELETING":
        problems.append(f"state machine {arn} is being deleted: create it again under another name")
    try:
        check_key(arn, machine, key)
    except ValueError as error:
        problems.append(str(error))
    if not matches(arn, allowed):
        problems.append(f"the workflow may not start state machine {arn}: add its ARN to MoreStateMachineArns")
    return problems


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
