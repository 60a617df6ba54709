"""The senders against a simulated chatbot: the run without a deployment, and its negative control."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from rich.console import Console

from dev.emulator.chat_service import ANSWERS, ChatService, Outage
from dev.emulator.chatbot_client import signed
from dev.scenarios.runner.scenario import Run
from dev.scenarios.token.chat_senders import Sender, Senders
from dev.scenarios.token.message_feed import Message, MessageFeed
from dev.scenarios.token.token_figures import Parameters, build
from dev.scenarios.token.token_records import Records, Stored
from tests.scenarios.chat_bot import KEY, Bot, serving
from tests.scenarios.reports import failing
from tests.support.waiting import wait_until


def run(service: ChatService, bot: Bot, messages: int, senders: int, invalidations: int) -> dict[str, Any]:
    feed = MessageFeed([Message(n) for n in range(1, messages + 1)], senders, invalidations, service.invalidate)
    with serving(bot) as url:
        all_senders = Senders(feed, url, KEY, senders)
        with all_senders.sending():
            wait_until(lambda: feed.state().ended == messages, "the last answer")
    records = Records(
        deliveries=all_senders.deliveries(),
        log=service.log,
        tokens=service.token_history,
        invalidations=feed.invalidations,
        stored=Stored(
            service.number_of(bot.stored), service.is_live(bot.stored), len(service.token_history), locked=False
        ),
        metrics={"ColdStart": senders},
    )
    return build(Parameters(messages, senders, invalidations, 0.05), records, Run(Console()))


def test_a_bot_that_shares_its_token_passes() -> None:
    with ChatService(auth_latency=0.05, answer_latency=0.005) as service:
        made = run(service, Bot(service, shared=True), messages=120, senders=20, invalidations=4)
    assert failing(made) == {}
    assert made["auths"] == {"cold": 1, "per_invalidation": [1, 1, 1, 1], "total": 5}
    assert made["token_waits"]["count"] >= 4


def test_control_a_bot_whose_instances_each_fetch_a_token_fails() -> None:
    with ChatService() as service:
        made = run(service, Bot(service, shared=False), messages=20, senders=4, invalidations=1)
    assert "one POST /auth per invalidation" in failing(made)
    assert made["auths"]["total"] > 2


@pytest.fixture
def service() -> Any:
    with ChatService() as running:
        yield running


@pytest.mark.parametrize("status", [503, 400, 401, 404])
def test_a_message_is_sent_again_with_a_new_signature_only_after_a_temporary_refusal(
    service: ChatService, status: int
) -> None:
    bot = Bot(service, shared=True)
    bot.first_statuses = [status]
    with serving(bot) as url:
        delivery = Sender(1, url, KEY).deliver(Message(7))
    statuses = [503, 200] if status == 503 else [status]
    assert [each.status for each in delivery.tries] == statuses
    assert (len(bot.seen), delivery.tries[0].code) == (len(statuses), "NotNow")
    assert (delivery.answer is None) == (status != 503)


def test_after_three_tries_a_message_is_given_up(service: ChatService) -> None:
    bot = Bot(service, shared=True)
    service.strike(ANSWERS, Outage("drop"))
    with serving(bot) as url:
        delivery = Sender(1, url, KEY).deliver(Message(7))
    assert [(each.status, each.code) for each in delivery.tries] == [(502, "ChatApiFailed")] * 3
    assert delivery.answer is None


def test_a_bot_that_cannot_be_reached_is_a_try_without_status() -> None:
    with ChatService() as stopped:
        url = f"{stopped.url}/v1/messages"
    delivery = Sender(1, url, KEY).deliver(Message(7))
    assert [(each.status, each.code) for each in delivery.tries] == [(None, "ConnectionRefusedError")] * 3


def test_a_warm_up_is_unsigned_and_calls_no_api(service: ChatService) -> None:
    bot = Bot(service, shared=True)
    with serving(bot) as url:
        senders = Senders(MessageFeed([], 3, 0, service.invalidate), url, KEY, 3)
        senders.warm_up()
        wait_until(lambda: senders.warm == 3, "three answers")
    assert (bot.seen, service.log) == (set(), [])


def test_a_message_has_the_signature_of_the_contract() -> None:
    body = Message(3).body(sender=8)
    headers = signed("key", 1_700_000_000, body)
    digest = hmac.new(b"key", b"v1:1700000000:" + body, hashlib.sha256).hexdigest()
    assert headers["X-Slotkeeper-Timestamp"] == "1700000000"
    assert headers["X-Slotkeeper-Signature"] == f"v1={digest}"
    content = json.loads(body)
    assert content == {"message_id": "m00003", "text": Message(3).text, "conversation": "sender-8"}


def test_no_two_messages_have_the_same_text() -> None:
    assert len({Message(number).text for number in range(1, 2001)}) == 2000


def test_tries_are_timed_by_the_senders_clock(service: ChatService) -> None:
    before = time.time()
    with serving(Bot(service, shared=True)) as url:
        delivery = Sender(1, url, KEY).deliver(Message(7))
    assert before <= delivery.sent <= delivery.ended <= time.time()
