"""The doctor's checks of alarms, their topic, retries and dead-letter queues."""

from __future__ import annotations

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


def test_alarms_in_alarm_without_data_or_with_disabled_actions() -> None:
    def alarm(state: str, enabled: bool = True) -> dict[str, Any]:
        return {"LogicalId": "StarterErrorAlarm", "StateValue": state, "ActionsEnabled": enabled}

    assert levels(alarm_checks.alarms, alarms=[alarm("ALARM")]) == ["problem"]
    assert levels(alarm_checks.alarms, alarms=[alarm("INSUFFICIENT_DATA")]) == ["warn"]
    assert [saw for _, saw in seen(alarm_checks.alarms, alarms=6 * [alarm("INSUFFICIENT_DATA")])] == [
        f"6 alarms without data: {'StarterErrorAlarm, ' * 5}..."
    ]
    assert levels(alarm_checks.silenced, alarms=[alarm("OK", enabled=False)]) == ["problem"]
    (finding,) = alarm_checks.alarms(facts(alarms=[alarm("ALARM")]))
    assert finding.do == "see docs/runbooks.md#startererroralarm"
    described = {
        "AlarmDescription": "The starter failed. First step: read its log. Runbook: https://x#startererroralarm"
    }
    (finding,) = alarm_checks.alarms(facts(alarms=[alarm("ALARM") | described]))
    assert finding.do == "read its log. Runbook: https://x#startererroralarm"


@pytest.mark.parametrize(
    ("alarm", "age", "level"),
    [
        ("JanitorSilentAlarm", 600.0, "warn"),
        ("JanitorSilentAlarm", 3600.0, "problem"),
        ("StarterErrorAlarm", 600.0, "problem"),
    ],
)
def test_the_janitor_alarm_of_a_new_stack_is_a_warning(alarm: str, age: float, level: str) -> None:
    """The alarm treats missing data as breaching, and a new stack has no data of an hour."""
    in_alarm = {"LogicalId": alarm, "StateValue": "ALARM", "ActionsEnabled": True, "Period": 3600}
    ((actual, saw),) = seen(alarm_checks.alarms, alarms=[in_alarm], stack_age=age)
    assert actual == level
    assert ("10 min" in saw) == (level == "warn")


def test_a_topic_without_a_confirmed_subscription() -> None:
    assert levels(alarm_checks.topic, subscriptions=[]) == ["warn"]
    pending = [{"SubscriptionArn": "PendingConfirmation", "Endpoint": "us@example.com"}]
    assert seen(alarm_checks.topic, subscriptions=pending) == [
        ("warn", "subscription not confirmed yet: us@example.com"),
        ("warn", "the alarms' topic has no confirmed subscription"),
    ]


def key_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Statement": list(statements)}


ROOT = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}
LETS = {
    "Effect": "Allow",
    "Principal": {"Service": ["sns.amazonaws.com", alarm_checks.CLOUDWATCH]},
    "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
}


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        (key_policy(ROOT), False),
        (key_policy(ROOT, LETS), True),
        ({"Statement": LETS}, True),
        (key_policy(ROOT, {**LETS, "Action": "kms:*"}), True),
        (key_policy(ROOT, {**LETS, "Principal": "*"}), True),
        (key_policy(ROOT, {**LETS, "Principal": {"Service": "sns.amazonaws.com"}}), False),
        (key_policy(ROOT, {**LETS, "Action": "kms:Decrypt"}), False),
        (key_policy(LETS, {**LETS, "Effect": "Deny", "Action": "kms:Decrypt"}), False),
        ({}, False),
    ],
)
def test_whether_a_keys_policy_lets_alarms_publish(policy: dict[str, Any], may: bool) -> None:
    topic = {"KmsMasterKeyId": "arn:aws:kms:us-east-1:123456789012:key/1"}
    assert levels(alarm_checks.topic_key, topic=topic, key_policy=lambda _: policy) == ([] if may else ["problem"])


