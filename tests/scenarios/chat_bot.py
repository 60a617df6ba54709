"""A simulated chatbot for the senders, which shares its token or, as a negative control, does not."""

from __future__ import annotations

import hmac
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dev.emulator.chat_service import ChatService
from tests.chat_service.chat_api_client import ChatApiClient

KEY = "a key of the tests"


class Bot:
    """Answers signed messages. `shared`: one token for all; otherwise each conversation gets its own."""

    def __init__(self, service: ChatService, *, shared: bool) -> None:
        self._service = service
        self._shared = shared
        self._locks: dict[str, threading.Lock] = {}
        self._tokens: dict[str, str] = {}
        self.seen: set[str] = set()
        self.first_statuses: list[int] = []  # of the next answers

    @property
    def stored(self) -> str:
        """The token stored last."""
        return list(self._tokens.values())[-1]

    def reply(self, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        timestamp, signature = headers["X-Slotkeeper-Timestamp"], headers["X-Slotkeeper-Signature"]
        if timestamp is None or signature is None:
            return 401, {"code": "MissingHeader"}
        wanted = hmac.new(KEY.encode(), f"v1:{timestamp}:".encode() + body, "sha256").hexdigest()
        if signature != f"v1={wanted}":
            return 401, {"code": "WrongSignature"}
        if signature in self.seen:
            return 401, {"code": "Replayed"}
        self.seen.add(signature)
        if self.first_statuses:
            return self.first_statuses.pop(0), {"code": "NotNow"}
        return self._answer(json.loads(body))

    def _answer(self, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        owner = "all" if self._shared else message["conversation"]
        token = self._tokens.get(owner) or self._renew(owner, "")
        with ChatApiClient(self._service) as api:
            for _ in range(20):
                status, reply = api.answer(message["text"], token)
                if status == 200:
                    return 200, {"message_id": message["message_id"], "answer": reply["answer"]}
                token = self._renew(owner, token)
        return 502, {"code": "ChatApiUnauthorized"}

    def _renew(self, owner: str, bad: str) -> str:
        with self._locks.setdefault(owner, threading.Lock()), ChatApiClient(self._service) as api:
            if self._tokens.get(owner, "") == bad:
                self._tokens[owner] = api.token()
            return self._tokens[owner]


@contextmanager
def serving(bot: Bot) -> Iterator[str]:
    """The URL at which the bot answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, reply = bot.reply(self.headers, body)
            except (OSError, http.client.HTTPException):
                status, reply = 502, {"code": "ChatApiFailed"}
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 200

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/messages"
        finally:
            server.shutdown()
            thread.join()
