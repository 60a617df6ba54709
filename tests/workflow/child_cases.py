"""The values of the expressions of the states that run a state machine."""

from __future__ import annotations

from typing import Any

from tests.workflow.case import CONTEXT, EXECUTION, LOST, MANUAL_INPUTS, REDRIVEN, Case, case, caught, of_input
from tests.workflow.interpreter import ME, Variables
from tests.workflow.paths import CHILD, MACHINE, child

PARENT = {"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": EXECUTION["Id"]}
NOW = "2026-01-01T01:00:00.000Z"
_BIG = '"' + "x" * 204_790 + '"'
_ONLY_ARN = f'{{"ExecutionArn":"{CHILD}"}}'


def _context(given: Any) -> dict[str, Any]:
    return of_input({"process": "p", "request_id": "order-1", "attempt": 1} | given)


def _read(expected: Variables, description: dict[str, Any], caller: str = "NONE") -> Case:
    return case("ReadChild.Assign", expected, {"caller": caller}, result=description)


def _seen(
    status: str, answer: str = "", is_ours: bool = True, cause: str = "", minutes: int = 60, closed: int = 0
) -> Variables:
    failure = {"error": "StateMachine.ExecutionNotSucceeded", "cause": f"{CHILD} ended as {status}{cause}"}
    found = {"run_state": status, "is_ours": is_ours, "child_failure": failure, "answer": answer}
    return found | {"closed_seconds": closed, "run_minutes": minutes, "failed_reads": 0}


def _ours(status: str, **more: str) -> dict[str, Any]:
    return child(status, parent=EXECUTION["Id"], started="2026-01-01T00:00:00.000Z", **more)


_STARTED = {"run_state": "NOT_FOUND", "is_ours": True}
_STARTED |= dict.fromkeys(("closed_seconds", "run_minutes", "searches", "failed_reads", "stops"), 0)
_LATE = {"error": "States.Timeout", "cause": "no cause given"}

