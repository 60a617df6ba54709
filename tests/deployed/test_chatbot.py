"""The deployed chatbot: answers, refusals, one token for all containers. test_sample_events.py has more refusals."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.emulator.chat_service import AUTH, Outage, answer_to
from slotkeeper.chatbot.token import timing
from tests.deployed.deployed_chatbot import DeployedChatbot
from tests.deployed.deployed_stack import kill_containers
from tests.waiting import wait_until

TIMING = timing(min_interval=0)


def test_a_signed_message_is_answered(bot: DeployedChatbot) -> None:
    body = bot.message("grüß dich")
    reply = bot.post(body)
    assert (reply.status, reply.body) == (
        200,
        {"message_id": json.loads(body)["message_id"], "answer": answer_to("grüß dich")},
    )


BODY = '{"message_id": "stranger", "text": "hello"}'


def test_a_replayed_request_is_refused_by_every_container(bot: DeployedChatbot) -> None:
    body = bot.message()
    headers = bot.sign(body)
    bot.warm(3)
    bot.service.answer_latency = 0.5
    answered = bot.requests("/answers")
    with ThreadPoolExecutor(6) as senders:
        replies = list(senders.map(lambda _: bot.post(body, headers), range(6)))
    assert sorted(reply.status for reply in replies) == [200, 401, 401, 401, 401, 401]
    assert {reply.code for reply in replies if reply.status == 401} == {"ReplayedSignature"}
    assert bot.requests("/answers") == answered + 1


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/elsewhere"), ("DELETE", "")])
def test_an_unknown_path_is_answered_in_json_without_a_function(bot: DeployedChatbot, method: str, path: str) -> None:
    reply = bot.request(method, path, "", {})
    assert (reply.status, reply.code) == (404, "NotFound")
    assert "POST /v1/messages" in reply.body["reason"]


def test_t1_an_invalidated_token_of_several_warm_containers_costs_one_post(bot: DeployedChatbot) -> None:
    bot.warm(6)
    bot.service.auth_latency = 0.5
    bot.service.invalidate()
    before = bot.service.auths
    assert {reply.status for reply in bot.say_simultaneously(6)} == {200}
    assert bot.service.auths == before + 1
    assert bot.service.is_live(bot.item()["access_token"]["S"])


def test_f30_f36_a_container_killed_at_its_post_delays_the_others_by_its_lease(bot: DeployedChatbot) -> None:
    bot.say()
    bot.service.invalidate()
    bot.service.strike(AUTH, Outage("hold", times=1))
    before = bot.service.auths
    started = time.monotonic()
    with ThreadPoolExecutor(1) as sender:
        killed = sender.submit(bot.say)
        wait_until(lambda: bot.service.auths > before, "the first POST /auth")
        kill_containers(bot.aws)
        # The engine notices a dead container at its next use.
        wait_until(lambda: bot.say().status == 200, "an answer of another container")
        waited = time.monotonic() - started
    assert killed.result().status == 502
    assert waited > TIMING.lease - 0.5
    assert bot.service.auths == before + 2


def test_neither_token_nor_secret_nor_key_is_in_any_log(bot: DeployedChatbot) -> None:
    tokens = []
    for prepare in (lambda: None, bot.service.invalidate, bot.service.invalidate):
        prepare()
        assert bot.say().status == 200
        tokens.append(bot.item()["access_token"]["S"])
    bot.put_credentials("a-wrong-secret")
    bot.service.invalidate()
    bot.say()
    bot.post("{")
    bot.post(BODY, {})
    logs = bot.logs()
    assert "Stored a new token" in logs
    assert "The API gave no token" in logs
    for secret in (bot.key, bot.service.client_secret, "a-wrong-secret", *tokens):
        assert secret not in logs
