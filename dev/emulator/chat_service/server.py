"""The simulated chat API over HTTP/1.1: one thread per connection, which stays open between requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from .exchanges import Reply
from .simulated_chat_api import ChatApi

INVALIDATE = "/_control/invalidate"  # a POST, which is not in the log, invalidates the live token
MAX_BODY = 1_000_000  # bytes
BACKLOG = 1024  # connections that wait for accept; the system's limit (somaxconn) applies too
END_SECONDS = 5.0  # for the threads of closed connections to end


class ChatService(ChatApi):
    """A ChatApi that serves on 127.0.0.1 from `__enter__` (or `start`) to `__exit__` (or `stop`)."""

    _http: _Http | None = None

    def start(self) -> Self:
        """Serve on a separate thread. Raises OSError if the port is taken."""
        self._stopping.clear()
        self._http = _Http(self._port, self)
        self._port = self._http.server_address[1]  # another start serves at the same address
        threading.Thread(target=self._http.serve_forever, args=[0.02], name="chat-service", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close every connection and free the port. Log and tokens stay."""
        self._stopping.set()
        self.end_outage()
        if self._http is not None:
            self._http.close()
            self._http = None

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, service: ChatApi) -> None:
        self.service = service
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def close(self) -> None:
        """End the listener and the open connections, which otherwise outlive it and still give answers."""
        self.shutdown()
        self.server_close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):  # its client has closed it
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=END_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tests disconnect clients in the middle of a request: log nothing."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "chat-service"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet: the second of two would wait for the acknowledgement of the first
    server: _Http

    def _handle(self) -> None:
        path, length = urlsplit(self.path).path, self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(Reply(400, {"error": f"expected a body with Content-Length, of at most {MAX_BODY} bytes"}))
            return
        body = self.rfile.read(int(length))
        if (self.command, path) == ("POST", INVALIDATE):
            self._send(Reply(200, {"invalidated_at": self.server.service.invalidate()}))
            return
        reply = self.server.service.serve(self.command, path, self.headers.get("Authorization", ""), body)
        if reply is None:
            self.close_connection = True
            return
        self._send(reply)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _send(self, reply: Reply) -> None:
        content = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the service has its own log."""
