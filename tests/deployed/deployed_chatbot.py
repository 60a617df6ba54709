"""The deployed chatbot: a sender, and the simulated chat API."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import urllib3

from dev.emulator.aws import EmbeddedAws, reachable
from dev.emulator.chat_service import ChatService
from dev.emulator.chatbot_client import give_credentials, signed, signing_key
from tests.waiting import NEVER

_numbers = itertools.count(1)  # unique messages, since the same one in the same second is a replay


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.body.get("code", ""))


class DeployedChatbot:
    """A deployed chatbot, the simulated chat API that it calls, and a sender with the signing key."""

    def __init__(self, aws: EmbeddedAws, service: ChatService) -> None:
        self.aws = aws
        self.service = service
        self.outputs = aws.outputs
        self._dynamodb = aws.client("dynamodb")
        self._secrets = aws.client("secretsmanager")
        self._http = urllib3.PoolManager(maxsize=50, retries=False)
        self.key = signing_key(aws)

    def reset(self) -> None:
        """Restore a working API with correct credentials, without a refusal or a lock. Containers keep their token."""
        self.service.end_outage()
        self.service.auth_latency = self.service.answer_latency = 0.0
        self.put_credentials(self.service.client_secret)
        self._dynamodb.update_item(
            TableName=self.outputs["TokenTableName"],
            Key={"token_name": {"S": "chatbot"}},
            UpdateExpression="REMOVE refused_until, refused_reason, refresh_lock",
        )

    def secrets(self) -> list[str]:
        """The stored signing keys and credentials of the API."""
        names = (self.outputs["SigningKeySecretArn"], self.outputs["ApiCredentialsSecretArn"])
        return [str(self._secrets.get_secret_value(SecretId=name)["SecretString"]) for name in names]

    def put_credentials(self, client_secret: str) -> None:
        give_credentials(self.aws, self.service.client_id, client_secret)

    def item(self) -> dict[str, Any]:
        item: dict[str, Any] = self._dynamodb.get_item(
            TableName=self.outputs["TokenTableName"], Key={"token_name": {"S": "chatbot"}}, ConsistentRead=True
        )
        return dict(item.get("Item", {}))

    def message(self, text: str = "hello") -> str:
        return json.dumps({"message_id": f"m{next(_numbers)}", "text": text})

    def sign(self, body: str, at: float | None = None) -> dict[str, str]:
        return signed(self.key, int(time.time() if at is None else at), body.encode())

    def post(self, body: str, headers: dict[str, str] | None = None) -> Reply:
        """Send a body, signed now unless `headers` are given."""
        return self.request("POST", "", body, self.sign(body) if headers is None else headers)

    def request(self, method: str, path: str, body: str, headers: dict[str, str]) -> Reply:
        url = reachable(self.outputs["ChatbotUrl"], self.aws.endpoint) + path
        headers = {"Content-Type": "application/json"} | headers
        answer = self._http.request(method, url, body=body.encode(), headers=headers, timeout=NEVER)
        assert answer.headers["Content-Type"] == "application/json"
        return Reply(answer.status, dict(answer.headers), answer.json())

    def say(self, text: str = "hello") -> Reply:
        return self.post(self.message(text))

    def say_simultaneously(self, count: int) -> list[Reply]:
        """Send `count` messages simultaneously."""
        with ThreadPoolExecutor(count) as senders:
            return list(senders.map(lambda _: self.say(), range(count)))

    def warm(self, containers: int) -> None:
        """Start this number of containers by simultaneous messages."""
        self.service.answer_latency = 1.0
        replies = self.say_simultaneously(containers)
        self.service.answer_latency = 0.0
        assert {reply.status for reply in replies} == {200}

    def requests(self, path: str) -> int:
        """The number of requests for a path that have reached the API."""
        return sum(request.path == path for request in self.service.log)

    def logs(self) -> str:
        """The logs of functions and engine."""
        return "\n".join([*self._log_events(), (self.aws.state_dir / "engine.log").read_text(errors="replace")])

    def _log_events(self) -> Iterable[str]:
        logs = self.aws.client("logs")
        for group in logs.describe_log_groups()["logGroups"]:
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group["logGroupName"])
            yield from (event["message"] for page in pages for event in page["events"])
