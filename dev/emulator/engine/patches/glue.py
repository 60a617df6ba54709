"""Glue: jobs with a limit of runs, pages of runs, and a process for each run."""

import contextvars
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import glue, patch, provisioners, put, refused, responses, wrap
from dev.emulator.engine.glue_script import ScriptProcess

LIVE = ("STARTING", "RUNNING", "STOPPING")
DEFAULT = {"MaxConcurrentRuns": 1}
PAGE = 200
lock = threading.Lock()
_processes: dict[str, ScriptProcess] = {}


@patch
def glue_jobs() -> None:
    """A job keeps its ExecutionProperty, and GetJobRuns pages from the newest run.

    AWS: "Glue API: Jobs" (ExecutionProperty.MaxConcurrentRuns, default 1; UpdateJob removes or resets absent
    properties) and "Glue API: Job runs" (GetJobRuns: MaxResults up to 200, NextToken, EntityNotFoundException).
    MiniStack ignores ExecutionProperty, from the API and from CloudFormation. It answers all runs in one page, oldest
    first, and an empty list for a job that does not exist.
    Shown by the rows pages_of_runs, missing_job of tests/facts.
    """
    wrap(glue, "_create_job", _create_job)
    wrap(glue, "_update_job", _update_job)
    put(glue, "_get_job_runs", _get_job_runs)
    # CloudFormation passes on the properties in this table, and resets those that a later template omits.
    provisioners._GLUE_JOB_DEFAULTS["ExecutionProperty"] = dict(DEFAULT)


