"""The doctor's checks, each over facts made by hand: what it passes, what it warns of, what it calls a problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper.processes import Holder, MalformedProcess, Process
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper_cli.doctor import CHECKS, plumbing, slots, watching, work
from slotkeeper_cli.doctor.facts import Function, Held, Rows, Table
from slotkeeper_cli.doctor.findings import Check, Finding
from slotkeeper_cli.recursion import Setting

NOW = 1_790_000_000.0


def process(**changes: Any) -> Process:
    whole: dict[str, Any] = {
        "name": "p",
        "slot_limit": 3,
        "slots_in_use": 0,
        "holders": {},
        "paused": False,
        "job_name": "job",
        "waiting_since": None,
    }
    return Process(**{**whole, **changes})


def mapping(**changes: Any) -> dict[str, Any]:
    return {
        "UUID": "uuid",
        "State": "Enabled",
        "BatchSize": 1,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        **changes,
    }


def queue(name: str, visibility: int, dead: str = "", **more: str) -> dict[str, str]:
    policy = {"deadLetterTargetArn": f"arn:{dead}", "maxReceiveCount": 1000}
    return {
        "QueueArn": f"arn:{name}",
        "VisibilityTimeout": str(visibility),
        **({"RedrivePolicy": json.dumps(policy)} if dead else {}),
        **more,
    }


WHOLE: dict[str, Any] = {
    "now": NOW,
    "stack_status": "UPDATE_COMPLETE",
    "parameters": {"GlueTimeoutMinutes": "480", "GraceSeconds": "120", "WorkerConcurrency": "3"},
    "processes": [process()],
    "jobs": {"job": {"MaxRetries": 0, "Timeout": 480, "ExecutionProperty": {"MaxConcurrentRuns": 10}}},
    "allowed_jobs": {"job"},
    "held": [],
    "execution_status": lambda _name: "",
    "queues": {
        "RequestQueue": queue("RequestQueue", 180, "RequestDeadLetterQueue"),
        "RequestDeadLetterQueue": queue("RequestDeadLetterQueue", 30),
        "WorkQueue": queue("WorkQueue", 720, "WorkDeadLetterQueue"),
        "WorkDeadLetterQueue": queue("WorkDeadLetterQueue", 30),
    },
    "functions": {
        "StarterFunction": Function("StarterFunction", 30, None),
        "WorkerFunction": Function("WorkerFunction", 120, 5),
    },
    "mappings": {
        "RequestQueue": [mapping()],
        "WorkQueue": [mapping(ScalingConfig={"MaximumConcurrency": 3})],
    },
    "recursion": [Setting("WorkerFunction", "w", "Allow", "Allow"), Setting("Starter", "s", "Terminate", "Terminate")],
    "tables": [Table("Ledger", True, True, True, True), Table("Slots", False, False, True, True)],
    "rules": {"JanitorFunctionRound": "ENABLED"},
    "template": {},
    "alarms": [{"LogicalId": "StarterErrorAlarm", "StateValue": "OK", "ActionsEnabled": True}],
    "topic": {},
    "subscriptions": [{"SubscriptionArn": "arn:aws:sns:...:1", "Endpoint": "us@example.com"}],
    "retry_policy": "{}",
    "rows": Rows((), all_of_them=True),
}


def seen(look: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[tuple[str, str]]:
    """Level and what was seen, over whole facts with these changes; each finding says what to do."""
    found = list(look(SimpleNamespace(**{**WHOLE, **changes})))
    assert all(finding.do for finding in found)
    return [(finding.level, finding.saw) for finding in found]


def levels(look: Callable[[Any], Iterable[Finding]], **changes: Any) -> list[str]:
    return [level for level, _ in seen(look, **changes)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: Check) -> None:
    assert seen(check.look) == []


def test_checks_have_names_of_their_own() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 24


# Slots -------------------------------------------------------------------------------------------------------------


def test_a_process_that_cannot_be_read_is_a_problem_and_none_at_all_is_worth_a_word() -> None:
    assert seen(slots.malformed, processes=[MalformedProcess("slot_limit must be N")]) == [
        ("problem", "slot_limit must be N")
    ]
    assert levels(slots.malformed, processes=[]) == ["warn"]


def test_a_counter_that_is_not_the_number_of_holders_is_a_problem() -> None:
    assert seen(slots.drift, processes=[process(slots_in_use=2)]) == [
        ("problem", "process p: slots_in_use is 2 beside 0 holders")
    ]


@pytest.mark.parametrize("change", [{"paused": True}, {"slot_limit": 0}])
def test_a_process_that_admits_nobody_on_purpose_is_worth_a_word(change: dict[str, Any]) -> None:
    assert levels(slots.paused, processes=[process(**change)]) == ["warn"]


@pytest.mark.parametrize(
    ("job", "allowed", "said"),
    [
        (None, {"job"}, "Glue job 'job' does not exist"),
        ({"MaxRetries": 1}, {"job"}, "Glue job job has MaxRetries 1"),
        ({}, {"other"}, "the workflow may not run Glue job job"),
    ],
)
def test_a_job_that_a_process_cannot_use_is_a_problem(job: Any, allowed: set[str], said: str) -> None:
    assert seen(slots.jobs, jobs={"job": job}, allowed_jobs=allowed) == [("problem", f"process p: {said}")]


@pytest.mark.parametrize(("most", "found"), [(5, ["problem"]), (6, ["warn"]), (7, [])])
def test_the_slots_of_the_processes_that_share_a_job_add_up(most: int, found: list[str]) -> None:
    job = {"ExecutionProperty": {"MaxConcurrentRuns": most}}
    shared = [process(name="a"), process(name="b")]
    assert levels(slots.concurrency, processes=shared, jobs={"job": job}) == found


def test_a_job_without_a_word_on_it_allows_one_run_and_one_that_is_missing_is_anothers_business() -> None:
    assert levels(slots.concurrency, jobs={"job": {}}) == ["problem"]
    assert levels(slots.concurrency, jobs={"job": None}) == []


def test_a_job_whose_own_timeout_is_shorter_than_the_stacks_is_worth_a_word() -> None:
    assert levels(slots.timeouts, jobs={"job": {"Timeout": 60}}) == ["warn"]
    assert levels(slots.timeouts, jobs={"job": {"Timeout": 2880}}) == []


@pytest.mark.parametrize(
    ("age", "status", "found"),
    [
        (86_400, "RUNNING", []),
        (86_400, "PENDING_REDRIVE", []),
        (600, "FAILED", []),
        (721, "FAILED", ["problem"]),
        (721, "", ["problem"]),
    ],
)
def test_a_holder_whose_execution_is_over_for_longer_than_the_janitor_takes_is_a_problem(
    age: float, status: str, found: list[str]
) -> None:
    assert levels(slots.closed_holders, held=[Held("p", "p-1", age, status)]) == found


HIDDEN = {"RequestQueue": queue("RequestQueue", 180, ApproximateNumberOfMessagesNotVisible="1")}
WAITER = {"waiting_since": int(NOW) - 300, "waiting_execution": "p-first"}


def test_who_waits_beside_room_is_worth_a_word() -> None:
    assert seen(slots.waiting, queues=HIDDEN, processes=[process(**WAITER)]) == [
        ("warn", "process p has room, and p-first has waited for 5 min")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": [process(**WAITER)]},  # no message is hidden
        {"queues": HIDDEN},  # nobody has ever waited
        {"queues": HIDDEN, "processes": [process(**WAITER, slot_limit=0)]},
        {"queues": HIDDEN, "processes": [process(**WAITER, paused=True)]},
        {"queues": HIDDEN, "processes": [process(**WAITER)], "execution_status": lambda _: "SUCCEEDED"},
        {
            "queues": HIDDEN,
            "processes": [process(**WAITER, holders={"p-first": Holder("RESERVED", 1, "", None, {})}, slots_in_use=1)],
        },
    ],
)
def test_a_registration_that_is_behind_the_times_is_not(changes: dict[str, Any]) -> None:
    assert seen(slots.waiting, **changes) == []


# Plumbing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "found"),
    [("UPDATE_ROLLBACK_FAILED", ["problem"]), ("UPDATE_IN_PROGRESS", ["warn"]), ("UPDATE_ROLLBACK_COMPLETE", [])],
)
def test_a_deployment_that_came_to_no_end(status: str, found: list[str]) -> None:
    assert levels(plumbing.stack, stack_status=status) == found


def test_a_visibility_below_six_times_the_functions_timeout_is_a_problem() -> None:
    queues = {**WHOLE["queues"], "RequestQueue": queue("RequestQueue", 179)}
    assert seen(plumbing.visibility, queues=queues) == [
        ("problem", "RequestQueue hides a message for 179 s, and StarterFunction may take 30 s")
    ]


@pytest.mark.parametrize("policy", [{}, {"deadLetterTargetArn": "arn:other", "maxReceiveCount": 1000}])
def test_a_queue_without_its_dead_letter_queue_is_a_problem(policy: dict[str, Any]) -> None:
    queues = {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=json.dumps(policy))}
    assert levels(plumbing.redrive, queues=queues) == ["problem"]


def test_few_receives_are_a_problem() -> None:
    policy = json.dumps({"deadLetterTargetArn": "arn:WorkDeadLetterQueue", "maxReceiveCount": "5"})
    queues = {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=policy)}
    assert seen(plumbing.redrive, queues=queues)[0][1].startswith("WorkQueue gives a message up after 5 receives")


@pytest.mark.parametrize(
    "found",
    [
        [],
        [mapping(), mapping()],
        [mapping(State="Disabled")],
        [mapping(BatchSize=10)],
        [mapping(FunctionResponseTypes=[])],
    ],
)
def test_an_event_source_that_is_missing_doubled_off_or_set_otherwise_is_a_problem(found: list[dict[str, Any]]) -> None:
    assert levels(plumbing.mappings, mappings={"RequestQueue": [mapping()], "WorkQueue": found}) == ["problem"]


@pytest.mark.parametrize(
    ("most", "reserved", "parameters", "found"),
    [
        (3, None, {"WorkerReservedConcurrency": "0"}, []),
        (3, None, {"WorkerReservedConcurrency": "5"}, ["warn"]),
        (3, 3, {}, ["problem"]),
        (None, 5, {}, ["problem"]),
        (4, 5, {}, ["warn"]),
        (3, 0, {}, []),  # stopped, which another check says
    ],
)
def test_the_workers_concurrency(most: int | None, reserved: int | None, parameters: Any, found: list[str]) -> None:
    scaling = {} if most is None else {"ScalingConfig": {"MaximumConcurrency": most}}
    given = {
        "functions": {"WorkerFunction": Function("WorkerFunction", 120, reserved)},
        "mappings": {"WorkQueue": [mapping(**scaling)]},
        "parameters": {"WorkerConcurrency": "3", **parameters},
    }
    assert levels(plumbing.worker_concurrency, **given) == found


def test_a_function_that_somebody_has_stopped_is_a_problem() -> None:
    functions = {"JanitorFunction": Function("JanitorFunction", 300, 0)}
    assert levels(plumbing.stopped_functions, functions=functions) == ["problem"]


def test_another_recursion_setting_than_the_templates_is_a_problem() -> None:
    found = [Setting("WorkerFunction", "w", "Terminate", "Allow")]
    assert levels(plumbing.recursion, recursion=found) == ["problem"]


def test_a_table_that_does_not_expire_or_cannot_be_restored_as_it_should_is_a_problem() -> None:
    found = [Table("Ledger", False, True, False, True), Table("Plain", False, False, False, False)]
    assert levels(plumbing.tables, tables=found) == ["problem", "problem"]


def test_a_rule_that_is_off_is_a_problem_unless_the_template_has_it_so() -> None:
    assert seen(plumbing.rules, rules={"JanitorFunctionRound": "DISABLED"})[0][1].endswith("stay taken")
    template = {"Spare": {"Properties": {"State": "DISABLED"}}}
    assert seen(plumbing.rules, rules={"Spare": "DISABLED"}, template=template) == []


def test_what_cloudformation_finds_changed_is_worth_a_word() -> None:
    drifted = {"WorkQueue": "MODIFIED", "RetryPolicyParameter": "MODIFIED"}  # whose policy is the operators' own
    assert seen(plumbing.stack_drift, drifted=drifted) == [
        ("warn", "WorkQueue is MODIFIED, compared with the template")
    ]


# Who is woken ------------------------------------------------------------------------------------------------------


def test_alarms_that_ring_that_have_no_data_and_that_wake_nobody() -> None:
    def alarm(state: str, enabled: bool = True) -> dict[str, Any]:
        return {"LogicalId": "StarterErrorAlarm", "StateValue": state, "ActionsEnabled": enabled}

    assert levels(watching.alarms, alarms=[alarm("ALARM")]) == ["problem"]
    assert levels(watching.alarms, alarms=[alarm("INSUFFICIENT_DATA")]) == ["warn"]
    assert levels(watching.silenced, alarms=[alarm("OK", enabled=False)]) == ["problem"]
    (ringing,) = watching.alarms(SimpleNamespace(alarms=[alarm("ALARM")]))  # type: ignore[arg-type]
    assert ringing.do == "docs/runbooks.md#startererroralarm"


def test_a_topic_that_nobody_hears() -> None:
    assert levels(watching.topic, subscriptions=[]) == ["warn"]
    pending = [{"SubscriptionArn": "PendingConfirmation", "Endpoint": "us@example.com"}]
    assert seen(watching.topic, subscriptions=pending) == [
        ("warn", "not confirmed yet: us@example.com"),
        ("warn", "nobody hears of alarms"),
    ]


def key_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Statement": list(statements)}


ROOT = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}
LETS = {
    "Effect": "Allow",
    "Principal": {"Service": ["sns.amazonaws.com", watching.CLOUDWATCH]},
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
    assert levels(watching.topic_key, topic=topic, topic_key_policy=policy) == ([] if may else ["problem"])


def test_the_key_that_aws_manages_lets_no_alarm_publish() -> None:
    assert levels(watching.topic_key, topic={"KmsMasterKeyId": "alias/aws/sns"}) == ["problem"]


# Retries -----------------------------------------------------------------------------------------------------------


def row(status: str, due: float | None = None, lease: float = 0, plan: Any = None) -> Row:
    return Row(status, 1, "claim", lease, NOW, "hash", plan, (), due)


@pytest.mark.parametrize(
    ("found", "expected"),
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
def test_retries_that_are_overdue_and_attempts_that_nobody_took_up(found: Any, expected: list[str]) -> None:
    assert levels(work.overdue, rows=Rows((("r", found),), all_of_them=True)) == expected


def test_a_few_are_named_the_oldest_first_and_a_look_that_was_cut_short_says_so() -> None:
    found = tuple((f"r{n}", row(WAITING, NOW - 1000 * n)) for n in range(1, 6))
    told = seen(work.overdue, rows=Rows(found, all_of_them=False))
    assert told[0] == (
        "problem",
        "5 retries should have begun, the oldest 1 h 23 min ago: r5, r4, r3, ...",
    )
    assert told[1][0] == "warn"


@pytest.mark.parametrize("value", [None, "not JSON", '{"default": {"max_attempts": 0}}'])
def test_a_retry_policy_that_does_not_hold_is_a_problem(value: str | None) -> None:
    assert levels(work.retry_policy, retry_policy=value) == ["problem"]


def test_what_lies_in_the_queues_that_nobody_works_on_is_worth_a_word() -> None:
    queues = {"FailedRequestQueue": {"ApproximateNumberOfMessages": "2"}}
    assert seen(work.dead_letters, queues=queues) == [("warn", "FailedRequestQueue holds 2 messages")]
