"""The workflow as an actor: statemachines/glue_workflow.asl.json itself, walked with the answers of the outside.

Expressions are evaluated as the JSONata that they are. An error of a service is named as its integration names it
(Step Functions Developer Guide, "Handling errors in Step Functions workflows"); a call whose answer was lost is
`<Service>.SdkClientException`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.simulation.call_stack import Constant
from tests.simulation.frozen import freeze, thaw
from tests.simulation.transcript import Outside, Program, Question
from tests.workflow.definition import END, definition, states
from tests.workflow.interpreter import evaluate

# What a deployment puts into the definition.
SLOTS, REQUESTS, FAILED = "slots", "requests.fifo", "failed"
DEPLOYED = {"${SlotTableName}": SLOTS, "${RequestQueueUrl}": REQUESTS, "${FailedRequestQueueUrl}": FAILED}
START: str = definition()["StartAt"]
LARGEST_PAYLOAD = 256 * 1024  # bytes of a task's result (Step Functions guide, "Service quotas")
_THROTTLES = ("ThrottlingException", "TooManyRequestsException")
_evaluated: dict[Any, Any] = {}
entered: set[str] = set()  # the names of all states that any execution has entered


class _TooLarge(Exception):
    """A task's result is larger than a payload may be: the execution ends here, past every catcher."""


class _Failed(Exception):
    """A state failed with this error, as catchers see it."""

    def __init__(self, error: str, cause: str) -> None:
        self.error, self.cause = error, cause


def run(
    outside: Outside,
    name: str,
    given: str,
    redrives: int,
    state_name: str,
    state_input: Any,
    on_state: Callable[[str], object] = lambda _: None,
) -> tuple[str, str]:
    """One drive of an execution: "SUCCEEDED" or "FAILED", and the error's name.

    It tells each state that it enters, and that state's input, since a redrive goes on there.

    Args:
        given: the execution's input, as text.
        state_name: where it begins; START for the first drive.
        state_input: what that state is given, frozen.
        on_state: told each state that is entered, those that only choose too: each is a transition on the bill.
    """
    execution = {"Name": name, "Id": f"execution:{name}", "Input": json.loads(given), "RedriveCount": redrives}
    at, data = state_name, thaw(state_input)
    while at != END:
        state = _STATES[at]
        on_state(at)
        entered.add(at)
        if state.kind != "Choice":
            outside.ask(Question("actor", "enter", freeze({"state": at, "input": data})))
        context = _context(outside, state, execution)
        match state.kind:
            case "Succeed":
                return "SUCCEEDED", ""
            case "Fail":
                return "FAILED", state.fields["Error"]
            case "Choice":
                at = state.choose(data, context)
            case "Wait":
                outside.sleep(state.value("Seconds", data, context))
                at = state.fields["Next"]
            case "Pass":
                data = state.value("Output", data, context) if "Output" in state.fields else data
                at = state.fields["Next"]
            case "Task":
                try:
                    at, data = _task(outside, state, data, context)
                except _TooLarge:
                    return "FAILED", "States.DataLimitExceeded"
    return "SUCCEEDED", ""


def _context(outside: Outside, state: _State, execution: dict[str, Any]) -> dict[str, Any]:
    """The context object. Times are asked for only where they are needed: without them, a state is the same always."""
    if state.needs_start_time and "StartTime" not in execution:
        execution["StartTime"] = _iso(outside.ask(Question("actor", "started", None)))
    context: dict[str, Any] = {"Execution": execution}
    if state.needs_entered_time:
        context["State"] = {"EnteredTime": _iso(datetime.fromtimestamp(outside.clock(), UTC))}
    return context


