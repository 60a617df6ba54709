"""The tokens, routes, outages and log of the simulated chat API."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from dev.emulator.chat_service import ANSWERS, AUTH, ME, ChatService, Outage, Request
from tests.chat_service.chat_api_client import ChatApiClient
from tests.support.waiting import NEVER, wait_until


def in_background(call: Callable[[], Any]) -> threading.Thread:
    """Run a client on a thread, and ignore that the service closes its connection."""

    def run() -> None:
        try:
            call()
        except (OSError, http.client.HTTPException):
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def statuses(service: ChatService) -> list[tuple[str, int | None]]:
    return [(request.path, request.status) for request in service.log]


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


def test_an_invalidated_token_is_refused_and_its_history_has_the_time(
    service: ChatService, client: ChatApiClient
) -> None:
    token = client.token()
    at = service.invalidate()
    assert client.me(token) == 401
    assert [(life.number, life.until, life.ended_by) for life in service.token_history] == [(1, at, "invalidate")]


def test_a_token_is_invalidated_only_if_the_condition_on_the_log_holds(
    service: ChatService, client: ChatApiClient
) -> None:
    token = client.token()
    assert service.invalidate(lambda log: any(request.path == "/me" for request in log)) is None
    assert client.me(token) == 200
    assert service.invalidate(lambda log: log[-1].path == "/me") is not None
    assert client.me(token) == 401


def test_no_token_is_checked_between_the_read_of_the_log_and_the_invalidation(
    service: ChatService, client: ChatApiClient
) -> None:
    token = client.token()
    requests: list[Future[int]] = []
    with ThreadPoolExecutor(1) as pool:

        def condition(_log: list[Request]) -> bool:
            requests.append(pool.submit(client.me, token))
            with pytest.raises(TimeoutError):
                requests[0].result(0.2)
            return True

        assert service.invalidate(condition) is not None
        assert requests[0].result() == 401


def test_a_401_is_in_the_log_as_soon_as_the_token_is_checked(service: ChatService, client: ChatApiClient) -> None:
    service.strike(ANSWERS, Outage("hang", takes_effect=True))
    waiting = in_background(lambda: client.answer("hello", "never made"))
    wait_until(lambda: [(r.status, r.ended) for r in service.log] == [(401, None)], "the check of the token")
    service.end_outage()
    waiting.join(NEVER)


def test_a_request_that_arrived_with_a_live_token_is_answered(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    service.strike(ANSWERS, Outage("hold"))
    service.answer_latency = 0.2
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.answer, "hello", token)
        wait_until(lambda: service.log[-1].path == "/answers", "the request")
        service.end_outage(ANSWERS)
        wait_until(lambda: service.log[-1].token == 1, "the check of the token")
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


@pytest.mark.parametrize("token", [None, "never made", "", "x" * 5000])
def test_a_missing_and_an_unknown_token_are_refused(client: ChatApiClient, token: str | None) -> None:
    client.token()
    assert client.me(token) == 401
    assert client.answer("hello", token)[0] == 401


def test_a_forbidden_text_is_refused_like_an_invalid_token(service: ChatService, client: ChatApiClient) -> None:
    service.forbidden.add("salary of the director")
    token = client.token()
    refused = client.send("POST", "/answers", {"text": "salary of the director"}, token)
    service.invalidate()
    dead = client.send("POST", "/answers", {"text": "hello"}, token)
    assert refused[0] == 401
    assert refused[:2] == dead[:2]
    assert {**refused[2], "Date": ""} == {**dead[2], "Date": ""}


@pytest.mark.parametrize(("effect", "old"), [("start", 401), ("end", 200)])
def test_the_token_changes_at_the_start_or_the_end_of_the_latency(service: ChatService, effect: Any, old: int) -> None:
    with ChatApiClient(service) as first, ChatApiClient(service) as second:
        token = first.token()
        service.auth_effect, service.auth_latency = effect, 60.0
        waiting = in_background(second.auth)
        wait_until(lambda: service.auths == 2 and len(service.token_history) == (2 if old == 401 else 1), "the POST")
        assert first.me(token) == old
        service.stop()
        waiting.join(NEVER)
    assert not service.is_live(token)


def test_an_outage_answers_its_status_without_effect(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    service.strike(AUTH, Outage(status=429, retry_after=7))
    status, _, headers = client.send("POST", "/auth", {})
    assert (status, headers["Retry-After"]) == (429, "7")
    assert client.me(token) == 200
    service.end_outage(AUTH)
    assert client.auth()[0] == 200


def test_an_outage_can_be_limited_to_a_number_of_requests(service: ChatService, client: ChatApiClient) -> None:
    service.strike(AUTH, Outage(times=2))
    assert [client.auth()[0] for _ in range(3)] == [503, 503, 200]
    assert service.outages == {}


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_dropped_connection_can_have_created_a_token(
    service: ChatService, client: ChatApiClient, takes_effect: bool
) -> None:
    token = client.token()
    service.strike(AUTH, Outage("drop", takes_effect=takes_effect, times=1))
    with pytest.raises(http.client.RemoteDisconnected):
        client.auth()
    assert service.is_live(token) is not takes_effect
    assert service.log[-1].status is None
    assert service.log[-1].ended is not None


def test_a_hanging_request_has_no_answer_until_the_outage_ends(service: ChatService) -> None:
    service.strike(ME, Outage("hang"))
    with ChatApiClient(service, timeout=0.3) as impatient, pytest.raises(TimeoutError):
        impatient.me(None)
    with ChatApiClient(service) as patient:
        waiting = in_background(lambda: patient.me(None))
        wait_until(lambda: len(service.log) == 2, "the request")
        service.end_outage()
        waiting.join(NEVER)
    wait_until(lambda: all(request.ended for request in service.log), "their end")
    assert statuses(service) == [("/me", None), ("/me", None)]


def test_a_held_request_takes_effect_when_the_outage_ends(service: ChatService) -> None:
    with ChatApiClient(service) as first, ChatApiClient(service) as second:
        token = first.token()
        service.strike(AUTH, Outage("hold"))
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(second.auth)
            wait_until(lambda: service.auths == 2, "the request")
            assert service.is_live(token)
            service.end_outage(AUTH)
            assert held.result()[0] == 200
        assert not service.is_live(token)


def test_the_log_has_every_request_in_order_and_tokens_by_number_only(
    service: ChatService, client: ChatApiClient
) -> None:
    first, second = client.token(), client.token()
    client.answer("hello", first)
    client.answer("hello", second)
    client.me("never made")
    assert statuses(service) == [("/auth", 200), ("/auth", 200), ("/answers", 401), ("/answers", 200), ("/me", 401)]
    assert [request.token for request in service.log] == [1, 2, 1, 2, None]
    assert [request.number for request in service.log] == [1, 2, 3, 4, 5]
    assert [request.text for request in service.log] == [None, None, "hello", "hello", None]
    written = repr(service.log) + repr(service.token_history)
    assert first not in written
    assert second not in written
    assert (service.number_of(first), service.number_of(second), service.number_of("never made")) == (1, 2, None)


def test_a_stopped_service_cannot_be_reached_and_restarts_at_the_same_address(service: ChatService) -> None:
    with ChatApiClient(service) as client:
        token = client.token()
        service.stop()
        with pytest.raises((OSError, http.client.HTTPException)):
            client.me(token)
        service.start()
        client.connection.close()
        assert client.me(token) == 200


def test_a_stop_ends_hanging_requests(service: ChatService) -> None:
    service.strike(ME, Outage("hang"))
    with ChatApiClient(service) as client:
        waiting = in_background(lambda: client.me(None))
        wait_until(lambda: len(service.log) == 1, "the request")
        service.stop()
        waiting.join(NEVER)
        assert not waiting.is_alive()
    assert service.log[0].ended is not None
