"""What a chat message asks of AWS when nothing happens, and when something does: the chatbot's own parts, counted."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService
from dev.emulator.chat_service.service import CLIENT_ID, CLIENT_SECRET
from dev.scenarios.runner.command import CannotGoOn
from slotkeeper.chatbot.api import ChatApi
from slotkeeper.chatbot.credentials import Secrets
from slotkeeper.chatbot.service import Answered, Chatbot, SignedRequest
from slotkeeper.chatbot.signatures import SIGNATURE_HEADER, TIMESTAMP_HEADER, SeenSignatures, sign
from slotkeeper.chatbot.token import ITEM_NAME, timing
from slotkeeper.token.item import TokenTable
from slotkeeper.token.lock import SharedToken

TOKENS, SIGNATURES = "bot-tokens", "bot-signatures"
KEYS = {TOKENS: "token_name", SIGNATURES: "signature"}
SIGNING_KEY = "0123456789abcdef"
SIGNING_SECRET, API_SECRET = "bot-signing-key", "bot-api"
PATIENCE = 20.0  # seconds for a message


@dataclass(frozen=True)
class Asked:
    """Calls for one message; of the API, `POST /answers` is not among them."""

    what: str
    token_reads: int
    token_writes: int
    signature_writes: int
    secret_reads: int
    posts: int


class Container:
    """One container of the chatbot, made as functions/chatbot/app.py makes it."""

    def __init__(self, engine: EmbeddedAws, service: ChatService) -> None:
        self._service = service
        self._calls: Counter[str] = Counter()
        dynamodb, secretsmanager = engine.client("dynamodb"), engine.client("secretsmanager")
        for client in (dynamodb, secretsmanager):
            client.meta.events.register("before-call", self._note)
        secrets = Secrets(secretsmanager)
        api = ChatApi(service.url, lambda: secrets.credentials(API_SECRET))
        token = SharedToken(
            TokenTable(dynamodb, TOKENS), ITEM_NAME, api.authenticate, still_valid=api.is_valid, timing=timing(0)
        )
        seen = SeenSignatures(dynamodb, SIGNATURES)
        self._chatbot = Chatbot(lambda: secrets.signing_keys(SIGNING_SECRET), seen, token, api)

    def answer(self, what: str, number: int) -> Asked:
        """Answers a message, and says what that took. Raises CannotGoOn."""
        self._calls.clear()
        posts = self._service.auths
        body = json.dumps({"message_id": f"m-{number}", "text": "Good morning"}).encode()
        now = int(time.time())
        headers = {TIMESTAMP_HEADER: str(now), SIGNATURE_HEADER: sign(SIGNING_KEY, now, body)}
        reply = self._chatbot.reply(SignedRequest(headers, body, f"r-{number}"), lambda: PATIENCE)
        if not isinstance(reply, Answered):
            raise CannotGoOn(f"the chatbot does not answer: {reply}")
        return Asked(
            what,
            self._calls[f"GetItem {TOKENS}"],
            self._calls[f"UpdateItem {TOKENS}"],
            self._calls[f"PutItem {SIGNATURES}"],
            self._calls["GetSecretValue"],
            self._service.auths - posts,
        )

    def _note(self, model: Any, params: Any, **_: Any) -> None:
        body = json.loads(params["body"])
        self._calls[" ".join([model.name, *([body["TableName"]] if "TableName" in body else [])])] += 1


def ask(engine: EmbeddedAws) -> list[Asked]:
    """A message in each situation there is."""
    _prepare(engine)
    numbers = itertools.count()
    with ChatService(client_id=CLIENT_ID, client_secret=CLIENT_SECRET) as service:
        first, second = Container(engine, service), Container(engine, service)
        found = [
            first.answer("the first message of all", next(numbers)),
            second.answer("a cold container's first message", next(numbers)),
            second.answer("a warm container's message", next(numbers)),
        ]
        service.invalidate()
        return [
            *found,
            first.answer("the message that finds the token dead", next(numbers)),
            second.answer("another container's next message", next(numbers)),
            second.answer("and the one after it", next(numbers)),
        ]


def _prepare(engine: EmbeddedAws) -> None:
    for table, key in KEYS.items():
        engine.client("dynamodb").create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
    secrets = {
        SIGNING_SECRET: {"signing_key": SIGNING_KEY},
        API_SECRET: {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET},
    }
    for name, value in secrets.items():
        engine.client("secretsmanager").create_secret(Name=name, SecretString=json.dumps(value))
