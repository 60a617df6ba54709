"""Glue runs as the janitor sees them: is one of an execution's still alive, and stop it if so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

# The argument by which a run tells whose it is; the workflow passes it, and requests cannot (request.schema.json).
MARKER = "--slotkeeper-execution"

# Glue Web API, JobRun, JobRunState: whatever is not over may still do work.
_OVER = {"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"}

# A run cannot have begun before its execution's reservation; a minute allows for two services' clocks.
_CLOCKS_APART = 60


class NoSuchJob(LookupError):
    """The Glue job does not exist any more, so nothing of it can be running."""


class GlueRuns:
    """Looks for runs and stops them."""

    def __init__(self, glue: GlueClient) -> None:
        self._glue = glue

    def alive(self, job_name: str, execution: str, since: float) -> list[str]:
        """The ids of an execution's runs that are not over.

        Args:
            since: seconds since the epoch of the reservation; the search ends at runs from before it.

        Raises:
            NoSuchJob: see there.
        """
        alive = []
        try:
            # Newest first (observed; the Glue Web API, GetJobRuns, leaves the order open to a page's runs).
            for page in self._glue.get_paginator("get_job_runs").paginate(JobName=job_name):
                runs = page["JobRuns"]
                alive += [
                    run["Id"]
                    for run in runs
                    if run.get("Arguments", {}).get(MARKER) == execution and run["JobRunState"] not in _OVER
                ]
                started = [run["StartedOn"].timestamp() for run in runs if "StartedOn" in run]
                if started and max(started) < since - _CLOCKS_APART:
                    break
        except ClientError as error:
            if error.response["Error"]["Code"] != "EntityNotFoundException":
                raise
            raise NoSuchJob(f"Glue job {job_name} does not exist") from error
        return alive

    def stop(self, job_name: str, run_ids: list[str]) -> None:
        """Asks Glue to stop these runs. A refusal shows at the next look: the run is still alive."""
        self._glue.batch_stop_job_run(JobName=job_name, JobRunIds=run_ids)
