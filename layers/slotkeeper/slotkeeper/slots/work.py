"""The work in slots: Glue runs and child executions. Finds, describes and stops either.

`Work` is one of them, and `WorkCheck` what one check has found of a holder's work: DeadHolders concludes from it,
for both kinds of targets.

A child execution has the name of the workflow execution that started it. Its input contains that execution's ARN in the
field AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID. An execution of the same name without that ARN is not a child: it
counts as absent, and is never stopped.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.targets import execution_arn

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_stepfunctions import SFNClient

# The run argument that contains the execution name. The workflow passes it; requests cannot (request.schema.json).
MARKER = "--slotkeeper-execution"

# Glue Web API, JobRun, JobRunState. A run in any other state may still work.
ENDED_STATES = {"SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"}

# Pages of a job's runs that `find_runs` reads. A holder that needs more is left to the janitor's runs, which can
# continue a search.
MAX_PAGES = 20
# A run cannot start before its execution's reservation. One minute covers the clock difference of the two services.
CLOCK_DIFFERENCE_SECONDS = 60


class NoSuchJob(LookupError):
    """The Glue job does not exist any more, so no run of it can be alive."""


@dataclass(frozen=True)
class Work:
    """A Glue run, or a child execution.

    Attributes:
        id: of the Glue run; of a child execution its ARN.
        status: as the service returns it.
        stopped_at: epoch seconds; None while it runs, or if the service does not return it.
        is_glue_run: otherwise it is a child execution.
        redrives: how often a child execution was redriven.
        output: JSON, of a child that has succeeded. Empty if Step Functions does not return it.
    """

    id: str
    status: str
    is_closed: bool
    stopped_at: float | None
    is_glue_run: bool = False
    redrives: int = 0
    output: str = field(default="", repr=False)

    @property
    def has_succeeded(self) -> bool:
        return self.status == "SUCCEEDED"

    def settles_at(self, settle_seconds: int) -> float:
        """From when on its slot may be freed, epoch seconds: work that an aborted child has started may outlive it."""
        if self.status in ("ABORTED", "TIMED_OUT"):
            return (self.stopped_at or 0) + settle_seconds
        return self.stopped_at or 0


@dataclass(frozen=True)
class WorkCheck:
    """What one check has found of a holder's work. The check lasts from `checked_at`, epoch seconds, to now.

    Attributes:
        running: the ids of the runs that have not ended.
        newest: the newest run, if one was found.
        is_final: whether the newest run has ended and no other can start. So it is of a child execution: Step Functions
            starts no second execution of its name. A Glue run that was being started may show only later.
    """

    checked_at: float
    running: tuple[str, ...] = ()
    newest: Work | None = None
    is_final: bool = False

    @classmethod
    def child(cls, checked_at: float, child: Work | None) -> WorkCheck:
        """The state of the child execution by a description that was asked for after `checked_at`."""
        if child is None:
            return cls(checked_at)
        return cls(checked_at, () if child.is_closed else (child.id,), child, is_final=child.is_closed)


class JobRunSearch:
    """A search through a job's runs, page by page from the newest to the oldest.

    Another run of the janitor may continue a search. Glue lists runs by their start, so each run that started before
    the search is on some page, and a run that has ended stays ended.

    Attributes:
        started_at: epoch seconds before the first page was requested. The search may miss a run that starts later.
        alive: execution -> run id -> start of the run, for runs that have not ended. None: the run has not started.
        newest: execution -> its newest run, for the executions that were passed.
    """

    def __init__(self, pages: Iterator[Any], started_at: float, executions: Iterable[str] = ()) -> None:
        self._pages = pages
        self._executions = frozenset(executions)
        self._reached = math.inf  # runs on later pages started before this time
        self._ended = False
        self._failed = False
        self.started_at = started_at
        self.alive: dict[str, dict[str, float | None]] = defaultdict(dict)
        self.newest: dict[str, Work] = {}

    def covers(self, since: float) -> bool:
        """Whether the search has read every run of an execution whose reservation was made at `since`."""
        return self._ended or self._reached < since - CLOCK_DIFFERENCE_SECONDS

    def read_page(self) -> None:
        """Read the next page.

        Raises:
            NoSuchJob: the job does not exist. The search is complete.
        """
        if self._failed:  # a paginator that has failed looks like one that has reached the end
            raise RuntimeError("this search of Glue runs has failed and cannot continue; start a new one")
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
            has_ended = run["JobRunState"] in ENDED_STATES
            if execution in self._executions and execution not in self.newest:
                stopped = run["CompletedOn"].timestamp() if "CompletedOn" in run else None
                self.newest[execution] = Work(run["Id"], run["JobRunState"], has_ended, stopped, is_glue_run=True)
            if not has_ended:
                self.alive[execution][run["Id"]] = run_started
        if started:
            self._reached = min(self._reached, max(started))

    def found(self, execution: str) -> WorkCheck:
        """An execution's runs in the pages read so far."""
        return WorkCheck(self.started_at, tuple(self.alive.get(execution, ())), self.newest.get(execution))


