"""TestState, with which the smoke test runs single states."""

import json
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import patch, refused, responses, wrap
from dev.emulator.engine.emulator import stepfunctions as sfn


@patch
def stepfunctions_test_state() -> None:
    """TestState runs a JSONata state with variables, a context and a mocked result.

    AWS: "Step Functions API Reference: TestState" (mock, variables, context; inspectionData's afterArguments and
    variables), "Testing state machines with TestState" (a mocked task calls no service).
    MiniStack runs a Task as JSONPath: it evaluates no Arguments, Output or Assign, and ignores variables.
    """
    wrap(sfn, "_test_state", _test_state)


def _test_state(original: Callable[[Any], Any], data: dict[str, Any]) -> Any:
    definition = json.loads(data["definition"])
    state = definition["States"].get(data.get("stateName")) if "States" in definition else definition
    if state is None:
        return refused("ValidationException", "State not found in definition")
    context = json.loads(data.get("context") or "{}")
    context["variables"] = json.loads(data.get("variables") or "{}")
    context["QueryLanguage"] = state.get("QueryLanguage") or definition.get("QueryLanguage", "JSONPath")
    if context["QueryLanguage"] != "JSONata":
        return original(data)
    if "mock" not in data:
        return original({**data, "context": json.dumps(context)})
    return responses.json_response(_run(state, json.loads(data.get("input") or "{}"), context, data["mock"]))


def _run(state: dict[str, Any], given: Any, context: dict[str, Any], mock: dict[str, Any]) -> dict[str, Any]:
    inspection = {"input": json.dumps(given)}
    try:
        inspection["afterArguments"] = json.dumps(sfn._apply_jsonata_arguments(state, given, context))
        for field in ("TimeoutSeconds", "HeartbeatSeconds"):
            if isinstance(state.get(field), str):
                sfn._jsonata_state_field(state, field, "number", given, context)
        result = json.loads(mock["result"])
        output = sfn._apply_jsonata_output(state, given, context, result=result, default=result)
        sfn._apply_state_assign(state, given, context, result=result)
        outcome = {"status": "SUCCEEDED", "output": json.dumps(output)}
        outcome |= {"nextState": state["Next"]} if "Next" in state else {}
    except sfn._ExecutionError as error:
        outcome = {"error": error.error, "cause": error.cause} | _handled(error, state, given, context)
    return outcome | {"inspectionData": inspection | {"variables": json.dumps(context["variables"])}}


def _handled(error: Any, state: dict[str, Any], given: Any, context: dict[str, Any]) -> dict[str, Any]:
    """The outcome of an error: a retry by the first retrier that matches, otherwise the first catcher, or a failure."""
    matching = (each for each in state.get("Retry", []) if sfn._error_matches(each["ErrorEquals"], error.error))
    if next(matching, {"MaxAttempts": 0}).get("MaxAttempts", 3):
        return {"status": "RETRIABLE"}
    catcher = sfn._find_matching_catcher(state.get("Catch", []), error.error)
    if catcher is None:
        return {"status": "FAILED"}
    caught = {"Error": error.error, "Cause": error.cause}
    try:
        output = sfn._apply_catcher(catcher, given, context, "JSONata", caught)
    except sfn._ExecutionError as second:
        return {"status": "FAILED", "error": second.error, "cause": second.cause}
    return {"status": "CAUGHT_ERROR", "output": json.dumps(output), "nextState": catcher["Next"]}
