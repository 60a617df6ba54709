"""The doctor's checks of alarms, their topic, retries and dead-letter queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import MalformedHealth, NotRead
from slotkeeper.retry.downstream.health import Breaker, Change, Concurrency, Health, State
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper_cli.doctor import alarm_checks, retry_checks
from slotkeeper_cli.doctor.facts import LedgerRows
from tests.cli.doctor_facts import NOW, facts, levels, seen


def _alarm(state: str, name: str = "StarterErrorAlarm", **more: Any) -> dict[str, Any]:
    return {"LogicalId": name, "StateValue": state, "ActionsEnabled": True, **more}


def _silent(name: str, age: float) -> dict[str, Any]:
    """An alarm of a stack of this age, in ALARM."""
    return {"alarms": [_alarm("ALARM", name, Period=3600)], "stack_age": age}


def _key_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Statement": list(statements)}


ROOT = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}
LETS = {
    "Effect": "Allow",
    "Principal": {"Service": ["sns.amazonaws.com", alarm_checks.CLOUDWATCH]},
    "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
}


OF_RULES = {**LETS, "Principal": {"Service": alarm_checks.EVENTBRIDGE}}
OF_ACCOUNT = {"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"


def _of_topic(*statements: Any) -> dict[str, Any]:
    """The topic's key, with a policy of these statements."""
    return {"topic": {"KmsMasterKeyId": KEY}, "key_policy": lambda _: {"Statement": list(statements)}}


def _of_stack(*statements: Any, key: str = KEY) -> dict[str, Any]:
    return {"key": key, "key_policy": lambda _: {"Statement": list(statements)}}


def _row(status: str, due: float | None = None, lease: float = 0, plan: Any = None) -> Row:
    return Row(status, 1, "claim", lease, NOW, "hash", plan, (), due)


def _rows(listed: Any) -> dict[str, Any]:
    return {"rows": LedgerRows((("r", listed),), all_of_them=True)}


CANCELLED = {"code": "Cancelled", "reason": ""}
PENDING = [{"SubscriptionArn": "PendingConfirmation", "Endpoint": "us@example.com"}]
SILENT = _alarm("INSUFFICIENT_DATA")
LIMITED = {"downstreams": {"mail": Health(concurrency=Concurrency(limit_set=3)), "maps": Health()}}
UNREAD = {"downstreams": {"": NotRead("the others are not read")}}
MALFORMED = {"downstreams": {"mail": MalformedHealth("item 'mail': health is missing")}}
FAILED_REQUESTS = {"queues": {"FailedRequestQueue": {"ApproximateNumberOfMessages": "2"}}}


@pytest.mark.parametrize(
    ("check", "changes", "expected"),
    [
        (alarm_checks.alarms, {"alarms": [_alarm("ALARM")]}, ["problem"]),
        (alarm_checks.alarms, {"alarms": [SILENT]}, ["warn"]),
        # The janitor's alarm treats missing data as breaching, and a new stack has no data of an hour.
        (alarm_checks.alarms, _silent("JanitorSilentAlarm", 600), ["warn"]),
        (alarm_checks.alarms, _silent("JanitorSilentAlarm", 3600), ["problem"]),
        (alarm_checks.alarms, _silent("StarterErrorAlarm", 600), ["problem"]),
        (alarm_checks.silenced, {"alarms": [_alarm("OK", ActionsEnabled=False)]}, ["problem"]),
        (alarm_checks.topic, {"subscriptions": []}, ["warn"]),
        (alarm_checks.topic, {"subscriptions": PENDING}, ["warn", "warn"]),
        (alarm_checks.topic_key, {"topic": {"KmsMasterKeyId": "alias/aws/sns"}}, ["problem"]),
        (alarm_checks.topic_key, _of_topic(), ["problem"]),
        (alarm_checks.topic_key, _of_topic(ROOT), ["problem"]),
        (alarm_checks.topic_key, _of_topic(ROOT, LETS), []),
        (alarm_checks.topic_key, {**_of_topic(), "key_policy": lambda _: {"Statement": LETS}}, []),
        (alarm_checks.topic_key, {**_of_topic(), "key_policy": lambda _: {}}, ["problem"]),
        (alarm_checks.topic_key, _of_topic(ROOT, {**LETS, "Action": "kms:*"}), []),
        (alarm_checks.topic_key, _of_topic(ROOT, {**LETS, "Principal": "*"}), []),
        (alarm_checks.topic_key, _of_topic({**LETS, "Principal": {"Service": "sns.amazonaws.com"}}), ["problem"]),
        (alarm_checks.topic_key, _of_topic({**LETS, "Action": "kms:Decrypt"}), ["problem"]),
        (alarm_checks.topic_key, _of_topic(LETS, {**LETS, "Effect": "Deny", "Action": "kms:Decrypt"}), ["problem"]),
        (alarm_checks.status_event_key, _of_stack(ROOT, LETS), ["problem"]),
        (alarm_checks.status_event_key, _of_stack(ROOT, LETS, key=""), []),
        (alarm_checks.status_event_key, _of_stack(ROOT, OF_RULES), []),
        (alarm_checks.status_event_key, _of_stack(ROOT, OF_RULES | OF_ACCOUNT), ["problem"]),
        (alarm_checks.status_event_key, _of_stack(OF_RULES, OF_RULES | OF_ACCOUNT | {"Effect": "Deny"}), ["problem"]),
        (retry_checks.overdue, _rows(_row(WAITING, NOW - 200)), []),
        (retry_checks.overdue, _rows(_row(WAITING, NOW - 400)), ["problem"]),
        (retry_checks.overdue, _rows(_row(RUNNING, lease=NOW - 60)), []),
        (retry_checks.overdue, _rows(_row(RUNNING, lease=NOW - 7200)), ["warn"]),
        (retry_checks.overdue, _rows(_row(FAILED, NOW, plan=CANCELLED)), []),
        (retry_checks.overdue, _rows(_row(FAILED, NOW - 400, plan=CANCELLED)), ["problem"]),
        (retry_checks.overdue, _rows(_row(FAILED, plan={"when": 1, "counted": True})), ["warn"]),
        (retry_checks.overdue, _rows(MalformedRow("item 'r'")), ["problem"]),
        (retry_checks.breakers, LIMITED, ["warn"]),
        (retry_checks.breakers, UNREAD, ["warn"]),
        (retry_checks.breakers, MALFORMED, ["problem"]),
        (retry_checks.dead_letters, FAILED_REQUESTS, ["warn"]),
        (retry_checks.retry_policy, {"retry_policy": None}, ["problem"]),
        (retry_checks.retry_policy, {"retry_policy": "not JSON"}, ["problem"]),
        (retry_checks.retry_policy, {"retry_policy": '{"default": {"max_attempts": 0}}'}, ["problem"]),
    ],
)
def test_the_level_of_a_finding(check: Callable[..., Any], changes: dict[str, Any], expected: list[str]) -> None:
    assert levels(check, **changes) == expected


