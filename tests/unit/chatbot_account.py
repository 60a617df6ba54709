"""An account with a chatbot: a simulated chat API, tables and secrets in moto, and signed messages."""

from __future__ import annotations

import json
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import boto3

from dev.emulator.chat_service import ChatService
from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tests.simulation.account.tables import create_table

KEY = "a-key-for-tests-0123456789"
TOKEN_TABLE, SEEN_TABLE = "chat-token", "seen-signatures"
SIGNING, CREDENTIALS = "signing-key", "api-credentials"


def next_clients(service: str) -> Any:
    """The clients of a service that this test creates later, for the faults of tests.simulation.account.boundary."""
    events = boto3._get_default_session().events
    return SimpleNamespace(meta=SimpleNamespace(events=events, service_model=SimpleNamespace(service_name=service)))


class ChatbotAccount:
    """One account with a chatbot. Its messages are signed at `now`."""

    def __init__(self, dynamodb: Any, secretsmanager: Any, now: float) -> None:
        self.service = ChatService()
        self.dynamodb = dynamodb
        self.secretsmanager = secretsmanager
        self.now = now

    def __enter__(self) -> Self:
        self.service.start()
        for table, key in ((TOKEN_TABLE, "token_name"), (SEEN_TABLE, "signature")):
            create_table(self.dynamodb, table, key)
        known = {"client_id": self.service.client_id, "client_secret": self.service.client_secret}
        self.secretsmanager.create_secret(Name=CREDENTIALS, SecretString=json.dumps(known))
        self.secretsmanager.create_secret(Name=SIGNING, SecretString=json.dumps({"signing_key": KEY}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.service.stop()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TOKEN_TABLE_NAME": TOKEN_TABLE,
            "SEEN_SIGNATURE_TABLE_NAME": SEEN_TABLE,
            "SIGNING_KEY_SECRET": SIGNING,
            "API_CREDENTIALS_SECRET": CREDENTIALS,
            "CHAT_API_URL": self.service.url,
            "TOKEN_MIN_REFRESH_SECONDS": "0",
        }

    def headers(self, body: str, key: str = KEY) -> dict[str, str]:
        now = int(self.now)
        return {TIMESTAMP_HEADER: str(now), SIGNATURE_HEADER: sign(key, now, body)}

    def event(self, fields: Any, **changes: Any) -> dict[str, Any]:
        """The event of API Gateway. `changes` replace parts of it."""
        body = fields if isinstance(fields, str) else json.dumps(fields)
        return {
            "resource": "/messages",
            "path": "/messages",
            "httpMethod": "POST",
            "headers": self.headers(body),
            "requestContext": {"requestId": "gateway-1", "stage": "v1"},
            "body": body,
            "isBase64Encoded": False,
            **changes,
        }

    def item(self) -> dict[str, Any]:
        """The token's item."""
        scanned: dict[str, Any] = self.dynamodb.scan(TableName=TOKEN_TABLE, ConsistentRead=True)
        return scanned["Items"][0] if scanned["Items"] else {}

    def seen(self) -> list[dict[str, Any]]:
        """The items of used signatures."""
        items: list[dict[str, Any]] = self.dynamodb.scan(TableName=SEEN_TABLE, ConsistentRead=True)["Items"]
        return items

    def asked(self, path: str) -> int:
        """How many requests with this path the API has received."""
        return sum(request.path == path for request in self.service.log)
