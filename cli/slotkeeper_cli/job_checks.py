"""What a Glue job must be like for a process to run it."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from slotkeeper_cli.stack_connection import StackConnection


def get_job(stack: StackConnection, name: str) -> dict[str, Any] | None:
    """The job as Glue describes it (GetJob); None if there is none."""
    try:
        job: dict[str, Any] = stack.client("glue").get_job(JobName=name)["Job"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityNotFoundException":
            raise
        return None
    return job


def allowed_jobs(stack: StackConnection) -> set[str]:
    """The names of the jobs that the workflow's role may run, as the stack's parameters grant them."""
    more = [arn for arn in stack.parameters.get("MoreGlueJobArns", "").split(",") if arn]
    return {stack.outputs["GlueJobName"]} | {arn.rpartition("/")[2] for arn in more}


def job_problems(name: str, job: dict[str, Any] | None, allowed: set[str]) -> list[str]:
    """Why requests of a process with this job would fail or run without a slot; each text states what to do."""
    if job is None:
        return [f"Glue job {name!r} does not exist: create it first"]
    problems = []
    if job.get("MaxRetries", 0):
        problems.append(
            f"Glue job {name} has MaxRetries {job['MaxRetries']}: set 0, since a retry by Glue takes no slot"
        )
    if job.get("JobRunQueuingEnabled"):
        # StartJobRun through Step Functions has no documented field to turn it off for a run.
        problems.append(
            f"Glue job {name} has JobRunQueuingEnabled: turn it off with UpdateJob, since Glue fails a run that it has "
            "queued for a quarter of an hour, where the workflow retries a start that is refused"
        )
    if not any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in allowed):
        problems.append(f"the workflow may not run Glue job {name}: name its ARN in the parameter MoreGlueJobArns")
    return problems


def concurrency_problems(name: str, job: dict[str, Any], slots: int) -> list[str]:
    """Why a job may refuse runs that have a slot: Glue counts a run for some seconds after it reports SUCCEEDED.

    Args:
        slots: number of slots of all processes that use the job.
    """
    most = job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1)
    if most > slots:
        return []
    return [
        f"Glue job {name} allows {most} runs at once (MaxConcurrentRuns) for {slots} slots: set more, since Glue "
        "counts a run for some seconds after it has ended"
    ]
