"""Check that a process can use a Glue job."""

from __future__ import annotations

from typing import Any

from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.targets import matches
from slotkeeper_cli.stack_connection import StackConnection


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


def concurrency_problems(name: str, job: dict[str, Any], slots: int) -> list[str]:
    """Why Glue may refuse runs that have a slot: it counts a run for some seconds after it reports SUCCEEDED.

    Args:
        slots: `most_holders` of all processes that use the job.
    """
    most = job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1)
    if most > slots:
        return []
    return [
        f"Glue job {name} allows {most} concurrent runs (MaxConcurrentRuns) for {slots} slots: set MaxConcurrentRuns "
        "higher, since Glue counts a run for some seconds after it has ended"
    ]
