"""An HTTP proxy on 127.0.0.1 that forwards a request and closes the connection instead of answering it.

The client cannot know whether its request took effect, and botocore repeats it. No hook inside botocore shows that.
"""

from __future__ import annotations

import http.client
import threading
from http.server import ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from dev.emulator.programs_only import ProgramsOnlyHandler
from tests.waiting import NEVER


class LosingProxy:
    """Forwards every request to `target`, a URL, and loses the chosen answers. A context manager."""

    def __init__(self, target: str) -> None:
        self.lost: list[bytes] = []  # the bodies of the requests whose answers were lost
        self.carried_out: list[bytes] = []  # the bodies of all
        self._target = urlsplit(target).netloc
        self._lock = threading.Lock()
        self._to_lose: list[bytes] = []
        self._server = _Server(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_answer_to(self, text: bytes) -> None:
        """Lose the answer to the next request whose body contains `text`."""
        with self._lock:
            self._to_lose.append(text)

    def carry_out(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        """Status, headers and body of the answer; None if it is lost."""
        connection = http.client.HTTPConnection(self._target, timeout=NEVER)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        with self._lock:
            self.carried_out.append(body)
            for text in self._to_lose:
                if text in body:
                    self._to_lose.remove(text)
                    self.lost.append(body)
                    return None
        return answer.status, dict(answer.getheaders()), content

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: LosingProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(ProgramsOnlyHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # The signature covers Host, so the headers are forwarded unchanged.
        answer = self.server.proxy.carry_out(self.path, body, dict(self.headers.items()))
        if answer is None:
            self.close_connection = True
            return
        status, headers, content = answer
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"transfer-encoding", "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
