"""`make run-chatbot`: every figure of a small run, and each claim failing on records that break it, and no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.scenarios.token.chat_senders import Try
from dev.scenarios.token.token_records import Records, Stored
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.token_run import (
    ORIGIN,
    delivery,
    invalidation,
    one_invalidation,
    records,
    report,
    two_invalid_tokens,
)

ANSWERED = "every message is answered"
ONE_EACH = "one POST /auth per invalidation"
REFUSED = "no message is refused"
THREE_TIMES = "no message asks the API more than three times"
STORED = "the stored token is the live one"
SHARED = "several containers share the token"


def test_a_run_without_faults_passes_every_check() -> None:
    made = report(records())
    assert failing(made) == {}
    assert made["ok"]
    assert (made["messages"], made["answered"], made["sent_again"], made["refused"]) == (4, 4, 0, [])
    assert made["asks"] == {"1": 2, "2": 2}
    assert made["auths"] == {"cold": 1, "per_invalidation": [1], "total": 2}
    assert made["containers"] == 2
    assert made["take_overs"] == 0
    assert made["total_seconds"] == 4.2
    assert json.loads(json.dumps(made)) == made


def test_a_wait_is_from_the_401_to_the_next_request_for_the_same_message() -> None:
    assert report(records())["token_waits"] == {"count": 2, "p50": 0.7, "p99": 1.0, "max": 1.0}


def test_latencies_are_grouped_by_the_tokens_that_a_message_met() -> None:
    latency = report(records())["latency"]
    assert [fate["kind"] for fate in report(records())["fates"]] == ["cold", "direct", "renewed", "renewed"]
    assert latency["cold"]["max"] == 0.9
    assert latency["direct"]["max"] == 0.2
    assert latency["renewed"] == {"count": 2, "p50": 1.0, "p99": 1.25, "max": 1.25}
    assert latency["all"]["count"] == 4


def test_instants_count_from_the_first_message_sent() -> None:
    made = report(records())
    assert made["started_at"].startswith("1970-01-01T00:16:40")
    assert made["tokens"][0] == {"number": 1, "since": 0.1, "until": 2.0, "ended_by": "invalidate"}
    assert made["tokens"][1]["until"] is None
    assert made["invalidations"] == [{"at": 2.0, "token": 1}]
    assert made["auth_requests"][1] == {"began": 3.1, "ended": 3.6, "status": 200, "token": 2}
    assert made["fates"][2]["asks"][0] == {"began": 3.0, "ended": 3.0, "status": 401, "token": 1}


GIVEN_UP = delivery(4, 2.95, 3.1, Try(ORIGIN + 4, ORIGIN + 4.2, 502, "TokenRefused"), answer=None, first=503)
THREE = records().deliveries[:3]


def log_with(*auths: tuple[float, int | None, int | None], asks: tuple[float, ...] = ()) -> Records:
    """The run with more `POST /auth`, and with more asks for m4."""
    log = one_invalidation()
    for auth in auths:
        log.auth(*auth)
    for at in asks:
        log.ask(4, at, 2)
    return records(log=log.requests)


@pytest.mark.parametrize(
    ("recorded", "options", "findings"),
    [
        (
            records(deliveries=[*THREE, GIVEN_UP]),
            {},
            {ANSWERED: "not answered: m00004 (502 TokenRefused)", REFUSED: "sent again: m00004"},
        ),
        (
            records(deliveries=[*THREE, delivery(4, 2.95, 4.2, answer="You wrote one word")]),
            {},
            {ANSWERED: "answered wrongly: m00004"},
        ),
        (records(), {"messages": 6}, {ANSWERED: "not sent: 2"}),
        (log_with((3.2, 3, 200)), {}, {ONE_EACH: "POST /auth: 2 after invalidation 1"}),
        (log_with((0.2, 2, 200)), {}, {ONE_EACH: "POST /auth: 2 for the first token"}),
        (
            records(invalidations=[*records().invalidations, invalidation(5.0, 2)]),
            {"invalidations": 2},
            {ONE_EACH: "POST /auth: 0 after invalidation 2"},
        ),
        (records(), {"invalidations": 2}, {ONE_EACH: "invalidations made: 1 of 2, since the token never recovered"}),
        (
            log_with((3.2, None, 503), (3.3, None, None)),
            {},
            {REFUSED: "POST /auth answered: 503, no answer", ONE_EACH: "POST /auth: 3 after invalidation 1"},
        ),
        (log_with(asks=(4.06,)), {}, {}),
        (log_with(asks=(4.06, 4.1)), {}, {THREE_TIMES: "more requests: m00004 (4)"}),
        (records(stored=Stored(1, False, 2, False)), {}, {STORED: "not live: token 1"}),
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


def test_a_message_that_was_given_up_is_listed_with_its_tries() -> None:
    made = report(records(deliveries=[*THREE, GIVEN_UP]))
    assert made["refused"] == [
        {"message_id": "m00004", "tries": [{"status": 503, "code": None}, {"status": 502, "code": "TokenRefused"}]}
    ]
    assert made["fates"][3]["kind"] == "refused"


def test_a_message_that_meets_two_invalid_tokens_waits_once() -> None:
    made = report(two_invalid_tokens(), messages=5, invalidations=2)
    assert failing(made) == {}
    assert made["asks"] == {"1": 2, "2": 2, "3": 1}
    assert made["token_waits"] == {"count": 3, "p50": 1.0, "p99": 1.4, "max": 1.4}
    assert made["fates"][4]["kind"] == "renewed"
    assert [ask["status"] for ask in made["fates"][4]["asks"]] == [401, 401, 200]


def test_a_message_without_a_valid_token_has_no_wait() -> None:
    log = one_invalidation()
    late = delivery(5, 5.1, 5.3, answer=None, first=502)
    log.ask(5, 5.2, 1, 401)
    log.ask(5, 5.25, 2, 401)
    made = report(records(deliveries=[*records().deliveries, late], log=log.requests), messages=5)
    assert made["token_waits"]["count"] == 2


def test_sharing_is_not_shown_by_one_sender() -> None:
    alone = report(records(metrics={}), senders=1)
    assert (failing(alone), list(not_shown(alone))) == ({}, [SHARED])


def test_without_invalidations_there_are_no_waits() -> None:
    full = records()
    calm = Records(
        deliveries=full.deliveries[:2],
        log=full.log[:3],
        tokens=full.tokens[:1],
        invalidations=[],
        stored=Stored(1, True, 1, False),
        metrics=full.metrics,
    )
    made = report(calm, messages=2, invalidations=0)
    assert failing(made) == {}
    assert made["token_waits"] == {"count": 0, "p50": None, "p99": None, "max": None}
    assert made["auths"]["per_invalidation"] == []
    assert not_shown(made) == {ONE_EACH: "one for the first token; the run had no invalidations"}


def test_take_overs_come_from_the_chatbot_s_metrics() -> None:
    metrics: Any = dict(records().metrics) | {"TokenTakeOvers": 3.0}
    assert report(records(metrics=metrics))["take_overs"] == 3


def test_without_any_token_there_is_a_report() -> None:
    refused = [delivery(1, 0.0, 0.2, answer=None, first=502)]
    made = report(records(deliveries=refused, log=[], tokens=[], invalidations=[]), messages=1)
    assert made["asks"] == {}
    assert failing(made)[ANSWERED] == "not answered: m00001 (502)"
    assert failing(made)[ONE_EACH].startswith("POST /auth: 0 for the first token; invalidations made: 0 of 1")
