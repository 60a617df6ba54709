"""The values of each expression of the definition, by its field.

The interpreter, the embedded AWS (tests/facts/test_jsonata.py) and JSONata 2.0.6 (reference.py) must agree on each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.outcomes import (
    FAILURE_UPDATE,
    MAX_CAUSE,
    MAX_CODE,
    SUCCESS_CONDITION,
    SUCCESS_UPDATE,
    SUCCESS_WITH_ANSWER_UPDATE,
)
from slotkeeper.slots.protocol import RELEASE_CONDITION, RELEASE_UPDATE
from slotkeeper.slots.work import MARKER
from tests.workflow import caller_cases, child_cases, confirm_cases, interpreter
from tests.workflow.case import CONTEXT, ENTERED, REDRIVEN, STARTED, Case, case, caught, of_input
from tests.workflow.choice_cases import CHOICES
from tests.workflow.definition import definition, states
from tests.workflow.interpreter import ME, mentioned

FIELDS = ("Arguments", "Assign", "TimeoutSeconds", "Seconds", "Cause")
FAILURE = {"error": "Glue.X", "cause": "no\x00,\ufffe"}


def fields() -> Iterator[tuple[str, Any]]:
    """(Path, template) of each field with an expression: RunGlueJob.Arguments, RunGlueJob.Catch.0.Assign, ..."""
    for name, state in states().items():
        parts = [(f"{name}.{field}", state.get(field)) for field in FIELDS]
        parts += [(f"{name}.Catch.{n}.Assign", catch.get("Assign")) for n, catch in enumerate(state.get("Catch", []))]
        rules = enumerate(state.get("Choices", []))
        parts += [(f"{name}.Choices.{n}.Condition", rule["Condition"]) for n, rule in rules]
        yield from ((path, template) for path, template in parts if "{%" in str(template))


def template(path: str) -> Any:
    """The field's value in the definition."""
    node: Any = definition()["States"]
    for part in path.split("."):
        node = node[int(part) if part.isdigit() else part]
    return node


def _run_failed(error: str, cause: str | None, starts: int = 0, context: Any = CONTEXT, **more: Any) -> Case:
    """The Catch of RunGlueJob. `more`: what differs from the start of a search for the run."""
    searched = {
        "failure": {"error": error, "cause": cause},
        "outcome": "",
        "start_again": False,
        "must_stop": False,
        "starts": starts + 1,
        "run_id": "",
        "run_state": "NOT_FOUND",
        "run_has_ended": False,
        "run_minutes": 0,
        "next_page": "",
        "searches": 0,
        "failed_reads": 0,
        "stops": 0,
    }
    output = {"Error": error} | ({} if cause is None else {"Cause": cause})
    return case("RunGlueJob.Catch.0.Assign", searched | more, {"starts": starts}, context, errorOutput=output)


def _recorded(end: str, update: str, **more: str) -> dict[str, Any]:
    """The arguments of RecordOutcome in DynamoDB's format, at the time of CONTEXT."""
    now = ENTERED // 1000
    numbers = {":now": {"N": str(now)}, ":unpublished": {"N": str(-now)}}
    texts = {":queued": "QUEUED", ":started": "STARTED", ":failed": "FAILED", ":end": end}
    texts |= {f":{name}": text for name, text in more.items()}
    return {
        "TableName": "${RequestTableName}",
        "Key": {"process_name": {"S": "p"}, "execution": {"S": ME}},
        "UpdateExpression": update,
        "ConditionExpression": SUCCESS_CONDITION,
        "ExpressionAttributeNames": {"#state": "state", "#open": "open"},
        "ExpressionAttributeValues": {name: {"S": text} for name, text in texts.items()} | numbers,
    }


def _glue_answer(state: str) -> str:
    return f'{{"Id":"jr_1","JobName":"j","JobRunState":"{state}"}}'


_LONG = FAILURE | {"cause": FAILURE["cause"] + "y" * 30_000}
_RUN = {"target": "j", "run_id": "jr_1", "run_state": "STOPPED"}
_ABOUT_TO_END = {"error": "Glue.JobRunNotSucceeded", "cause": "Glue run jr_1 of job j ended as STOPPED"}
_LATE = {"error": "States.Timeout", "cause": "Glue run jr_1 of job j was STOPPED after its time limit"}

# Step Functions quotes the expression in the cause (tests/facts/state_facts.py), here with its message.
_RUN_STATE = (
    "An error occurred while executing the state 'RunGlueJob' (entered at the event id #9). The JSONata expression "
    f"'{states()['RunGlueJob']['Assign']['run_state'][2:-2].strip()}' specified for the field 'Assign/run_state' threw "
    "an error during evaluation. "
)
_LATE_TASK = {"error": "States.Timeout", "cause": "no cause given"}


