"""Completion events: repeated after an error, never raising one, and valid by the schema."""

from __future__ import annotations

import json
from typing import Any

import boto3
import jsonschema
import pytest
from botocore.exceptions import ReadTimeoutError

from slotkeeper.events import (
    BREAKER_DETAIL_TYPES,
    CLIENT_CONFIG,
    DETAIL_TYPES,
    MAX_CHARACTERS,
    MAX_TRIES,
    MAX_TRY_SECONDS,
    CompletionEvents,
)
from slotkeeper.retry.downstream.downstreams import NAME
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import refuse
from tests.simulation.account.completion_events import BREAKER_SCHEMA, LIMITED_FLOW, SCHEMA
from tests.template.client_configs import longest_call
from tests.unit.conftest import NOW

DONE = {"flow": "worker", "request_id": "r", "attempt": 1}


class Sender:
    """CompletionEvents with a client whose calls are recorded."""

    def __init__(self, seconds_left: float = 100.0) -> None:
        self.client, self.bus = boto3.client("events"), AwsAccount().use().bus
        self.asked: list[dict[str, Any]] = []
        self.client.meta.events.register(
            "before-parameter-build.events.PutEvents", lambda params, **_: self.asked.append(params)
        )
        self.unsent: list[str] = []
        self.events = CompletionEvents(
            self.client,
            "a-bus",
            "a-stack",
            on_unsent=self.unsent.append,
            seconds_left=lambda: seconds_left,
            clock=lambda: NOW,
        )


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_an_event_has_the_request_and_its_outcome(sender: Sender) -> None:
    assert sender.events.publish("SUCCEEDED", "r/1", DONE | {"result": {"parts": 2}, "started_at": None})
    (entry,) = sender.asked[0]["Entries"]
    assert json.loads(entry.pop("Detail")) == {
        **DONE,
        "version": "1",
        "stack": "a-stack",
        "status": "SUCCEEDED",
        "deduplication_id": "r/1/SUCCEEDED",
        "result": {"parts": 2},
        "finished_at": "2027-01-15T08:00:00.000Z",
    }
    assert entry == {"EventBusName": "a-bus", "Source": "slotkeeper", "DetailType": "Slotkeeper Request Succeeded"}


def test_an_entry_that_is_refused_with_http_200_is_sent_again(sender: Sender) -> None:
    sender.bus.refuse_next = ["InternalFailure"]
    assert sender.events.publish("SUCCEEDED", "r/1", DONE)
    assert (len(sender.bus.published), sender.unsent) == (1, [])


def test_an_entry_that_is_refused_each_time_is_unsent(sender: Sender) -> None:
    sender.bus.refuse_next = ["InternalFailure"] * MAX_TRIES
    assert not sender.events.publish("SUCCEEDED", "r/1", DONE)
    assert sender.unsent == ["Slotkeeper Request Succeeded, r/1: InternalFailure: refused"]


@pytest.mark.parametrize("error", ["AccessDeniedException", "lost answer", "bug", "no JSON"])
def test_an_error_is_reported_and_not_raised(sender: Sender, error: str) -> None:
    if error == "AccessDeniedException":
        refuse(sender.client, "PutEvents", error)
    elif error != "no JSON":
        raised: Exception = ReadTimeoutError(endpoint_url="x") if error == "lost answer" else TypeError(error)

        def fail(**_: Any) -> None:
            raise raised

        sender.client.meta.events.register("before-call.events.PutEvents", fail)
    assert not sender.events.publish("SUCCEEDED", "r/1", DONE | {"result": object() if error == "no JSON" else {}})
    assert len(sender.unsent) == 1


def test_no_call_starts_that_could_outlast_the_invocation() -> None:
    hurried = Sender(seconds_left=MAX_TRY_SECONDS - 0.1)
    assert not hurried.events.publish("SUCCEEDED", "r/1", DONE)
    assert (hurried.bus.calls, len(hurried.unsent)) == (0, 1)


def test_a_call_takes_no_longer_than_is_allowed_for_it() -> None:
    assert longest_call(CLIENT_CONFIG) <= MAX_TRY_SECONDS


def test_the_longest_texts_fit_an_entry(sender: Sender) -> None:
    texts = dict.fromkeys(MAX_CHARACTERS, "\U0001f600" * 100_000)
    known = {"flow": LIMITED_FLOW, "execution_name": "n", "execution_arn": "arn:n", "kept_in": "q"}
    assert sender.events.publish("FAILED", "n", texts | known)
    (event,) = sender.bus.published
    assert {name: len(event[name]) for name in MAX_CHARACTERS} == MAX_CHARACTERS


def test_a_breakers_event_has_the_change_and_another_source(sender: Sender) -> None:
    """Rules for completion events, by source and stack, do not match it."""
    assert sender.events.publish_breaker("bank", "OPEN", "18 of the last 18 calls failed", NOW, 7)
    (entry,) = sender.asked[0]["Entries"]
    assert json.loads(entry.pop("Detail")) == {
        "version": "1",
        "stack": "a-stack",
        "downstream": "bank",
        "state": "OPEN",
        "reason": "18 of the last 18 calls failed",
        "at": "2027-01-15T08:00:00.000Z",
        "epoch": 7,
    }
    assert entry == {"EventBusName": "a-bus", "Source": "slotkeeper.breaker", "DetailType": "Slotkeeper Breaker Opened"}


def test_the_schemas_are_valid_and_have_the_bounds_and_the_kinds() -> None:
    for schema, field, kinds in ((SCHEMA, "status", DETAIL_TYPES), (BREAKER_SCHEMA, "state", BREAKER_DETAIL_TYPES)):
        jsonschema.Draft7Validator.check_schema(schema)
        assert set(schema["properties"][field]["enum"]) == kinds.keys()
    assert {name: SCHEMA["properties"][name]["maxLength"] for name in MAX_CHARACTERS} == MAX_CHARACTERS
    assert BREAKER_SCHEMA["properties"]["downstream"]["pattern"] == f"^{NAME.pattern}$"


def test_the_longest_reason_of_a_breaker_is_cut_to_the_bound_of_its_schema(sender: Sender) -> None:
    assert sender.events.publish_breaker("d" * 64, "CLOSED", "\U0001f600" * 100_000, NOW, 1)
    (event,) = sender.bus.published
    assert len(event["reason"]) == BREAKER_SCHEMA["properties"]["reason"]["maxLength"]
