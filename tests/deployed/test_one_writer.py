"""The stack with one writer: updated with a schedule for its token."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import AUTH, ChatService
from dev.emulator.environment import ROOT
from tests.deployed.deployed_chatbot import DeployedChatbot
from tests.deployed.deployed_stack import DeployedStack, update
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def updated(deployed: DeployedStack, chat_service: ChatService) -> Iterator[None]:
    """The stack with a schedule. Its deployment stores a token, and overwrites no secret."""
    bot = DeployedChatbot(deployed.aws, chat_service)
    bot.reset()
    posts, secrets = chat_service.auths, bot.secrets()
    update(deployed.aws, TokenRefreshSchedule="rate(1 day)")
    assert (chat_service.auths - posts, bot.secrets()) == (1, secrets)
    yield
    update(deployed.aws, TokenRefreshSchedule="")


@pytest.fixture
def asking(updated: None, bot: DeployedChatbot) -> DeployedChatbot:
    return bot


def _function(bot: DeployedChatbot) -> str:
    resource = bot.aws.client("cloudformation").describe_stack_resource(
        StackName="slotkeeper", LogicalResourceId="TokenRefresherFunction"
    )
    return str(resource["StackResourceDetail"]["PhysicalResourceId"])


def test_the_chatbot_without_credentials_invokes_the_refresher_and_answers(asking: DeployedChatbot) -> None:
    configuration = asking.aws.client("lambda").get_function_configuration(
        FunctionName=asking.outputs["ChatbotFunctionName"]
    )
    assert "API_CREDENTIALS_SECRET" not in configuration["Environment"]["Variables"]
    asking.service.invalidate()
    before = asking.service.auths
    assert asking.say().status == 200
    assert asking.service.auths == before + 1


def test_t1_an_invalidated_token_of_several_containers_costs_one_invocation_and_one_post(
    asking: DeployedChatbot,
) -> None:
    asking.warm(5)
    asking.service.auth_latency = 0.5
    asking.service.invalidate()
    before = asking.service.auths
    assert {reply.status for reply in asking.say_simultaneously(5)} == {200}
    assert asking.service.auths == before + 1


def test_the_schedule_replaces_the_token_and_readers_use_the_new_one(asking: DeployedChatbot) -> None:
    asking.say()
    before = asking.service.auths
    event = json.loads((ROOT / "events" / "token_refresher" / "schedule.json").read_text())
    generation = int(asking.invoke(_function(asking), event)["Generation"])
    assert asking.item()["generation"] == {"N": str(generation)}
    assert asking.say().status == 200
    assert asking.service.auths == before + 1


def test_f35_a_refresher_without_a_token_reports_the_reason_to_its_caller(asking: DeployedChatbot) -> None:
    asking.warm(4)
    asking.service.strike(AUTH)
    asking.service.invalidate()
    before = asking.service.auths
    replies = asking.say_simultaneously(4)
    assert {(reply.status, reply.code) for reply in replies} == {(502, "TokenRefused")}
    assert "POST /auth was answered with HTTP 503" in replies[0].body["reason"]
    assert asking.service.auths == before + 1


def test_neither_token_nor_secret_is_in_any_log(asking: DeployedChatbot) -> None:
    asking.say()
    asking.invoke(_function(asking), {})
    token = asking.item()["access_token"]["S"]
    wait_until(lambda: asking.logs().count("Stored a new token") >= 2, "the refresher's log")
    logs = asking.logs()
    for secret in (asking.key, asking.service.client_secret, token):
        assert secret not in logs
