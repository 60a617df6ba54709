"""The Glue runs of executions."""

from __future__ import annotations

from slotkeeper.slots.work import CLOCK_DIFFERENCE_SECONDS, MARKER
from slotkeeper_cli.stack_connection import StackConnection


def runs_by_execution(stack: StackConnection, job: str, since: float) -> dict[str, dict[str, str]]:
    """The newest Glue run of each execution, `id` and `state`, among the runs of a job that started after a moment.

    Args:
        since: seconds since the epoch. Runs of the minute before are included, since the clocks of two services differ.
    """
    runs: dict[str, dict[str, str]] = {}
    glue = stack.client("glue")
    try:
        for page in glue.get_paginator("get_job_runs").paginate(JobName=job):
            for run in page["JobRuns"]:
                execution = run.get("Arguments", {}).get(MARKER, "")
                runs.setdefault(execution, {"id": run["Id"], "state": run["JobRunState"]})
            started = [run["StartedOn"].timestamp() for run in page["JobRuns"] if "StartedOn" in run]
            if started and max(started) < since - CLOCK_DIFFERENCE_SECONDS:
                break
    except glue.exceptions.EntityNotFoundException:
        pass  # the job was deleted, and its runs with it
    return runs