CASES = [
    *(
        case(
            "RunStateMachine.Arguments",
            {"StateMachineArn": MACHINE, "Name": ME, "Input": expected},
            {"target": MACHINE},
            context,
        )
        for context, expected in (
            (_context({"input": {"day": 1, "list": [1]}}), {"day": 1, "list": [1]} | PARENT),
            (_context({"input": {}}), PARENT),
            (_context({}), PARENT),
            (_context({"input": {"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": "arn:of-another"}}), PARENT),
            *((of_input(given), PARENT) for given in MANUAL_INPUTS[:4]),
        )
    ),
    *(
        case("RunStateMachine.Assign", {"run_state": "SUCCEEDED", "answer": answer}, {"caller": caller}, result=result)
        for caller, output, answer in (
            ("NONE", '{"a":1}', ""),
            *(
                ("WAITS", output, output)
                for output in (
                    *('{"a":[1]}', '"text"', "7", "1.50", "9007199254740993", "[]", "[[1]]"),
                    *("null", "true", '"\\ud800"', "{}"),
                )
            ),
            ("WAITS", _BIG, _BIG),
            ("WAITS", '"' + "x" * 204_796 + '"', _ONLY_ARN),
            ("WAITS", '"' + "\U0001f600" * 20_000 + '"', _ONLY_ARN),  # four bytes each, twelve in an URL
        )
        for result in ({"ExecutionArn": CHILD, "Status": "SUCCEEDED", "Output": output},)
    ),
    case("RunStateMachine.TimeoutSeconds", 3600, {"timeout_minutes": 60}),
    *(
        case(
            "RunStateMachine.Catch.1.Assign",
            _STARTED | {"failure": failure, "outcome": outcome, "must_stop": True},
            context=context,
            errorOutput=output,
        )
        for context, output, failure, outcome in (
            (REDRIVEN, LOST, {"error": "Glue.X", "cause": "lost"}, "RETURNED"),
            (CONTEXT, {"Error": "States.Timeout", "Cause": ""}, _LATE, ""),
            (CONTEXT, {"Error": "States.Timeout"}, _LATE, ""),
        )
    ),
    case("ReadChild.Arguments", {"ExecutionArn": CHILD}, {"target": MACHINE}),
    _read(_seen("RUNNING"), _ours("RUNNING")),
    _read(_seen("SUCCEEDED"), _ours("SUCCEEDED", Output="[1]")),
    *(
        _read(_seen("SUCCEEDED", answer), _ours("SUCCEEDED", Output=answer), "WAITS")
        for answer in ('"text"', "9007199254740993", "[1]", "null")
    ),
    _read(_seen("SUCCEEDED", _ONLY_ARN), _ours("SUCCEEDED", Output='"' + "x" * 204_796 + '"'), "WAITS"),
    _read(_seen("SUCCEEDED", _ONLY_ARN), _ours("SUCCEEDED"), "WAITS"),  # Step Functions did not return the output
    _read(_seen("FAILED", cause=": E: why"), _ours("FAILED", Error="E", Cause="why")),
    _read(_seen("FAILED", cause=": why"), _ours("FAILED", Cause="why")),
    _read(_seen("FAILED", cause=": " + "y" * 7000), _ours("FAILED", Cause="y" * 9000)),
    _read(_seen("TIMED_OUT", _ONLY_ARN), _ours("TIMED_OUT", StopDate=NOW), "WAITS"),
    *(
        _read(_seen(status, closed=seconds), _ours(status, StopDate=stopped))
        for status, stopped, seconds in (
            ("ABORTED", "2026-01-01T00:59:59.001Z", 0),
            ("ABORTED", "2026-01-01T00:58:30.001Z", 89),
            ("TIMED_OUT", "2026-01-01T00:58:30.000Z", 90),
        )
    ),
    _read(
        _seen("RUNNING", is_ours=False, minutes=1500),
        child("RUNNING", parent="arn:p-2", started="2025-12-31T00:00:00.000Z"),
    ),
    *(
        _read(_seen("RUNNING", is_ours=False), _ours("RUNNING") | {"Input": given})
        for given in (
            *("{}", "[]", '"arn:p-1"', '{"day":"arn:p-1"}'),
            '{"nested":{"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID":"arn:p-1"}}',
        )
    ),
    _read(
        _seen("RUNNING"),
        _ours("RUNNING") | {"Input": '{ "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID" : "arn:p-1" }'},
    ),
    caught(
        "ReadChild.Catch.1.Assign",
        {"run_state": "NOT_FOUND", "searches": 2, "failed_reads": 0},
        {"searches": 1, "failed_reads": 7},
    ),
    case("WaitForChild.Seconds", 45, {"must_stop": False, "run_state": "NOT_FOUND", "run_minutes": 900}),
    case(
        "ChildIsLate.Assign",
        {
            "must_stop": True,
            "failure": {
                "error": "States.Timeout",
                "cause": f"The execution of {MACHINE} was RUNNING after its time limit",
            },
        },
        {"target": MACHINE, "run_state": "RUNNING"},
    ),
    case(
        "StopChild.Arguments",
        {"ExecutionArn": CHILD, "Error": "Slotkeeper.Stopped", "Cause": "States.Timeout"},
        {"target": MACHINE, "failure": {"error": "States.Timeout", "cause": ""}},
    ),
    case("SettleChild.Seconds", 7, {"settle_seconds": 90, "closed_seconds": 83}),
    case(
        "ChildTooLarge.Cause",
        f"{CHILD} has over 256 KiB of input and output; its own status decides",
        {"target": MACHINE},
    ),
    case(
        "ChildNotSucceeded.Assign",
        {"failure": {"error": "E", "cause": "C"}},
        {"child_failure": {"error": "E", "cause": "C"}},
    ),
    case(
        "NameTaken.Assign",
        {
            "run_state": "NOT_STARTED",
            "outcome": "",
            "failure": {
                "error": "NameTaken",
                "cause": f"An execution of {MACHINE} with the name {ME} exists, which this workflow did not start; "
                "nothing was started or stopped",
            },
        },
        {"target": MACHINE},
    ),
]
