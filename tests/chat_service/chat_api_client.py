"""A client of the simulated chat API, independent of the code under test."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from dev.emulator.chat_service import ChatService
from tests.support.waiting import NEVER


class ChatApiClient:
    """One open connection. Each call returns (status, body, headers), or raises http.client's error."""

    def __init__(self, service: ChatService, timeout: float = NEVER) -> None:
        self._credentials = {"client_id": service.client_id, "client_secret": service.client_secret}
        at = urlsplit(service.url)
        self.connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def send(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, token: str | None = None
    ) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body
        self.connection.request(method, path, content, {"Authorization": f"Bearer {token}"} if token else {})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read()), dict(answer.headers)

    def auth(self, **changes: str) -> tuple[int, dict[str, Any]]:
        return self.send("POST", "/auth", self._credentials | changes)[:2]

    def token(self) -> str:
        status, body = self.auth()
        assert status == 200
        return str(body["access_token"])

    def me(self, token: str | None) -> int:
        return self.send("GET", "/me", token=token)[0]

    def answer(self, text: str, token: str | None, **more: str) -> tuple[int, dict[str, Any]]:
        return self.send("POST", "/answers", {"text": text, **more}, token)[:2]
