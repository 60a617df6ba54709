"""Task resources of Step Functions: Glue runs, children, messages, and the names of their errors."""

import contextvars
import json
import secrets
from collections.abc import Callable
from typing import Any

from dev.emulator.engine import drives
from dev.emulator.engine.emulator import glue, patch, put, sqs, wrap, wrap_resource
from dev.emulator.engine.emulator import stepfunctions as sfn
from dev.emulator.engine.patches.stepfunctions_tasks import abandoned, wait_for_job

GLUE_RUN_ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")
_TEXTS = {"Input", "Output"}


@patch
def stepfunctions_glue() -> None:
    """The resources `glue:startJobRun` and `glue:startJobRun.sync`.

    AWS: "Start an AWS Glue job with Step Functions"; "Discover service integration patterns in Step Functions" (Run a
    Job: a stopped execution makes a best-effort attempt to cancel the job; a timeout of a task or an execution is not
    mentioned, so those runs continue here). Errors are `Glue.<code>`. A run that ends in another state than SUCCEEDED
    is States.TaskFailed with the run as its cause, dates as epoch milliseconds and its keys sorted.
    MiniStack's only Glue integration is the aws-sdk one, which cannot wait.
    Shown by the row errors_of_a_task of tests/facts.
    """
    # MiniStack removes `.sync` before it looks the resource up.
    sfn._SERVICE_DISPATCH["arn:aws:states:::glue:startJobRun"] = _start_job_run


