"""The workflow as an actor, which executes statemachines/slot_workflow.asl.json.

Expressions are evaluated as JSONata. Errors have the names of Step Functions' service integrations (Step Functions
Developer Guide, "Handling errors in Step Functions workflows"). A lost answer is `<Service>.SdkClientException`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.aws.stepfunctions import WORKFLOW, execution_arn
from tests.simulation.frozen import Record, cleared, freeze, thaw
from tests.simulation.transcript import Again, Outside, Program, Question
from tests.simulation.worlds import DENIED
from tests.workflow import interpreter
from tests.workflow.case import denial
from tests.workflow.definition import END, definition
from tests.workflow.interpreter import STATES, State, StateFailed, Variables, still_read

if TYPE_CHECKING:
    pass

# The substitutions of a deployment.
SLOTS, ROWS, BELLS = "slots", "requests", "bells"
DEPLOYED = {
    "${SlotTableName}": SLOTS,
    "${RequestTableName}": ROWS,
    "${DispatchQueueUrl}": BELLS,
}
START: str = definition()["StartAt"]
LARGEST_PAYLOAD = 16 * 1024  # bytes of a task's result; 256 KiB in AWS, which would take the search most of its time
_UNNAMED = "StepFunctions.AWSStepFunctionsException"
_THROTTLES = ("ThrottlingException", "TooManyRequestsException")
_READ = {name: still_read(name) for name in STATES}
entered: set[str] = set()  # the states that any execution has entered


def run(
    outside: Outside, name: str, given: str, redrives: int, at: str, variables: Record
) -> tuple[str, str, str] | Again:
    """Run a state of an execution: the following state, or "SUCCEEDED" or "FAILED" with the error's name and cause.

    What an execution does depends on its state and its variables only, so its answers before make no difference.
    It reports each state that it enters, with the variables, since a redrive continues there.

    Args:
        given: the execution's input, as text.
        at: the state: at first START.
    """
    state, known = STATES[at], thaw(variables)
    entered.add(at)
    if state.kind != "Choice":
        outside.ask(Question("actor", "enter", freeze({"state": at, "variables": known})))
    execution = {
        "Name": name,
        "Id": execution_arn(WORKFLOW, name),
        "Input": json.loads(given),
        "RedriveCount": redrives,
    }
    context = _context(outside, state, execution)
    match state.kind:
        case "Succeed":
            return "SUCCEEDED", "", ""
        case "Fail":
            return "FAILED", state.fields["Error"], state.value("Cause", context, known)
        case "Choice":
            following = state.choose(context, known)
        case "Wait":
            outside.sleep(state.value("Seconds", context, known))
            following, known = state.leave(context, known)
        case "Pass":
            following, known = state.leave(context, known)
        case "Task":
            try:
                following, known = _task(outside, state, context, known)
            except StateFailed as failed:
                if failed.error != interpreter.DATA_LIMIT_EXCEEDED:  # States.ALL catches the others
                    raise
                return "FAILED", failed.error, ""
    if following == END:
        return "SUCCEEDED", "", ""
    read = {variable: value for variable, value in known.items() if variable in _READ[following]}
    return Again((name, given, redrives, following, freeze(read)))


def _context(outside: Outside, state: State, execution: dict[str, Any]) -> dict[str, Any]:
    """The context object. It has times only if the state needs them, since each time makes a new state of the world."""
    if state.needs_start_time and "StartTime" not in execution:
        execution["StartTime"] = _iso(outside.ask(Question("actor", "started", None)))
    context: dict[str, Any] = {"Execution": execution}
    if state.needs_entered_time:
        context["State"] = {"EnteredTime": _iso(datetime.fromtimestamp(outside.clock(), UTC))}
    return context


def _task(outside: Outside, state: State, context: dict[str, Any], variables: Variables) -> tuple[str, Variables]:
    retried: dict[int, int] = {}
    while True:
        try:
            arguments = _deployed(state.value("Arguments", context, variables))
            result = _call(outside, state.fields["Resource"], arguments)
            return state.leave(context, variables, result=result)
        except StateFailed as failed:
            seconds = state.retry_after(failed.error, retried)
            if seconds is None:
                return state.catch(failed, context, variables)
        outside.sleep(seconds)


def _deployed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with a deployment's substitutions. A body that is an object is sent as its text."""
    given = {name: DEPLOYED.get(str(part), part) for name, part in arguments.items()}
    return given | ({"MessageBody": _as_text(given["MessageBody"])} if "MessageBody" in given else {})


def _as_text(value: Any) -> Any:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else value


