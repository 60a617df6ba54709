"""The function with a DynamoDB table and a secret in moto, and an API with one live token. No test sleeps."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from slotkeeper.token import HttpAnswer, HttpClient, NoConnection, StillUnauthorized, Timing, TokenRefused

URL = "https://api.example.com"
CREDENTIALS = {"client_id": "me", "client_secret": "secret"}
CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 10_000)


class OneTokenApi:
    """The API: only the token of the last `POST /auth` is valid."""

    def __init__(self) -> None:
        self.live = ""
        self.posts = 0
        self.auth_answer: HttpAnswer | Exception | None = None  # instead of a token
        self.me_answer: HttpAnswer | None = None  # instead of whether the token is valid

    def request(
        self,
        method: str,
        url: str,
        _seconds: float,
        *,
        json_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        path = url.removeprefix(URL)
        if path == "/auth":
            return self._authenticate(json_body)
        if path == "/me" and self.me_answer:
            return self.me_answer
        authorized = bool(self.live) and (headers or {})["Authorization"] == f"Bearer {self.live}"
        if not authorized or (json_body or {}).get("text") == "forbidden":
            return HttpAnswer(401, b"{}")
        return _json({"answer": f"{method} {path}"})

    def _authenticate(self, body: Mapping[str, Any] | None) -> HttpAnswer:
        assert body == CREDENTIALS
        self.posts += 1
        if isinstance(self.auth_answer, Exception):
            raise self.auth_answer
        self.live = f"token-{self.posts}"
        return self.auth_answer or _json({"access_token": self.live})


def _json(fields: dict[str, str]) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(fields).encode())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> OneTokenApi:
    made = OneTokenApi()
    monkeypatch.setattr(HttpClient, "request", made.request)
    return made


@pytest.fixture
def app(api: OneTokenApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The function's module with a table and a secret. Its token may be refreshed immediately after a refresh."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)  # moto does not replace it
    with mock_aws():
        table = boto3.client("dynamodb").create_table(
            TableName="tokens",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "token_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "token_name", "KeyType": "HASH"}],
        )
        secret = boto3.client("secretsmanager").create_secret(Name="api", SecretString=json.dumps(CREDENTIALS))
        monkeypatch.setenv("TOKEN_TABLE_NAME", table["TableDescription"]["TableName"])
        monkeypatch.setenv("CREDENTIALS_SECRET", secret["ARN"])
        monkeypatch.setenv("API_URL", URL)
        monkeypatch.setenv("TIMEOUT_SECONDS", "10")
        monkeypatch.delitem(sys.modules, "app", raising=False)
        module = importlib.import_module("app")
        renew(module)
        yield module


def renew(app: Any) -> None:
    """Replace the token's cache by that of a new container."""
    app.shared = app.share_token(app.api, replace(Timing.for_timeout(10), min_interval=0))


def say(app: Any, text: str = "hello") -> Any:
    return app.handler({"text": text}, CONTEXT)


def test_all_containers_share_one_token(app: Any, api: OneTokenApi) -> None:
    for _ in range(3):
        renew(app)
        assert say(app) == {"answer": "POST /answers"}
    assert api.posts == 1


def test_an_invalid_token_is_replaced_and_the_request_repeated(app: Any, api: OneTokenApi) -> None:
    say(app)
    api.live = "a token of another system"
    assert say(app) == {"answer": "POST /answers"}
    assert api.posts == 2


def test_a_request_that_no_token_may_make_causes_no_refresh(app: Any, api: OneTokenApi) -> None:
    say(app)
    with pytest.raises(StillUnauthorized):
        say(app, "forbidden")
    assert api.posts == 1


def test_an_overloaded_api_loses_no_token(app: Any, api: OneTokenApi) -> None:
    say(app)
    api.me_answer = HttpAnswer(429, b"", retry_after=60.0)
    with pytest.raises(TokenRefused, match="GET /me was answered with 429"):
        say(app, "forbidden")
    assert api.posts == 1


def test_a_refusal_states_the_reason_and_is_respected_by_all_containers(app: Any, api: OneTokenApi) -> None:
    api.auth_answer = HttpAnswer(429, b"", retry_after=600.0)
    before = time.time()
    for _ in range(3):
        renew(app)
        with pytest.raises(TokenRefused, match="POST /auth was answered with 429") as refused:
            say(app)
    assert refused.value.until >= before + 600
    assert api.posts == 1


def test_without_a_connection_the_api_is_asked_again_after_two_seconds(app: Any, api: OneTokenApi) -> None:
    api.auth_answer = NoConnection("no connection")
    with pytest.raises(TokenRefused, match="no connection") as refused:
        say(app)
    assert refused.value.until <= time.time() + 2


def test_an_unreadable_secret_is_named(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_SECRET", "another")
    with pytest.raises(TokenRefused, match="CredentialsSecretArn cannot be read: ResourceNotFoundException"):
        say(app)


@pytest.mark.parametrize("event", [{}, {"text": ""}, {"text": 7}])
def test_an_event_without_a_text_is_refused(app: Any, api: OneTokenApi, event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the event must be"):
        app.handler(event, CONTEXT)
    assert api.posts == 0
