"""Reading the services' records of a soak."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from dev.scenarios.slots.slot_records import parse_end_message
from dev.scenarios.soak.soak_records import read_executions


def test_a_kept_request_and_a_dead_letter_are_parsed() -> None:
    def texts(**values: str) -> dict[str, Any]:
        return {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}

    attributes = texts(execution_name="p-1", error="E", cause="c")
    kept = parse_end_message({"Body": "{}", "MessageAttributes": attributes})
    assert (kept.execution, kept.error, kept.cause) == ("p-1", "E", "c")
    dead_letter = {
        "Body": "?",
        "Attributes": {"SentTimestamp": "5000"},
        "MessageAttributes": texts(code="C", reason="r"),
    }
    dead = parse_end_message(dead_letter)
    assert (dead.error, dead.cause, dead.source, dead.body, dead.at) == ("C", "r", None, "?", 5.0)


class StepFunctions:
    """Two executions, of which the second is running."""

    def get_paginator(self, _operation: str) -> StepFunctions:
        return self

    def paginate(self, **_arguments: Any) -> list[dict[str, Any]]:
        return [{"executions": [{"executionArn": "b"}, {"executionArn": "a"}]}]

    def describe_execution(self, executionArn: str) -> dict[str, Any]:
        started = datetime.fromtimestamp({"a": 1, "b": 2}[executionArn], UTC)
        execution = {"name": f"p-{executionArn}", "startDate": started, "status": "RUNNING"}
        execution |= {"input": json.dumps({"request_id": executionArn, "attempt": 2})}
        return execution if executionArn == "b" else execution | {"status": "FAILED", "error": "E", "stopDate": started}


def test_executions_are_ordered_by_start() -> None:
    executions = read_executions(StepFunctions(), "arn")
    read = [(e.name, e.process, e.request_id, e.attempt, e.status, e.error, e.started, e.stopped) for e in executions]
    assert read == [("p-a", "p", "a", 2, "FAILED", "E", 1, 1), ("p-b", "p", "b", 2, "RUNNING", None, 2, None)]
