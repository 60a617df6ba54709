"""Single states of the deployed definition, run by TestState with mocked results. It needs no role and starts nothing.

AWS: "Step Functions API Reference: TestState"; "Testing state machines with TestState".
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from dev.smoke.check_context import CheckContext
from dev.smoke.facts import Fact

_VARIABLES = {
    "target": "smoke",
    "timeout_minutes": 1,
    "settle_seconds": 1,
    "closed_seconds": 0,
    "caller": "WAITS",
    "task_token": "smoke",
    "starts": 0,
    "failure": {"error": "Smoke", "cause": "the smoke test"},
}


def outcome_of(context: CheckContext, state: str, result: dict[str, Any]) -> dict[str, Any]:
    """Run a state of the deployed definition with a mocked result."""
    given = {"process": "smoke", "request_id": "1", "attempt": 1, "arguments": {}}
    answer = context.stack.client("stepfunctions").test_state(
        definition=json.dumps(context.stack.machine["definition"]),
        stateName=state,
        input="{}",
        inspectionLevel="DEBUG",
        variables=json.dumps(_VARIABLES),
        mock={"result": json.dumps(result), "fieldValidationMode": "NONE"},
        context=json.dumps(_context_object(context, state, given)),
    )
    inspection = answer.get("inspectionData", {})
    return {
        **{name: answer[name] for name in ("status", "error", "cause", "nextState") if name in answer},
        "variables": json.loads(inspection.get("variables", "{}")),
    }


def _context_object(context: CheckContext, state: str, request: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    workflow = context.stack.outputs["WorkflowArn"]
    execution: dict[str, Any] = {
        "Id": context.arn("smoke"),
        "Input": request,
        "Name": "smoke",
        "RoleArn": context.stack.machine["roleArn"],
        "StartTime": now,
    }
    # AWS refuses a context with a field that it does not know, as recorded by LocalStack's snapshot test
    # test_state_context_object_validation_failures. That this field is known is not recorded.
    if "RedriveCount" in json.dumps(context.stack.machine["definition"]["States"][state]):
        execution["RedriveCount"] = 0
    return {
        "Execution": execution,
        "State": {"Name": state, "EnteredTime": now, "RetryCount": 0},
        "StateMachine": {"Id": workflow, "Name": workflow.rsplit(":", 1)[-1]},
    }


def _caught(answer: dict[str, Any], state: str) -> bool:
    """Whether the state's evaluation error was caught with the transition to `state`."""
    found = (answer["status"], answer.get("error"), answer.get("nextState"))
    return found == ("CAUGHT_ERROR", "States.QueryEvaluationError", state)


FACTS = (
    Fact(
        "run-that-did-not-succeed",
        "Is `$error` in RunGlueJob's Assign caught as States.QueryEvaluationError?",
        "yes: the next state is IsGlueRunKnownToHaveEnded, and the failure is Glue.JobRunNotSucceeded",
        "S3: a run that ended as STOPPED is recorded as failed. Otherwise the execution fails before that: move the "
        "test of JobRunState from RunGlueJob's Assign to a Choice state",
        lambda context: outcome_of(context, "RunGlueJob", result={"Id": "jr_1", "JobRunState": "STOPPED"}),
        lambda answer: (
            _caught(answer, "IsGlueRunKnownToHaveEnded")
            and answer["variables"]["failure"]["error"] == "Glue.JobRunNotSucceeded"
        ),
    ),
    Fact(
        "missing-task-token",
        "Is an undefined value in ReadToken's Assign caught as States.QueryEvaluationError?",
        "yes: the next state is ChooseWork, and the caller is GONE",
        "a slot without the token of its caller ends as CallerGone. Otherwise read the token with a default value in "
        "ReadToken, and test it in ChooseWork",
        lambda context: outcome_of(context, "ReadToken", result={"Item": {}}),
        lambda answer: _caught(answer, "ChooseWork") and answer["variables"]["caller"] == "GONE",
    ),
)
