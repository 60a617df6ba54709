"""The client of the chat API, against the stand-in and against servers that misbehave."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from local.chat_service import ANSWERS, AUTH, ME, ChatService, Outage, answer_to
from slotkeeper import chat_api
from slotkeeper.chat_api import LARGEST_ANSWER, ChatApi, ChatApiFailed
from slotkeeper.chat_messages import ChatMessage
from slotkeeper.credentials import Credentials, UnusableSecret
from slotkeeper.token_lock import AuthenticationRefused, Unauthorized

SECRET = "a-secret-that-nobody-may-see"
MESSAGE = ChatMessage("m", "hello")


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService(client_secret=SECRET) as running:
        yield running


@pytest.fixture
def api(service: ChatService) -> ChatApi:
    return ChatApi(service.url, lambda: Credentials(service.client_id, SECRET))


def test_a_token_is_had_for_credentials_and_answers_for_the_token(api: ChatApi, service: ChatService) -> None:
    token = api.authenticate(5.0)
    assert service.is_live(token)
    assert api.answer(MESSAGE, token, 5.0) == answer_to("hello")


def test_the_probe_tells_a_valid_token_from_a_dead_one(api: ChatApi) -> None:
    dead = api.authenticate(5.0)
    token = api.authenticate(5.0)
    assert (api.is_valid(token, 5.0), api.is_valid(dead, 5.0)) == (True, False)


def test_a_probe_without_an_answer_says_neither(api: ChatApi, service: ChatService) -> None:
    service.strike(ME)
    with pytest.raises(ChatApiFailed, match="503"):
        api.is_valid("token", 5.0)


def test_a_dead_token_is_unauthorized(api: ChatApi) -> None:
    dead = api.authenticate(5.0)
    api.authenticate(5.0)
    with pytest.raises(Unauthorized):
        api.answer(MESSAGE, dead, 5.0)


@pytest.mark.parametrize("token", ["", "with a space", "with\r\nX-Header: 1", "ü", "x" * 5000])
def test_what_cannot_be_a_token_is_never_sent(api: ChatApi, service: ChatService, token: str) -> None:
    with pytest.raises(Unauthorized):
        api.answer(MESSAGE, token, 5.0)
    assert service.log == []


def test_the_conversation_goes_along(service: ChatService) -> None:
    bodies = Listener(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"answer": "a"}')
    with bodies:
        ChatApi(bodies.url, _no_credentials).answer(ChatMessage("m", "t", "c"), "token", 5.0)
    assert b'{"text": "t", "conversation": "c"}' in bodies.received


def _no_credentials() -> Credentials:
    raise AssertionError("no credentials are needed here")


OUTAGES = {
    "503": (Outage(), "was answered with HTTP 503"),
    "503 after the effect": (Outage("answer", takes_effect=True), "was answered with HTTP 503"),
    "429": (Outage("answer", status=429), "was answered with HTTP 429"),
    "a broken connection": (Outage("drop"), "failed: ProtocolError"),
    "no answer": (Outage("hang"), "was not answered within 0.3 s"),
}


@pytest.mark.parametrize(("outage", "said"), OUTAGES.values(), ids=OUTAGES)
def test_f35_an_api_that_gives_no_token_is_a_refusal_and_one_request(
    api: ChatApi, service: ChatService, outage: Outage, said: str
) -> None:
    service.strike(AUTH, outage)
    with pytest.raises(AuthenticationRefused, match=f"POST /auth {said}") as refused:
        api.authenticate(0.3)
    assert service.auths == 1
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("outage", "said"), OUTAGES.values(), ids=OUTAGES)
def test_an_api_that_does_not_answer_has_failed_and_is_asked_once(
    api: ChatApi, service: ChatService, outage: Outage, said: str
) -> None:
    token = api.authenticate(5.0)
    service.strike(ANSWERS, outage)
    with pytest.raises(ChatApiFailed, match=f"POST /answers {said}") as failed:
        api.answer(MESSAGE, token, 0.3)
    assert sum(request.path == "/answers" for request in service.log) == 1
    assert token not in str(failed.value)


def test_when_to_come_again_is_told(api: ChatApi, service: ChatService) -> None:
    token = api.authenticate(5.0)
    service.strike(ANSWERS, Outage("answer", retry_after=17))
    with pytest.raises(ChatApiFailed) as failed:
        api.answer(MESSAGE, token, 5.0)
    assert failed.value.retry_after == 17


def test_an_api_that_is_not_there_has_failed_at_once(api: ChatApi, service: ChatService) -> None:
    service.stop()
    with pytest.raises(AuthenticationRefused, match="POST /auth failed: no connection"):
        api.authenticate(5.0)


def test_f35_wrong_credentials_are_a_refusal_that_says_so(service: ChatService) -> None:
    api = ChatApi(service.url, lambda: Credentials("me", "wrong-" + SECRET))
    with pytest.raises(AuthenticationRefused, match="HTTP 401: the credentials may be wrong") as refused:
        api.authenticate(5.0)
    assert SECRET not in str(refused.value)


def test_without_credentials_the_api_is_not_asked(service: ChatService) -> None:
    def none_yet() -> Credentials:
        raise UnusableSecret("nobody has put them")

    with pytest.raises(AuthenticationRefused, match="nobody has put them"):
        ChatApi(service.url, none_yet).authenticate(5.0)
    assert service.log == []


def test_the_time_that_reading_the_credentials_took_is_not_there_for_the_api(service: ChatService) -> None:
    def slow() -> Credentials:
        time.sleep(0.2)
        return Credentials(service.client_id, SECRET)

    with pytest.raises(AuthenticationRefused, match="no time was left for POST /auth"):
        ChatApi(service.url, slow).authenticate(0.1)
    assert service.auths == 0


class Listener:
    """A server that answers every connection with the same bytes, one piece after the other."""

    def __init__(self, *pieces: bytes, pause: float = 0.0) -> None:
        self._pieces, self._pause = pieces, pause
        self.received = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Listener:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _is_whole(self) -> bool:
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        return length is not None and len(body) == int(length[1])

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            while not self._is_whole():
                self.received += connection.recv(65536)
            for piece in self._pieces:
                try:
                    connection.sendall(piece)
                except OSError:
                    return  # the client has gone, as it should
                time.sleep(self._pause)


def _http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


UNUSABLE = {
    "not JSON": _http(SECRET.encode()),
    "not an object": _http(b"[]"),
    "nested too deeply": _http(b"[" * 100_000),
    "no token": _http(b'{"token": "%s"}' % SECRET.encode()),
    "a token of another type": _http(b'{"access_token": ["%s"]}' % SECRET.encode()),
    "an empty token": _http(b'{"access_token": ""}'),
    "a token that would be another header": _http(b'{"access_token": "%s\\r\\nX-Header: 1"}' % SECRET.encode()),
    "another status": _http(b'{"access_token": "%s"}' % SECRET.encode(), "202 Accepted"),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_without_a_usable_token_is_a_refusal_that_repeats_nothing_of_it(answer: bytes) -> None:
    with Listener(answer) as server, pytest.raises(AuthenticationRefused) as refused:
        ChatApi(server.url, lambda: Credentials("me", SECRET)).authenticate(5.0)
    assert SECRET not in str(refused.value)


class HangsUp:
    """A server that answers one request on each connection, and breaks the connection off at the second: as a NAT
    gateway does that has forgotten it, without a word beforehand."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> HangsUp:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        for number in (1, 2):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # nobody came a second time
            with connection:
                received = b""
                while not received.endswith(b"}"):  # the headers and the body may come one after the other
                    received += connection.recv(65536)
                connection.sendall(_http(b'{"access_token": "token-%d"}' % number))
                connection.recv(65536)


