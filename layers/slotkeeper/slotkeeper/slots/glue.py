"""Glue runs as the janitor sees them: which of them are alive, and stop those whose workflow has ended."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

# The argument by which a run tells whose it is; the workflow passes it, and requests cannot (request.schema.json).
MARKER = "--slotkeeper-execution"

# Glue Web API, JobRun, JobRunState: whatever is not over may still do work.
_OVER = {"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"}

# A run cannot have begun before its execution's reservation; a minute allows for two services' clocks.
CLOCK_DIFFERENCE_SECONDS = 60


class NoSuchJob(LookupError):
    """The Glue job does not exist any more, so nothing of it can be running."""


class JobRunSearch:
    """A job's runs, read page by page from the newest to older ones. It can be left, and continued later.

    Later means in another run of the janitor: Glue lists by the start of a run, so what began before the search did is
    met on some page, and what is over by then stays over.

    Attributes:
        begun: when the first page was asked for, in seconds since the epoch; a run that shows later may be missed.
        alive: execution -> the ids of its runs that are not over, with their starts (None while they wait for one).
        last_state: execution -> the state of its newest run, for the execution that was asked for.
    """

    def __init__(self, pages: Iterator[Any], begun: float, execution: str = "") -> None:
        self._pages = pages
        self._execution = execution
        self._reached = math.inf  # no page that was read shows a run that started after this on any later page
        self._ended = False
        self._failed = False
        self.begun = begun
        self.alive: dict[str, dict[str, float | None]] = defaultdict(dict)
        self.last_state = ""

    def covers(self, since: float) -> bool:
        """Whether every run of an execution with a reservation of this moment has been read."""
        return self._ended or self._reached < since - CLOCK_DIFFERENCE_SECONDS

    def read_page(self) -> None:
        """Reads the next page.

        Raises:
            NoSuchJob: see there. The search has ended.
        """
        if self._failed:  # its pages would seem to have ended
            raise RuntimeError("a search that has failed cannot be continued")
        try:
            page = next(self._pages, None)
        except Exception as error:
            self._failed = True
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == "EntityNotFoundException":
                self._ended = True
                raise NoSuchJob("the Glue job does not exist") from error
            raise
        if page is None:
            self._ended = True
            return
        started = []
        for run in page["JobRuns"]:
            run_started = run["StartedOn"].timestamp() if "StartedOn" in run else None
            started += [] if run_started is None else [run_started]
            execution = run.get("Arguments", {}).get(MARKER)
            if execution is None:
                continue
            if execution == self._execution and not self.last_state:
                self.last_state = run["JobRunState"]
            if run["JobRunState"] not in _OVER:
                self.alive[execution][run["Id"]] = run_started
        if started:
            self._reached = min(self._reached, max(started))


class GlueRuns:
    """Searches for runs and stops them."""

    def __init__(self, glue: GlueClient) -> None:
        self._glue = glue

    def search_runs(self, job_name: str, begun: float, execution: str = "") -> JobRunSearch:
        """A search through the job's runs that has read nothing yet.

        Args:
            begun: seconds since the epoch, now.
            execution: the execution whose newest run's state is wanted.
        """
        return JobRunSearch(self._pages(job_name), begun, execution)

    def _pages(self, job_name: str) -> Iterator[Any]:
        # Newest first (observed; the Glue Web API, GetJobRuns, leaves the order open to a page's runs).
        yield from self._glue.get_paginator("get_job_runs").paginate(JobName=job_name)

    def alive(self, job_name: str, execution: str, since: float) -> list[str]:
        """The ids of an execution's runs that are not over, by a search of its own.

        Args:
            since: seconds since the epoch of the reservation; the search ends at runs from before it.

        Raises:
            NoSuchJob: see there.
        """
        search = self.search_runs(job_name, since)
        while not search.covers(since):
            search.read_page()
        return list(search.alive.get(execution, ()))

    def stop(self, job_name: str, run_ids: list[str]) -> None:
        """Asks Glue to stop these runs. A refusal shows at the next check: the run is still alive."""
        self._glue.batch_stop_job_run(JobName=job_name, JobRunIds=run_ids)
