"""`make run-worker`: every figure of a small run, and each claim failing on records that break it, and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dev.scenarios.worker.worker_records import Records, Schedule
from tests.scenarios.reports import failing, not_shown
from tests.scenarios.worker_run import (
    DEAD_LETTER,
    ENTRY,
    FIRST,
    LATE,
    MISSING,
    NONSENSE,
    ORIGIN,
    PLAIN,
    SLOW,
    UNREAD,
    call,
    changed,
    manifest,
    many,
    objects,
    part_key,
    records,
    report,
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


def test_a_run_without_faults_passes_every_check() -> None:
    made = report(records())
    assert failing(made) == {}
    assert made["ok"]
    assert (made["succeeded"], made["dead_lettered"], made["nowhere"]) == (3, 2, 0)
    assert made["kinds"] == {"normal": {"succeeded": 2}, "slow": {"succeeded": 1}, "poison": {"dead_lettered": 2}}
    assert made["codes"] == {"Poison": 1, "InvalidMessage": 1}
    assert made["attempts"] == {"normal": {"1": 1, "2": 1}, "slow": {"2": 1}, "poison": {"1": 2}}
    assert made["answers"] == {"200": 3, "404": 1, "503": 1, "gone": 1}
    assert made["most_callers"] == 2
    assert made["most_under_way"] == 3
    assert made["schedules"] == [{"request_id": LATE, "due": 50.0}]
    assert made["total_seconds"] == 51.7
    assert json.loads(json.dumps(made)) == made


def test_waits_are_from_the_sending_to_the_first_call_and_to_the_end() -> None:
    waits = report(records())["waits"]
    assert waits["normal"]["first_call"] == {"count": 2, "p50": 0.5, "p90": 0.6, "max": 0.6}
    assert waits["normal"]["end"] == {"count": 2, "p50": 1.3, "p90": 51.7, "max": 51.7}
    assert waits["poison"]["first_call"]["count"] == 1  # the other request has no call
    assert waits["poison"]["end"]["max"] == 2.0


def test_the_report_has_an_entry_for_each_request() -> None:
    made = report(records())["fates"][3]
    assert made == {
        "request_id": MISSING,
        "kind": "poison",
        "what": "the input is missing",
        "end": "dead_lettered",
        "sent": 0.0,
        "ended": 1.8,
        "attempts": 1,
        "dead_letters": [
            {
                "code": "Poison",
                "reason": "Poison: s3://bucket/key does not exist. Upload it before you send its message",
            }
        ],
        "calls": [{"began": 1.3, "ended": 1.6, "answer": "404"}],
    }


RUN = records()
FOREIGN = records(
    rows=[*RUN.rows, row("other", "SUCCEEDED", 1, 0)],
    manifests=[*RUN.manifests, manifest("other", 1, 3.0)],
    parts={**RUN.parts, **objects(("other", 1))},
    dead=[*RUN.dead, replace(UNREAD, body="something else")],
)
RETRIED_POISON = records(
    rows=changed(RUN.rows, 3, attempts=2, history=(1, 2)),
    calls=[*RUN.calls, call(MISSING, 2, 6.0, 6.1, "404")],
    dead=[replace(DEAD_LETTER, retry_count=2, history=[ENTRY, ENTRY | {"attempt": 2}]), UNREAD],
)


def dead(**changes: Any) -> Records:
    return records(dead=[replace(DEAD_LETTER, **changes), UNREAD])


def incomplete(parts: str) -> dict[str, str]:
    return {HISTORIES: f"without its history: {MISSING} ({parts})"}


def disagree(name: str, what: str) -> dict[str, str]:
    return {LEDGER: f"disagree: {name} ({what})"}


def rows(index: int, **changes: Any) -> Records:
    return records(rows=changed(RUN.rows, index, **changes))


def calls(index: int, **changes: Any) -> Records:
    return records(calls=changed(RUN.calls, index, **changes))


@pytest.mark.parametrize(
    ("recorded", "findings"),
    [
        (
            records(manifests=RUN.manifests[:2], parts=objects((LATE, 2), (PLAIN, 1))),
            {
                SUCCEEDED: f"not published: {SLOW}",
                LEDGER: f"disagree: {SLOW} (SUCCEEDED, nowhere, 2 attempts, failed (1,))",
            },
        ),
        (
            records(manifests=[*RUN.manifests, manifest(PLAIN, 1, 1.4)]),
            {SUCCEEDED: f"published more than once: {PLAIN}"},
        ),
        (
            records(dead=[*RUN.dead, replace(DEAD_LETTER, idempotency_key=PLAIN, code="AttemptsExhausted")]),
            {SUCCEEDED: f"dead-lettered: {PLAIN} (AttemptsExhausted)"},
        ),
        (
            FOREIGN,
            {
                SUCCEEDED: "published but not sent: other",
                LEDGER: "rows of no request: other",
                HISTORIES: "dead letters of no request: something else",
                WHOLE: f"in no manifest: {part_key('other', 1, 'rain')}, {part_key('other', 1, 'sun')}",
            },
        ),
        (
            records(parts={**RUN.parts, part_key(PLAIN, 1, "rain"): b'{"weather": "rain"}\n'}),
            {WHOLE: f"not the input's lines: {PLAIN}"},
        ),
        (
            records(parts={key: body for key, body in RUN.parts.items() if key != part_key(PLAIN, 1, "rain")}),
            {WHOLE: f"not the input's lines: {PLAIN}"},
        ),
        (
            records(parts={**RUN.parts, part_key(SLOW, 1, "sun"): b"{}\n"}),
            {WHOLE: f"in no manifest: {part_key(SLOW, 1, 'sun')}"},
        ),
        (records(dead=[DEAD_LETTER, DEAD_LETTER, UNREAD]), {HISTORIES: f"not one dead letter: {MISSING} (2)"}),
        (dead(code="AttemptsExhausted"), incomplete("code")),
        (dead(reason="something went wrong"), incomplete("reason")),
        (dead(reason=None), incomplete("reason")),
        (dead(history=None), incomplete("history")),
        (dead(history=[ENTRY, ENTRY | {"attempt": 2}]), incomplete("history")),
        (dead(history=[ENTRY | {"error": "no"}]), incomplete("history")),
        (
            records(dead=[DEAD_LETTER, replace(UNREAD, code=None, reason="because")]),
            {HISTORIES: f"without its history: {NONSENSE} (code, reason)"},
        ),
        (rows(2, history=()), disagree(SLOW, "2 attempts, failed ()")),
        (rows(3, status="SUCCEEDED"), disagree(MISSING, "SUCCEEDED, dead_lettered")),
        (rows(2, attempts=1, history=()), disagree(SLOW, "1 attempt, 2 calls, another attempt published")),
        (rows(3, first_attempt_at="earlier"), disagree(MISSING, "the dead letter's attempts or times")),
        (rows(3, last_attempt_at="later"), disagree(MISSING, "the dead letter's attempts or times")),
        (records(manifests=changed(RUN.manifests, 2, attempt=1)), disagree(SLOW, "another attempt published")),
        (records(rows=RUN.rows[1:]), disagree(LATE, "no row")),
        (records(rows=[*RUN.rows, row(NONSENSE, "DEAD_LETTERED", 1, 1)]), disagree(NONSENSE, "has a row")),
        (calls(3, began=ORIGIN + 0.8), {CALLERS: "at most 3, in 6 calls"}),  # next to the first two
        (calls(1, ended=None, answer=None), {CALLERS: "at most 3, in 6 calls"}),  # lasts to the end
        (calls(2, ended=ORIGIN + 4.9, answer="200"), {TOO_SLOW: f"waited for: {SLOW} (200)"}),
        (records(schedules=[]), {SCHEDULED: f"wrong: no schedule for {LATE}"}),
        (records(schedules=[Schedule("s", PLAIN, ORIGIN + 50)]), {SCHEDULED: f"wrong: no schedule for {LATE}"}),
        (
            records(schedules=[Schedule("s", LATE, ORIGIN + 60)]),
            {SCHEDULED: f"wrong: {LATE} was retried 9.0 s before its schedule was due"},
        ),
        (
            records(schedules=[Schedule("s", LATE, ORIGIN + 20)]),
            {SCHEDULED: f"wrong: {LATE} was due before its Retry-After of 25 s"},
        ),
        (
            records(sent=[replace(each, request=replace(each.request, retry_after=None)) for each in RUN.sent]),
            {SCHEDULED: "wrong: no request had a Retry-After"},
        ),
        (records(left={**RUN.left, "messages": 1}), {LEFT: "left: 1 messages"}),
        (records(left={**RUN.left, "schedules": 1}), {LEFT: "left: 1 schedules"}),
        (records(left={**RUN.left, "undelivered schedules": 1}), {LEFT: "left: 1 undelivered schedules"}),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(recorded: Records, findings: dict[str, str]) -> None:
    assert failing(report(recorded)) == findings


@pytest.mark.parametrize(
    ("recorded", "name", "finding"),
    [
        (
            records(manifests=[*RUN.manifests, manifest(MISSING, 1, 1.7)]),
            SUCCEEDED,
            f"published although poison: {MISSING}",
        ),
        (
            records(manifests=changed(RUN.manifests, 1, parts={"sun": part_key(PLAIN, 1, "sun")})),
            WHOLE,
            f"not the input's lines: {PLAIN}; in no manifest: {part_key(PLAIN, 1, 'rain')}",
        ),
        (records(dead=[UNREAD]), HISTORIES, f"not one dead letter: {MISSING} (0)"),
        (dead(retry_count=None), HISTORIES, f"without its history: {MISSING} (attempts)"),
        (dead(first_attempt_at=None), HISTORIES, f"without its history: {MISSING} (first time)"),
        (dead(last_attempt_at=None), HISTORIES, f"without its history: {MISSING} (last time)"),
        (RETRIED_POISON, ONE_ATTEMPT, f"tried again: {MISSING} (2); called again: {MISSING} (2)"),
        (rows(1, status="WAITING"), LEDGER, f"disagree: {PLAIN} (WAITING, succeeded)"),
        (rows(1, status="RUNNING"), LEFT, f"not final: {PLAIN} (RUNNING)"),
        (rows(1, status="FAILED"), LEFT, f"not final: {PLAIN} (FAILED)"),
        (rows(1, status="WAITING"), LEFT, f"not final: {PLAIN} (WAITING)"),
        (
            records(calls=RUN.calls[:5], manifests=RUN.manifests[1:]),
            SCHEDULED,
            f"wrong: no retry of {LATE} after its schedule",
        ),
        (many(40, 0.0), IN_WORKER, "2 requests under way, 2 callers"),
    ],
)
def test_records_that_break_several_claims_fail_each(recorded: Records, name: str, finding: str) -> None:
    assert failing(report(recorded))[name] == finding


def test_a_call_that_an_outage_refused_before_the_retry_after_is_not_taken_for_it() -> None:
    refused = records(calls=[call(LATE, 0, 0.1, 0.3, "503"), *RUN.calls])
    assert SCHEDULED not in failing(report(refused))


def test_claims_that_need_more_requests_are_not_shown_by_a_small_run() -> None:
    quiet = records(
        sent=[RUN.sent[0]],
        calls=[RUN.calls[0], RUN.calls[5]],
        rows=RUN.rows[:1],
        dead=[],
        manifests=RUN.manifests[:1],
        parts=objects((LATE, 2)),
    )
    assert not_shown(report(quiet)) == {
        CALLERS: "at most 1, in 2 calls; too few requests to show it",
        TOO_SLOW: "no call was too slow",
        HISTORIES: "no poison was sent",
        ONE_ATTEMPT: "no poison was sent",
        IN_WORKER: "1 request under way; too few requests to show it",
    }
    assert report(quiet)["ok"]


def test_completeness_is_not_shown_without_results() -> None:
    made = report(records(manifests=[], parts={}))
    assert not_shown(made) == {WHOLE: "0 parts"}
    assert failing(made)[SUCCEEDED] == f"not published: {LATE}, {PLAIN}, {SLOW}"
    assert not_shown(report(RUN)) == {}


def test_a_large_run_that_never_reaches_its_callers_fails() -> None:
    busy = many(40, 30.0)
    alone = [replace(each, began=ORIGIN + i, ended=ORIGIN + i + 0.9) for i, each in enumerate(busy.calls)]
    assert failing(report(replace(busy, calls=alone)))[CALLERS] == "at most 1, in 80 calls"


def refused_poison(**changes: Any) -> Records:
    """The outage has failed the first call of MISSING, and its second attempt is permanent."""
    fields: dict[str, Any] = {
        "calls": [*RUN.calls, replace(call(MISSING, 1, 1.2, 1.25, "503"), number=0)],
        "rows": changed(RUN.rows, 3, attempts=2, history=(1, 2)),
        "dead": [replace(DEAD_LETTER, retry_count=2, history=[REFUSED_ENTRY, ENTRY | {"attempt": 2}]), UNREAD],
    }
    return records(**(fields | changes))


REFUSED_ENTRY = ENTRY | {"error": "Retryable: S3 failed"}


def test_poison_has_one_attempt_more_for_each_call_that_the_outage_failed() -> None:
    assert failing(report(refused_poison())) == {}


def test_poison_with_an_attempt_more_than_the_outage_explains_fails_the_checks() -> None:
    assert set(failing(report(refused_poison(calls=RUN.calls)))) == {HISTORIES, ONE_ATTEMPT}


def test_the_samples_are_in_the_report() -> None:
    made = report(records())
    assert made["samples"][1] == {"at": 1.2, "breaker": "CLOSED", "permitted": 1, "backlog": 4}
    assert made["outage"] is None


def test_retries_outside_the_worker_use_no_caller() -> None:
    assert IN_WORKER not in failing(report(many(40, 30.0)))


def test_instants_count_from_the_first_request_sent() -> None:
    made = report(records())
    assert made["started_at"].startswith("1970-01-01T00:16:40")
    assert FIRST.startswith("1970-01-01T00:16:40")
    assert made["parameters"]["work_seconds"] == 2
