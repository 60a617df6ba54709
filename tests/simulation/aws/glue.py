"""Glue's job runs as a pure function: a limit of concurrent runs, stops that take a while, and pages.

A run counts towards the limit for some seconds after Glue reports it as SUCCEEDED (observed, not documented).
"""

from __future__ import annotations

from typing import Any

from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.transcript import Answer

ALIVE = ("STARTING", "RUNNING", "STOPPING", "WAITING")
LARGEST_PAGE = 200  # Glue Web API, GetJobRuns, MaxResults
_NO_ARGUMENTS = record({})


def jobs(page: int = LARGEST_PAGE, **concurrent_runs: int) -> Record:
    """Jobs without runs: name -> the most concurrent runs.

    Args:
        page: the most runs on a page of GetJobRuns, unless MaxResults is lower.
    """
    return record({name: record({"limit": limit, "page": page, "runs": ()}) for name, limit in concurrent_runs.items()})


def perform(jobs: Record, operation: str, parameters: Record, now: float) -> tuple[Record, Answer]:
    """One operation; `now` in seconds since the epoch."""
    name = parameters["JobName"]
    if name not in jobs:
        return jobs, Answer(error="EntityNotFoundException")
    changed, answer = _OPERATIONS[operation](jobs[name], parameters, now)
    return (jobs if changed is jobs[name] else jobs.with_fields(**{name: changed})), answer


def end(jobs: Record, name: str, run_id: str, state: str, now: float, lag: float = 0) -> Record:
    """The jobs after this run has ended. It counts towards the limit for `lag` seconds more."""
    runs = tuple(
        run.with_fields(state=state, ended=now, place_until=now + lag) if run["id"] == run_id else run
        for run in jobs[name]["runs"]
    )
    return jobs.with_fields(**{name: jobs[name].with_fields(runs=runs)})


def another(jobs: Record, name: str, arguments: Record, now: float) -> Record:
    """The jobs with one more run of this job, which has already ended."""
    job = jobs[name]
    run = {"id": f"jr_{len(job['runs']) + 1}", "state": "SUCCEEDED", "started": now, "stopping": 0, "ended": now}
    runs = (*job["runs"], record(run | {"place_until": 0, "arguments": arguments}))
    return jobs.with_fields(**{name: job.with_fields(runs=runs)})


def _start(job: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    taken = [run for run in job["runs"] if run["state"] in ALIVE or run["place_until"] > now]
    if len(taken) >= job["limit"]:
        return job, Answer(error="ConcurrentRunsExceededException")
    run_id = f"jr_{len(job['runs']) + 1}"
    run = {"id": run_id, "state": "RUNNING", "started": now, "stopping": 0, "ended": 0, "place_until": 0}
    run["arguments"] = parameters.get("Arguments", _NO_ARGUMENTS)
    return job.with_fields(runs=(*job["runs"], record(run))), Answer(freeze({"JobRunId": run_id}))


def _runs(job: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    """A page of runs, the newest first (Glue Web API, GetJobRuns). The token is the number of older runs."""
    before = int(parameters.get("NextToken", len(job["runs"])))
    size = min(job["page"], parameters.get("MaxResults", LARGEST_PAGE))
    first = max(before - size, 0)
    response = {"JobRuns": [_described(run, parameters["JobName"]) for run in reversed(job["runs"][first:before])]}
    return job, Answer(freeze(response | ({"NextToken": str(first)} if first else {})))


def _run(job: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    run = next((run for run in job["runs"] if run["id"] == parameters["RunId"]), None)
    if run is None:
        return job, Answer(error="EntityNotFoundException")
    return job, Answer(freeze({"JobRun": _described(run, parameters["JobName"])}))


def _described(run: Record, job_name: str) -> dict[str, Any]:
    times: dict[str, Any] = {"StartedOn": Moment(run["started"])} if run["started"] else {}
    if run["state"] not in ALIVE:
        times |= {"CompletedOn": Moment(run["ended"]), "ExecutionTime": round(run["ended"] - run["started"])}
    return {
        "Id": run["id"],
        "JobName": job_name,
        "JobRunState": run["state"],
        "Arguments": run["arguments"],
        **times,
    }


def _stop(job: Record, parameters: Record, now: float) -> tuple[Record, Answer]:
    stopped = [run["id"] for run in job["runs"] if run["id"] in parameters["JobRunIds"] and run["state"] in ALIVE]
    runs = tuple(
        run.with_fields(state="STOPPING", stopping=run["stopping"] or now) if run["id"] in stopped else run
        for run in job["runs"]
    )
    if stopped:
        job = job.with_fields(runs=runs)
    submitted = [{"JobName": parameters["JobName"], "JobRunId": run_id} for run_id in stopped]
    return job, Answer(freeze({"SuccessfulSubmissions": submitted}))


_OPERATIONS: dict[str, Any] = {
    "start_job_run": _start,
    "get_job_runs": _runs,
    "get_job_run": _run,
    "batch_stop_job_run": _stop,
}