def _listed(minute: int, marker: str = "p-other") -> dict[str, Any]:
    """A run that was started so many minutes after the execution, with this marker."""
    started = f"2026-01-01T00:{minute:02}:00.000Z" if minute >= 0 else f"2025-12-31T23:{60 + minute}:00.000Z"
    return {"Id": f"jr_{minute}", "StartedOn": started, "Arguments": {MARKER: marker}}


CASES = [
    *(  # The search pages back to a minute before the execution, since the clocks of Glue and Step Functions differ.
        case(
            "FindGlueRun.Assign",
            {"pages": 5, "next_page": next_page, "run_id": run_id},
            {"pages": 4},
            result={"JobRuns": runs} | ({"NextToken": "t"} if has_more else {}),
        )
        for runs, has_more, next_page, run_id in (
            ([], False, "", ""),
            ([_listed(3), _listed(2)], True, "t", ""),
            ([_listed(3), _listed(2)], False, "", ""),
            ([], True, "t", ""),
            ([{"Id": "jr_0"}], True, "t", ""),
            ([_listed(0), _listed(-5)], True, "t", ""),
            ([_listed(-1), _listed(-5)], True, "t", ""),
            ([_listed(-2), _listed(-5)], True, "", ""),
            ([_listed(3), _listed(2, ME)], True, "t", "jr_2"),
        )
    ),
    case(
        "RunGlueJob.Assign",
        {"run_id": "jr_1", "run_state": "SUCCEEDED", "answer": _glue_answer("SUCCEEDED")},
        {"target": "j"},
        result={"Id": "jr_1", "JobRunState": "SUCCEEDED"},
    ),
    *(  # The schema refuses the marker of another execution, but a manually started execution has passed no schema.
        case(
            "RunGlueJob.Arguments",
            {"JobName": "j", "Arguments": {"--day": "1", MARKER: ME}, "Timeout": 60},
            {"target": "j", "timeout_minutes": 60},
            of_input({"arguments": {"--day": "1"} | more}),
        )
        for more in ({}, {MARKER: "p-other"})
    ),
    case("RunGlueJob.TimeoutSeconds", 4500, {"timeout_minutes": 60}),
    _run_failed("States.TaskFailed", "lost"),
    _run_failed("States.TaskFailed", '{"ErrorMessage":"after Glue run jr_0","Id":"jr_1","JobRunState":"FAILED"}'),
    _run_failed(
        "States.QueryEvaluationError",
        _RUN_STATE + "D3137: Glue run jr_1 ended as STOPPED",
        failure={"error": "Glue.JobRunNotSucceeded", "cause": "Glue run jr_1 ended as STOPPED"},
    ),
    _run_failed("States.QueryEvaluationError", _RUN_STATE + "D1011: Stack overflow"),
    *(_run_failed("States.Timeout", cause, must_stop=True, failure=_LATE_TASK) for cause in ("", None)),
    _run_failed("Glue.X", "lost", 1, REDRIVEN, outcome="RETURNED", must_stop=True),
    # A throttled start is repeated, if no run is found.
    _run_failed("Glue.AWSGlueException", "Rate exceeded (Error Code: ThrottlingException)", 19, start_again=True),
    _run_failed("Glue.ThrottlingException", "Rate exceeded", start_again=True),
    _run_failed("Glue.AWSGlueException", "not authorized (Error Code: AccessDeniedException)"),
    _run_failed("States.TaskFailed", '{"ErrorMessage": "ThrottlingException in the job"}'),
    case("GlueRunNotSucceeded.Assign", {"failure": _ABOUT_TO_END}, _RUN | {"run_error": ""}),
    case(
        "GlueRunNotSucceeded.Assign",
        {"failure": _ABOUT_TO_END | {"cause": "Glue run jr_1 of job j ended as FAILED: no month"}},
        _RUN | {"run_state": "FAILED", "run_error": "no month"},
    ),
    case("WaitForGlueRun.Seconds", 45),
    case("WaitForGlueRun.Assign", {"searches": 2}, {"searches": 1}),
    case("FindGlueRun.Arguments", {"JobName": "j", "MaxResults": 3, "NextToken": "t"}, _RUN | {"next_page": "t"}),
    case("ReadGlueRun.Arguments", {"JobName": "j", "RunId": "jr_1"}, _RUN),
    *(
        case(
            "ReadGlueRun.Assign",
            {"run_state": state, "run_has_ended": has_ended, "run_minutes": minutes, "failed_reads": 0}
            | {"run_error": "no month" if state == "FAILED" else "", "answer": _glue_answer(state)},
            {"run_id": "jr_1", "target": "j"},
            result={
                "JobRun": {"JobRunState": state}
                | ({"StartedOn": started} if started else {})
                | ({"ErrorMessage": "no month"} if state == "FAILED" else {})
            },
        )
        for state, has_ended, started, minutes in (
            ("SUCCEEDED", True, STARTED, 60),
            ("FAILED", True, "2025-12-31T23:58:59.000Z", 61),
            ("RUNNING", False, "2026-01-01T00:44:00.001Z", 15),
            ("A_NEW_ONE", False, STARTED, 60),
            ("WAITING", False, "", 60),  # not started: its age is the execution's
        )
    ),
    caught(
        "ReadGlueRun.Catch.0.Assign",
        {"run_id": "", "searches": 0, "failed_reads": 8, "start_again": False},
        {"failed_reads": 7},
    ),
    *(
        caught(f"{path}.Assign", {counter: 8}, {counter: 7})
        for counter, catchers in (
            ("failed_reads", ("ReadGlueRun.Catch.1", "ReadChild.Catch.2")),
            ("stops", ("StopGlueRun", "StopGlueRun.Catch.0", "StopChild", "StopChild.Catch.0")),
        )
        for path in catchers
    ),
    case("GlueRunIsLate.Assign", {"must_stop": True, "failure": _LATE}, _RUN),
    case("StopGlueRun.Arguments", {"JobName": "j", "JobRunIds": ["jr_1"]}, _RUN),
    *(
        case(
            f"{state}.Seconds",
            seconds,
            {"must_stop": must_stop, "run_minutes": minutes, "run_state": "RUNNING"},
        )
        for state in ("WaitForEndOfGlueRun", "WaitForChild")
        for seconds, must_stop, minutes in ((45, True, 9000), (615, False, 9000), (75, False, 60))
    ),
    *(
        case(
            "RecordOutcome.Arguments",
            expected,
            {"run_state": "SUCCEEDED", "caller": caller, "answer": "[7]", "failure": failure},
        )
        for caller, expected in (
            ("WAITS", _recorded("SUCCEEDED", SUCCESS_WITH_ANSWER_UPDATE, answer="[7]")),
            ("NONE", _recorded("SUCCEEDED", SUCCESS_UPDATE)),
        )
        for failure in ({}, FAILURE)  # a lost answer of a run that has succeeded
    ),
    *(
        case(
            "RecordOutcome.Arguments",
            _recorded(
                "FAILED", FAILURE_UPDATE, code="e" * MAX_CODE, cause=FAILURE["cause"] + "\U0001f600" * (MAX_CAUSE - 5)
            ),
            {
                "run_state": state,
                "caller": "WAITS",
                "answer": "[7]",
                "failure": {"error": "e" * 300, "cause": FAILURE["cause"] + "\U0001f600" * MAX_CAUSE},
            },
        )
        for state in ("FAILED", "NOT_FOUND")
    ),
    case(
        "ReleaseSlot.Arguments",
        {
            "TableName": "${SlotTableName}",
            "Key": {"process_name": {"S": "p"}},
            "UpdateExpression": RELEASE_UPDATE,
            "ConditionExpression": RELEASE_CONDITION,
            "ExpressionAttributeNames": {"#me": ME},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        },
    ),
    case("Ring.Arguments", {"QueueUrl": "${DispatchQueueUrl}", "MessageBody": json.loads(Bell("p").to_json())}),
    *(
        case(f"{state}.Cause", f"Glue.X: {_LONG['cause']}"[:30_000], {"failure": _LONG, "run_state": "FAILED"})
        for state in ("RequestFailed", "WorkIsUnknown", "OutcomeNotRecorded")
    ),
    case("OutcomeNotRecorded.Cause", "The work has succeeded", {"run_state": "SUCCEEDED", "failure": {}}),
]


def _conditions(choice: Case) -> Iterator[Case]:
    """Each condition that a Choice evaluates, with the variables that it reads."""
    for number, rule in enumerate(states()[choice.path]["Choices"]):
        read = {name: choice.variables[name] for name in sorted(mentioned(rule["Condition"]))}
        value = interpreter.evaluate(rule["Condition"], choice.states, read)
        yield Case(f"{choice.path}.Choices.{number}.Condition", read, choice.states, value)
        if value:
            return


CASES += confirm_cases.CASES + child_cases.CASES + caller_cases.CASES
CASES += list({str(each): each for choice in CHOICES for each in _conditions(choice)}.values())
