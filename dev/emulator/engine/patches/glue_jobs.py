"""A Glue job keeps its ExecutionProperty, and GetJobRuns pages from the newest run.

AWS: "Glue API: Jobs" (ExecutionProperty.MaxConcurrentRuns, default 1; UpdateJob removes or resets absent properties)
and "Glue API: Job runs" (GetJobRuns: MaxResults up to 200, NextToken, EntityNotFoundException).
MiniStack ignores ExecutionProperty, from the API and from CloudFormation. It answers all runs in one page, oldest
first, and an empty list for a job that does not exist.
"""

from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import glue, provisioners, replace, responses, wrap

DEFAULT = {"MaxConcurrentRuns": 1}
PAGE = 200


def apply() -> None:
    """Extend creation and update of jobs, and replace GetJobRuns."""
    wrap(glue, "_create_job", _create_job)
    wrap(glue, "_update_job", _update_job)
    replace(glue, "_get_job_runs", lambda _original: _get_job_runs)
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
        return responses.error_response_json("EntityNotFoundException", f"Job {name} not found", 400)
    size = int(data.get("MaxResults") or PAGE)
    if not 1 <= size <= PAGE:
        return responses.error_response_json("InvalidInputException", "MaxResults must be between 1 and 200", 400)
    runs = glue._job_runs.get(name, [])
    # The token is the last run of the page before, so that runs started since then do not shift the pages.
    end = len(runs)
    token = data.get("NextToken")
    if token:
        end = next((index for index, run in enumerate(runs) if run["Id"] == token), -1)
        if end < 0:
            return responses.error_response_json("InvalidInputException", "NextToken is not valid", 400)
    page = runs[max(0, end - size) : end][::-1]
    answer: dict[str, Any] = {"JobRuns": page}
    if end - size > 0:
        answer["NextToken"] = page[-1]["Id"]
    return responses.json_response(answer)
