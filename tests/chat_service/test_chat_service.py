"""The tokens, outages and log of the simulated chat API, by which scenarios, races and tests judge."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.emulator.chat_service import ANSWERS, AUTH, ME, ChatService, Outage
from tests.chat_service.chat_api_client import ChatApiClient
from tests.support.waiting import wait_until


def test_a_new_token_invalidates_the_one_before_it(client: ChatApiClient) -> None:
    old, new = client.token(), client.token()
    assert (client.me(old), client.me(new)) == (401, 200)


def test_simultaneous_authentications_leave_one_live_token(service: ChatService) -> None:
    def authenticate(_: int) -> str:
        with ChatApiClient(service) as client:
            return client.token()

    with ThreadPoolExecutor(20) as pool:
        tokens = list(pool.map(authenticate, range(20)))
    assert [service.is_live(token) for token in tokens].count(True) == 1
    assert [life.until is None for life in service.token_history] == [False] * 19 + [True]


def test_a_token_is_invalidated_by_a_call_or_by_a_request_that_is_not_in_the_log(
    service: ChatService, client: ChatApiClient
) -> None:
    first, at = client.token(), service.invalidate()
    second = client.token()
    assert client.send("POST", "/_control/invalidate")[1]["invalidated_at"] > 0
    assert client.send("POST", "/_control/invalidate")[1] == {"invalidated_at": None}
    assert (client.me(first), client.me(second)) == (401, 401)
    assert [life.ended_by for life in service.token_history] == ["invalidate", "invalidate"]
    assert service.token_history[0].until == at
    assert [request.path for request in service.log] == ["/auth", "/auth", "/me", "/me"]


def test_a_request_that_arrived_with_a_live_token_is_answered(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    service.answer_latency = 0.2
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.answer, "hello", token)
        wait_until(lambda: service.log[-1].token == 1 and service.log[-1].path == "/answers", "the check of the token")
        service.invalidate()
        assert asked.result()[0] == 200


@pytest.mark.parametrize("changes", [{"client_id": "another"}, {"client_secret": "another"}])
def test_wrong_credentials_neither_create_nor_invalidate_a_token(
    service: ChatService, client: ChatApiClient, changes: dict[str, str]
) -> None:
    token = client.token()
    assert client.auth(**changes)[0] == 401
    assert client.me(token) == 200
    assert (service.auths, len(service.token_history)) == (2, 1)


def test_a_forbidden_text_and_an_unknown_token_are_refused_like_an_invalid_token(
    service: ChatService, client: ChatApiClient
) -> None:
    service.forbidden.add("salary of the director")
    token = client.token()
    refused = [client.send("POST", "/answers", {"text": "salary of the director"}, token)]
    refused += [client.send("POST", "/answers", {"text": "hello"}, each) for each in (None, "never made")]
    service.invalidate()
    refused.append(client.send("POST", "/answers", {"text": "hello"}, token))
    assert [(status, body, {**headers, "Date": ""}) for status, body, headers in refused] == [
        (401, refused[0][1], {**refused[0][2], "Date": ""})
    ] * 4


def test_an_outage_answers_its_status_for_its_number_of_requests(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    service.strike(AUTH, Outage(status=429, retry_after=7, times=2))
    status, _, headers = client.send("POST", "/auth", {})
    assert (status, headers["Retry-After"], client.me(token)) == (429, "7", 200)
    assert [client.auth()[0] for _ in range(2)] == [429, 200]
    service.strike(AUTH)
    assert client.auth()[0] == 503
    service.end_outage(AUTH)
    assert client.auth()[0] == 200


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_dropped_connection_can_have_created_a_token(
    service: ChatService, client: ChatApiClient, takes_effect: bool
) -> None:
    token = client.token()
    service.strike(AUTH, Outage("drop", takes_effect=takes_effect, times=1))
    with pytest.raises(http.client.RemoteDisconnected):
        client.auth()
    assert service.is_live(token) is not takes_effect
    assert (service.log[-1].status, service.log[-1].ended is not None) == (None, True)


@pytest.mark.parametrize("end", ["end_outage", "stop"])
def test_a_hanging_request_has_no_answer_until_the_outage_or_the_service_ends(service: ChatService, end: str) -> None:
    service.strike(ME, Outage("hang"))
    with ThreadPoolExecutor(1) as pool, ChatApiClient(service) as client:
        waiting = pool.submit(client.me, None)
        wait_until(lambda: len(service.log) == 1, "the request")
        getattr(service, end)()
        with pytest.raises((OSError, http.client.HTTPException)):
            waiting.result()
    wait_until(lambda: service.log[0].ended, "its end")
    assert service.log[0].status is None


def test_a_held_request_takes_effect_when_the_outage_ends(service: ChatService) -> None:
    with ChatApiClient(service) as first, ChatApiClient(service) as second, ThreadPoolExecutor(1) as pool:
        token = first.token()
        service.strike(AUTH, Outage("hold"))
        held = pool.submit(second.auth)
        wait_until(lambda: service.auths == 2, "the request")
        assert service.is_live(token)
        service.end_outage(AUTH)
        assert held.result()[0] == 200
        assert not service.is_live(token)


def test_a_401_is_in_the_log_as_soon_as_the_token_is_checked(service: ChatService, client: ChatApiClient) -> None:
    service.strike(ANSWERS, Outage("hang", takes_effect=True))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.answer, "hello", "never made")
        wait_until(lambda: [(r.status, r.ended) for r in service.log] == [(401, None)], "the check of the token")
        service.end_outage()
        assert waiting.exception() is not None


def test_the_log_has_every_request_in_order_and_tokens_by_number_only(
    service: ChatService, client: ChatApiClient
) -> None:
    first, second = client.token(), client.token()
    client.answer("hello", first)
    client.answer("hello", second)
    client.me("never made")
    assert [(request.number, request.path, request.status, request.token, request.text) for request in service.log] == [
        (1, "/auth", 200, 1, None),
        (2, "/auth", 200, 2, None),
        (3, "/answers", 401, 1, "hello"),
        (4, "/answers", 200, 2, "hello"),
        (5, "/me", 401, None, None),
    ]
    written = repr(service.log) + repr(service.token_history)
    assert (first in written, second in written, service.number_of(second)) == (False, False, 2)


def test_a_stopped_service_cannot_be_reached_and_restarts_at_the_same_address(service: ChatService) -> None:
    with ChatApiClient(service) as client:
        token = client.token()
        service.stop()
        with pytest.raises((OSError, http.client.HTTPException)):
            client.me(token)
        service.start()
        client.connection.close()
        assert client.me(token) == 200
