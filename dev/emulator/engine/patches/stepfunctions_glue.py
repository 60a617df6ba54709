"""The task resources `glue:startJobRun` and `glue:startJobRun.sync`.

AWS: "Start an AWS Glue job with Step Functions"; "Discover service integration patterns in Step Functions" (Run a Job:
a stopped execution makes a best-effort attempt to cancel the job; a timeout of a task or an execution is not mentioned,
so those runs continue here). Errors are `Glue.<code>`. A run that ends in another state than SUCCEEDED is
States.TaskFailed with the run as its cause, dates as epoch milliseconds and its keys sorted.
MiniStack's only Glue integration is the aws-sdk one, which cannot wait.
"""

import json
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import glue
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_tasks import answer_of, wait_for_job

RESOURCE = "arn:aws:states:::glue:startJobRun"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")


def apply() -> None:
    """Register the resource. MiniStack removes `.sync` before it looks the resource up."""
    sfn._SERVICE_DISPATCH[RESOURCE] = start_job_run


def start_job_run(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the run, and with `.sync` wait for its end."""
    answer = answer_of(glue._start_job_run(arguments), "AWSGlue", lambda code: f"Glue.{code}")
    if ".sync" not in resource:
        return answer
    name, run_id = arguments["JobName"], answer["JobRunId"]
    drives.note_submitted("glue", "startJobRun.sync", answer)
    run = next(run for run in glue._job_runs[name] if run["Id"] == run_id)
    wait_for_job(
        lambda: run["JobRunState"] not in ENDED,
        lambda: glue._batch_stop_job_run({"JobName": name, "JobRunIds": [run_id]}),
    )
    result = as_step_functions_shows_it(run)
    if run["JobRunState"] != "SUCCEEDED":
        raise sfn._ExecutionError("States.TaskFailed", json.dumps(result, sort_keys=True, separators=(",", ":")))
    return result


def as_step_functions_shows_it(run: dict[str, Any]) -> dict[str, Any]:
    """The run in Glue's names, its dates as epoch milliseconds."""
    dates = ("StartedOn", "CompletedOn", "LastModifiedOn")
    return {key: int(value * 1000) if key in dates and value else value for key, value in run.items()}