class _State(Constant):
    """A state of the definition."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.kind: str = fields["Type"]
        self.needs_start_time = "StartTime" in json.dumps(fields)
        self.needs_entered_time = "EnteredTime" in json.dumps(fields)

    def value(self, field: str, data: Any, context: dict[str, Any], **more: Any) -> Any:
        return _value(self.fields[field], {"input": data, "context": context, **more})

    def choose(self, data: Any, context: dict[str, Any]) -> str:
        known = {"input": data, "context": context}
        rules = (rule["Next"] for rule in self.fields["Choices"] if _value(rule["Condition"], known))
        return next(rules, self.fields["Default"])  # type: ignore[no-any-return]

    def retry_after(self, error: str, retried: dict[int, int]) -> float | None:
        """Seconds until the next try, which is counted; None if there is none."""
        for number, rule in enumerate(self.fields.get("Retry", [])):
            if _matches(rule, error):
                before = retried.get(number, 0)
                if before >= rule.get("MaxAttempts", 3):
                    return None
                retried[number] = before + 1
                seconds = rule.get("IntervalSeconds", 1) * rule.get("BackoffRate", 2) ** before
                return min(seconds, rule.get("MaxDelaySeconds", seconds))  # type: ignore[no-any-return]
        return None

    def caught(self, failed: _Failed, data: Any, context: dict[str, Any]) -> tuple[str, Any]:
        for catcher in self.fields.get("Catch", []):
            if _matches(catcher, failed.error):
                told = {"Error": failed.error, "Cause": failed.cause}
                known = {"input": data, "context": context, "errorOutput": told}
                return catcher["Next"], _value(catcher.get("Output", told), known)
        raise failed


_STATES = {name: _State(fields) for name, fields in states().items()}


def _task(outside: Outside, state: _State, data: Any, context: dict[str, Any]) -> tuple[str, Any]:
    retried: dict[int, int] = {}
    while True:
        try:
            arguments = state.value("Arguments", data, context)
            result = _call(outside, state.fields["Resource"], _deployed(arguments))
            return state.fields.get("Next", END), state.value("Output", data, context, result=result)
        except _Failed as failed:
            seconds = state.retry_after(failed.error, retried)
            if seconds is None:
                return state.caught(failed, data, context)
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
            raise _Failed("States.TaskFailed", json.dumps(_plain(ended), separators=(",", ":")))
        result = _plain(answer)
        if len(json.dumps(result, ensure_ascii=False).encode()) > LARGEST_PAYLOAD:
            raise _TooLarge
        return result
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "States.Timeout":
            raise _Failed(code, "") from error
        if service == "glue" and code in _THROTTLES:
            raise _Failed("Glue.AWSGlueException", f"Rate exceeded (Service: AWSGlue; Error Code: {code})") from error
        raise _Failed(f"{_NAMES[service]}.{code}", "simulated") from error
    except BotoCoreError as error:
        raise _Failed(f"{_NAMES[service]}.SdkClientException", "simulated") from error


_NAMES = {
    "dynamodb": "DynamoDB",
    "sqs": "Sqs",
    "glue": "Glue",
    "sns": "Sns",
    "events": "EventBridge",
    "cloudwatch": "CloudWatch",
}


def _matches(rule: dict[str, Any], error: str) -> bool:
    return error in rule["ErrorEquals"] or "States.ALL" in rule["ErrorEquals"]


def _value(template: Any, known: dict[str, Any]) -> Any:
    """An expression's value; each is reckoned once, since JSONata in Python is slow."""
    key = (id(template), freeze(known))
    if key not in _evaluated:
        try:
            _evaluated[key] = (evaluate(template, known), template)  # kept, so that its id stays its own
        except Exception as error:
            _evaluated[key] = (_Failed("States.QueryEvaluationError", str(error)), template)
    value, _ = _evaluated[key]
    if isinstance(value, _Failed):
        raise _Failed(value.error, value.cause)
    return value


def _plain(answer: Any) -> Any:
    """An answer in the form in which the workflow sees it: times as text."""
    if isinstance(answer, dict):
        return {name: _plain(part) for name, part in answer.items() if name != "ResponseMetadata"}
    if isinstance(answer, list):
        return [_plain(part) for part in answer]
    return _iso(answer) if hasattr(answer, "isoformat") else answer


def _iso(moment: Any) -> str:
    return str(moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


workflow = Program("workflow", run, stack_tells=True, stands_still=True)


def forget() -> None:
    """Drops what is known, to bound memory."""
    workflow.forget()
    _evaluated.clear()
    entered.clear()
