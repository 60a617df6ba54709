"""Reading the token's item and the chatbot's log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.emulator.aws import reachable
from dev.emulator.chat_service import ChatService
from dev.scenarios.token.token_records import Stored, read_metrics, read_stored, sum_metrics
from tests.chat_service.chat_api_client import ChatApiClient


class Table:
    """A DynamoDB client with one item."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        self._item = item

    def get_item(self, **call: Any) -> dict[str, Any]:
        assert call == {"TableName": "tokens", "Key": {"token_name": {"S": "chatbot"}}, "ConsistentRead": True}
        return {} if self._item is None else {"Item": self._item}


def item(token: str, **more: Any) -> dict[str, Any]:
    return {"token_name": {"S": "chatbot"}, "access_token": {"S": token}, "generation": {"N": "2"}, **more}


def test_the_stored_token_is_read_as_its_number_and_whether_it_is_live() -> None:
    with ChatService() as service, ChatApiClient(service) as client:
        first, second = client.token(), client.token()
        assert read_stored(Table(item(second)), "tokens", service) == Stored(2, True, 2, False)
        assert read_stored(Table(item(first)), "tokens", service) == Stored(1, False, 2, False)
        assert read_stored(Table(item("never made")), "tokens", service) == Stored(None, False, 2, False)
        locked = item(second, refresh_lock={"M": {}})
        assert read_stored(Table(locked), "tokens", service).locked
        assert second not in repr(read_stored(Table(item(second)), "tokens", service))


def test_an_item_may_have_no_token() -> None:
    bare = {"token_name": {"S": "chatbot"}}
    assert read_stored(Table(bare), "tokens", ChatService()) == Stored(None, False, 0, False)


def test_a_missing_item_raises_lookup_error() -> None:
    with pytest.raises(LookupError, match="no item chatbot"):
        read_stored(Table(None), "tokens", ChatService())


def emf(**values: Any) -> str:
    directive = {"Namespace": "Slotkeeper", "Metrics": [{"Name": name, "Unit": "Count"} for name in values]}
    return json.dumps({"_aws": {"Timestamp": 0, "CloudWatchMetrics": [directive]}, "service": "s", **values})


def test_metrics_with_one_value_or_several_are_summed() -> None:
    lines = [
        emf(ColdStart=[1.0]),
        emf(TokenWait=[0.5, 0.25], TokenRefreshes=1),
        emf(ColdStart=1),
        "START RequestId: 1",
        '{"message": "no metric"}',
        "[]",
        "7",
        "",
    ]
    assert sum_metrics(lines) == {"ColdStart": 2, "TokenWait": 0.75, "TokenRefreshes": 1}


def test_the_log_is_read_to_its_last_page() -> None:
    class Logs:
        def get_paginator(self, operation: str) -> Any:
            assert operation == "filter_log_events"
            return self

        def paginate(self, **call: Any) -> list[dict[str, Any]]:
            assert call == {"logGroupName": "group"}
            return [
                {"events": [{"message": emf(ColdStart=1)}]},
                {"events": []},
                {"events": [{"message": emf(ColdStart=1)}]},
            ]

    assert read_metrics(Logs(), "group") == {"ColdStart": 2}


def test_a_stage_s_url_is_reached_at_the_engine() -> None:
    url = "https://ab12cd34.execute-api.us-east-1.amazonaws.com/v1/messages"
    assert reachable(url, "http://127.0.0.1:4566") == "http://127.0.0.1:4566/_aws/execute-api/ab12cd34/v1/messages"


@pytest.mark.parametrize("url", ["", "https://example.com/v1", "http://execute-api.us-east-1.amazonaws.com/v1", "v1"])
def test_a_url_without_a_stage_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="execute-api"):
        reachable(url, "http://127.0.0.1:4566")
