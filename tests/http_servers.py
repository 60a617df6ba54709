"""Misbehaving servers on 127.0.0.1."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from typing import Self

# It outlasts every deadline of the tests by far. A client without a deadline ends too, with another error.
ENDLESS = 500


class Listener:
    """Answers each request and closes its connection.

    Args:
        pieces: the answer, sent one after the other.
        pause: seconds between two pieces.
        endless: repeat the last piece while the client is connected, up to ENDLESS times.

    Attributes:
        answers: path -> the bytes that answer its requests, in place of `pieces`.
        requests: each request as it arrived, head and body. `received` is the last one.
    """

    def __init__(self, *pieces: bytes, pause: float = 0.0, endless: bool = False) -> None:
        self._pieces, self._pause, self._endless = pieces, pause, endless
        self._closed = threading.Event()
        self.answers: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self.received = b""
        self.connections = 0
        self.exhausted = False  # whether a client received the last piece
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # the test has ended
            self.connections += 1
            with connection, suppress(OSError):  # the client has closed the connection
                self._answer(connection)

    def _is_whole(self) -> bool:
        head, ended, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head, re.IGNORECASE)
        return bool(ended) and len(body) == (int(length[1]) if length else 0)

    def _answer(self, connection: socket.socket) -> None:
        self.received = b""
        while not self._is_whole() and (received := connection.recv(65536)):
            self.received += received
        self.requests.append(self.received)
        pieces = self._pieces
        if self.answers:
            pieces = (self.answers.get(self.received.split(b" ")[1].decode(), b""),)
        for piece in (*pieces, *(pieces[-1:] * ENDLESS if self._endless else ())):
            connection.sendall(piece)
            if self._closed.wait(self._pause):
                return
        self.exhausted = True


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A complete answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def ok(body: bytes) -> bytes:
    """A complete answer with JSON, after which the connection is closed."""
    return http(body, "200 OK", "Content-Type: application/json", "Connection: close")


class DroppingServer:
    """Answers the first request on each connection and drops the second, as a NAT gateway does after its idle time."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> DroppingServer:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        for number in (1, 2):
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # the client did not connect again
            with connection:
                received = b""
                while not received.endswith(b"}"):  # headers and body may arrive separately
                    received += connection.recv(65536)
                connection.sendall(http(b'{"access_token": "token-%d"}' % number))
                connection.recv(65536)