OF_RULES = {**LETS, "Principal": {"Service": alarm_checks.EVENTBRIDGE}}
OF_ACCOUNT = {"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (key_policy(ROOT, LETS), ["problem"]),
        (key_policy(ROOT, OF_RULES), []),
        (key_policy(ROOT, OF_RULES | OF_ACCOUNT), ["problem"]),
        (key_policy(ROOT, OF_RULES, OF_RULES | OF_ACCOUNT | {"Effect": "Deny"}), ["problem"]),
    ],
)
def test_whether_a_keys_policy_lets_eventbridge_send_status_events(policy: dict[str, Any], expected: list[str]) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    assert levels(alarm_checks.status_event_key, key=key, key_policy=lambda _: policy) == expected
    assert levels(alarm_checks.status_event_key, key_policy=lambda _: policy) == []


def test_a_topic_with_an_aws_managed_key_is_a_problem() -> None:
    assert levels(alarm_checks.topic_key, topic={"KmsMasterKeyId": "alias/aws/sns"}) == ["problem"]


def row(status: str, due: float | None = None, lease: float = 0, plan: Any = None) -> Row:
    return Row(status, 1, "claim", lease, NOW, "hash", plan, (), due)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (row(WAITING, NOW - 200), []),
        (row(WAITING, NOW - 400), ["problem"]),
        (row(RUNNING, lease=NOW - 60), []),
        (row(RUNNING, lease=NOW - 7200), ["warn"]),
        (row(FAILED, NOW, plan={"code": "Cancelled", "reason": ""}), []),
        (row(FAILED, NOW - 400, plan={"code": "Cancelled", "reason": ""}), ["problem"]),
        (row(FAILED, plan={"when": 1, "counted": True}), ["warn"]),
        (MalformedRow("item 'r'"), ["problem"]),
    ],
)
def test_overdue_retries_are_problems_and_dead_attempts_warnings(listed: Any, expected: list[str]) -> None:
    assert levels(retry_checks.overdue, rows=LedgerRows((("r", listed),), all_of_them=True)) == expected


def test_the_oldest_retries_are_named_and_a_partial_read_is_a_warning() -> None:
    rows = tuple((f"r{n}", row(WAITING, NOW - 1000 * n)) for n in range(1, 6))
    findings = seen(retry_checks.overdue, rows=LedgerRows(rows, all_of_them=False))
    assert findings[0] == (
        "problem",
        "5 retries should have started, the oldest 1 h 23 min ago: r5, r4, r3, ...",
    )
    assert findings[1][0] == "warn"


def test_overdue_retries_are_only_a_warning_while_a_breaker_may_hold_them_back() -> None:
    late = row(WAITING, NOW - 1000)
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


def test_what_operators_have_set_is_a_warning_that_names_them() -> None:
    opened = rules.force_open(Health(), NOW - 7200, "maintenance", "user/anna")
    ((level, saw),) = seen(retry_checks.breakers, downstreams={"mail": opened})
    assert level == "warn"
    assert ": maintenance, by user/anna; it stays open until" in saw
    limited = seen(
        retry_checks.breakers, downstreams={"mail": Health(concurrency=Concurrency(limit_set=3)), "maps": Health()}
    )
    assert limited == [("warn", "downstream mail: an operator has set the limit to 3 callers")]


def test_downstreams_that_are_not_read_are_a_warning() -> None:
    assert seen(retry_checks.breakers, downstreams={"": NotRead("the others are not read")}) == [
        ("warn", "the others are not read")
    ]


def test_a_malformed_item_of_a_downstream_is_a_problem() -> None:
    ((level, saw),) = seen(
        retry_checks.breakers, downstreams={"mail": MalformedHealth("item 'mail': health is missing")}
    )
    assert (level, "item 'mail': health is missing" in saw) == ("problem", True)


@pytest.mark.parametrize("value", [None, "not JSON", '{"default": {"max_attempts": 0}}'])
def test_a_missing_or_invalid_retry_policy_is_a_problem(value: str | None) -> None:
    assert levels(retry_checks.retry_policy, retry_policy=value) == ["problem"]


def test_messages_in_a_dead_letter_queue_are_a_warning() -> None:
    queues = {"FailedRequestQueue": {"ApproximateNumberOfMessages": "2"}}
    assert seen(retry_checks.dead_letters, queues=queues) == [("warn", "FailedRequestQueue contains 2 messages")]
    (finding,) = retry_checks.dead_letters(facts(queues=queues))
    assert finding.do.startswith("see the reasons: slotkeeper dlq list failed.")
