"""The refresher, invoked by its schedule, by the chatbot and by deployments; and the chatbot that invokes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
import urllib3

from dev.emulator.chat_service import AUTH
from slotkeeper.settings import MissingSetting
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import refuse
from tests.unit.chatbot_account import CREDENTIALS, ChatbotAccount, next_clients
from tests.unit.conftest import CONTEXT, NOW, Load

SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}


@pytest.fixture
def refresher(chat: ChatbotAccount, load: Load) -> ModuleType:
    return load("token_refresher")


def test_f35_a_refused_refresh_returns_its_reason_without_an_error(
    chat: ChatbotAccount, refresher: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lambda would immediately retry a failed function, and the API must not be called again so soon."""
    chat.service.strike(AUTH)
    assert "HTTP 503" in refresher.handler(SCHEDULE, CONTEXT)["Refused"]
    assert "HTTP 503" in refresher.handler(SCHEDULE, CONTEXT)["Refused"]
    assert chat.service.auths == 1
    logged = capsys.readouterr().out
    assert '"TokenRefusals":[1.0]' in logged
    assert chat.service.client_secret not in logged


Deploy = Callable[[str], dict[str, Any]]


@pytest.fixture
def deploy(chat: ChatbotAccount, load: Load, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Deploys a new version of the refresher; returns its answer to CloudFormation. Calls of the API pass unchanged."""
    answers: list[dict[str, Any]] = []
    request = urllib3.PoolManager.request

    def put(self: Any, method: str, url: str, **fields: Any) -> Any:
        if method != "PUT":
            return request(self, method, url, **fields)
        answers.append(json.loads(fields["body"]))
        return SimpleNamespace(status=200)

    def deployed(request_type: str) -> dict[str, Any]:
        event = {
            "RequestType": request_type,
            "ResponseURL": "http://127.0.0.1:1/answer",
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "TokenAtDeployment",
            "ResourceProperties": {"ChatApiUrl": "https://chat-api.invalid"},
        }
        load("token_refresher").handler(event, CONTEXT)
        return answers.pop()

    monkeypatch.setattr(urllib3.PoolManager, "request", put)
    return deployed


@pytest.mark.parametrize(("request_type", "auths"), [("Create", 1), ("Update", 1), ("Delete", 0)])
def test_a_deployment_stores_a_token(chat: ChatbotAccount, deploy: Deploy, request_type: str, auths: int) -> None:
    answer = deploy(request_type)
    assert (answer["Status"], answer.get("Data") or {}) == ("SUCCESS", {"Generation": "1"} if auths else {})
    assert chat.service.auths == auths


def test_a_deployment_without_credentials_succeeds_and_reports_it(chat: ChatbotAccount, deploy: Deploy) -> None:
    chat.aws.secrets[CREDENTIALS] = {"SecretString": "{}"}
    answer = deploy("Create")
    assert answer["Status"] == "SUCCESS"
    assert "ApiCredentialsSecretArn must be" in answer["Data"]["Refused"]
    assert chat.service.auths == 0


def test_a_deployment_succeeds_even_if_the_refresh_fails(
    aws: AwsAccount, deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.refuse["GetItem"] = "ResourceNotFoundException"
    answer = deploy("Create")
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Refused": "ResourceNotFoundException"})
    assert "ResourceNotFoundException" in capsys.readouterr().out


def test_a_role_that_is_not_yet_propagated_is_retried(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(next_clients("dynamodb"), "GetItem", "AccessDeniedException", times=2)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert deploy("Create")["Data"] == {"Generation": "1"}


class Asked:
    """Lambda's Invoke as the chatbot calls it: the refresher runs in a thread."""

    def __init__(self, refresher: ModuleType) -> None:
        self._refresher = refresher
        self.payloads: list[dict[str, Any]] = []
        self.refusal = ""
        self._threads: list[threading.Thread] = []

    def invoke(self, params: Any, **_: Any) -> Any:
        if self.refusal:
            return SimpleNamespace(status_code=403), {"Error": {"Code": self.refusal, "Message": "not yours"}}
        payload = json.loads(params["body"])
        self.payloads.append(payload)
        self._threads.append(threading.Thread(target=self._refresher.handler, args=(payload, CONTEXT)))
        self._threads[-1].start()
        return SimpleNamespace(status_code=202), {"StatusCode": 202}

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.fixture
def asked(refresher: ModuleType) -> Iterator[Asked]:
    made = Asked(refresher)
    boto3._get_default_session().events.register("before-call.lambda.Invoke", made.invoke)
    yield made
    made.join()


@pytest.fixture
def bot(asked: Asked, load: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A chatbot without credentials that invokes the refresher."""
    monkeypatch.setenv("TOKEN_REFRESHER_FUNCTION", "refresher")
    monkeypatch.delenv("API_CREDENTIALS_SECRET")
    module = load("chatbot")
    module._chatbot.clock = lambda: NOW
    return module


def _send(bot: ModuleType, chat: ChatbotAccount, message_id: str = "m1") -> tuple[int, dict[str, Any]]:
    context = SimpleNamespace(**vars(CONTEXT) | {"aws_request_id": message_id})
    answer = bot.handler(chat.event({"message_id": message_id, "text": "hello"}), context)
    return answer["statusCode"], json.loads(answer["body"])


def test_a_chatbot_without_credentials_invokes_the_refresher_once_for_each_token(
    chat: ChatbotAccount, asked: Asked, bot: ModuleType
) -> None:
    assert _send(bot, chat)[0] == 200
    assert [list(payload) for payload in asked.payloads] == [["release_code"]]
    assert chat.service.auths == 1
    chat.service.invalidate()
    assert _send(bot, chat, "m2")[0] == 200
    assert (len(asked.payloads), chat.service.auths) == (2, 2)


def test_a_refresher_that_cannot_be_invoked_is_reported_without_waiting(
    chat: ChatbotAccount, asked: Asked, bot: ModuleType
) -> None:
    asked.refusal = "AccessDeniedException"
    status, body = _send(bot, chat)
    assert (status, body["code"]) == (502, "TokenRefused")
    assert "cannot be invoked: AccessDeniedException" in body["reason"]


def test_a_chatbot_without_a_refresher_does_not_start_without_credentials(
    chat: ChatbotAccount, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_CREDENTIALS_SECRET")
    with pytest.raises(MissingSetting, match="API_CREDENTIALS_SECRET"):
        load("chatbot")
