"""The doctor's checks, over changed facts of a healthy stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import MalformedHealth, NotRead
from slotkeeper.retry.downstream.health import Breaker, Change, Concurrency, Health, State
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Holder, MalformedProcess
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.doctor import CHECKS, alarm_checks, infrastructure_checks, retry_checks, slot_checks
from slotkeeper_cli.doctor.facts import (
    FunctionSettings,
    HeldSlot,
    LedgerRows,
    RecursionSetting,
    StrandedRequest,
    TableSettings,
    UnpublishedEnds,
)
from slotkeeper_cli.doctor.health_checks import HealthCheck
from tests.cli.doctor_facts import NOW, WHOLE, facts, levels, mapping, process, queue, queued, seen, with_queue


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: HealthCheck) -> None:
    assert seen(check.find) == []


def test_check_names_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 35


def _alarm(state: str, name: str = "StarterErrorAlarm", **more: Any) -> dict[str, Any]:
    return {"LogicalId": name, "StateValue": state, "ActionsEnabled": True, **more}


def _silent(name: str, age: float) -> dict[str, Any]:
    """An alarm of a stack of this age, in ALARM."""
    return {"alarms": [_alarm("ALARM", name, Period=3600)], "stack_age": age}


ROOT = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}
LETS = {
    "Effect": "Allow",
    "Principal": {"Service": ["sns.amazonaws.com", alarm_checks.CLOUDWATCH]},
    "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
}


OF_RULES = {**LETS, "Principal": {"Service": alarm_checks.EVENTBRIDGE}}
OF_LOGS = {**LETS, "Principal": {"Service": alarm_checks.LOG_DELIVERY}, "Action": "kms:Decrypt"}
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
DEAD_LETTERS = {"queues": {"RequestDeadLetterQueue": {"ApproximateNumberOfMessages": "2"}}}


def _work_queue(**policy: Any) -> dict[str, Any]:
    return {"queues": {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=json.dumps(policy))}}


def _mappings(*of_work_queue: dict[str, Any]) -> dict[str, Any]:
    return {"mappings": {**WHOLE["mappings"], "WorkQueue": list(of_work_queue)}}


def _source(queue: str, **changes: Any) -> dict[str, Any]:
    """The event source of a queue, with changes."""
    (own,) = WHOLE["mappings"][queue]
    return {"mappings": {**WHOLE["mappings"], queue: [own | changes]}}


def _worker(most: int | None, reserved: int | None, unreserved: int = 10, wanted: str = "0") -> dict[str, Any]:
    """The event source's concurrency, the reserved one, the account's unreserved one, and WorkerReservedConcurrency."""
    scaling = {} if most is None else {"ScalingConfig": {"MaximumConcurrency": most}}
    return {
        "functions": {"WorkerFunction": FunctionSettings("WorkerFunction", 120, reserved)},
        "mappings": {"WorkQueue": [mapping(**scaling)]},
        "parameters": {"WorkerConcurrency": "3", "WorkerReservedConcurrency": wanted},
        "unreserved_concurrency": unreserved,
    }


INDEXED = TableSettings(True, True, True, frozenset({"place", "open"}))
TABLES = {
    "RequestTable": (TableSettings(indexes=frozenset({"place"})), INDEXED),
    "Plain": 2 * (TableSettings(),),
}
OFF = {"Spare": {"Properties": {"State": "DISABLED"}}}


SHARED = [process(name="a"), process(name="b")]  # with 3 slots each


def _runs(most: int) -> dict[str, Any]:
    return {"processes": SHARED, "jobs": {"job": {"ExecutionProperty": {"MaxConcurrentRuns": most}}}}


def _held(age: float, status: str) -> dict[str, Any]:
    return {"held": [HeldSlot("p", "p-1", age, status)]}


def _unpublished(age: float) -> dict[str, Any]:
    row = RequestRow("p", "p-1", "FAILED", "a", 1, "normal", NOW - 999, open=age - NOW, ended=NOW - age)
    return {"unpublished": [UnpublishedEnds("3", row)]}


def _stranded(age: float) -> dict[str, Any]:
    return {"stranded": [StrandedRequest("p", "p-1", "ABORTED", NOW - age)]}


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
        (alarm_checks.workflow_log_key, _of_stack(ROOT, LETS), ["problem"]),
        (alarm_checks.workflow_log_key, _of_stack(ROOT, LETS, key=""), []),
        (alarm_checks.workflow_log_key, _of_stack(OF_LOGS), []),
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
        (retry_checks.dead_letters, DEAD_LETTERS, ["warn"]),
        (retry_checks.retry_policy, {"retry_policy": None}, ["problem"]),
        (retry_checks.retry_policy, {"retry_policy": "not JSON"}, ["problem"]),
        (retry_checks.retry_policy, {"retry_policy": '{"default": {"max_attempts": 0}}'}, ["problem"]),
        (infrastructure_checks.stack, {"stack_status": "UPDATE_ROLLBACK_FAILED"}, ["problem"]),
        (infrastructure_checks.stack, {"stack_status": "UPDATE_IN_PROGRESS"}, ["warn"]),
        (infrastructure_checks.stack, {"stack_status": "UPDATE_ROLLBACK_COMPLETE"}, []),
        (infrastructure_checks.stack, {"stack_version": "0.0.9"}, ["warn"]),
        (infrastructure_checks.redrive, _work_queue(), ["problem"]),
        (
            infrastructure_checks.redrive,
            _work_queue(deadLetterTargetArn="arn:other", maxReceiveCount=1000),
            ["problem"],
        ),
        (infrastructure_checks.mappings, _mappings(), ["problem"]),
        (infrastructure_checks.mappings, _mappings(mapping(), mapping()), ["problem"]),
        (infrastructure_checks.mappings, _mappings(mapping(State="Disabled")), ["problem"]),
        (infrastructure_checks.mappings, _mappings(mapping(BatchSize=10)), ["problem"]),
        (infrastructure_checks.mappings, _mappings(mapping(FunctionResponseTypes=[])), ["problem"]),
        (infrastructure_checks.stopped_functions, {"functions": {"J": FunctionSettings("J", 300, 0)}}, ["problem"]),
        (infrastructure_checks.recursion, {"recursion": [RecursionSetting("W", "Terminate", "Allow")]}, ["problem"]),
        (infrastructure_checks.mappings, _source("DispatchQueue", BatchSize=1), ["problem"]),
        (infrastructure_checks.starter_concurrency, _source("DispatchQueue", ScalingConfig={}), ["warn"]),
        (
            infrastructure_checks.starter_concurrency,
            _source("DispatchQueue", ScalingConfig={"MaximumConcurrency": 2}),
            ["warn"],
        ),
        (infrastructure_checks.tables, {"tables": TABLES}, ["problem", "problem", "warn", "problem"]),
        (infrastructure_checks.rules, {"rules": {"Spare": "DISABLED"}}, ["problem"]),
        (infrastructure_checks.rules, {"rules": {"Spare": "DISABLED"}, "template": OFF}, []),
        (infrastructure_checks.worker_concurrency, _worker(3, None), []),
        (infrastructure_checks.worker_concurrency, _worker(3, None, wanted="5"), ["warn"]),
        (infrastructure_checks.worker_concurrency, _worker(3, 3, wanted="3"), ["problem"]),
        (infrastructure_checks.worker_concurrency, _worker(None, 5, wanted="5"), ["problem"]),
        (infrastructure_checks.worker_concurrency, _worker(4, 5, wanted="5"), ["warn"]),
        (infrastructure_checks.worker_concurrency, _worker(3, 0), []),  # stopped, which another check reports
        # PutFunctionConcurrency leaves 100 unreserved, and a new account has 10.
        (infrastructure_checks.worker_concurrency, _worker(3, None, unreserved=104), []),
        (infrastructure_checks.worker_concurrency, _worker(3, None, unreserved=105), ["warn"]),
        (slot_checks.malformed, {"processes": []}, ["warn"]),
        (slot_checks.paused, {"processes": [process(paused=True)]}, ["warn"]),
        (slot_checks.paused, {"processes": [process(slot_limit=0)]}, ["warn"]),
        (slot_checks.item_size, {"processes": [process(slot_limit=500)]}, []),
        (slot_checks.concurrency, _runs(5), ["problem"]),
        (slot_checks.concurrency, _runs(6), ["warn"]),
        (slot_checks.concurrency, _runs(7), []),
        (slot_checks.concurrency, {"processes": [process(slot_limit=30, default_weight=4)]}, []),
        (slot_checks.item_size, {"processes": [process(slot_limit=1000, default_weight=4)]}, []),
        (slot_checks.item_size, {"processes": [process(slot_limit=100_000)], "run_seconds": {"job": 50.0}}, ["warn"]),
        (slot_checks.item_size, {"processes": [process(slot_limit=100)], "run_seconds": {"job": 3.0}}, []),
        (slot_checks.item_size, {"processes": [process(slot_limit=150)], "run_seconds": {"job": 3.0}}, ["warn"]),
        (slot_checks.concurrency, {"jobs": {"job": {}}}, ["problem"]),  # Glue's default is one run
        (slot_checks.concurrency, {"jobs": {"job": None}}, []),  # another check reports the missing job
        (slot_checks.timeouts, {"jobs": {"job": {"Timeout": 60}}}, ["warn"]),
        (slot_checks.timeouts, {"jobs": {"job": {"Timeout": 2880}}}, []),
        (slot_checks.closed_holders, _held(86_400, "RUNNING"), []),
        (slot_checks.closed_holders, _held(86_400, "PENDING_REDRIVE"), []),
        (slot_checks.closed_holders, _held(600, "FAILED"), []),  # the janitor may still release it
        (slot_checks.closed_holders, _held(721, "FAILED"), ["problem"]),
        (slot_checks.closed_holders, _held(721, ""), ["problem"]),
        (slot_checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", -5.0)]}, []),
        (slot_checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", 600.0)]}, []),
        (slot_checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", 601.0)]}, ["problem"]),
        (slot_checks.stranded, _stranded(720), []),  # the janitor may still settle it
        (slot_checks.stranded, _stranded(721), ["problem"]),
        (slot_checks.unpublished, _unpublished(300), []),  # the janitor may still publish it
        (slot_checks.unpublished, _unpublished(301), ["problem"]),
        (slot_checks.rows, with_queue(process(), malformed=["request p-1: place is missing"]), ["problem"]),
        (slot_checks.rows, with_queue(process(), queued(), is_cut=True), ["warn"]),
        (slot_checks.timeouts, {"processes": [process(timeout_minutes=481)]}, ["warn"]),
        (slot_checks.concurrency, {"processes": [process(target="arn:m")], "jobs": {}}, []),
        (slot_checks.timeouts, {"processes": [process(target="arn:m")], "jobs": {}}, []),
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
        (retry_checks.dead_letters, DEAD_LETTERS, "RequestDeadLetterQueue contains 2 messages"),
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
        (retry_checks.dead_letters, DEAD_LETTERS, "see the reasons: slotkeeper dlq list request."),
        (infrastructure_checks.mappings, _mappings(), "deploy"),
        (infrastructure_checks.mappings, _mappings(mapping(), mapping()), "delete the others"),
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
        opened = Change(NOW - age, State.OPEN, "18 of the last 18 calls failed")
        return Health(Breaker(state=State.OPEN, since=NOW - 10, probe_at=NOW + 20, changes=(opened,)))

    assert levels(retry_checks.breakers, downstreams={"mail": open_for(3590)}) == []
    ((level, saw),) = seen(retry_checks.breakers, downstreams={"mail": open_for(3660)})
    assert level == "problem"
    assert "downstream mail: the breaker is OPEN since" in saw
    assert "(1 h 1 min): 18 of the last 18 calls failed; the next probe is due in 20 s" in saw


def test_an_opened_breaker_is_a_warning_that_names_the_operator() -> None:
    opened = rules.force_open(Health(), NOW - 7200, "maintenance", "user/anna")
    ((level, saw),) = seen(retry_checks.breakers, downstreams={"mail": opened})
    assert level == "warn"
    assert ": maintenance, by user/anna; it stays open until" in saw


def test_advice_on_reserved_concurrency_names_the_parameter_and_its_value() -> None:
    (finding,) = infrastructure_checks.worker_concurrency(facts(**_worker(3, None, unreserved=1000)))
    assert "WorkerReservedConcurrency=5," in finding.do


HEAVY = Holder("RUNNING", 1, "", None, {}, weight=2)


def _busy(*rows: Any, **changes: Any) -> dict[str, Any]:
    """A process with a limit of 3, of which 2 are in use, with these queued requests."""
    return with_queue(process(holders={"p-1": HEAVY}, slots_in_use=2, **changes), *rows)


@pytest.mark.parametrize(
    ("check", "changes", "finding"),
    [
        (
            infrastructure_checks.visibility,
            {"queues": {**WHOLE["queues"], "RequestQueue": queue("RequestQueue", 179)}},
            ("problem", "RequestQueue has a visibility timeout of 179 s, but StarterFunction may run for 30 s"),
        ),
        (
            infrastructure_checks.redrive,
            _work_queue(deadLetterTargetArn="arn:WorkDeadLetterQueue", maxReceiveCount="5"),
            ("problem", "WorkQueue dead-letters a message after 5 receives"),
        ),
        (
            infrastructure_checks.redrive,
            {"queues": {**WHOLE["queues"], "DispatchQueue": queue("DispatchQueue", 180, "Other")}},
            ("problem", "the dead-letter queue of DispatchQueue is arn:Other, not none"),
        ),
        (
            infrastructure_checks.mappings,
            _source("DispatchQueue", State="Disabled"),
            (
                "problem",
                "the event source mapping of DispatchQueue is Disabled: StarterFunction receives no messages, so the "
                "janitor alone starts what is queued, once a minute",
            ),
        ),
        (
            infrastructure_checks.mappings,
            _source("EndingQueue", State="Disabled"),
            (
                "problem",
                "the event source mapping of EndingQueue is Disabled: EndingFunction receives no messages, so the "
                "janitor alone answers callers and publishes ends, once a minute",
            ),
        ),
        (
            slot_checks.unpublished,
            _unpublished(720),
            (
                "problem",
                "process p: 3 ended and not published, a (FAILED) for 12 min: callers may still wait for their answers",
            ),
        ),
        (
            infrastructure_checks.rules,
            {"rules": {"JanitorFunctionRound": "DISABLED"}},
            ("problem", "rule JanitorFunctionRound is DISABLED: slots of dead holders are not released"),
        ),
        (
            infrastructure_checks.stack_drift,  # operators change the retry policy
            {"drifted": {"WorkQueue": "MODIFIED", "RetryPolicyParameter": "MODIFIED"}},
            ("warn", "WorkQueue is MODIFIED, compared with the template"),
        ),
        (
            slot_checks.malformed,
            with_queue(MalformedProcess("not N", "odd"), *(queued(f"r{number}") for number in range(6))),
            ("problem", "not N: 6 queued (r0, r1, r2, r3, r4, ...) wait"),
        ),
        (
            slot_checks.drift,
            {"processes": [process(slots_in_use=2)]},
            ("problem", "process p: slots_in_use is 2 for 0 holders"),
        ),
        (
            slot_checks.drift,
            {"processes": [process(holders={"p-1": HEAVY}, slots_in_use=1)]},
            ("problem", "process p: slots_in_use is 1 for 1 holder of weight 2"),
        ),
        (
            slot_checks.blocked,
            _busy(queued("a", weight=4), queued("b", weight=5)),
            ("problem", "process p has 2 queued requests above its limit of 3, such as b (weight 5)"),
        ),
        (
            slot_checks.waiting,
            _busy(queued("a", weight=4), queued("b")),
            ("warn", "process p: b has been queued for 5 min: it can start, and a dispatch is about to start it"),
        ),
        (
            slot_checks.waiting,
            _busy(queued(skips=True, weight=3), ring_at=NOW - 61),
            (
                "warn",
                "process p: first (weight 3) has been queued for 5 min: it cannot start now, and is about to be "
                "skipped; a timed ring was due 1 min 1 s ago, and has not come",
            ),
        ),
        (
            slot_checks.deadlines,
            _busy(queued(weight=2, start_before=NOW + 600)),
            (
                "warn",
                "process p: first (weight 2) must start within 10 min, before 2026-09-21 14:23:20 UTC, and waits: "
                "weight 2 does not fit: 2 of 3 in use by 1 holder",
            ),
        ),
        (
            slot_checks.unheld_runs,
            {"unheld_runs": [("job", "jr_1", "p-1")]},
            ("problem", "Glue run jr_1 of job job is alive, but p-1, which started it, holds no slot"),
        ),
        *(
            (
                slot_checks.closed_holders,
                _held(721, status),
                ("problem", f"process p: p-1 has held a slot for 12 min 1 s, but {found}"),
            )
            for status, found in (("FAILED", "its execution is FAILED"), ("", "it has no execution"))
        ),
    ],
)
def test_a_finding_states_what_was_found(
    check: Callable[..., Any], changes: dict[str, Any], finding: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert seen(check, **changes) == [finding]


@pytest.mark.parametrize(
    ("job", "allowed", "expected"),
    [
        (None, {"job"}, "Glue job 'job' does not exist"),
        ({"MaxRetries": 1}, {"job"}, "Glue job job has MaxRetries 1"),
        ({"JobRunQueuingEnabled": True}, {"job"}, "Glue job job has JobRunQueuingEnabled"),
        ({}, {"other"}, "the workflow may not run Glue job job"),
    ],
)
def test_a_job_that_a_process_cannot_use_is_a_problem(job: Any, allowed: set[str], expected: str) -> None:
    assert seen(slot_checks.targets, jobs={"job": job}, allowed_jobs=allowed) == [("problem", f"process p: {expected}")]


def test_a_process_for_leases_needs_no_target() -> None:
    assert seen(slot_checks.targets, processes=[process(target=NO_TARGET)], jobs={NO_TARGET: None}) == []


@pytest.mark.parametrize(
    ("machine", "allowed", "expected"),
    [
        (None, {"arn:m"}, "state machine arn:m does not exist"),
        ({"type": "EXPRESS"}, {"arn:m"}, "state machine arn:m is of type EXPRESS"),
        ({"type": "STANDARD", "status": "DELETING"}, {"arn:*"}, "state machine arn:m is being deleted"),
        ({"type": "STANDARD"}, {"arn:other"}, "the workflow may not start state machine arn:m"),
        (
            {"type": "STANDARD", "encryptionConfiguration": {"kmsKeyId": "arn:key"}},
            {"arn:m"},
            "target arn:m is encrypted with arn:key, which the stack's roles may not use",
        ),
    ],
)
def test_a_state_machine_that_a_process_cannot_use_is_a_problem(machine: Any, allowed: set[str], expected: str) -> None:
    found = {"machines": {"arn:m": machine}, "allowed_machines": allowed, "processes": [process(target="arn:m")]}
    assert seen(slot_checks.targets, **found) == [("problem", f"process p: {expected}")]


LATER = NOW + 86_400


@pytest.mark.parametrize(
    "changes",
    [
        _busy(queued(weight=2)),  # it does not fit
        _busy(queued("a", weight=2), queued("b")),  # behind one that does not fit
        _busy(queued(), paused=True),
        _busy(queued("1")),  # its workflow is being started
        _busy(queued(start_before=LATER, weight=2)),
        with_queue(process(slot_limit=0), queued()),
        with_queue(process(rate=Rate(1, 60), next_start=int(NOW + 30) * 1000), queued()),
    ],
)
def test_a_queued_request_that_cannot_start_yet_is_no_finding(changes: dict[str, Any]) -> None:
    for check in (slot_checks.waiting, slot_checks.blocked, slot_checks.deadlines):
        assert seen(check, **changes) == []
