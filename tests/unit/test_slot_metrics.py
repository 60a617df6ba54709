"""Metrics and logs of waits, causes of refusals and blocked requests, as the starter and the janitor write them."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper.slots.processes import Cancellations
from slotkeeper.slots.protocol import Candidate
from tests.unit.conftest import CONTEXT, NOW, Account, Load, request_record


def _accept_hide(account: Account) -> None:
    """The records' receipt handles are made up."""
    account.sqs.meta.events.register(
        "before-call.sqs.ChangeMessageVisibility", lambda **_: (SimpleNamespace(status_code=200), {})
    )


def registered(priority: str, weight: int = 1) -> dict[str, Any]:
    """The attribute `waiting` with one registration."""
    entry = {
        "sequence": "1".zfill(40),
        "receipt_handle": "h",
        "priority": priority,
        "execution": "p-x",
        "request_id": "x",
    }
    numbers = {"receives": 1, "weight": weight, "since": 1, "hidden_until": 2}
    texts = {name: {"S": value} for name, value in entry.items()}
    return {"M": {priority: {"M": texts | {name: {"N": str(value)} for name, value in numbers.items()}}}}


@pytest.mark.parametrize("metric", ["RequestWait", "RequestWaitSoFar"])
@pytest.mark.parametrize(("priority", "group"), [("high", "p#high"), ("low", "p#low"), ("normal", "p")])
def test_the_wait_is_emitted_for_the_process_and_for_a_priority_other_than_the_default(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str], metric: str, priority: str, group: str
) -> None:
    """The metric of the process covers all priorities."""
    if metric == "RequestWaitSoFar":
        account.write("paused", {"BOOL": True})
        _accept_hide(account)
    load("starter").handler({"Records": [request_record({"process": "p", "priority": priority}, group=group)]}, CONTEXT)
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines() if f'"{metric}"' in line]
    assert [(line["process"], line.get("priority")) for line in emitted] == [("p", None)] + [("p", priority)] * (
        priority != "normal"
    )
    assert len({line[metric][0] for line in emitted}) == 1


def test_the_log_of_a_request_has_its_priority_and_the_weight_that_it_states(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        request_record({"process": "p", "priority": "low", "weight": 2}, "m0", group="p#low"),
        request_record({"process": "p"}, "m1"),
    ]
    account.write("slot_limit", {"N": "5"})
    load("starter").handler({"Records": records}, CONTEXT)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "Started the workflow" in line]
    assert [(line["priority"], line.get("weight")) for line in lines] == [("low", 2), ("normal", None)]
    sent = [int(record["attributes"]["SentTimestamp"]) / 1000 for record in records]
    assert [line["sent_at"] for line in lines] == sent


LONG_TOKENS = {
    "M": {
        f"p-{n}": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}, "task_token": {"S": "t" * 2048}}}
        for n in range(64)
    }
}


@pytest.mark.parametrize(
    ("attributes", "body", "because", "reason"),
    [
        ({"slots_in_use": {"N": "1"}}, {}, "full", "the process is full"),
        ({"paused": {"BOOL": True}}, {}, "paused", "the process is paused"),
        ({"paused": {"BOOL": True}}, {"weight": 2}, "blocked", "its weight is above the process's limit"),
        ({"slot_limit": {"N": "0"}}, {}, "blocked", "its weight is above the process's limit"),
        ({"waiting": registered("high")}, {}, "overtaken", "requests of a higher priority come first"),
        (
            {"slot_limit": {"N": "500"}, "slots_in_use": {"N": "64"}, "holders": LONG_TOKENS},
            {"task_token": "t"},
            "callers",
            "the task tokens of the requests that hold slots leave no space for its own in the process's item",
        ),
    ],
)
@pytest.mark.parametrize("expired", [False, True])
def test_the_cause_of_a_refusal_is_logged_and_is_in_an_expired_messages_reason(
    account: Account,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    attributes: dict[str, Any],
    body: dict[str, Any],
    because: str,
    reason: str,
    expired: bool,
) -> None:
    account.write("slot_limit", {"N": "1"})
    for name, value in attributes.items():
        account.write(name, value)
    _accept_hide(account)
    record = request_record({"process": "p", **body})
    sent_at = time.time() - (13.5 * 86_400 if expired else 60)
    record["attributes"]["SentTimestamp"] = str(int(sent_at * 1000))
    load("starter").handler({"Records": [record]}, CONTEXT)
    log = capsys.readouterr().out
    if expired:
        (message,) = account.messages(account.dead_letter_url)
        assert f"; {reason}. Redrive" in message["MessageAttributes"]["reason"]["StringValue"]
    else:
        assert f'"because":"{because}"' in log


@pytest.mark.parametrize(
    ("limit", "weight", "cancelled", "count"), [(3, 3, "", 0), (3, 4, "", 1), (3, 4, "p-x", 0), (0, 1, "", 0)]
)
def test_the_janitor_counts_and_names_the_requests_above_their_limit(
    account: Account,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    limit: int,
    weight: int,
    cancelled: str,
    count: int,
) -> None:
    """Zero is emitted too."""
    account.write("slot_limit", {"N": str(limit)})
    account.write("waiting", registered("high", weight))
    if cancelled:
        Cancellations(account.dynamodb, account.slot_table).add("p", cancelled, NOW)
    load("janitor").handler({}, CONTEXT)
    output = capsys.readouterr().out
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (metric,) = (line for line in lines if "BlockedRequests" in line)
    assert (metric["BlockedRequests"], metric.get("process")) == ([float(count)], None)
    named = [line for line in lines if "above the limit" in str(line.get("message"))]
    assert [(line["process_name"], line["request_id"], line["weight"], line["slot_limit"]) for line in named] == [
        ("p", "x", 4, 3)
    ] * count


def test_the_janitor_emits_the_slots_in_use_in_the_unit_of_the_limit(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    account.write("slot_limit", {"N": "10"})
    account.slots.reserve(Candidate("p", "p-heavy", weight=7), NOW)
    load("janitor").handler({}, CONTEXT)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if '"SlotsInUse"' in line)
    assert (json.loads(line)["SlotsInUse"], json.loads(line)["SlotLimit"]) == ([7.0], [10.0])