def test_f35_a_connection_that_was_idle_for_long_is_not_relied_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the one `POST /auth` fails on it, and everybody is refused for the whole of a refusal."""
    with HangsUp() as server:
        api = ChatApi(server.url, lambda: Credentials("me", SECRET))
        api.authenticate(5.0)
        monkeypatch.setattr(chat_api, "LONGEST_IDLE", 0.0)
        assert api.authenticate(5.0) == "token-2"


def test_control_a_connection_that_was_not_idle_is_used_again() -> None:
    with HangsUp() as server:
        api = ChatApi(server.url, lambda: Credentials("me", SECRET))
        api.authenticate(5.0)
        with pytest.raises(AuthenticationRefused, match="POST /auth failed: ProtocolError"):
            api.authenticate(5.0)


@pytest.mark.parametrize("token", ["", "live ", "with\r\nX-Header: 1"])
def test_what_cannot_be_a_token_is_not_valid_whatever_the_api_makes_of_it(
    api: ChatApi, service: ChatService, token: str
) -> None:
    assert not api.is_valid(token, 5.0)
    assert service.log == []


def test_nobody_is_followed_to_another_place() -> None:
    """A redirect would carry the credentials, or the token, to wherever the answer says."""
    with Listener(_http(b"{}")) as elsewhere:
        redirect = _http(b"", "307 Temporary Redirect", f"Location: {elsewhere.url}/auth")
        with Listener(redirect) as server, pytest.raises(AuthenticationRefused, match="307"):
            ChatApi(server.url, lambda: Credentials("me", SECRET)).authenticate(5.0)
    assert elsewhere.received == b""


DRIPPING = (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b"x"] * 100)


def test_an_answer_in_drops_ends_at_the_deadline() -> None:
    """Each drop would start urllib3's own timeout anew, and the lock's lease would be over long before the answer."""
    with Listener(*DRIPPING, pause=0.05) as server:
        began = time.monotonic()
        with pytest.raises(ChatApiFailed, match="too slow or too large"):
            ChatApi(server.url, _no_credentials).answer(MESSAGE, "token", 0.4)
    assert time.monotonic() - began < 1.0


def test_an_answer_without_end_is_cut_off() -> None:
    endless = (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", *[b"x" * 65536] * (2 * LARGEST_ANSWER // 65536))
    with Listener(*endless) as server, pytest.raises(ChatApiFailed, match="too slow or too large"):
        ChatApi(server.url, _no_credentials).answer(MESSAGE, "token", 5.0)


@pytest.mark.parametrize("body", [b"{}", b'{"answer": 7}', b"junk"])
def test_an_answer_that_is_none_has_failed(body: bytes) -> None:
    with Listener(_http(body)) as server, pytest.raises(ChatApiFailed, match="not what it promises"):
        ChatApi(server.url, _no_credentials).answer(MESSAGE, "token", 5.0)


def test_a_request_goes_out_with_its_token_and_nothing_is_sent_without_time(api: ChatApi, service: ChatService) -> None:
    with pytest.raises(ChatApiFailed, match="no time was left"):
        api.answer(MESSAGE, "token", -1.0)
    assert service.log == []
