"""One request ends at its deadline for any behavior of the server, and its error states whether it was sent."""

from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from slotkeeper.token import HttpClient, HttpFailed, NoConnection, http_client
from slotkeeper.token.http_client import LARGEST_ANSWER, NoAnswer, parse_retry_after
from tests.http_servers import Listener, http
from tests.waiting import wait_until

HEAD = b"HTTP/1.1 200 OK\r\n"
# Each of these answers never ends by itself, so only the deadline ends the call. urllib3's timeouts restart with every
# piece and are never reached.
DRIPS: dict[str, tuple[bytes, ...]] = {
    "headers, one by one": (HEAD, b"X-Header: 1\r\n"),
    "one header, byte by byte": (HEAD + b"X-Header: ", b"1"),
    "the status, byte by byte": (b"HTTP/1.1 200 ", b"O"),
    "a body of a known length": (HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "a body until the end of the connection": (HEAD + b"Connection: close\r\n\r\n", b"x"),
    "a body in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n",),
}


@pytest.fixture
def client() -> HttpClient:
    return HttpClient()


@pytest.mark.parametrize("pieces", DRIPS.values(), ids=DRIPS)
def test_an_answer_byte_by_byte_ends_at_the_deadline(client: HttpClient, pieces: tuple[bytes, ...]) -> None:
    raised = pytest.raises(NoAnswer, match=r"POST /auth was not answered within 0\.3 s")
    with Listener(*pieces, pause=0.02, endless=True) as server, raised:
        client.request("POST", f"{server.url}/auth", 0.3, json_body={})
    assert not server.exhausted


def test_a_tls_handshake_byte_by_byte_ends_at_the_deadline(client: HttpClient) -> None:
    """The server sends a record of 16 KB byte by byte."""
    hello = bytes([22, 3, 3, 64, 0])
    with Listener(hello, b"\x00", pause=0.02, endless=True) as server:
        server._is_whole = lambda: bool(server.received)  # type: ignore[method-assign]
        with pytest.raises(HttpFailed):
            client.request("POST", f"{server.url.replace('http:', 'https:')}/auth", 0.3, json_body={})
    assert not server.exhausted


def test_a_request_within_its_deadline_stops_the_timer(client: HttpClient) -> None:
    with Listener(http(b"{}")) as server:
        assert client.request("GET", f"{server.url}/me", 60.0).status == 200
    wait_until(lambda: not any(isinstance(each, threading.Timer) for each in threading.enumerate()), "the timer's end")


def test_no_request_is_sent_if_the_name_server_answers_after_the_deadline(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def slow(*asked: Any, **how: Any) -> Any:
        addresses = resolve(*asked, **how)
        over.wait(10)
        return addresses

    over = threading.Event()
    end = http_client._Deadline._end
    monkeypatch.setattr(http_client._Deadline, "_end", lambda self: (end(self), over.set()))
    with Listener(http(b"{}")) as server:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with pytest.raises(NoConnection, match="POST /auth was not sent: no connection"):
            client.request("POST", f"{server.url}/auth", 0.2, json_body={})
        monkeypatch.undo()
        assert client.request("POST", f"{server.url}/auth", 5.0, json_body={}).status == 200
        assert server.connections == 2
        assert b"POST /auth" in server.received


def test_a_connection_that_breaks_off_may_have_carried_the_request(client: HttpClient) -> None:
    with Listener() as server, pytest.raises(NoAnswer, match="GET /me failed: ProtocolError"):
        client.request("GET", f"{server.url}/me", 5.0)


def test_a_server_without_a_trusted_certificate_receives_no_request(client: HttpClient) -> None:
    with Listener(b"no TLS at all") as server:
        server._is_whole = lambda: bool(server.received)  # type: ignore[method-assign]
        with pytest.raises(NoAnswer, match="GET /me failed: SSLError"):
            client.request("GET", f"{server.url.replace('http:', 'https:')}/me", 5.0)
    assert b"GET" not in server.received


def test_an_endless_answer_is_cut_off(client: HttpClient) -> None:
    raised = pytest.raises(NoAnswer, match=f"was larger than {LARGEST_ANSWER:,} bytes")
    with Listener(HEAD + b"Connection: close\r\n\r\n", b"x" * 65536, endless=True) as server, raised:
        client.request("GET", f"{server.url}/me", 60.0)


@pytest.mark.parametrize(("body", "fields"), [(b'{"a": 1}', {"a": 1}), (b"[]", {}), (b"junk", {}), (b"[" * 10**5, {})])
def test_only_a_json_object_has_fields(client: HttpClient, body: bytes, fields: dict[str, Any]) -> None:
    with Listener(http(body)) as server:
        answer = client.request("GET", f"{server.url}/me", 60.0)
    assert answer.fields() == fields
    assert str(body[:3]) not in repr(answer)


# ------------------------------------------------------------------------------------------- RFC 9110, 10.2.3 and 5.6.7

NOW = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Sun, 06 Nov 1994 08:51:37 GMT", 120.0),
        ("Sunday, 06-Nov-94 08:51:37 GMT", 120.0),
        ("Sun Nov  6 08:51:37 1994", 120.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("9" * 5000, 86_400.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("5, 7", None),
        ("Sun, 99 Nov 1994 08:51:37 GMT", None),
        ("\u0663", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_a_day_at_most(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
