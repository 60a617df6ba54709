"""The report: every figure of a run that was put down by hand, and each check failing by its own fault alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dev.scenarios.worker.records import Booking
from tests.worker_run.jottings import (
    FIRST,
    LATE,
    LETTER,
    MISSING,
    NONSENSE,
    ORIGIN,
    PLAIN,
    SLOW,
    STORY,
    UNREAD,
    call,
    changed,
    failing,
    manifest,
    many,
    not_shown,
    objects,
    part_key,
    records,
    report,
    row,
)

SUCCEEDED = "whatever can succeed has, once"
WHOLE = "each result is whole, and nothing else is left"
STORIES = "each poison one has one dead letter with its story"
AT_ONCE = "poison leaves after one attempt"
LEDGER = "the ledger agrees with S3, the dead letters and the downstream"
CALLERS = "never more than 2 callers at once"
TOO_SLOW = "who is too slow is given up, and its place is free again"
IN_PLACE = "who waits for a retry keeps nobody waiting"
SCHEDULED = "a retry went through EventBridge Scheduler"
LEFT = "nothing is left waiting"


def test_a_run_in_which_all_is_well() -> None:
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


def test_places_are_used_for_as_long_as_somebody_waits_for_a_first_call() -> None:
    # From 0.5 to 1.3 s, two places: LATE 0.5 s, PLAIN 0.5 s, SLOW 0.1 s of 1.6.
    assert report(records())["places_used"] == pytest.approx(1.1 / 1.6, abs=0.001)


def test_waits_are_from_the_sending_to_the_first_call_and_to_the_end() -> None:
    waits = report(records())["waits"]
    assert waits["normal"]["first_call"] == {"count": 2, "p50": 0.5, "p90": 0.6, "max": 0.6}
    assert waits["normal"]["end"] == {"count": 2, "p50": 1.3, "p90": 51.7, "max": 51.7}
    assert waits["poison"]["first_call"]["count"] == 1  # the other one was never read
    assert waits["poison"]["end"]["max"] == 2.0


def test_each_request_has_its_fate() -> None:
    made = report(records())["fates"][3]
    assert made == {
        "request_id": MISSING,
        "kind": "poison",
        "what": "the input is missing",
        "end": "dead_lettered",
        "sent": 0.0,
        "ended": 1.8,
        "attempts": 1,
        "dead_letters": [{"code": "Poison", "reason": "Poison: there is no s3://bucket/key"}],
        "calls": [{"began": 1.3, "ended": 1.6, "answer": "404"}],
    }


def test_r1_a_request_that_ended_nowhere_is_a_finding() -> None:
    found = records()
    lost = records(manifests=found.manifests[:2], parts=objects((LATE, 2), (PLAIN, 1)))
    made = report(lost)
    assert failing(made)[SUCCEEDED] == f"not published: {SLOW}"
    assert failing(made)[LEDGER] == f"disagree: {SLOW} (SUCCEEDED, nowhere, 2 attempts, failed (1,))"
    assert made["nowhere"] == 1


def test_r2_a_second_effect_is_a_finding() -> None:
    twice = [*records().manifests, manifest(PLAIN, 1, 1.4)]
    assert failing(report(records(manifests=twice))) == {SUCCEEDED: f"published more than once: {PLAIN}"}


def test_a_dead_letter_of_one_that_could_succeed_is_a_finding() -> None:
    dead = [*records().dead, replace(LETTER, idempotency_key=PLAIN, code="AttemptsExhausted")]
    made = failing(report(records(dead=dead)))
    assert made == {SUCCEEDED: f"dead-lettered: {PLAIN} (AttemptsExhausted)"}


def test_published_poison_is_a_finding() -> None:
    found = records()
    made = failing(report(records(manifests=[*found.manifests, manifest(MISSING, 1, 1.7)])))
    assert made[SUCCEEDED] == f"published, though poison: {MISSING}"


def test_what_belongs_to_nobody_is_a_finding() -> None:
    found = records()
    strange = records(
        rows=[*found.rows, row("who", "SUCCEEDED", 1, 0)],
        manifests=[*found.manifests, manifest("who", 1, 3.0)],
        parts={**found.parts, **objects(("who", 1))},
        dead=[*found.dead, replace(UNREAD, body="something else")],
    )
    assert failing(report(strange)) == {
        SUCCEEDED: "published, though nobody asked: who",
        LEDGER: "rows of nobody: who",
        STORIES: "dead letters of nobody: something else",
        WHOLE: f"left behind, named by no manifest: {part_key('who', 1, 'rain')}, {part_key('who', 1, 'sun')}",
    }


def test_a_part_that_lacks_a_line_is_a_finding() -> None:
    found = records()
    cut = {**found.parts, part_key(PLAIN, 1, "rain"): b'{"weather": "rain"}\n'}
    assert failing(report(records(parts=cut))) == {WHOLE: f"not the input's lines: {PLAIN}"}


def test_a_missing_part_is_a_finding() -> None:
    kept = {name: content for name, content in records().parts.items() if name != part_key(PLAIN, 1, "rain")}
    assert failing(report(records(parts=kept))) == {WHOLE: f"not the input's lines: {PLAIN}"}


def test_a_manifest_without_one_of_the_values_is_a_finding() -> None:
    found = records()
    fewer = changed(found.manifests, 1, parts={"sun": part_key(PLAIN, 1, "sun")})
    made = failing(report(records(manifests=fewer)))[WHOLE]
    assert made.startswith(f"not the input's lines: {PLAIN}; left behind")


def test_parts_of_another_attempt_are_a_finding() -> None:
    made = failing(report(records(parts={**records().parts, part_key(SLOW, 1, "sun"): b"{}\n"})))
    assert made == {WHOLE: f"left behind, named by no manifest: {part_key(SLOW, 1, 'sun')}"}


@pytest.mark.parametrize(("dead", "count"), [([UNREAD], 0), ([LETTER, LETTER, UNREAD], 2)])
def test_r4_poison_without_just_one_dead_letter_is_a_finding(dead: list[Any], count: int) -> None:
    assert failing(report(records(dead=dead)))[STORIES] == f"not one dead letter: {MISSING} ({count})"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"code": "AttemptsExhausted"}, "code"),
        ({"reason": "something went wrong"}, "reason"),
        ({"reason": None}, "reason"),
        ({"retry_count": None}, "attempts"),
        ({"first_attempt_at": None}, "first time"),
        ({"last_attempt_at": None}, "last time"),
        ({"history": None}, "history"),
        ({"history": [STORY, STORY | {"attempt": 2}]}, "history"),
        ({"history": [STORY | {"error": "no"}]}, "history"),
    ],
)
def test_r4_a_dead_letter_that_does_not_say_why_when_and_how_often_is_a_finding(
    changes: dict[str, Any], missing: str
) -> None:
    made = failing(report(records(dead=[replace(LETTER, **changes), UNREAD])))
    assert made[STORIES] == f"without its story: {MISSING} ({missing})"


def test_r4_a_body_that_is_no_message_needs_its_code_and_reason() -> None:
    made = failing(report(records(dead=[LETTER, replace(UNREAD, code=None, reason="because")])))
    assert made == {STORIES: f"without its story: {NONSENSE} (code, reason)"}


def test_r3_poison_that_was_tried_again_is_a_finding() -> None:
    found = records()
    again = records(
        rows=changed(found.rows, 3, attempts=2, history=(1, 2)),
        calls=[*found.calls, call(MISSING, 2, 6.0, 6.1, "404")],
        dead=[replace(LETTER, retry_count=2, history=[STORY, STORY | {"attempt": 2}]), UNREAD],
    )
    assert failing(report(again))[AT_ONCE] == f"tried again: {MISSING} (2); read again: {MISSING} (2)"


@pytest.mark.parametrize(
    ("index", "changes", "finding"),
    [
        (1, {"status": "WAITING"}, f"{PLAIN} (WAITING, succeeded)"),
        (3, {"status": "SUCCEEDED"}, f"{MISSING} (SUCCEEDED, dead_lettered)"),
        (2, {"attempts": 1, "history": ()}, f"{SLOW} (1 attempt, 2 calls, another attempt published)"),
        (2, {"history": ()}, f"{SLOW} (2 attempts, failed ())"),
        (3, {"first_attempt_at": "earlier"}, f"{MISSING} (the dead letter's attempts or times)"),
        (3, {"last_attempt_at": "later"}, f"{MISSING} (the dead letter's attempts or times)"),
    ],
)
def test_a_row_that_says_otherwise_than_the_rest_is_a_finding(
    index: int, changes: dict[str, Any], finding: str
) -> None:
    found = records()
    assert failing(report(records(rows=changed(found.rows, index, **changes))))[LEDGER] == f"disagree: {finding}"


def test_a_manifest_of_another_attempt_than_the_row_s_is_a_finding() -> None:
    made = report(records(manifests=changed(records().manifests, 2, attempt=1)))
    assert failing(made) == {LEDGER: f"disagree: {SLOW} (another attempt published)"}


def test_a_request_without_a_row_and_a_row_of_no_message_are_findings() -> None:
    found = records()
    assert failing(report(records(rows=found.rows[1:])))[LEDGER] == f"disagree: {LATE} (no row)"
    rows = [*found.rows, row(NONSENSE, "DEAD_LETTERED", 1, 1)]
    assert failing(report(records(rows=rows)))[LEDGER] == f"disagree: {NONSENSE} (has a row)"


def test_a_third_caller_is_a_finding() -> None:
    calls = changed(records().calls, 3, began=ORIGIN + 0.8)  # beside the first two
    assert failing(report(records(calls=calls))) == {CALLERS: "at most 3, in 6 calls"}


def test_a_caller_whose_call_never_ended_counts_to_the_end() -> None:
    calls = changed(records().calls, 1, ended=None, answer=None)
    assert failing(report(records(calls=calls))) == {CALLERS: "at most 3, in 6 calls"}


def test_a_small_run_shows_nothing_of_what_too_few_were_sent_for() -> None:
    found = records()
    quiet = records(
        sent=[found.sent[0]],
        calls=[found.calls[0], found.calls[5]],
        rows=found.rows[:1],
        dead=[],
        manifests=found.manifests[:1],
        parts=objects((LATE, 2)),
    )
    assert not_shown(report(quiet)) == {
        CALLERS: "at most 1, in 2 calls; too few were sent to tell",
        TOO_SLOW: "none was too slow",
        STORIES: "no poison was sent",
        AT_ONCE: "no poison was sent",
        IN_PLACE: "1 request under way at once; too few were sent to tell",
    }
    assert report(quiet)["ok"]


def test_results_of_nobody_show_nothing() -> None:
    found = records()
    made = report(records(manifests=[], parts={}))
    assert not_shown(made) == {WHOLE: "0 parts"}
    assert failing(made)[SUCCEEDED] == f"not published: {LATE}, {PLAIN}, {SLOW}"
    assert not_shown(report(found)) == {}


def test_a_large_run_that_never_had_as_many_callers_as_it_may_shows_nothing() -> None:
    busy = many(40, 30.0)
    alone = [replace(each, began=ORIGIN + i, ended=ORIGIN + i + 0.9) for i, each in enumerate(busy.calls)]
    assert failing(report(replace(busy, calls=alone)))[CALLERS] == "at most 1, in 80 calls"


def test_r3_a_slow_call_that_was_waited_for_is_a_finding() -> None:
    found = records()
    calls = changed(found.calls, 2, ended=ORIGIN + 4.9, answer="200")
    assert failing(report(records(calls=calls))) == {TOO_SLOW: f"waited for: {SLOW} (200)"}


def test_r3_requests_that_wait_for_their_retries_in_place_are_a_finding() -> None:
    assert IN_PLACE not in failing(report(many(40, 30.0)))
    assert failing(report(many(40, 0.0)))[IN_PLACE] == "2 requests under way at once, in 2 places"


@pytest.mark.parametrize(
    ("bookings", "finding"),
    [
        ([], f"no schedule was seen for {LATE}"),
        ([Booking("s", PLAIN, ORIGIN + 50)], f"no schedule was seen for {LATE}"),
        ([Booking("s", LATE, ORIGIN + 60)], f"{LATE} came back 9.0 s before its schedule was due"),
        ([Booking("s", LATE, ORIGIN + 20)], f"{LATE} was due before its Retry-After of 25 s"),
    ],
)
def test_a_retry_that_did_not_go_by_its_schedule_is_a_finding(bookings: list[Booking], finding: str) -> None:
    assert failing(report(records(bookings=bookings))) == {SCHEDULED: finding}


def test_a_retry_that_never_came_back_from_its_schedule_is_a_finding() -> None:
    found = records()
    made = failing(report(records(calls=found.calls[:5], manifests=found.manifests[1:])))
    assert made[SCHEDULED] == f"{LATE} never came back from its schedule"


def test_a_run_in_which_nobody_was_told_to_come_back_late_shows_nothing() -> None:
    found = records()
    sent = [replace(each, request=replace(each.request, retry_after=None)) for each in found.sent]
    assert list(failing(report(records(sent=sent)))) == [SCHEDULED]


@pytest.mark.parametrize("what", ["messages", "schedules", "undelivered schedules"])
def test_r1_whatever_is_left_waiting_is_a_finding(what: str) -> None:
    left = {**records().left, what: 1}
    assert failing(report(records(left=left))) == {LEFT: f"still there: 1 {what}"}


@pytest.mark.parametrize("status", ["RUNNING", "FAILED", "WAITING"])
def test_r1_a_request_whose_row_is_unsettled_is_a_finding(status: str) -> None:
    made = failing(report(records(rows=changed(records().rows, 1, status=status))))
    assert made[LEFT] == f"unsettled: {PLAIN} ({status})"


def test_instants_count_from_the_first_request_sent() -> None:
    made = report(records())
    assert made["started_at"].startswith("1970-01-01T00:16:40")
    assert FIRST.startswith("1970-01-01T00:16:40")
    assert made["parameters"]["work_seconds"] == 2
