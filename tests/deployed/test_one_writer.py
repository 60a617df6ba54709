"""The stack with one writer: updated with a schedule for its token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import ChatService
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


def test_the_chatbot_without_credentials_invokes_the_refresher_and_answers(updated: None, bot: DeployedChatbot) -> None:
    configuration = bot.aws.client("lambda").get_function_configuration(FunctionName=bot.outputs["ChatbotFunctionName"])
    assert "API_CREDENTIALS_SECRET" not in configuration["Environment"]["Variables"]
    bot.service.invalidate()
    before = bot.service.auths
    assert bot.say().status == 200
    assert bot.service.auths == before + 1
    token = bot.item()["access_token"]["S"]
    wait_until(lambda: "Stored a new token" in bot.logs(), "the refresher's log")
    assert not any(secret in bot.logs() for secret in (bot.key, bot.service.client_secret, token))
