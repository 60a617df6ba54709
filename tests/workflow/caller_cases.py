"""The values of the expressions that choose the work, and of those that ask the caller."""

from __future__ import annotations

from typing import Any

from tests.workflow.case import MANUAL_INPUTS, REQUEST, case, of_input
from tests.workflow.confirm_cases import PERMITTED
from tests.workflow.interpreter import ME, Variables
from tests.workflow.paths import MACHINE, TOKEN

CALLER = "0" * 32
_CHILD_REQUEST = {"process": "p", "request_id": "order-1", "attempt": 1, "input": {"day": 1}}


def _chosen(caller: str = "NONE", target: str = "j") -> Variables:
    return {"caller": caller, "target": target, "permitted": PERMITTED}


def _wrong_input(target: str, given: Any, expected: bool) -> Any:
    return case("ChooseWork.Choices.2.Condition", expected, _chosen(target=target), of_input(given))


CASES = [
    _wrong_input("j", REQUEST, False),
    _wrong_input("j", _CHILD_REQUEST, True),
    _wrong_input("j", {"input": {}}, True),
    _wrong_input(MACHINE, _CHILD_REQUEST, False),
    _wrong_input(MACHINE, REQUEST, True),
    _wrong_input(MACHINE, {"arguments": {}}, False),
    *(_wrong_input(MACHINE, given, False) for given in MANUAL_INPUTS[:4]),
    *(_wrong_input("j", given, False) for given in MANUAL_INPUTS[:5]),
    *(
        case("ChooseWork.Choices.3.Condition", is_refused, _chosen(target=target))
        for target, is_refused in (
            ("j", False),
            ("job", False),
            ("load-2-of-7", False),
            ("load-of-7-of-7", False),
            ("load-2-of-70", True),
            ("a load-2-of-7", True),
            ("j2", True),
            ("a j", True),
            ("none", True),
            (MACHINE, False),
            (f"{MACHINE}2", True),
            (MACHINE.replace("child", "any"), False),
            (MACHINE.replace("child", "any-2"), False),
            (MACHINE.replace("child", "many"), True),
        )
    ),
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
    case("ChooseWork.Choices.4.Condition", False, _chosen(target="an arn: in the name")),
    case(
        "ReadToken.Arguments",
        {
            "TableName": "${RequestTableName}",
            "Key": {"process_name": {"S": "p"}, "execution": {"S": ME}},
            "ConsistentRead": True,
            "ProjectionExpression": "task_token",
        },
    ),
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