def _create_job(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original(data)
    if answer[0] < 400:
        _complete(glue._jobs[data["Name"]], data)
    return answer


def _update_job(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    answer = original(data)
    if answer[0] < 400:
        _complete(glue._jobs[data["JobName"]], data.get("JobUpdate", {}))
    return answer


def _complete(job: dict[str, Any], given: dict[str, Any]) -> None:
    """Store the execution property, and convert numbers that a template's parameters pass as text."""
    runs = (given.get("ExecutionProperty") or DEFAULT).get("MaxConcurrentRuns", 1)
    job["ExecutionProperty"] = {"MaxConcurrentRuns": int(runs)}
    for name in ("Timeout", "MaxRetries"):
        if isinstance(job.get(name), str):
            job[name] = int(job[name])


def _get_job_runs(data: dict[str, Any]) -> Any:
    name = data.get("JobName")
    if name not in glue._jobs:
        return refused("EntityNotFoundException", f"Job {name} not found")
    size = int(data.get("MaxResults") or PAGE)
    runs = glue._job_runs.get(name, [])
    # The token is the last run of the page before, so that runs started since then do not shift the pages.
    token = data.get("NextToken")
    end = [run["Id"] for run in runs].index(token) if token else len(runs)
    page = runs[max(0, end - size) : end][::-1]
    answer: dict[str, Any] = {"JobRuns": page}
    if end - size > 0:
        answer["NextToken"] = page[-1]["Id"]
    return responses.json_response(answer)


@patch
def glue_runs() -> None:
    """A run is a separate process that can time out, be stopped and be refused.

    AWS: "Glue API: Job runs" (StartJobRun, BatchStopJobRun, states, Timeout in minutes,
    ConcurrentRunsExceededException), "Passing and accessing Python parameters in Glue" (argv). Seen in practice: a run
    counts as concurrent for some seconds after its state is SUCCEEDED (SLOTKEEPER_GLUE_PLACE_HELD_SECONDS).
    MiniStack admits any number of runs, passes arguments as environment variables, reads the timeout as seconds and
    caps it, cannot stop a script, marks a run without a `.py` script or with a Spark command SUCCEEDED without running
    it, and has whole seconds.
    Shown by the rows limit_of_runs, errors_of_a_task of tests/facts.
    """
    put(glue, "_start_job_run", _start_job_run)
    put(glue, "_batch_stop_job_run", _batch_stop_job_run)


def _start_job_run(data: dict[str, Any]) -> Any:
    """StartJobRun: admit within MaxConcurrentRuns, then run the script in the background."""
    name = str(data.get("JobName"))
    job = glue._jobs.get(name)
    if job is None:
        return refused("EntityNotFoundException", f"Failed to start job run due to missing metadata: {name}")
    timeout = data.get("Timeout") or job.get("Timeout") or 2880
    arguments = {**job.get("DefaultArguments", {}), **data.get("Arguments", {})} | job.get(
        "NonOverridableArguments", {}
    )
    now = _now()
    run = {
        "Id": "jr_" + secrets.token_hex(32),
        "Attempt": 0,
        "JobName": name,
        "StartedOn": now,
        "LastModifiedOn": now,
        "JobRunState": "STARTING",
        "Arguments": arguments,
        "PredecessorRuns": [],
        "ExecutionTime": 0,
        "Timeout": int(timeout),
        "GlueVersion": job.get("GlueVersion", "3.0"),
    } | {
        key: data.get(key, job.get(key))
        for key in ("MaxCapacity", "WorkerType", "NumberOfWorkers")
        if data.get(key, job.get(key))
    }
    with lock:
        runs = glue._job_runs.setdefault(name, [])
        if sum(map(_counts_as_concurrent, runs)) >= job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1):
            return refused("ConcurrentRunsExceededException", f"Concurrent runs exceeded for {name}")
        runs.append(run)
        _processes[run["Id"]] = ScriptProcess(_log_name(run))
    _begin(name, run)
    return responses.json_response({"JobRunId": run["Id"]})


def _batch_stop_job_run(data: dict[str, Any]) -> Any:
    """BatchStopJobRun: STOPPING immediately, STOPPED when the script's processes have ended."""
    name = data.get("JobName")
    stopped, errors = [], []
    for run_id in data.get("JobRunIds", []):
        run = next((run for run in glue._job_runs.get(name, []) if run["Id"] == run_id), None)
        with lock:
            if run is not None and run["JobRunState"] in ("STARTING", "RUNNING"):
                run.update(JobRunState="STOPPING", LastModifiedOn=_now())
                _processes[run_id].stop()
                stopped.append({"JobName": name, "JobRunId": run_id})
                continue
        code = "EntityNotFoundException" if run is None else "JobRunInvalidStateTransitionException"
        text = "Job run not found" if run is None else f"A job run that is {run['JobRunState']} cannot be stopped"
        errors.append({"JobName": name, "JobRunId": run_id, "ErrorDetail": {"ErrorCode": code, "ErrorMessage": text}})
    return responses.json_response({"SuccessfulSubmissions": stopped, "Errors": errors})


def resume(name: str, run: dict[str, Any]) -> None:
    """Restart the script of a run that was live when the engine ended, or end the run if it was being stopped."""
    _processes[run["Id"]] = ScriptProcess(_log_name(run))
    if run["JobRunState"] == "STOPPING":
        _processes[run["Id"]].stop()
    _begin(name, run)


def _log_name(run: dict[str, Any]) -> str:
    """The execution that has started the run, which the operator command prints; the run's id if none has."""
    return str(run["Arguments"].get("--slotkeeper-execution", run["Id"]))


def _begin(name: str, run: dict[str, Any]) -> None:
    # The thread needs the request's account and region, which MiniStack keeps in context variables.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(_execute, name, run), daemon=True, name="glue-run").start()


def _execute(name: str, run: dict[str, Any]) -> None:
    process, job = _processes[run["Id"]], glue._jobs[name]
    given = glue._script_args(job, name, run["Id"], run["Arguments"])
    arguments = [str(part) for pair in given.items() for part in pair]
    location = job.get("Command", {}).get("ScriptLocation", "")
    minute = float(os.environ.get("SLOTKEEPER_GLUE_MINUTE_SECONDS", "60"))  # shorter in the engine's own tests
    with lock:
        if run["JobRunState"] == "STARTING":
            run.update(JobRunState="RUNNING", LastModifiedOn=_now())
    try:
        state, message = process.run(location, arguments, run["Timeout"] * minute)
    except Exception as error:  # any error fails the run, so that it does not stay RUNNING
        state, message = "FAILED", f"{type(error).__name__}: {error}"
    with lock:
        if run["JobRunState"] == "STOPPING":
            state, message = "STOPPED", ""
        now = _now()
        if message:
            run["ErrorMessage"] = message
        seconds = max(1, round(now - run["StartedOn"]))  # AWS counts whole seconds
        run.update(JobRunState=state, CompletedOn=now, LastModifiedOn=now, ExecutionTime=seconds)
        del _processes[run["Id"]]


def _counts_as_concurrent(run: dict[str, Any]) -> bool:
    held = float(os.environ.get("SLOTKEEPER_GLUE_PLACE_HELD_SECONDS", "0"))
    completed: float = run.get("CompletedOn") or 0.0
    return run["JobRunState"] in LIVE or time.time() - completed < held


def _now() -> float:
    return round(time.time(), 3)
