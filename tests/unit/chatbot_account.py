"""An account with a chatbot: a simulated chat API, secrets, and signed messages."""

from __future__ import annotations

import json
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import boto3

from dev.emulator.chat_service import ChatService
from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.function_environment import OF_THE_CHATBOT
from tests.simulation.account.items import SEEN, TOKENS

KEY = "a-key-for-tests-0123456789"
SIGNING, CREDENTIALS = OF_THE_CHATBOT["SIGNING_KEY_SECRET"], OF_THE_CHATBOT["API_CREDENTIALS_SECRET"]


def next_clients(service: str) -> Any:
    """The clients of a service that this test creates later, for the faults of tests.simulation.account.boundary."""
    events = boto3._get_default_session().events
    return SimpleNamespace(meta=SimpleNamespace(events=events, service_model=SimpleNamespace(service_name=service)))


class ChatbotAccount:
    """One account with a chatbot. Its messages are signed at `now`."""

    def __init__(self, aws: AwsAccount, now: float) -> None:
        self.aws = aws
        self.service = ChatService()
        self.dynamodb, self.secretsmanager = boto3.client("dynamodb"), boto3.client("secretsmanager")
        self.now = now

    def __enter__(self) -> Self:
        self.service.start()
        known = {"client_id": self.service.client_id, "client_secret": self.service.client_secret}
        self.aws.secrets[CREDENTIALS] = {"SecretString": json.dumps(known)}
        self.aws.secrets[SIGNING] = {"SecretString": json.dumps({"signing_key": KEY})}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.service.stop()

    @property
    def environment(self) -> dict[str, str]:
        return OF_THE_CHATBOT | {"CHAT_API_URL": self.service.url}

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
        return next(iter(self.aws.tables.items(TOKENS)), {})

    def seen(self) -> list[dict[str, Any]]:
        """The items of used signatures."""
        return self.aws.tables.items(SEEN)

    def asked(self, path: str) -> int:
        """How many requests with this path the API has received."""
        return sum(request.path == path for request in self.service.log)