def _call(outside: Outside, resource: str, arguments: dict[str, Any]) -> Any:
    integration = resource.removeprefix("arn:aws:states:::")
    service, action = integration.removeprefix("aws-sdk:").split(":", 1)
    action, waits, _ = action.partition(".sync")
    operation = re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()
    is_own = service in ("states", "sfn")
    given = _lower_case(arguments) if is_own else arguments
    try:
        answer = outside.ask(Question("stepfunctions" if is_own else service, operation, freeze(given)))
        if waits:
            return _end(outside, arguments, answer)
        result = _upper_case(_plain(answer)) if is_own else _plain(answer)
        _check_size(result)
        return result
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == DENIED.error:
            raise StateFailed(_denied_error(service), denial(_action(service, error.operation_name))) from error
        if code == "States.Timeout":
            raise StateFailed(code, "") from error
        if service == "glue" and code in _THROTTLES:
            raise StateFailed(
                "Glue.AWSGlueException", f"Rate exceeded (Service: AWSGlue; Error Code: {code})"
            ) from error
        if is_own:
            raise StateFailed(_own_error(service, code), "simulated") from error
        if service == "sqs":  # of an optimized task, by the older SDK's base class
            raise StateFailed("SQS.AmazonSQSException", f"simulated (Error Code: {code})") from error
        raise StateFailed(f"{_NAMES[service]}.{code}", "simulated") from error
    except BotoCoreError as error:
        raise StateFailed(f"{_NAMES[service]}.SdkClientException", "simulated") from error


def _end(outside: Outside, arguments: dict[str, Any], answer: dict[str, Any]) -> Any:
    """The result of a task that waits for a Glue run or for an execution. Raises StateFailed."""
    if "executionArn" in answer:
        about = {"executionArn": answer["executionArn"]}
        ended = _upper_case(_plain(outside.ask(Question("actor", "wait_for_end", freeze(about)))))
        has_succeeded = ended["Status"] == "SUCCEEDED"
    else:
        about = {"JobName": arguments["JobName"], "RunId": answer["JobRunId"]}
        ended = _plain(outside.ask(Question("actor", "wait_for_end", freeze(about))))
        has_succeeded = ended["JobRunState"] in ("SUCCEEDED", "STOPPED")
    if has_succeeded:
        _check_size(ended)
        return ended
    raise StateFailed("States.TaskFailed", json.dumps(ended, separators=(",", ":")))


def _check_size(result: Any) -> None:
    if len(json.dumps(result, ensure_ascii=False).encode()) > LARGEST_PAYLOAD:
        raise StateFailed(interpreter.DATA_LIMIT_EXCEEDED, "simulated")


def _lower_case(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments in the API's names, with an object as its text."""
    return {name[0].lower() + name[1:]: _as_text(value) for name, value in arguments.items()}


def _upper_case(answer: dict[str, Any]) -> dict[str, Any]:
    return {name[0].upper() + name[1:]: value for name, value in answer.items()}


def _denied_error(service: str) -> str:
    """Glue lists its denial among a call's errors; Step Functions does not (API Reference, Common Errors)."""
    return {"glue": "Glue.AccessDeniedException", "sfn": "Sfn.SfnException", "states": _UNNAMED}[service]


def _action(service: str, operation: str) -> str:
    """The action of IAM that a call needs. The poll of a task that waits is a call of its own."""
    named = {"start_job_run": "StartJobRun", "start_execution": "StartExecution"}.get(operation, "GetJobRun")
    return f"{'glue' if service == 'glue' else 'states'}:{named}"


def _own_error(service: str, code: str) -> str:
    """An error of Step Functions: the name of the SDK's exception, or of the service if the exception has no class."""
    if code in _THROTTLES:
        return "Sfn.SfnException" if service == "sfn" else _UNNAMED
    return f"{_NAMES[service]}.{code}Exception"


_NAMES = {
    "dynamodb": "DynamoDB",
    "sqs": "SQS",
    "glue": "Glue",
    "sns": "SNS",
    "sfn": "Sfn",
    "states": "StepFunctions",
    "events": "EventBridge",
    "cloudwatch": "CloudWatch",
}


def _plain(answer: Any) -> Any:
    """An answer in the workflow's form, with times as text."""
    if isinstance(answer, dict):
        return {name: _plain(part) for name, part in answer.items() if name != "ResponseMetadata"}
    if isinstance(answer, list):
        return [_plain(part) for part in answer]
    return _iso(answer) if hasattr(answer, "isoformat") else answer


def _iso(moment: Any) -> str:
    return str(moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


workflow = Program("workflow", run)
cleared(entered.clear)
cleared(interpreter.forget)