class GlueRuns:
    """Searches for runs and stops them."""

    def __init__(self, glue: GlueClient) -> None:
        self._glue = glue

    def search_runs(self, job_name: str, started_at: float, executions: Iterable[str] = ()) -> JobRunSearch:
        """Create a search through the job's runs. It has not read any page yet.

        Args:
            started_at: the current time, seconds since the epoch.
            executions: those for which the search fills in `newest`.
        """
        return JobRunSearch(self._pages(job_name), started_at, executions)

    def _pages(self, job_name: str) -> Iterator[Any]:
        # Newest first, as observed. The Glue Web API (GetJobRuns) does not document the order of the runs on a page.
        yield from self._glue.get_paginator("get_job_runs").paginate(JobName=job_name)

    def find_runs(self, job_name: str, execution: str, since: float, now: float) -> WorkCheck | None:
        """Search for an execution's runs; None if they are on later pages than MAX_PAGES.

        Args:
            since: when its slot was reserved, seconds since the epoch. The search ends at runs from before.
        """
        search = self.search_runs(job_name, now, [execution])
        with suppress(NoSuchJob):
            for _ in range(MAX_PAGES):
                search.read_page()
                if search.covers(since):
                    break
            else:
                return None
        return search.found(execution)

    def stop(self, job_name: str, run_ids: Sequence[str]) -> None:
        """Request that Glue stops these runs. After a refusal, the next check finds the run alive and repeats this."""
        self._glue.batch_stop_job_run(JobName=job_name, JobRunIds=list(run_ids))


# Step Functions guide, "Start a new AWS Step Functions state machine from a running execution".
PARENT_FIELD = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"


class Children:
    """The child executions of any state machine. Errors of Step Functions pass through as ClientError."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def describe(self, target: str, name: str, parent_arn: str) -> Work | None:
        """Describe the child of this name; None if Step Functions knows none, or another caller started it.

        DescribeExecution is eventually consistent, so None does not prove that a start is not in flight.

        Args:
            target: the state machine's ARN.
            parent_arn: the workflow execution's ARN.

        Raises:
            RecursionError, ValueError: the input cannot be parsed, so that it is unknown who started the execution.
        """
        arn = execution_arn(target, name)
        try:
            answer = self._stepfunctions.describe_execution(executionArn=arn)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        if not _has_started(parent_arn, answer.get("input") or "null"):
            return None
        stopped = answer.get("stopDate")
        return Work(
            id=arn,
            status=answer["status"],
            is_closed=answer["status"] in CLOSED_STATUSES,
            stopped_at=stopped.timestamp() if stopped else None,
            redrives=answer.get("redriveCount", 0),
            output=answer.get("output", ""),
        )

    def stop(self, target: str, name: str) -> None:
        """Request that Step Functions aborts a child that was described as running."""
        self._stepfunctions.stop_execution(
            executionArn=execution_arn(target, name),
            error="WorkflowEnded",
            cause="Slotkeeper's workflow that started this execution has ended, so it must not use the slot any longer",
        )

    def redriven(self, target: str) -> Iterator[str | None]:
        """List the names of the running executions that were redriven, and None after each page of running ones.

        The list is eventually consistent. It can be continued for a day (Step Functions API Reference, ListExecutions,
        nextToken).
        """
        pages = self._stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=target,
            statusFilter="RUNNING",
            PaginationConfig={"PageSize": 1000},
        )
        for page in pages:
            # A filter by redrives is for Map Runs (Step Functions API Reference, ListExecutions, redriveFilter).
            yield from (each["name"] for each in page["executions"] if each.get("redriveCount", 0) > 0)
            yield None


def _has_started(parent_arn: str, execution_input: str) -> bool:
    """Whether the workflow execution with this ARN has started the execution with this input."""
    given = json.loads(execution_input)
    return isinstance(given, dict) and given.get(PARENT_FIELD) == parent_arn