@pytest.mark.parametrize(
    ("check", "changes", "saw"),
    [
        (alarm_checks.alarms, {"alarms": 6 * [SILENT]}, f"6 alarms without data: {'StarterErrorAlarm, ' * 5}..."),
        (alarm_checks.topic, {"subscriptions": PENDING}, "subscription not confirmed yet: us@example.com"),
        (retry_checks.breakers, LIMITED, "downstream mail: an operator has set the limit to 3 callers"),
        (retry_checks.breakers, UNREAD, "the others are not read"),
        (retry_checks.breakers, MALFORMED, "item 'mail': health is missing; until then its messages stay on WorkQueue"),
        (retry_checks.dead_letters, FAILED_REQUESTS, "FailedRequestQueue contains 2 messages"),
    ],
)
def test_a_finding_names_what_was_seen(check: Callable[..., Any], changes: dict[str, Any], saw: str) -> None:
    assert seen(check, **changes)[0][1] == saw


FIRST_STEP = "read its log. Runbook: https://x#startererroralarm"
DESCRIBED = _alarm("ALARM", AlarmDescription=f"The starter failed. First step: {FIRST_STEP}")


@pytest.mark.parametrize(
    ("check", "changes", "advice"),
    [
        (alarm_checks.alarms, {"alarms": [_alarm("ALARM")]}, "see docs/runbooks.md#startererroralarm"),
        (alarm_checks.alarms, {"alarms": [DESCRIBED]}, FIRST_STEP),
        (retry_checks.dead_letters, FAILED_REQUESTS, "see the reasons: slotkeeper dlq list failed."),
    ],
)
def test_a_finding_states_the_first_step(check: Callable[..., Any], changes: dict[str, Any], advice: str) -> None:
    (finding,) = check(facts(**changes))
    assert finding.do.startswith(advice)


def test_the_oldest_retries_are_named_and_a_partial_read_is_a_warning() -> None:
    rows = tuple((f"r{n}", _row(WAITING, NOW - 1000 * n)) for n in range(1, 6))
    findings = seen(retry_checks.overdue, rows=LedgerRows(rows, all_of_them=False))
    assert findings[0] == ("problem", "5 retries should have started, the oldest 1 h 23 min ago: r5, r4, r3, ...")
    assert findings[1][0] == "warn"


def test_overdue_retries_are_only_a_warning_while_a_breaker_may_hold_them_back() -> None:
    late = _row(WAITING, NOW - 1000)
    rows = LedgerRows(
        (("unknown", late), ("mail", replace(late, downstream="mail")), ("maps", replace(late, downstream="maps"))),
        all_of_them=True,
    )
    breaker = rules.force_open(Health(), NOW, "maintenance")
    findings = seen(retry_checks.overdue, rows=rows, downstreams={"mail": breaker, "maps": Health()})
    assert findings == [
        ("problem", "1 retry should have started, the oldest 16 min 40 s ago: maps"),
        (
            "warn",
            "2 retries should have started, the oldest 16 min 40 s ago: mail, unknown. Their messages may be held "
            "back: the breaker is not closed (mail)",
        ),
    ]


def test_a_breaker_that_is_open_for_an_hour_is_a_problem_although_each_probe_renews_its_state() -> None:
    def open_for(age: float) -> Health:
        opened = Change(NOW - age, State.OPEN, "15 of the last 16 calls failed")
        return Health(Breaker(state=State.OPEN, since=NOW - 10, probe_at=NOW + 20, changes=(opened,)))

    assert levels(retry_checks.breakers, downstreams={"mail": open_for(3590)}) == []
    ((level, saw),) = seen(retry_checks.breakers, downstreams={"mail": open_for(3660)})
    assert level == "problem"
    assert "downstream mail: the breaker is OPEN since" in saw
    assert "(1 h 1 min): 15 of the last 16 calls failed; the next probe is due in 20 s" in saw


def test_an_opened_breaker_is_a_warning_that_names_the_operator() -> None:
    opened = rules.force_open(Health(), NOW - 7200, "maintenance", "user/anna")
    ((level, saw),) = seen(retry_checks.breakers, downstreams={"mail": opened})
    assert level == "warn"
    assert ": maintenance, by user/anna; it stays open until" in saw
