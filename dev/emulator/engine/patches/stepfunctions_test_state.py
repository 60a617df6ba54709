"""TestState runs a JSONata state with variables, a context and a mock.

AWS: "Step Functions API Reference: TestState" (mock, variables, context, stateConfiguration; inspectionData's
afterArguments and variables), "Testing state machines with TestState" (a mocked task calls no service).
MiniStack runs a Task as JSONPath: it evaluates no Arguments, Output or Assign, and ignores variables.
"""

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import responses, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn


def apply() -> None:
    """Extend the action."""
    wrap(sfn, "_test_state", _test_state)


def _test_state(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    definition = json.loads(data["definition"])
    state = definition["States"].get(data.get("stateName")) if "States" in definition else definition
    if state is None:
        return responses.error_response_json("ValidationException", "State not found in definition", 400)
    context = json.loads(data.get("context") or "{}")
    context["variables"] = json.loads(data.get("variables") or "{}")
    context["QueryLanguage"] = state.get("QueryLanguage") or definition.get("QueryLanguage", "JSONPath")
    if context["QueryLanguage"] != "JSONata":
        return original(data)
    if "mock" not in data:
        if "context" in data:
            return responses.error_response_json("ValidationException", "A context needs a mock", 400)
        return original({**data, "context": json.dumps(context)})
    if state["Type"] != "Task":
        message = f"State type '{state['Type']}' is not supported when a mock is specified"
        return responses.error_response_json("ValidationException", message, 400)
    return responses.json_response(_run(state, json.loads(data.get("input") or "{}"), context, data))


def _run(state: dict[str, Any], given: Any, context: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    mock, inspection = data["mock"], {"input": json.dumps(given)}
    try:
        arguments = sfn._apply_jsonata_arguments(state, given, context)
        inspection["afterArguments"] = json.dumps(arguments)
        for field in ("TimeoutSeconds", "HeartbeatSeconds"):
            if isinstance(state.get(field), str):
                sfn._jsonata_state_field(state, field, "number", given, context)
        if "errorOutput" in mock:
            raise sfn._ExecutionError(mock["errorOutput"]["error"], mock["errorOutput"].get("cause", ""))
        result = json.loads(mock["result"])
        inspection["result"] = mock["result"]
        output = sfn._apply_jsonata_output(state, given, context, result=result, default=result)
        sfn._apply_state_assign(state, given, context, result=result)
        outcome: dict[str, Any] = {"status": "SUCCEEDED", "output": json.dumps(output)}
        if "Next" in state:
            outcome["nextState"] = state["Next"]
    except sfn._ExecutionError as error:
        outcome = _handled(error, state, given, context, data)
    if data.get("inspectionLevel") in ("DEBUG", "TRACE"):
        outcome["inspectionData"] = inspection | {"variables": json.dumps(context["variables"])}
    return outcome


def _handled(
    error: Any, state: dict[str, Any], given: Any, context: dict[str, Any], data: dict[str, Any]
) -> dict[str, Any]:
    """The outcome of an error: a retry by the first retrier that matches, otherwise the first catcher, or a failure."""
    named = {"error": error.error, "cause": error.cause}
    before = data.get("stateConfiguration", {}).get("retrierRetryCount", 0)
    for retrier in state.get("Retry", []):
        if not sfn._error_matches(retrier["ErrorEquals"], error.error):
            continue
        if before < retrier.get("MaxAttempts", 3):
            return named | {"status": "RETRIABLE"}
        break
    catcher = sfn._find_matching_catcher(state.get("Catch", []), error.error)
    if catcher is None:
        return named | {"status": "FAILED"}
    caught = {"Error": error.error, "Cause": error.cause}
    try:
        output = sfn._apply_catcher(catcher, given, context, "JSONata", caught)
    except sfn._ExecutionError as second:
        return {"status": "FAILED", "error": second.error, "cause": second.cause}
    return named | {"status": "CAUGHT_ERROR", "output": json.dumps(output), "nextState": catcher["Next"]}
