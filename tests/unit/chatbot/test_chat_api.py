"""The client of the chat API, against the simulated API and against faulty servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dev.emulator.chat_service import ANSWERS, AUTH, ME, ChatService, Outage, answer_to
from slotkeeper.chatbot.api import NO_CONNECTION_PAUSE, ChatApi, ChatApiFailed
from slotkeeper.chatbot.credentials import Credentials, UnreadableSecret, UnusableSecret
from slotkeeper.chatbot.messages import ChatMessage
from slotkeeper.token import AuthenticationNotAttempted, AuthenticationRefused, NotSent, Unauthorized, http_client
from tests.http_servers import DroppingServer, Listener, http

SECRET = "a-secret-not-to-be-shown"
MESSAGE = ChatMessage("m", "hello")


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService(client_secret=SECRET) as running:
        yield running


@pytest.fixture
def api(service: ChatService) -> ChatApi:
    return ChatApi(service.url, lambda: Credentials(service.client_id, SECRET))


def test_credentials_give_a_token_and_the_token_gives_an_answer(api: ChatApi, service: ChatService) -> None:
    token = api.authenticate(5.0)
    assert service.is_live(token)
    assert api.answer(MESSAGE, token, 5.0) == answer_to("hello")


def test_a_dead_token_is_invalid_for_the_probe_and_unauthorized(api: ChatApi) -> None:
    dead = api.authenticate(5.0)
    token = api.authenticate(5.0)
    assert (api.is_valid(token, 5.0), api.is_valid(dead, 5.0)) == (True, False)
    with pytest.raises(Unauthorized):
        api.answer(MESSAGE, dead, 5.0)


@pytest.mark.parametrize(
    ("outage", "reason", "retry_after"),
    [
        (Outage(retry_after=7), "HTTP 503", 7.0),
        (Outage("answer", status=429), "HTTP 429", None),
        (Outage("answer", status=403), "HTTP 403, neither 200 nor 401", None),
        (Outage("answer", status=404), "HTTP 404, neither 200 nor 401", None),
    ],
)
def test_t1_only_a_401_shows_the_probe_that_a_token_is_invalid(
    api: ChatApi, service: ChatService, outage: Outage, reason: str, retry_after: float | None
) -> None:
    token = api.authenticate(5.0)
    service.strike(ME, outage)
    with pytest.raises(AuthenticationRefused, match=f"GET /me .*{reason}") as unknown:
        api.is_valid(token, 5.0)
    assert unknown.value.retry_after == retry_after
    assert token not in str(unknown.value)


@pytest.mark.parametrize("token", ["", "with a space", "with\r\nX-Header: 1", "ü", "x" * 5000])
def test_a_malformed_token_is_never_sent(api: ChatApi, service: ChatService, token: str) -> None:
    with pytest.raises(Unauthorized):
        api.answer(MESSAGE, token, 5.0)
    assert not api.is_valid(token, 5.0)
    assert service.log == []


def _no_credentials() -> Credentials:
    raise AssertionError("no credentials are needed here")


OUTAGES = {
    "503": (Outage(), "was answered with HTTP 503"),
    "503 after the effect": (Outage("answer", takes_effect=True), "was answered with HTTP 503"),
    "429": (Outage("answer", status=429), "was answered with HTTP 429"),
    "a broken connection": (Outage("drop"), "failed: ProtocolError"),
    "no answer": (Outage("hang"), "was not answered within 0.3 s"),
}


@pytest.mark.parametrize(("outage", "reason"), OUTAGES.values(), ids=OUTAGES)
def test_f35_a_failed_authentication_is_a_refusal_after_one_request(
    api: ChatApi, service: ChatService, outage: Outage, reason: str
) -> None:
    service.strike(AUTH, outage)
    with pytest.raises(AuthenticationRefused, match=f"POST /auth {reason}") as refused:
        api.authenticate(0.3)
    assert service.auths == 1
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("outage", "reason"), OUTAGES.values(), ids=OUTAGES)
def test_a_failed_answer_is_an_error_after_one_request(
    api: ChatApi, service: ChatService, outage: Outage, reason: str
) -> None:
    token = api.authenticate(5.0)
    service.strike(ANSWERS, outage)
    with pytest.raises(ChatApiFailed, match=f"POST /answers {reason}") as failed:
        api.answer(MESSAGE, token, 0.3)
    assert sum(request.path == "/answers" for request in service.log) == 1
    assert token not in str(failed.value)


def test_an_unreachable_api_fails_immediately(api: ChatApi, service: ChatService) -> None:
    service.stop()
    with pytest.raises(AuthenticationNotAttempted, match="POST /auth was not sent: no connection") as failed:
        api.authenticate(5.0)
    assert failed.value.pause == NO_CONNECTION_PAUSE == 2.0


def test_f35_wrong_credentials_are_a_refusal_with_that_reason(service: ChatService) -> None:
    api = ChatApi(service.url, lambda: Credentials("me", "wrong-" + SECRET))
    with pytest.raises(AuthenticationRefused, match="HTTP 401: the credentials may be wrong") as refused:
        api.authenticate(5.0)
    assert SECRET not in str(refused.value)


def _none_yet() -> Credentials:
    raise UnusableSecret("no credentials")


def _throttled() -> Credentials:
    raise UnreadableSecret("ThrottlingException")


def _slow() -> Credentials:
    time.sleep(0.2)
    return Credentials("me", SECRET)


@pytest.mark.parametrize(
    ("read", "kind", "reason"),
    [
        pytest.param(_none_yet, AuthenticationRefused, "no credentials", id="no credentials"),
        pytest.param(_slow, AuthenticationNotAttempted, "POST /auth was not sent: no time was left", id="too slow"),
        pytest.param(_throttled, AuthenticationNotAttempted, "ThrottlingException", id="t2_cannot be read here"),
    ],
)
def test_without_credentials_in_time_the_api_is_not_asked(
    service: ChatService, read: Callable[[], Credentials], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as failed:
        ChatApi(service.url, read).authenticate(0.1)
    assert (getattr(failed.value, "pause", 0.0), service.log) == (0.0, [])


UNUSABLE = {
    "not JSON": http(SECRET.encode()),
    "not an object": http(b"[]"),
    "nested too deeply": http(b"[" * 100_000),
    "no token": http(b'{"token": "%s"}' % SECRET.encode()),
    "a token of another type": http(b'{"access_token": ["%s"]}' % SECRET.encode()),
    "an empty token": http(b'{"access_token": ""}'),
    "a token that would be another header": http(b'{"access_token": "%s\\r\\nX-Header: 1"}' % SECRET.encode()),
    "another status": http(b'{"access_token": "%s"}' % SECRET.encode(), "202 Accepted"),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_without_a_usable_token_is_a_refusal_that_does_not_quote_it(answer: bytes) -> None:
    with Listener(answer) as server, pytest.raises(AuthenticationRefused) as refused:
        ChatApi(server.url, lambda: Credentials("me", SECRET)).authenticate(5.0)
    assert SECRET not in str(refused.value)


def test_f35_a_connection_that_was_idle_too_long_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the only `POST /auth` would fail on it, and every instance would be refused for a whole refusal."""
    with DroppingServer() as server:
        api = ChatApi(server.url, lambda: Credentials("me", SECRET))
        api.authenticate(5.0)
        monkeypatch.setattr(http_client, "LONGEST_IDLE", 0.0)
        assert api.authenticate(5.0) == "token-2"