def _start_job_run(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = _answer_of(glue._start_job_run(arguments), "AWSGlue", lambda code: f"Glue.{code}")
    if ".sync" not in resource:
        return answer
    name, run_id = arguments["JobName"], answer["JobRunId"]
    drives.note_submitted("glue", "startJobRun.sync", answer)
    run = next(run for run in glue._job_runs[name] if run["Id"] == run_id)
    wait_for_job(
        lambda: run["JobRunState"] not in GLUE_RUN_ENDED,
        lambda: glue._batch_stop_job_run({"JobName": name, "JobRunIds": [run_id]}),
    )
    dates = ("StartedOn", "CompletedOn", "LastModifiedOn")
    result = {key: int(value * 1000) if key in dates and value else value for key, value in run.items()}
    if run["JobRunState"] != "SUCCEEDED":
        raise _task_failed(result)
    return result


def _task_failed(result: dict[str, Any]) -> Exception:
    cause = json.dumps(result, sort_keys=True, separators=(",", ":"))
    error: Exception = sfn._ExecutionError("States.TaskFailed", cause)
    return error


def _answer_of(response: Any, service: str, error: Callable[[str], str]) -> dict[str, Any]:
    """The answer to a task's call. A refusal is raised; `error` makes its name from the code."""
    status, _headers, body = response
    answer: dict[str, Any] = json.loads(body)
    if status >= 400:
        code = str(answer.get("__type", "")).rsplit("#", 1)[-1]
        raise sfn._ExecutionError(error(code), _refusal_cause(answer.get("message", ""), service, status, code))
    return answer


def _refusal_cause(message: str, service: str, status: int, code: str) -> str:
    """The cause of an optimized task that its service has refused."""
    about = f"(Service: {service}; Status Code: {status}; Error Code: {code}; Request ID: 0; Proxy: null)"
    return f"{message} {about}"


@patch
def stepfunctions_optimized() -> None:
    """The optimized integration `sqs:sendMessage`: the names of its errors, and its result.

    AWS (recorded): an error has the name of the older Java SDK's exception, and its cause the service, the status and
    the code; a result contains the metadata of the HTTP call.
    MiniStack names the errors SQS.<code>, and returns only the API's fields.
    Shown by the row errors_of_optimized_tasks of tests/facts.
    """
    wrap_resource("arn:aws:states:::sqs:sendMessage", _send)


def _sdk_metadata() -> dict[str, Any]:
    """The metadata of the HTTP call in a result."""
    request = secrets.token_hex(16)
    headers = {"x-amzn-RequestId": request, "Content-Type": "application/x-amz-json-1.0"}
    http = {"AllHttpHeaders": {name: [value] for name, value in headers.items()}, "HttpHeaders": headers}
    return {"SdkHttpMetadata": http | {"HttpStatusCode": 200}, "SdkResponseMetadata": {"RequestId": request}}


def _send(original: Callable[..., Any], resource: str, arguments: dict[str, Any]) -> Any:
    if arguments.get("MessageBody") is None:
        raise _refused_by_sqs("MissingParameter", "The request must contain the parameter MessageBody.")
    try:
        return original(resource, arguments) | _sdk_metadata()
    except sfn._ExecutionError as error:
        if not isinstance(error.__context__, sqs._Err):
            raise
        raise _refused_by_sqs(error.error.removeprefix("SQS."), error.cause) from None


def _refused_by_sqs(code: str, message: str) -> Exception:
    error: Exception = sfn._ExecutionError("SQS.AmazonSQSException", _refusal_cause(message, "AmazonSQS", 400, code))
    return error


@patch
def stepfunctions_children() -> None:
    """The resources `states:startExecution`, `.sync` and `.sync:2`: an execution starts another one, and waits for it.

    AWS: "Start a new AWS Step Functions state machine from a running execution" (.sync:2 returns JSON, .sync a
    string); "Discover service integration patterns in Step Functions" (Run a Job: if the task is aborted because its
    execution is stopped, Step Functions makes a best-effort attempt to stop the child by StopExecution; a timeout of a
    task or an execution is not mentioned, so those children continue here); "Handling errors in Step Functions
    workflows" (States.TaskFailed). The cause of a failed task is the description of the child: keys sorted, dates as
    epoch milliseconds. Refusals are `StepFunctions.<code>Exception`. A start's answer contains the metadata of the HTTP
    call (recorded).
    MiniStack runs a waiting task's child in the parent's thread, without status events, and it cannot be stopped alone.
    Shown by the rows start_of_a_child, data_limit_of_a_child, errors_of_optimized_tasks of tests/facts.
    """
    put(sfn, "_invoke_nested_start_execution", _start_child)
    put(sfn, "_invoke_nested_start_execution_sync", _run_child)


def _start_child(_resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the child, and return without waiting."""
    given = arguments.get("Input")
    text = given if isinstance(given, str) else json.dumps({} if given is None else given, separators=(",", ":"))
    request = {"stateMachineArn": arguments.get("StateMachineArn", ""), "input": text}
    request |= {"name": arguments["Name"]} if arguments.get("Name") else {}
    answer = _answer_of(
        contextvars.copy_context().run(_start, request),
        "AWSStepFunctions",
        lambda code: f"StepFunctions.{code.removesuffix('Exception')}Exception",
    )
    started = {"ExecutionArn": answer["executionArn"], "StartDate": sfn._iso_to_epoch_ms(answer["startDate"])}
    return started | _sdk_metadata()


def _start(request: dict[str, Any]) -> Any:
    abandoned.set(None)  # the child's thread copies this context: the timeout of the parent's task is not the child's
    return sfn._start_execution(request)


def _run_child(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start the child and wait for its end."""
    submitted = _start_child(resource, arguments)
    drives.note_submitted("states", resource.rpartition(":states:")[2], submitted)
    child = sfn._executions[submitted["ExecutionArn"]]
    wait_for_job(lambda: child["status"] == "RUNNING", lambda: drives.stop(child["executionArn"], "", ""))
    shown = _as_step_functions_shows_it(json.loads(sfn._describe_execution({"executionArn": child["executionArn"]})[2]))
    if shown["Status"] != "SUCCEEDED":
        raise _task_failed(shown)
    if resource.endswith(":2"):
        shown |= {name: json.loads(shown[name]) for name in _TEXTS}
    return shown


def _as_step_functions_shows_it(description: dict[str, Any]) -> dict[str, Any]:
    """The child's description in the names and the dates of a task's result."""
    known = {name: value for name, value in description.items() if value is not None}
    if "output" not in known:
        known.pop("outputDetails", None)
    return {name[0].upper() + name[1:]: _shown(name, value) for name, value in known.items()}


def _shown(name: str, value: Any) -> Any:
    if name.endswith("Date"):
        return sfn._iso_to_epoch_ms(value)
    return {"Included": value["included"]} if name.endswith("Details") else value


@patch
def stepfunctions_sdk_errors() -> None:
    """Errors of `aws-sdk:sfn` tasks have the names that a Catch matches on AWS.

    AWS: "Learning to use AWS service SDK integrations in Step Functions": the error is the service's prefix and the
    name of the Java SDK's exception, `Sfn.TaskTimedOutException`; an error without such a class is `Sfn.SfnException`.
    MiniStack adds no `Exception` to the codes of Step Functions.
    Shown by the row refusals_of_a_task of tests/facts.
    """
    wrap(sfn, "_prefix_sdk_error", _prefix)


def _prefix(original: Callable[[str, str], str], service: str, code: str) -> str:
    if service != "sfn" or code.startswith("States."):
        return original(service, code)
    modelled = code in {shape.name for shape in sfn._service_model("states").error_shapes}
    return f"Sfn.{code.removesuffix('Exception')}Exception" if modelled else "Sfn.SfnException"
