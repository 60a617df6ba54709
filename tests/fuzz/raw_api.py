"""A chat API that answers with given bytes and closes the connection."""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType
from typing import Self

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"


def ok(body: bytes) -> bytes:
    return OK % (len(body), body)


class RawApi:
    """`answers`: path -> bytes. `requests`: each request as it arrived, head and body."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=50)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        try:
            request = b""
            while b"\r\n\r\n" not in request and (piece := connection.recv(65536)):
                request += piece
            length = re.search(rb"Content-Length: (\d+)", request)
            while length and len(request.partition(b"\r\n\r\n")[2]) < int(length[1]):
                request += connection.recv(65536)
            self.requests.append(request)
            connection.sendall(self.answers.get(request.split(b" ")[1].decode(), b""))
        except OSError:
            pass  # the client has closed the connection
