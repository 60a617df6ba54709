"""`make run-worker`: each claim fails on records that break it, and the run's requests and policy suit each other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dev.scenarios.worker import worker_mix as mix
from dev.scenarios.worker import worker_outage, worker_records, worker_scenario
from dev.scenarios.worker.worker_outage import OutageRecord, Settings
from dev.scenarios.worker.worker_records import Records, Schedule
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.message import InvalidMessage, parse_message
from slotkeeper.retry.policy import Policy
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.worker_run import (
    AFTER,
    BEFORE,
    DEAD_LETTER,
    DURING,
    ENTRY,
    LATE,
    MISSING,
    NONSENSE,
    ORIGIN,
    PLAIN,
    REASON,
    RETRIED,
    SLOW,
    UNREAD,
    call,
    changed,
    key,
    manifest,
    many,
    objects,
    outage,
    outage_records,
    part_key,
    records,
    report,
    retried,
    row,
)

SUCCEEDED = "each request that can succeed succeeds once"
WHOLE = "each result is complete, and no other part is left"
HISTORIES = "each poison request has one dead letter with its history"
ONE_ATTEMPT = "poison has one attempt"
LEDGER = "the ledger agrees with S3, the dead letters and the downstream"
CALLERS = "never more than 2 concurrent callers"
TOO_SLOW = "a call that is too slow is given up"
IN_WORKER = "a waiting retry uses no caller"
SCHEDULED = "a retry went through EventBridge Scheduler"
LEFT = "no request is left waiting"
FEW = "the downstream is hardly called while it is down"
PROBES = "one probe at a time, each after its wait"
ATTEMPTS = "the outage uses up at most one attempt in all"
FOUND = "the first probe after the outage succeeds"
UNSCHEDULED = {SCHEDULED: "no request had a Retry-After"}
RUN = records()


def test_the_figures_of_a_run_without_faults() -> None:
    made = report(RUN)
    assert (failing(made), not_shown(made), made["ok"]) == ({}, {}, True)
    assert (made["succeeded"], made["dead_lettered"], made["nowhere"]) == (3, 2, 0)
    assert made["kinds"] == {"normal": {"succeeded": 2}, "slow": {"succeeded": 1}, "poison": {"dead_lettered": 2}}
    assert made["attempts"] == {"normal": {"1": 1, "2": 1}, "slow": {"2": 1}, "poison": {"1": 2}}
    assert made["answers"] == {"200": 3, "404": 1, "503": 1, "gone": 1}
    assert made["most_callers"] == 2
    assert (made["fates"][3]["ended"], made["fates"][3]["calls"]) == (
        1.8,
        [{"began": 1.3, "ended": 1.6, "answer": "404"}],
    )
    assert json.loads(json.dumps(made)) == made


def rows(index: int, **changes: Any) -> Records:
    return records(rows=changed(RUN.rows, index, **changes))


def calls(index: int, **changes: Any) -> Records:
    return records(calls=changed(RUN.calls, index, **changes))


def schedule(name: str, due: float) -> Records:
    return records(schedules=[Schedule("s", name, ORIGIN + due)])


def disagree(name: str, what: str) -> dict[str, str]:
    return {LEDGER: f"disagree: {name} ({what})"}


# The outage has failed the first call of MISSING, and its second attempt is permanent.
REFUSED_POISON = records(
    calls=[*RUN.calls, call(MISSING, 0, 1.2, 1.25, "503")],
    rows=changed(RUN.rows, 3, attempts=2, history=(1, 2)),
    dead=[
        replace(DEAD_LETTER, retry_count=2, history=[ENTRY | {"error": "Retryable: no"}, ENTRY | {"attempt": 2}]),
        UNREAD,
    ],
)
ALONE = [replace(each, began=ORIGIN + i, ended=ORIGIN + i + 0.9) for i, each in enumerate(many(30.0).calls)]


@pytest.mark.parametrize(
    ("recorded", "findings"),
    [
        (
            records(manifests=RUN.manifests[:2], parts=objects((LATE, 2), (PLAIN, 1))),
            {SUCCEEDED: f"not published: {SLOW}"} | disagree(SLOW, "SUCCEEDED, nowhere, 2 attempts, failed (1,)"),
        ),
        (
            records(manifests=[*RUN.manifests, manifest(PLAIN, 1, 1.4)]),
            {SUCCEEDED: f"published more than once: {PLAIN}"},
        ),
        (
            records(parts={**RUN.parts, part_key(PLAIN, 1, "rain"): b'{"weather": "rain"}\n'}),
            {WHOLE: f"not the input's lines: {PLAIN}"},
        ),
        (
            records(parts={**RUN.parts, part_key(SLOW, 1, "sun"): b"{}\n"}),
            {WHOLE: f"in no manifest: {part_key(SLOW, 1, 'sun')}"},
        ),
        (records(dead=[DEAD_LETTER, DEAD_LETTER, UNREAD]), {HISTORIES: f"not one dead letter: {MISSING} (2)"}),
        (
            records(dead=[replace(DEAD_LETTER, history=[ENTRY, ENTRY | {"attempt": 2}]), UNREAD]),
            {HISTORIES: f"without its history: {MISSING} (Poison, {REASON})"},
        ),
        (
            replace(REFUSED_POISON, calls=[*RUN.calls, call(MISSING, 2, 6.0, 6.1, "404")]),
            {
                HISTORIES: f"without its history: {MISSING} (Poison, {REASON})",
                ONE_ATTEMPT: f"tried again: {MISSING} (2); called again: {MISSING} (2)",
            },
        ),
        (REFUSED_POISON, {}),
        (
            records(dead=[replace(DEAD_LETTER, first_attempt_at=None), UNREAD]),
            disagree(MISSING, "the dead letter's attempts or times"),
        ),
        (rows(2, attempts=1, history=()), disagree(SLOW, "1 attempt, 2 calls, another attempt published")),
        (records(rows=RUN.rows[1:]), disagree(LATE, "no row")),
        (records(rows=[*RUN.rows, row(NONSENSE, "DEAD_LETTERED", 1, 1)]), disagree(NONSENSE, "has a row")),
        (
            records(rows=[*RUN.rows, row("other", "SUCCEEDED", 1, 0)], dead=[*RUN.dead, replace(UNREAD, body="what?")]),
            {LEDGER: "of no request: row other, dead letter what?"},
        ),
        (rows(1, status="WAITING"), disagree(PLAIN, "WAITING, succeeded") | {LEFT: f"not final: {PLAIN} (WAITING)"}),
        (records(left={**RUN.left, "schedules": 1}), {LEFT: "left: 1 schedules"}),
        (calls(3, began=ORIGIN + 0.8), {CALLERS: "at most 3, in 6 calls"}),  # next to the first two
        (calls(1, ended=None, answer=None), {CALLERS: "at most 3, in 6 calls"}),  # lasts to the end
        (replace(many(30.0), calls=ALONE), {CALLERS: "at most 1, in 80 calls"} | UNSCHEDULED),
        (many(30.0), UNSCHEDULED),
        (many(0.0), {IN_WORKER: "2 requests under way, 2 callers"} | UNSCHEDULED),
        (calls(2, ended=ORIGIN + 4.9, answer="200"), {TOO_SLOW: f"waited for: {key(SLOW)} (200)"}),
        (schedule(PLAIN, 50), {SCHEDULED: f"no schedule of {LATE}"}),
        (schedule(LATE, 60), {SCHEDULED: f"retried before its schedule was due: {LATE}"}),
        (schedule(LATE, 20), {SCHEDULED: f"due before its Retry-After: {LATE}"}),
        (outage_records(), {}),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(recorded: Records, findings: dict[str, str]) -> None:
    assert failing(report(recorded)) == findings


def test_claims_that_need_more_requests_are_not_shown_by_a_small_run() -> None:
    quiet = records(
        sent=[RUN.sent[0]],
        calls=[RUN.calls[0], RUN.calls[5]],
        rows=RUN.rows[:1],
        dead=[],
        manifests=[],
        parts={},
    )
    assert not_shown(report(quiet)).keys() == {CALLERS, TOO_SLOW, HISTORIES, ONE_ATTEMPT, IN_WORKER, WHOLE}


# --------------------------------------------------------------------------------------------------------- the outage


def findings(recorded: OutageRecord, *, ok: bool | None) -> dict[str, str]:
    return {claim.name: claim.finding for claim in worker_outage.claims(recorded) if claim.ok is ok}


def test_the_figures_of_an_outage_in_which_the_breaker_keeps_the_rules() -> None:
    assert findings(outage(), ok=True) == {
        FEW: "7 calls in 20 s; 7 after the last success, 14 allowed",
        PROBES: "6 probes, 0.2 s apart or more",
        ATTEMPTS: "1 attempt of 7 failed calls; 1 earlier call still succeeded in it",
        FOUND: "200, 4.5 s after it; a probe is due within 4 s",
    }
    assert worker_outage.figures(outage(), ORIGIN, ORIGIN + 60.0) == {
        "began": 10.0,
        "ended": 30.0,
        "calls": 7,
        "probes": 4,
        "counted": 1,
        "first_call": 3.3,
        "first_success": 4.5,
        "empty": 30.0,
    }


STORM = [call("a", 0, 12.0 + number / 10, 12.5 + number / 10, "503") for number in range(60)]
FAILED_AGAIN = [call("c", 0, 33.3, 33.8, "dropped"), call("b", 1, 37.9, 38.4)]
USED_UP = [replace(each, counted=True) for each in RETRIED[2:4]]


@pytest.mark.parametrize(
    ("recorded", "name", "finding"),
    [
        (outage([*BEFORE, *DURING[:3], *STORM, *AFTER]), FEW, "63 calls in 20 s"),
        (outage([*BEFORE, *DURING[:6], call("f", 0, 24.2, 24.7, "503"), *AFTER]), PROBES, "too early: work/input/f"),
        (outage([*BEFORE, *DURING, call("d", 0, 30.5, 31.0, "404"), *AFTER]), PROBES, "too early: work/input/d"),
        (outage(log=[*RETRIED[:2], *USED_UP, *RETRIED[4:]]), ATTEMPTS, "3 attempts of 7 failed calls"),
        (outage([*BEFORE, *DURING, *FAILED_AGAIN]), FOUND, "dropped, 3.8 s after it"),
        (outage(BEFORE), FOUND, "no call after the outage"),
    ],
    ids=["no breaker", "two probes at a time", "a probe too early", "attempts used up", "not found", "no call"],
)
def test_a_breaker_that_breaks_a_rule_fails_its_claim(recorded: OutageRecord, name: str, finding: str) -> None:
    broken = findings(recorded, ok=False)
    assert broken.pop(name).startswith(finding)
    assert broken.keys() <= {PROBES}, "a storm of calls is also no series of single probes"


def test_what_may_have_begun_before_the_breaker_opened_does_not_count_against_it() -> None:
    late = outage([BEFORE[0], call("h", 1, 9.5, 11.4), *DURING, *AFTER])  # its success ends the series of failures
    assert (len(late.since_answered), late.probes) == (4, [])
    assert (outage().probes, outage(open_at=None).probes) == (DURING[3:], [])
    assert outage(log=[retried("a", 10.9), retried("a", 40.0, counted=True)]).counted == []


def test_the_waits_for_probes_are_those_of_the_layer() -> None:
    assert (worker_outage.FIRST_PROBE, worker_outage.PROBE_JITTER) == (rules.FIRST_PROBE, rules.PROBE_JITTER)
    assert Settings.of(mix.POLICY, 3) == Settings(5, 3, 3)


@pytest.mark.parametrize(
    ("health", "read"),
    [
        (None, ("CLOSED", 3)),
        ({"limit": 3, "limit_set": 1}, ("CLOSED", 1)),
        ({"limit": 3, "state": "OPEN"}, ("OPEN", 0)),
        ({"limit": 3, "state": "HALF_OPEN"}, ("HALF_OPEN", 1)),
    ],
)
def test_the_breakers_state_is_read_with_the_permitted_callers(health: Any, read: tuple[str, int]) -> None:
    item = health and {"Item": {"health": {"S": json.dumps({"state": "CLOSED", "limit_set": None} | health)}}}
    dynamodb: Any = SimpleNamespace(get_item=lambda **_: item or {})
    assert worker_records.read_breaker(dynamodb, "table", 3) == read


# ------------------------------------------------------------------------------------------------------- the requests


@pytest.mark.parametrize(("requests", "seed", "scale"), [(1, 1, 0.15), (29, 2, 0.02), (1000, 3, 0.15), (200, 4, 1.0)])
def test_a_run_has_the_mix_of_requests_and_the_policy_allows_their_failures(
    requests: int, seed: int, scale: float
) -> None:
    drawn, limit = mix.draw(requests, seed, scale, 25), mix.limit(scale)
    assert drawn == mix.draw(requests, seed, scale, 25)
    assert Counter(each.kind for each in drawn) == Counter(mix.counts(requests))
    assert len({each.request_id for each in drawn}) == len({each.body for each in drawn}) == requests
    first = drawn[0].steps[0]
    assert (drawn[0].kind, drawn[0].retry_after, first.answer, first.retry_after) == ("normal", 25, "slow_down", 25)
    Policy.from_document(mix.POLICY)
    for each in drawn:
        slow = sum(step.seconds > limit for step in each.steps)
        assert slow in {"normal": (0,), "slow": (1, 2), "poison": (0,)}[each.kind]
        if each.kind != "poison":
            assert sum(step.answer != "normal" for step in each.steps) + slow <= mix.MAX_ATTEMPTS - 3
            assert (each.steps[-1].answer, each.steps[-1].seconds <= limit - 1) == ("normal", True)
        if each.is_message:
            assert parse_message(each.body).request_id == each.request_id
        else:
            with pytest.raises(InvalidMessage):
                parse_message(each.body)


def test_two_in_ten_attempts_fail_and_there_are_six_kinds_of_poison() -> None:
    drawn = mix.draw(1000, 1, 0.15, 25)
    steps = [
        step for each in drawn[1:] if each.kind != "poison" for step in each.steps if step.seconds <= mix.limit(0.15)
    ]
    assert sum(step.answer != "normal" for step in steps) / len(steps) == pytest.approx(0.2, abs=0.03)
    assert len({each.poison.reason.split(" is ")[-1] for each in drawn if each.poison}) == 6


def test_a_damaged_line_has_the_returned_number() -> None:
    broken, number = mix.damaged(['{"weather": "sun"}', '{"weather": "rain"}', '{"weather": "fog"}'])
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(broken.decode().splitlines()[number - 1])


@mock_aws
def test_requests_are_sent_in_order_and_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    sqs, requests = boto3.client("sqs", region_name="us-east-1"), mix.draw(40, 1, 0.02, 25)
    sender = worker_scenario.Sender(sqs, sqs.create_queue(QueueName="work")["QueueUrl"], requests, seconds=20.0)
    counts = []
    for elapsed in (0.0, 0.1, 5.0, 5.0, 10.2, 30.0, 31.0):
        sender.send(elapsed)
        counts.append(len(sender.sent))
    assert counts == [1, 1, 10, 10, 21, 40, 40]
    assert [each.request for each in sender.sent] == requests
