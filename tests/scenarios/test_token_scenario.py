"""`make run-chatbot`: each claim fails on records that break it, and on a bot whose instances share no token."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from dev.emulator.chat_service import ChatService, TokenLife
from dev.scenarios.token.messages import Delivery, Message, Rounds
from dev.scenarios.token.token_records import Records, Stored
from tests.chat_service.chat_api_client import ChatApiClient
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.token_run import ORIGIN, delivery, one_invalidation, records, report, two_invalid_tokens
from tests.support.waiting import wait_until

ANSWERED = "every message is answered"
ONE_EACH = "one POST /auth per invalidation"
AUTHS = "the API accepts each POST /auth"
THREE_TIMES = "no message asks the API more than three times"
STORED = "the stored token is the live one"
SHARED = "several containers share the token"
THREE = records().deliveries[:3]


def log_with(*auths: tuple[float, int | None, int | None], asks: tuple[float, ...] = ()) -> Records:
    """The run with more `POST /auth`, and with more asks for m4."""
    log = one_invalidation()
    for auth in auths:
        log.auth(*auth)
    for at in asks:
        log.ask(4, at, 2)
    return records(log=log.requests)


def test_the_figures_of_a_run_without_faults() -> None:
    made = report(two_invalid_tokens(), messages=5, invalidations=2)
    assert (failing(made), not_shown(made)) == ({}, {})
    assert (made["answered"], made["containers"]) == (5, 2)
    assert made["auths"] == {"cold": 1, "per_invalidation": [1, 1], "total": 3}
    # From the 401 to the next request for the same message, which is one wait if it meets two invalid tokens.
    assert made["token_waits"] == {"count": 3, "p50": 1.0, "p99": 1.4, "max": 1.4}
    assert [each["kind"] for each in made["fates"]] == ["cold", "direct", "renewed", "renewed", "renewed"]
    assert made["invalidations"] == [{"at": 2.0, "token": 1}, {"at": 5.0, "token": 2}]
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize(
    ("recorded", "options", "findings"),
    [
        (
            records(deliveries=[*THREE, delivery(4, 2.95, 3.1, status=502, code="TokenRefused", answer=None)]),
            {},
            {ANSWERED: "not answered: m00004 (502 TokenRefused)"},
        ),
        (
            records(deliveries=[*THREE, delivery(4, 2.95, 4.2, answer="You wrote one word")]),
            {},
            {ANSWERED: "answered wrongly: m00004"},
        ),
        (records(), {"messages": 6}, {ANSWERED: "not sent: 2"}),
        (log_with((3.2, 3, 200)), {}, {ONE_EACH: "POST /auth: 2 after invalidation 1"}),
        (log_with((0.2, 2, 200)), {}, {ONE_EACH: "POST /auth: 2 for the first token"}),
        (records(), {"invalidations": 2}, {ONE_EACH: "invalidations made: 1 of 2, since the token never recovered"}),
        (
            log_with((3.2, None, 503), (3.3, None, None)),
            {},
            {AUTHS: "answered: 503, no answer", ONE_EACH: "POST /auth: 3 after invalidation 1"},
        ),
        (log_with(asks=(4.06,)), {}, {}),
        (log_with(asks=(4.06, 4.1)), {}, {THREE_TIMES: "more requests: m00004 (4)"}),
        (records(stored=Stored(None, False, 2, False)), {}, {STORED: "not live: none of the API's tokens"}),
        (records(stored=Stored(2, True, 3, False)), {}, {STORED: "wrong generation: 3"}),
        (records(stored=Stored(2, True, 2, True)), {}, {STORED: "not released: the refresh lock"}),
        (records(metrics={"ColdStart": 1}), {}, {SHARED: "1 container of the chatbot"}),
        (records(metrics={}), {}, {SHARED: "no container reported a cold start"}),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(
    recorded: Records, options: dict[str, int], findings: dict[str, str]
) -> None:
    assert failing(report(recorded, **options)) == findings


def test_a_run_of_one_sender_without_invalidations_shows_no_sharing() -> None:
    calm = records(
        deliveries=THREE[:2],
        log=one_invalidation().requests[:3],
        tokens=[TokenLife(1, ORIGIN + 0.1)],
        stored=Stored(1, True, 1, False),
    )
    made = report(calm, messages=2, senders=1, invalidations=0)
    assert failing(made) == {}
    assert not_shown(made).keys() == {ONE_EACH, SHARED}


class Bot:
    """A chatbot of as many instances as there are messages, which share a token or, as a control, do not."""

    def __init__(self, service: ChatService, *, shared: bool) -> None:
        self._service, self._shared = service, shared
        self._locks, self.tokens = defaultdict[int, threading.Lock](threading.Lock), defaultdict[int, str](str)

    def deliver(self, message: Message) -> Delivery:
        owner, sent, status, reply = 0 if self._shared else message.number, time.time(), 401, dict[str, Any]()
        with ChatApiClient(self._service) as api:
            while status == 401:
                token = self.tokens[owner] or self._renew(api, owner, "")
                status, reply = api.answer(message.text, token)
                if status == 401:
                    self._renew(api, owner, token)
        return Delivery(message, sent, time.time(), status, answer=reply["answer"])

    def _renew(self, api: ChatApiClient, owner: int, bad: str) -> str:
        with self._locks[owner]:
            if self.tokens[owner] == bad:
                self.tokens[owner] = api.token()
            return self.tokens[owner]


@pytest.mark.parametrize(
    ("shared", "messages", "senders", "invalidations"), [(True, 120, 20, 4), (True, 5, 3, 4), (False, 20, 4, 1)]
)
def test_only_a_bot_that_shares_its_token_fetches_one_for_each_invalidation(
    shared: bool, messages: int, senders: int, invalidations: int
) -> None:
    with ChatService(auth_latency=0.01) as service:
        bot = Bot(service, shared=shared)
        rounds = Rounds(messages, senders, invalidations, bot.deliver, service.invalidate)
        with rounds.sending():
            wait_until(lambda: len(rounds.deliveries()) == messages, "the last answer")
        stored = Stored(service.number_of(bot.tokens[0]), True, len(service.token_history), locked=False)
        recorded = Records(rounds.deliveries(), service.log, service.token_history, stored, {"ColdStart": senders})
    made = report(recorded, messages=messages, senders=senders, invalidations=invalidations)
    assert failing(made) == {} if shared else ONE_EACH in failing(made)
    assert made["token_waits"]["count"] >= invalidations


def test_a_stop_ends_the_sending_of_further_rounds() -> None:
    begun, finish = threading.Event(), threading.Event()

    def deliver(message: Message) -> Delivery:
        begun.set()
        finish.wait()
        return delivery(message.number, 0.0, 1.0)

    rounds = Rounds(20, 1, 1, deliver, lambda: None)
    with rounds.sending():
        begun.wait()
    finish.set()
    wait_until(lambda: all(future.done() for future in rounds.sent), "the end of the first round")
    assert rounds.invalidations == 0
