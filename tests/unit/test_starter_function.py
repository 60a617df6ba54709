"""The starter's function: both of its event sources, and its metrics and logs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.request import execution_name
from tests.simulation.account.boundary import lose_answer, refuse
from tests.unit.conftest import CONTEXT, NOW, Account, Load, bell_record, request_record
from tests.unit.function_lines import counted, written
from tests.unit.work_messages import invocation

LATE = "2020-01-01T00:00:00Z"


def asked(request_id: str = "a", **fields: Any) -> Item:
    return {"process": "p", "request_id": request_id} | fields


# Its event sources


def test_a_request_is_queued_and_dispatched_and_a_ring_dispatches(account: Account, load: Load) -> None:
    """Lambda delivers the messages of one queue at a time; the function distinguishes them one by one."""
    starter = load("starter")
    account.processes.create("q", 1, "job")
    account.accept({"process": "q", "request_id": "waits"})
    records = [request_record(asked()), bell_record(Bell("q"), "m2")]
    assert starter.handler({"Records": records}, CONTEXT) == {"batchItemFailures": []}
    assert account.executions() == [execution_name("p", "a", 1), execution_name("q", "waits", 1)]


def test_messages_that_must_stay_are_failed_items(account: Account, load: Load) -> None:
    starter = load("starter")
    refuse(starter._dynamodb, "PutItem", "InternalServerError")
    requests = [request_record(asked(str(at)), f"m{at}") for at in range(2)]
    kept = starter.handler({"Records": requests}, CONTEXT)["batchItemFailures"]
    assert [each["itemIdentifier"] for each in kept] == ["m0", "m1"]

    account.queue("waits")
    lose_answer(starter._starts._stepfunctions, "StartExecution")
    rings = [bell_record(Bell("p"), "m2"), bell_record(Bell("q"), "m3")]
    kept = starter.handler({"Records": rings}, CONTEXT)["batchItemFailures"]
    assert [each["itemIdentifier"] for each in kept] == ["m2"]


def test_what_does_not_fit_into_the_invocation_is_left_to_a_ring(account: Account, load: Load) -> None:
    account.queue("waits")
    load("starter").handler({"Records": [bell_record(Bell("p", count=4))]}, invocation(5.0))
    assert (account.executions(), account.rings) == ([], [{"process": "p", "count": 5}])


# What it counts


def _throttled(account: Account, starter: Any) -> None:
    refuse(starter._starts._stepfunctions, "StartExecution", "ThrottlingException")


@pytest.mark.parametrize(
    ("prepare", "received", "expected"),
    [
        (lambda *_: None, request_record(asked()), {"RequestsAdmitted": 1}),
        (lambda account, _: account.write("paused", {"BOOL": True}), request_record(asked()), {}),
        (lambda *_: None, request_record("junk"), {"RequestsDeadLettered": 1}),
        (lambda account, _: account.write("slot_limit", {"S": "1"}), request_record(asked()), {"StarterErrors": 1}),
        (lambda account, _: account.queue("a"), request_record(asked()), {"RequestsRepeated": 1}),
        (_throttled, request_record(asked()), {"StarterErrors": 1}),
        (lambda *_: None, bell_record(Bell("p", count=7)), {"DispatchChain": 7}),
    ],
    ids=["started", "it waits", "no request", "malformed process", "repeated", "throttled", "a chain of rings"],
)
def test_an_outcome_is_counted(
    prepare: Callable[[Account, Any], object],
    received: Item,
    expected: dict[str, float],
    account: Account,
    load: Load,
    capsys: pytest.CaptureFixture[str],
) -> None:
    starter = load("starter")
    prepare(account, starter)
    starter.handler({"Records": [received]}, CONTEXT)
    assert counted(capsys) == expected


@pytest.mark.parametrize(
    ("attributes", "body", "end"),
    [
        ({}, asked(weight="heavy", task_token="token"), "refused"),
        ({}, asked(process="made-up", task_token="token"), "process"),
        ({"paused": {"BOOL": True}}, asked(when_busy="skip", task_token="token"), "executions"),
        ({}, asked(start_before=LATE, task_token="token"), "executions"),
    ],
    ids=["no request", "rejected", "skipped", "too late"],
)
def test_the_end_of_a_request_is_left_to_its_sender(
    attributes: Item, body: Item, end: str, account: Account, load: Load
) -> None:
    for name, value in attributes.items():
        account.write(name, value)
    starter = load("starter")
    starter.handler({"Records": [request_record(body)]}, CONTEXT)
    assert end in json.loads(account.next_ending()["body"])
    assert not {"Callers", "Endings", "RequestEvents", "FailureNotices"} & vars(starter).keys()


@pytest.mark.parametrize("priority", ["high", "low", "normal"])
def test_the_wait_is_measured_of_the_process_and_of_a_priority_other_than_the_default(
    priority: str, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metric of the process covers all priorities."""
    sent = time.time() - 40
    load("starter").handler({"Records": [request_record(asked(priority=priority), sent_at=sent)]}, CONTEXT)
    lines = [line for line in written(capsys) if "RequestWait" in line]
    of_priority = [("p", priority)] * (priority != "normal")
    assert [(line["process"], line.get("priority")) for line in lines] == [("p", None), *of_priority]
    assert all(line["RequestWait"][0] >= 40 for line in lines)


@pytest.mark.parametrize("key", [{}, {"key": "acme"}])
def test_the_log_names_the_request_its_key_and_its_execution(
    key: dict[str, str], load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    load("starter").handler({"Records": [request_record(asked("a", priority="low", **key))]}, CONTEXT)
    lines = {line["message"]: line for line in written(capsys) if "message" in line}
    queued, started = lines["Queued a request"], lines["Started the workflow"]
    assert (queued["request_id"], queued["priority"], queued["sent_at"]) == ("a", "low", NOW)
    assert started["execution"] == queued["execution"] == execution_name("p", "a", 1)
    assert [{name: line[name] for name in ("key",) if name in line} for line in (queued, started)] == [key, key]
