"""The values of the expressions that choose the work, and of those that ask the caller."""

from __future__ import annotations

from tests.workflow.case import case
from tests.workflow.interpreter import ME
from tests.workflow.paths import MACHINE, TOKEN

CASES = [
    case(
        "TargetNotPermitted.Assign",
        {
            "run_state": "NOT_STARTED",
            "failure": {
                "error": "TargetNotPermitted",
                "cause": "j is no target of this stack; nothing was started. Add it to MoreGlueJobArns or "
                "MoreStateMachineArns, deploy, and redrive the request",
            },
        },
        {"target": "j"},
    ),
    case("ChooseWork.Choices.4.Condition", False, {"target": "an arn: in the name"}),
    case(
        "ReadToken.Arguments",
        {
            "TableName": "${RequestTableName}",
            "Key": {"process_name": {"S": "p"}, "execution": {"S": ME}},
            "ConsistentRead": True,
            "ProjectionExpression": "task_token",
        },
    ),
    case("ReadToken.Assign", {"task_token": TOKEN}, result={"Item": {"task_token": {"S": TOKEN}}}),
    case("AskCaller.Arguments", {"TaskToken": TOKEN}, {"task_token": TOKEN}),
    *(
        case(
            "ReadToken.Catch.1.Assign",
            {
                "run_state": "NOT_STARTED",
                "failure": {
                    "error": "States.Timeout",
                    "cause": f"Nothing was started, because the task token of the caller could not be read: {shown}",
                },
            },
            errorOutput={"Error": "States.Timeout", "Cause": cause},
        )
        for cause, shown in (("lost", "lost"), ("", "States.Timeout"))
    ),
    *(
        case(
            "AskCaller.Catch.0.Assign",
            {"caller": caller, "caller_error": error},
            errorOutput={"Error": error, "Cause": f"said of {TOKEN}"},
        )
        for error, caller in (
            ("Sfn.TaskTimedOutException", "GONE"),
            ("Sfn.TaskDoesNotExistException", "GONE"),
            ("Sfn.InvalidTokenException", "GONE"),
            # No sign that its task has ended: a throttle, or a role that may not call SendTaskHeartbeat.
            ("Sfn.SfnException", "WAITS"),
            ("Sfn.SdkClientException", "WAITS"),
            ("States.Timeout", "WAITS"),
        )
    ),
    case(
        "CallerGone.Assign",
        {
            "run_state": "NOT_STARTED",
            "failure": {
                "error": "CallerGone",
                "cause": "Nothing was started, because no caller waits for the answer: Sfn.TaskTimedOutException",
            },
        },
        {"caller_error": "Sfn.TaskTimedOutException"},
    ),
    *(
        case(
            "WrongInput.Assign",
            {"run_state": "NOT_STARTED", "failure": {"error": "WrongInput", "cause": f"{cause}; nothing was started"}},
            {"target": target},
        )
        for target, cause in (
            (MACHINE, f"{MACHINE} takes input, no arguments"),
            ("j", "j is a Glue job: it takes arguments, no input"),
        )
    ),
]
