"""The chatbot's handler: answers, refusals with their reasons, and secrets that stay out of both."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from dev.emulator.chat_service import ANSWERS, AUTH, answer_to
from slotkeeper.chatbot import credentials
from slotkeeper.chatbot.credentials import MISSING_KEYS_CACHE_SECONDS
from tests.simulation.account.boundary import refuse
from tests.simulation.account.items import SEEN, TOKENS
from tests.unit.chatbot_account import KEY, SIGNING, ChatbotAccount, next_clients
from tests.unit.conftest import CONTEXT, NOW, Load

MESSAGE = {"message_id": "m1", "text": "hello"}
BODY = json.dumps(MESSAGE)
OTHER_KEY = "another-key-0123456789"


def _calls() -> list[tuple[str, str]]:
    """The operations of clients that are made from now on, each with its table or secret."""
    made: list[tuple[str, str]] = []

    def note(model: Any, params: Any, **_: Any) -> None:
        body = json.loads(params.get("body") or "{}")
        made.append((model.name, body.get("TableName") or body.get("SecretId") or ""))

    boto3._get_default_session().events.register("before-call", note)
    return made


class Bot:
    """One warm container."""

    def __init__(self, load: Load, chat: ChatbotAccount) -> None:
        self.calls = _calls()
        self.module = load("chatbot")
        self.module._chatbot.clock = lambda: NOW
        self.chat = chat
        self._invocations = 0

    def handle(self, event: dict[str, Any], seconds: float = 28.0) -> tuple[int, dict[str, Any]]:
        self._invocations += 1
        context = SimpleNamespace(
            **vars(CONTEXT)
            | {
                "aws_request_id": f"invocation-{self._invocations}",
                "get_remaining_time_in_millis": lambda: int(seconds * 1000),  # independent of the test's duration
            }
        )
        answer = self.module.handler(event, context)
        self.headers = {name: values[-1] for name, values in answer["multiValueHeaders"].items()}
        assert self.headers["Content-Type"] == "application/json"
        return answer["statusCode"], json.loads(answer["body"])

    def send(self, fields: Any = None, seconds: float = 28.0, **changes: Any) -> tuple[int, dict[str, Any]]:
        return self.handle(self.chat.event(MESSAGE if fields is None else fields, **changes), seconds)


@pytest.fixture
def bot(chat: ChatbotAccount, load: Load) -> Bot:
    return Bot(load, chat)


def test_a_base64_body_under_headers_in_lower_case_is_answered(bot: Bot) -> None:
    body = json.dumps({"message_id": "m1", "text": "grüß"}, ensure_ascii=False)
    event = bot.chat.event(body)
    event["headers"] = {name.lower(): value for name, value in event["headers"].items()}
    encoded = {"body": base64.b64encode(body.encode()).decode(), "isBase64Encoded": True}
    assert bot.handle(event | encoded) == (200, {"message_id": "m1", "answer": answer_to("grüß")})


@pytest.mark.parametrize(
    ("fields", "status", "code", "names"),
    [
        ({"message_id": "m1"}, 400, "MalformedMessage", "text"),
        ({"message_id": "m1", "text": "x" * 70_000}, 413, "MessageTooLarge", "65536"),
    ],
)
def test_a_signed_message_that_is_not_valid_is_refused_with_what_was_expected(
    bot: Bot, fields: dict[str, str], status: int, code: str, names: str
) -> None:
    answered, body = bot.send(fields)
    assert (answered, body["code"], names in body["reason"]) == (status, code, True)
    assert bot.chat.service.log == []


def test_a_warm_message_costs_one_write_for_its_signature_and_none_for_the_token(bot: Bot) -> None:
    bot.send()
    bot.calls.clear()
    bot.send({"message_id": "m2", "text": "again"})
    assert bot.calls == [("PutItem", SEEN)]
    assert bot.chat.service.auths == 1


INVALID: dict[str, tuple[Callable[[ChatbotAccount], dict[str, Any]], str]] = {
    "no headers at all": (lambda chat: chat.event(MESSAGE, headers=None), "MissingHeader"),
    "no body": (lambda chat: chat.event(MESSAGE, body=None), "WrongSignature"),
    "another body": (lambda chat: chat.event(MESSAGE, body='{"message_id": "m1", "text": "hullo"}'), "WrongSignature"),
    "a body that is no base64": (lambda chat: chat.event(MESSAGE, isBase64Encoded=True), "MalformedMessage"),
}


@pytest.mark.parametrize(("make", "code"), INVALID.values(), ids=INVALID)
def test_an_invalid_request_is_refused_with_its_code_and_neither_forwarded_nor_stored(
    bot: Bot, make: Callable[[ChatbotAccount], dict[str, Any]], code: str
) -> None:
    status, body = bot.handle(make(bot.chat))
    assert (status, body["code"]) == (400 if code == "MalformedMessage" else 401, code)
    assert body["reason"]
    assert body["request_id"] == "gateway-1"
    assert (bot.chat.service.log, bot.chat.seen(), bot.chat.item()) == ([], [], {})


def test_wrong_signatures_do_not_make_the_bot_read_its_keys_again(bot: Bot) -> None:
    for _ in range(5):
        bot.send(headers=bot.chat.headers(BODY, OTHER_KEY))
    assert bot.calls == [("GetSecretValue", SIGNING)]


def test_an_unsigned_large_body_is_refused_before_a_key_is_read_or_a_hash_computed(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper.chatbot.service.verify", lambda *_: pytest.fail("it was hashed"))
    status, body = bot.handle(bot.chat.event("x" * 5_000_000, headers=bot.chat.headers("another body")))
    assert (status, body["code"], bot.calls) == (413, "MessageTooLarge", [])


def test_a_missing_signing_key_is_read_at_most_once_per_interval(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    del bot.chat.aws.secrets[SIGNING]
    now = [NOW]
    monkeypatch.setattr(credentials, "time", SimpleNamespace(time=lambda: now[0]))
    for _ in range(20):
        assert bot.send()[0] == 503
        now[0] += 1.0
    assert bot.calls.count(("GetSecretValue", SIGNING)) == 20 / MISSING_KEYS_CACHE_SECONDS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"resource": "/elsewhere", "path": "/elsewhere"}, (404, "NotFound")),
        ({"httpMethod": "GET"}, (405, "MethodNotAllowed")),
        ({"httpMethod": "GET", "path": "/bot/messages"}, (405, "MethodNotAllowed")),
    ],
)
def test_errors_of_other_routes_are_json(bot: Bot, changes: dict[str, str], expected: tuple[int, str]) -> None:
    status, body = bot.send(**changes)
    assert (status, body["code"]) == expected
    assert "POST /messages" in body["reason"]


@pytest.mark.parametrize("path", ["/bot/messages", "/v1/messages", "/a/b/messages", "/"])
def test_under_the_base_path_of_a_custom_domain_messages_are_answered(bot: Bot, path: str) -> None:
    assert bot.send(path=path)[0] == 200


def test_f35_a_refused_authentication_is_not_repeated_for_later_messages(bot: Bot) -> None:
    bot.chat.service.strike(AUTH)
    for n in range(5):
        status, body = bot.send({"message_id": f"m{n}", "text": "hello"})
        assert (status, body["code"]) == (502, "TokenRefused")
    assert bot.chat.service.auths == 1
    assert "POST /auth was answered with HTTP 503; the API is not asked again before 20" in body["reason"]
    assert 1 <= int(bot.headers["Retry-After"]) <= 40


def _lock(chat: ChatbotAccount, seconds: float) -> None:
    lock = {"release_code": {"S": "another's"}, "expires": {"N": str(time.time() + seconds)}}
    chat.dynamodb.put_item(TableName=TOKENS, Item={"token_name": {"S": "chatbot"}, "refresh_lock": {"M": lock}})


def test_t4_a_wait_without_a_token_ends_in_time_for_an_answer(bot: Bot) -> None:
    _lock(bot.chat, 9.0)
    status, body = bot.send(seconds=8.0)
    assert (status, body["code"]) == (503, "TokenTimeout")
    assert int(bot.headers["Retry-After"]) > 0
    # 8 s minus the reserve for a cold start within API Gateway's 29 s and minus the time of an answer.
    assert re.search(r"within [01]\.\d s", body["reason"])
    assert bot.chat.service.log == []


@pytest.fixture
def refusing(chat: ChatbotAccount, load: Load) -> Callable[[str, str], Bot]:
    """A chatbot without the permission for an operation."""

    def make(service: str, operation: str) -> Bot:
        refuse(next_clients(service), operation, "AccessDeniedException", times=99)
        return Bot(load, chat)

    return make


@pytest.mark.parametrize(
    ("operation", "service", "code"),
    [
        ("PutItem", "dynamodb", "SignatureUnchecked"),
        ("GetItem", "dynamodb", "TokenUnavailable"),
        ("GetSecretValue", "secretsmanager", "SignatureUnchecked"),
    ],
)
def test_an_aws_error_fails_closed_with_503_and_is_logged(
    refusing: Callable[[str, str], Bot], capsys: pytest.CaptureFixture[str], operation: str, service: str, code: str
) -> None:
    bot = refusing(service, operation)
    status, body = bot.send()
    assert (status, body["code"]) == (503, code)
    assert "AccessDenied" not in body["reason"]
    assert "AccessDenied" in capsys.readouterr().out
    assert bot.chat.service.log == []


def test_an_unexpected_error_is_500_without_details_and_logged(
    capsys: pytest.CaptureFixture[str], bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot.module._chatbot, "reply", lambda *_: 1 / 0)
    status, body = bot.send()
    assert (status, body["code"]) == (500, "InternalError")
    assert "ZeroDivision" not in json.dumps(body)
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prepare", "metric"),
    [
        (lambda _: None, "MessagesAnswered"),
        (lambda _: None, "TokenRefreshes"),
        (lambda bot: bot.chat.service.strike(AUTH), "TokenRefusals"),
        (lambda bot: bot.chat.service.strike(AUTH), "MessagesFailed"),
        (lambda bot: bot.chat.service.strike(ANSWERS), "ChatApiFailures"),
        (lambda bot: setattr(bot.chat, "now", 0.0), "MessagesRefused"),
        (lambda bot: _lock(bot.chat, -100.0), "TokenTakeOvers"),
    ],
)
def test_each_outcome_of_a_message_is_counted(
    bot: Bot, capsys: pytest.CaptureFixture[str], prepare: Callable[[Bot], None], metric: str
) -> None:
    prepare(bot)
    bot.send()
    emitted = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    assert any(line.get(metric) == [1.0] and line["service"] == "slotkeeper" for line in emitted)


def test_neither_token_nor_secret_nor_key_is_in_a_log_or_an_answer_even_at_debug(
    bot: Bot, load: Load, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lambda's ApplicationLogLevel sets every logger's level, and botocore's DEBUG shows whole requests and answers."""
    caplog.set_level(logging.DEBUG)
    bot = Bot(load, bot.chat)
    answers = [bot.send()]
    tokens = [bot.chat.item()["access_token"]["S"]]
    bot.chat.service.invalidate()
    answers.append(bot.send({"message_id": "m2", "text": "again"}))
    tokens.append(bot.chat.item()["access_token"]["S"])
    bot.chat.service.strike(AUTH)
    bot.chat.service.invalidate()
    answers.append(bot.send({"message_id": "m3", "text": "again"}))
    answers.append(bot.send({"message_id": "m4"}))
    assert [status for status, _ in answers] == [200, 200, 502, 400]
    captured = capsys.readouterr()
    everything = caplog.text + captured.out + captured.err + json.dumps(answers)
    assert "Stored a new token" in everything
    for secret in (KEY, bot.chat.service.client_secret, *tokens):
        assert secret not in everything