def test_control_a_connection_that_was_not_idle_is_reused() -> None:
    with DroppingServer() as server:
        api = ChatApi(server.url, lambda: Credentials("me", SECRET))
        api.authenticate(5.0)
        with pytest.raises(AuthenticationRefused, match="POST /auth failed: ProtocolError"):
            api.authenticate(5.0)


def test_redirects_are_not_followed() -> None:
    """A redirect would send the credentials or the token to the host in the answer."""
    with Listener(http(b"{}")) as elsewhere:
        redirect = http(b"", "307 Temporary Redirect", f"Location: {elsewhere.url}/auth")
        with Listener(redirect) as server, pytest.raises(AuthenticationRefused, match="307"):
            ChatApi(server.url, lambda: Credentials("me", SECRET)).authenticate(5.0)
    assert elsewhere.received == b""


@pytest.mark.parametrize("body", [b"{}", b'{"answer": 7}', b"junk"])
def test_a_malformed_answer_is_an_error(body: bytes) -> None:
    with Listener(http(body)) as server, pytest.raises(ChatApiFailed, match="HTTP 200 without a text in"):
        ChatApi(server.url, _no_credentials).answer(MESSAGE, "token", 5.0)


def test_no_request_is_sent_without_time(api: ChatApi, service: ChatService) -> None:
    with pytest.raises(ChatApiFailed, match="no time was left"):
        api.answer(MESSAGE, "token", -1.0)
    with pytest.raises(NotSent, match="no time was left"):
        api.is_valid("token", 0.0)
    assert service.log == []
