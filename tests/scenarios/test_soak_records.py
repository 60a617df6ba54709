"""Reading the services' records of a soak."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev.scenarios.slots.slot_records import parse_end_message
from dev.scenarios.soak.soak_records import Journal, parse_change, read_executions

ITEM: dict[str, Any] = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "3"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"p-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
}


def test_an_item_of_the_slot_table_is_parsed() -> None:
    change = parse_change(5.0, ITEM | {"paused": {"BOOL": True}})
    assert (change.process, change.limit, change.count, change.holders) == ("p", 3, 1, {"p-1": "RUNNING"})
    assert (change.paused, parse_change(5.0, ITEM).paused) == (True, False)


def test_the_weights_of_holders_and_the_waiting_requests_are_parsed_without_tombstones() -> None:
    heavy = {"p-2": {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}, "weight": {"N": "2"}}}}
    registration = {"M": {"receipt_handle": {"S": "h"}, "execution": {"S": "p-3"}}}
    waiting = {"high": registration, "low": {"M": {"sequence": {"S": "1"}, "receives": {"N": "1"}}}}
    change = parse_change(5.0, ITEM | {"holders": {"M": ITEM["holders"]["M"] | heavy}, "waiting": {"M": waiting}})
    assert (change.held, change.registered) == (3, {"p-3"})
    assert (parse_change(5.0, ITEM).held, parse_change(5.0, ITEM).registered) == (1, set())


def test_the_journal_is_read_incrementally_and_in_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    lines = [
        json.dumps({"at": at, "table": table, "item": ITEM}) for at, table in ((1, "slots"), (2, "other"), (3, "slots"))
    ]
    journal = Journal(file, "slots")
    assert journal.read() == {}
    file.write_text(lines[0] + "\n" + lines[1] + "\n" + lines[2][:20])
    assert [change.at for change in journal.read().values()] == [1]
    with file.open("a") as more:
        more.write(lines[2][20:] + "\n")
    assert [change.at for change in journal.read().values()] == [3]
    assert [change.at for change in journal.changes] == [1, 3]


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
