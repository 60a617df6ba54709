"""The deployed chatbot: answers, refusals, one token for all containers. test_sample_events.py has more refusals."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dev.emulator.chat_service import AUTH, Outage
from slotkeeper.chatbot.token import timing
from tests.deployed.deployed_chatbot import DeployedChatbot
from tests.deployed.deployed_stack import kill_containers
from tests.waiting import wait_until

TIMING = timing(min_interval=0)


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
