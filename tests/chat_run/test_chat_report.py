"""The report: every figure of a run that was put down by hand, and each check failing by its own fault alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.scenarios.token.records import Records, Stored
from dev.scenarios.token.sending import Try
from tests.chat_run.notes import (
    ORIGIN,
    delivery,
    failing,
    invalidation,
    not_shown,
    one_invalidation,
    records,
    report,
    two_dead_tokens,
)

ANSWERED = "every message is answered"
ONE_EACH = "one POST /auth per invalidation"
REFUSED = "nobody is refused"
THREE_TIMES = "no message asks the API more than three times"
STORED = "the stored token is the live one"
SHARED = "several containers share the token"


def test_a_run_in_which_all_is_well() -> None:
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


def test_a_wait_is_from_the_401_to_the_next_ask_of_the_same_message() -> None:
    assert report(records())["token_waits"] == {"count": 2, "p50": 0.7, "p99": 1.0, "max": 1.0}


def test_latencies_are_the_senders_own_by_what_the_message_met() -> None:
    latency = report(records())["latency"]
    assert [fate["kind"] for fate in report(records())["fates"]] == ["cold", "at_once", "renewed", "renewed"]
    assert latency["cold"]["max"] == 0.9
    assert latency["at_once"]["max"] == 0.2
    assert latency["renewed"] == {"count": 2, "p50": 1.0, "p99": 1.25, "max": 1.25}
    assert latency["all"]["count"] == 4


def test_instants_count_from_the_first_message_sent() -> None:
    made = report(records())
    assert made["started_at"].startswith("1970-01-01T00:16:40")
    assert made["tokens"][0] == {"number": 1, "since": 0.1, "until": 2.0, "ended_by": "invalidate"}
    assert made["tokens"][1]["until"] is None
    assert made["invalidations"] == [{"at": 2.0, "token": 1, "healed_after": 1.7}]
    assert made["auth_requests"][1] == {"began": 3.1, "ended": 3.6, "status": 200, "token": 2}
    assert made["fates"][2]["asks"][0] == {"began": 3.0, "ended": 3.0, "status": 401, "token": 1}


def test_an_unanswered_message_is_a_finding_with_its_last_status() -> None:
    found = records()
    given_up = delivery(4, 2.95, 3.1, Try(ORIGIN + 4, ORIGIN + 4.2, 502, "TokenRefused"), answer=None, first=503)
    made = report(records(deliveries=[*found.deliveries[:3], given_up]))
    assert failing(made) == {
        ANSWERED: "not answered: m00004 (502 TokenRefused)",
        REFUSED: "had to be sent again: m00004",
    }
    assert made["refused"] == [
        {"message_id": "m00004", "tries": [{"status": 503, "code": None}, {"status": 502, "code": "TokenRefused"}]}
    ]
    assert made["fates"][3]["kind"] == "refused"


def test_an_answer_to_another_text_is_a_finding() -> None:
    found = records()
    mixed = [*found.deliveries[:3], delivery(4, 2.95, 4.2, answer="You said one word")]
    assert failing(report(records(deliveries=mixed))) == {ANSWERED: "answered wrongly: m00004"}


def test_messages_that_were_never_sent_are_a_finding() -> None:
    assert failing(report(records(), messages=6)) == {ANSWERED: "not sent: 2"}


def test_t1_a_second_auth_after_an_invalidation_is_a_finding() -> None:
    log = one_invalidation()
    log.auth(3.2, 3)
    assert failing(report(records(log=log.requests)))[ONE_EACH] == "2 after invalidation 1"


def test_t1_two_first_tokens_are_a_finding() -> None:
    log = one_invalidation()
    log.auth(0.2, 2)
    assert failing(report(records(log=log.requests)))[ONE_EACH] == "2 for the first token"


def test_t1_an_invalidation_that_nobody_healed_is_a_finding() -> None:
    found = records()
    assert failing(report(records(invalidations=[*found.invalidations, invalidation(5.0, 2)]), invalidations=2)) == {
        ONE_EACH: "0 after invalidation 2"
    }


def test_an_invalidation_that_could_not_be_made_is_a_finding() -> None:
    assert "only 1 of 2 invalidations" in failing(report(records(), invalidations=2))[ONE_EACH]


def test_a_refused_post_auth_is_a_finding() -> None:
    log = one_invalidation()
    log.auth(3.2, None, 503)
    log.auth(3.3, None, None)
    assert failing(report(records(log=log.requests)))[REFUSED] == "POST /auth answered: 503, no answer"


def test_a_message_may_meet_two_dead_tokens_and_waits_once_for_the_third() -> None:
    made = report(two_dead_tokens(), messages=5, invalidations=2)
    assert failing(made) == {}
    assert made["asks"] == {"1": 2, "2": 2, "3": 1}
    assert made["token_waits"] == {"count": 3, "p50": 1.0, "p99": 1.4, "max": 1.4}
    assert made["fates"][4]["kind"] == "renewed"
    assert [ask["status"] for ask in made["fates"][4]["asks"]] == [401, 401, 200]


def test_a_fourth_ask_for_one_message_is_a_finding() -> None:
    log = one_invalidation()
    log.ask(4, 4.06, 2)
    assert failing(report(records(log=log.requests))) == {}
    log.ask(4, 4.1, 2)
    assert failing(report(records(log=log.requests))) == {THREE_TIMES: "m00004 (4)"}


def test_a_message_that_met_no_valid_token_has_waited_for_none() -> None:
    log = one_invalidation()
    late = delivery(5, 5.1, 5.3, answer=None, first=502)
    log.ask(5, 5.2, 1, 401)
    log.ask(5, 5.25, 2, 401)
    made = report(records(deliveries=[*records().deliveries, late], log=log.requests), messages=5)
    assert made["token_waits"]["count"] == 2


@pytest.mark.parametrize(
    ("stored", "finding"),
    [
        (Stored(1, False, 2, False), "token 1 is dead"),
        (Stored(None, False, 2, False), "it is none of the API's"),
        (Stored(2, True, 3, False), "generation 3 after 2 tokens"),
        (Stored(2, True, 2, True), "the refresh lock was left behind"),
    ],
)
def test_t3_a_stale_token_stored_at_the_end_is_a_finding(stored: Stored, finding: str) -> None:
    assert failing(report(records(stored=stored))) == {STORED: finding}


@pytest.mark.parametrize(
    ("metrics", "finding"),
    [({"ColdStart": 1}, "1 container of the chatbot"), ({}, "no container has reported its cold start")],
)
def test_a_run_with_nothing_to_share_proves_nothing(metrics: dict[str, float], finding: str) -> None:
    assert failing(report(records(metrics=metrics))) == {SHARED: finding}
    alone = report(records(metrics=metrics), senders=1)
    assert (failing(alone), list(not_shown(alone))) == ({}, [SHARED])


def test_without_invalidations_there_are_no_waits() -> None:
    found = records()
    calm = Records(
        deliveries=found.deliveries[:2],
        log=found.log[:3],
        tokens=found.tokens[:1],
        invalidations=[],
        stored=Stored(1, True, 1, False),
        metrics=found.metrics,
    )
    made = report(calm, messages=2, invalidations=0)
    assert failing(made) == {}
    assert made["token_waits"] == {"count": 0, "p50": None, "p99": None, "max": None}
    assert made["auths"]["per_invalidation"] == []
    assert not_shown(made) == {ONE_EACH: "one for the first token; no invalidation was asked for"}


def test_take_overs_come_from_the_chatbot_s_metrics() -> None:
    found: Any = dict(records().metrics) | {"TokenTakeOvers": 3.0}
    assert report(records(metrics=found))["take_overs"] == 3


def test_a_run_in_which_nobody_got_a_token_still_makes_a_report() -> None:
    refused = [delivery(1, 0.0, 0.2, answer=None, first=502)]
    made = report(records(deliveries=refused, log=[], tokens=[], invalidations=[]), messages=1)
    assert made["asks"] == {}
    assert failing(made)[ANSWERED] == "not answered: m00001 (502)"
    assert failing(made)[ONE_EACH].startswith("0 for the first token; only 0 of 1 invalidations")
