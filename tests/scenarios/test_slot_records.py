"""Reading AWS's records from the answers of the services."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dev.scenarios.slots import slot_records as records


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def event(seconds: float, kind: str, **details: Any) -> dict[str, Any]:
    return {"timestamp": at(seconds), "type": kind, **details}


def entered(seconds: float, state: str) -> dict[str, Any]:
    return event(seconds, "TaskStateEntered", stateEnteredEventDetails={"name": state})


def exited(seconds: float, state: str) -> dict[str, Any]:
    return event(seconds, "TaskStateExited", stateExitedEventDetails={"name": state})


SUMMARY = {"name": "sample-1", "status": "FAILED", "startDate": at(10), "stopDate": at(20)}
REQUEST = json.dumps({"process": "sample", "request_id": "r1", "attempt": 2, "arguments": {}})
HISTORY = [
    event(10, "ExecutionStarted", executionStartedEventDetails={"input": REQUEST}),
    entered(11, "ConfirmSlot"),
    exited(12, "ConfirmSlot"),
    entered(12, "RunGlueJob"),
    exited(17, "RunGlueJob"),
    entered(18, "ReleaseSlot"),
    exited(19, "ReleaseSlot"),
    event(20, "ExecutionFailed", executionFailedEventDetails={"error": "GlueJobFailed", "cause": "not a number"}),
]


def test_an_execution_is_read_from_its_history() -> None:
    execution = records.parse_history(SUMMARY, HISTORY)
    assert (execution.request_id, execution.attempt, execution.status) == ("r1", 2, "FAILED")
    assert execution.states == {"ConfirmSlot": (11, 12), "RunGlueJob": (12, 17), "ReleaseSlot": (18, 19)}
    assert (execution.error, execution.cause) == ("GlueJobFailed", "not a number")


def test_an_execution_that_was_aborted_in_its_job_has_no_later_instants() -> None:
    aborted = {**SUMMARY, "status": "ABORTED"}
    details = event(15, "ExecutionAborted", executionAbortedEventDetails={"error": "Operator", "cause": "stopped"})
    execution = records.parse_history(aborted, [*HISTORY[:4], details])
    assert execution.states == {"ConfirmSlot": (11, 12), "RunGlueJob": (12, None)}
    assert (execution.error, execution.cause) == ("Operator", "stopped")


def test_a_state_that_was_entered_twice_lasts_from_its_first_entry_to_its_last_exit() -> None:
    again = [entered(17.2, "RunGlueJob"), exited(17.8, "RunGlueJob")]
    execution = records.parse_history(SUMMARY, [*HISTORY[:5], *again, *HISTORY[5:]])
    assert execution.states["RunGlueJob"] == (12, 17.8)


def test_an_execution_that_still_runs_has_not_stopped() -> None:
    running = {"name": "sample-1", "status": "RUNNING", "startDate": at(10)}
    assert records.parse_history(running, HISTORY[:4]).stopped is None


@pytest.mark.parametrize(
    "message",
    [
        {"Body": json.dumps({"request_id": "r1", "error": "E", "cause": "C"})},
        {"Body": json.dumps({"request": {"request_id": "r1"}, "error": "E", "cause": "C"})},
        {
            "Body": json.dumps({"request_id": "r1"}),
            "MessageAttributes": {"error": {"StringValue": "E"}, "cause": {"StringValue": "C"}},
        },
    ],
)
def test_error_and_cause_are_found_in_the_body_or_in_the_attributes(message: dict[str, Any]) -> None:
    parsed = records.parse_end_message(message)
    assert (parsed.request_id, parsed.error, parsed.cause) == ("r1", "E", "C")


@pytest.mark.parametrize("body", ["not json", "[1]", '"text"', "null"])
def test_a_dead_letter_may_be_any_text(body: str) -> None:
    parsed = records.parse_end_message({"Body": body, "MessageAttributes": {"code": {"StringValue": "NotAnObject"}}})
    assert (parsed.request_id, parsed.error, parsed.body) == (None, "NotAnObject", body)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (json.dumps({"Id": "jr", "ErrorMessage": "line 17: not a number"}), "line 17: not a number"),
        (json.dumps({"Id": "jr", "ErrorMessage": ""}), '{"Id": "jr", "ErrorMessage": ""}'),
        ("timed out", "timed out"),
        ("[1]", "[1]"),
        (None, None),
    ],
)
def test_the_reason_is_the_job_s_own_message_where_the_cause_carries_one(cause: str | None, reason: str | None) -> None:
    assert records.EndMessage("r1", None, "E", cause, "{}").reason == reason


class Pages:
    """A client that returns these pages for a paginated operation."""

    def __init__(self, **pages: list[dict[str, Any]]) -> None:
        self._pages = pages
        self._operation = ""

    def get_paginator(self, operation: str) -> Pages:
        self._operation = operation
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return self._pages[self._operation]


def test_glue_runs_of_all_pages_are_ordered_by_start_and_have_their_workflow() -> None:
    later = {"Id": "b", "JobRunState": "RUNNING", "StartedOn": at(9), "Arguments": {}}
    first = {"Id": "a", "JobRunState": "SUCCEEDED", "StartedOn": at(5), "CompletedOn": at(8)}
    first["Arguments"] = {"--slotkeeper-execution": "sample-1"}
    runs = records.read_glue_runs(Pages(get_job_runs=[{"JobRuns": [later]}, {"JobRuns": [first]}]), "job")
    assert [(r.run_id, r.execution, r.started, r.completed) for r in runs] == [
        ("a", "sample-1", 5, 8),
        ("b", None, 9, None),
    ]


def test_a_process_without_an_item_raises_lookup_error() -> None:
    class Empty:
        def get_item(self, **_: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(LookupError, match="table slots has no item for process sample"):
        records.read_slots(Empty(), "slots", "sample")
