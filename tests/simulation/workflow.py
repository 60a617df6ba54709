"""The workflow as an actor, which executes statemachines/glue_workflow.asl.json.

Expressions are evaluated as JSONata. Errors have the names of Step Functions' service integrations (Step Functions
Developer Guide, "Handling errors in Step Functions workflows"). A lost answer is `<Service>.SdkClientException`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.frozen import freeze, thaw
from tests.simulation.transcript import Outside, Program, Question
from tests.workflow import interpreter
from tests.workflow.definition import END, definition
from tests.workflow.interpreter import STATES, State, StateFailed, Variables, still_read

# The substitutions of a deployment.
SLOTS, REQUESTS, FAILED = "slots", "requests.fifo", "failed"
DEPLOYED = {"${SlotTableName}": SLOTS, "${RequestQueueUrl}": REQUESTS, "${FailedRequestQueueUrl}": FAILED}
START: str = definition()["StartAt"]
LARGEST_PAYLOAD = 256 * 1024  # bytes of a task's result (Step Functions guide, "Service quotas")
# As SQS words it, which ErrorCode alone does not state (SQS API Reference, ChangeMessageVisibility).
_REFUSED_HANDLES = ("InvalidParameterValue", "MessageNotInflight")
_THROTTLES = ("ThrottlingException", "TooManyRequestsException")
_READ = {name: still_read(name) for name in STATES}
entered: set[str] = set()  # the states that any execution has entered


class _TooLarge(Exception):
    """A task's result exceeds the payload limit. The execution ends, and no catcher applies."""


def run(
    outside: Outside,
    name: str,
    given: str,
    redrives: int,
    state_name: str,
    variables: Any,
) -> tuple[str, str]:
    """Run an execution, from its start or from a redrive: "SUCCEEDED" or "FAILED", and the error's name.

    Reports each state that it enters, with the variables, since a redrive continues there.

    Args:
        given: the execution's input, as text.
        state_name: the first state: START, or that of a redrive.
        variables: the variables at that state, frozen.
    """
    execution = {"Name": name, "Id": f"execution:{name}", "Input": json.loads(given), "RedriveCount": redrives}
    at, known = state_name, thaw(variables)
    while at != END:
        state = STATES[at]
        known = {variable: value for variable, value in known.items() if variable in _READ[at]}
        entered.add(at)
        if state.kind != "Choice":
            outside.ask(Question("actor", "enter", freeze({"state": at, "variables": known})))
        context = _context(outside, state, execution)
        match state.kind:
            case "Succeed":
                return "SUCCEEDED", ""
            case "Fail":
                return "FAILED", state.fields["Error"]
            case "Choice":
                at = state.choose(context, known)
            case "Wait":
                outside.sleep(state.value("Seconds", context, known))
                at, known = state.leave(context, known)
            case "Pass":
                at, known = state.leave(context, known)
            case "Task":
                try:
                    at, known = _task(outside, state, context, known)
                except _TooLarge:
                    return "FAILED", "States.DataLimitExceeded"
    return "SUCCEEDED", ""


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
    return {name: DEPLOYED.get(str(part), part) for name, part in arguments.items()}


def _call(outside: Outside, resource: str, arguments: dict[str, Any]) -> Any:
    *_, service, action = resource.split(":")
    waits = action.endswith(".sync")
    operation = re.sub(r"(?<!^)([A-Z])", r"_\1", action.removesuffix(".sync")).lower()
    try:
        answer = outside.ask(Question(service, operation, freeze(arguments)))
        if waits:
            run = {"JobName": arguments["JobName"], "RunId": answer["JobRunId"]}
            ended = outside.ask(Question("actor", "wait_for_end", freeze(run)))
            if ended["JobRunState"] in ("SUCCEEDED", "STOPPED"):
                return _plain(ended)
            raise StateFailed("States.TaskFailed", json.dumps(_plain(ended), separators=(",", ":")))
        result = _plain(answer)
        if len(json.dumps(result, ensure_ascii=False).encode()) > LARGEST_PAYLOAD:
            raise _TooLarge
        return result
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "States.Timeout":
            raise StateFailed(code, "") from error
        if service == "glue" and code in _THROTTLES:
            raise StateFailed(
                "Glue.AWSGlueException", f"Rate exceeded (Service: AWSGlue; Error Code: {code})"
            ) from error
        cause = f"Value for parameter ReceiptHandle is invalid ({code})" if code in _REFUSED_HANDLES else "simulated"
        raise StateFailed(f"{_NAMES[service]}.{code}", cause) from error
    except BotoCoreError as error:
        raise StateFailed(f"{_NAMES[service]}.SdkClientException", "simulated") from error


_NAMES = {
    "dynamodb": "DynamoDB",
    "sqs": "Sqs",
    "glue": "Glue",
    "sns": "Sns",
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


workflow = Program("workflow", run, stack_is_state=True, suspends=True)


def forget() -> None:
    """Clear the interpreter's cache and `entered`."""
    interpreter.forget()
    entered.clear()
