"""The task resources `glue:startJobRun` and `glue:startJobRun.sync`.

AWS: "Start an AWS Glue job with Step Functions"; "Discover service integration patterns in Step Functions" (Run a Job:
a stopped execution makes a best-effort attempt to cancel the job; a timeout of a task or an execution is not mentioned,
so those runs continue here). Errors are `Glue.<code>`. A run that ends in another state than SUCCEEDED is
States.TaskFailed with the run as its cause, dates as epoch milliseconds and its keys sorted.
MiniStack's only Glue integration is the aws-sdk one, which cannot wait.
"""

import json
import time
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import glue
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_tasks import abandoned

RESOURCE = "arn:aws:states:::glue:startJobRun"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")
POLL_SECONDS = 0.05
leave_running: set[str] = set()  # executions whose abort does not stop the Glue run (see dev.emulator.faults)


def apply() -> None:
    """Register the resource. MiniStack removes `.sync` before it looks the resource up."""
    sfn._SERVICE_DISPATCH[RESOURCE] = start_job_run


def start_job_run(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the run, and with `.sync` wait for its end."""
    status, _headers, body = glue._start_job_run(arguments)
    answer: dict[str, Any] = json.loads(body)
    if status >= 400:
        code = str(answer.get("__type", "")).rsplit("#", 1)[-1]
        raise sfn._ExecutionError(
            f"Glue.{code}", f"{answer.get('message', '')} (Service: AWSGlue; Status Code: {status}; Error Code: {code})"
        )
    if ".sync" not in resource:
        return answer
    name, run_id = arguments["JobName"], answer["JobRunId"]
    drive = drives.current.get()
    if drive is not None:
        submitted = {"resourceType": "glue", "resource": "startJobRun.sync", "output": json.dumps(answer)}
        sfn._add_event(drive.execution, "TaskSubmitted", {"taskSubmittedEventDetails": submitted})
    run = next(run for run in glue._job_runs[name] if run["Id"] == run_id)
    _wait(name, run, drive)
    result = as_step_functions_shows_it(run)
    if run["JobRunState"] != "SUCCEEDED":
        raise sfn._ExecutionError("States.TaskFailed", json.dumps(result, sort_keys=True, separators=(",", ":")))
    return result


def _wait(name: str, run: dict[str, Any], drive: drives.Drive | None) -> None:
    timed_out = abandoned.get()
    while run["JobRunState"] not in ENDED:
        if timed_out is not None and timed_out.is_set():
            raise drives.ExecutionClosed  # the task timed out, so this thread's result is not used
        if drive is not None and drives.has_ended():
            if drives.is_aborted() and drive.execution["name"] not in leave_running:
                glue._batch_stop_job_run({"JobName": name, "JobRunIds": [run["Id"]]})
            raise drives.ExecutionClosed
        time.sleep(POLL_SECONDS)


def as_step_functions_shows_it(run: dict[str, Any]) -> dict[str, Any]:
    """The run in Glue's names, its dates as epoch milliseconds."""
    dates = ("StartedOn", "CompletedOn", "LastModifiedOn")
    return {key: int(value * 1000) if key in dates and value else value for key, value in run.items()}
