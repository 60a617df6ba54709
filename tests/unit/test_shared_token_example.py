"""examples/shared-token: its role, its times, and its API client against the simulated chat API."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from dev.emulator.chat_service import ChatService, answer_to
from dev.emulator.environment import ROOT
from slotkeeper.token import Timing, TokenRefused, TokenTimeout
from tests.simulation.account.account import AwsAccount

EXAMPLE = ROOT / "examples" / "shared-token"
README = (EXAMPLE / "README.md").read_text()
TEMPLATE = yaml_parse((EXAMPLE / "template.yaml").read_text())
TIMEOUT = TEMPLATE["Parameters"]["TimeoutSeconds"]
GREETER = TEMPLATE["Resources"]["GreeterFunction"]["Properties"]
STATEMENTS = [statement for policy in GREETER["Policies"] for statement in policy["Statement"]]


@pytest.fixture
def service() -> Iterator[ChatService]:
    with ChatService() as running:
        yield running


@pytest.fixture
def app(service: ChatService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The function's module as it is deployed, with its shortest timeout."""
    aws = AwsAccount().use()
    credentials = f'{{"client_id": "{service.client_id}", "client_secret": "{service.client_secret}"}}'
    aws.secrets["api"] = {"SecretString": credentials}
    values = {
        "API_URL": service.url,
        "CREDENTIALS_SECRET": "api",
        "TOKEN_TABLE_NAME": "tokens",
        "TIMEOUT_SECONDS": str(TIMEOUT["MinValue"]),
        "POWERTOOLS_SERVICE_NAME": "greeter",
    }
    assert set(GREETER["Environment"]["Variables"]) == set(values)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(EXAMPLE / "greeter")
    names = ("app", "chat_api")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("app")
    for name in names:
        sys.modules.pop(name, None)


def _call(app: Any, seconds: float) -> Any:
    return app.handler({"text": "hello"}, SimpleNamespace(get_remaining_time_in_millis=lambda: seconds * 1000))


def test_the_function_makes_exactly_the_calls_that_its_role_permits(app: Any, service: ChatService) -> None:
    called = set()
    for client in (app.dynamodb, app.secretsmanager):
        client.meta.events.register(
            "before-call", lambda model, **_: called.add(f"{model.service_model.service_name}:{model.name}")
        )
    assert _call(app, TIMEOUT["MinValue"]) == {"answer": answer_to("hello")}
    assert called == {action for statement in STATEMENTS for action in _listed(statement["Action"])}
    assert all("Fn::GetAtt" in statement["Resource"] for statement in STATEMENTS)
    assert service.auths == 1


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_a_timeout_below_the_templates_minimum_allows_no_refresh(app: Any, service: ChatService) -> None:
    short = TIMEOUT["MinValue"] - 2
    app.shared = app.share_token(app.api, Timing.for_timeout(short))
    with pytest.raises(TokenTimeout, match="a refresh needs 1 s"):
        _call(app, short)
    assert service.auths == 0


def test_a_secret_without_a_value_is_named_as_in_the_readme(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_SECRET", "empty")
    (message,) = re.findall(r"```text\n(.+)\n```", README)
    with pytest.raises(TokenRefused, match=f"^{message}$"):
        _call(app, TIMEOUT["MinValue"])
