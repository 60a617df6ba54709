"""What would be wrong unnoticed in the simulated chat API: its tokens, and requests that a token's end has met.

The answers of its outages are tested by their users: the chatbot's tests fail if one is not as they ask.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.emulator.chat_service import AUTH, INVALIDATE, ChatService, Outage
from tests.waiting import NEVER, wait_until


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService() as running:
        yield running


def send(
    service: ChatService, route: str, body: Any = None, token: str | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, body and headers of an answer, without its date."""
    (method, path), at = route.split(), urlsplit(service.url)
    with closing(http.client.HTTPConnection(str(at.hostname), at.port, timeout=NEVER)) as connection:
        connection.request(method, path, json.dumps(body), {"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.headers) | {"Date": ""}


def new_token(service: ChatService) -> str:
    credentials = {"client_id": service.client_id, "client_secret": service.client_secret}
    return str(send(service, AUTH, credentials)[1]["access_token"])


def test_a_new_token_invalidates_the_one_before_it(service: ChatService) -> None:
    with ThreadPoolExecutor(20) as pool:
        tokens = list(pool.map(lambda _: new_token(service), range(20)))
    accepted = [send(service, "GET /me", token=token)[0] == 200 for token in tokens]
    assert accepted == [service.is_live(token) for token in tokens]
    assert accepted.count(True) == 1
    assert [life.until is None for life in service.token_history] == [False] * 19 + [True]
    assert not [token for token in tokens if token in repr(service.log) + repr(service.token_history)]


def test_a_token_is_invalidated_by_a_call_or_by_a_request_that_is_not_in_the_log(service: ChatService) -> None:
    first, at = new_token(service), service.invalidate()
    second = new_token(service)
    assert send(service, f"POST {INVALIDATE}")[1]["invalidated_at"] > 0
    assert send(service, f"POST {INVALIDATE}")[1] == {"invalidated_at": None}
    assert [send(service, "GET /me", token=token)[0] for token in (first, second)] == [401, 401]
    assert [(life.ended_by, life.until == at) for life in service.token_history] == [
        ("invalidate", True),
        ("invalidate", False),
    ]
    assert [request.path for request in service.log] == ["/auth", "/auth", "/me", "/me"]


def test_a_request_that_arrived_with_a_live_token_is_answered(service: ChatService) -> None:
    token, service.answer_latency = new_token(service), 0.2
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(send, service, "POST /answers", {"text": "hello"}, token)
        wait_until(lambda: service.log[-1].token == 1 and service.log[-1].path == "/answers", "the check of the token")
        service.invalidate()
        assert asked.result()[0] == 200


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_dropped_connection_can_have_created_a_token(service: ChatService, takes_effect: bool) -> None:
    token = new_token(service)
    service.strike(AUTH, Outage("drop", takes_effect=takes_effect, times=1))
    with pytest.raises(http.client.RemoteDisconnected):
        new_token(service)
    assert service.is_live(token) is not takes_effect
    assert (service.log[-1].status, service.log[-1].ended is not None) == (None, True)
