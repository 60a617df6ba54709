"""The doctor's checks over a healthy stack with changes. The urgent ones are in test_attention.py too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper import __version__
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import MalformedHealth, NotRead
from slotkeeper.retry.downstream.health import Breaker, Change, Concurrency, Health, State
from slotkeeper.retry.ledger import FAILED, RUNNING, WAITING, MalformedRow, Row
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Process
from slotkeeper.slots.rows import Listed
from slotkeeper_cli.attention import CHECKS, DRIFT
from slotkeeper_cli.doctor import alarm_checks
from slotkeeper_cli.doctor.alarm_checks import SEND, KeyUser
from slotkeeper_cli.doctor.health_checks import HealthCheck
from slotkeeper_cli.doctor.readings import FunctionSettings
from slotkeeper_cli.process_queue import ProcessQueue, Queues

NOW = 1_790_000_000.0
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
_CHECKS = {check.name: check for check in (*CHECKS, DRIFT)}


def process(**changes: Any) -> Process:
    whole: dict[str, Any] = {"name": "p", "slot_limit": 3, "slots_in_use": 0, "holders": {}, "paused": False}
    return Process(**{**whole, "target": "job", **changes})


def mapping(**changes: Any) -> dict[str, Any]:
    return {"UUID": "uuid", "State": "Enabled", "BatchSize": 10, **changes} | {
        "FunctionResponseTypes": changes.get("FunctionResponseTypes", ["ReportBatchItemFailures"]),
        "ScalingConfig": changes.get("ScalingConfig", {"MaximumConcurrency": 10}),
    }


OF_WORK = mapping(BatchSize=1, ScalingConfig={"MaximumConcurrency": 3})


@dataclass
class HealthyAccount:
    """The account of a healthy stack.

    Args:
        changes: readings by their names that differ: a dict replaces some of a reading's entries.
    """

    changes: Mapping[str, Any]

    def _read(self, name: str, healthy: Any) -> Any:
        changed = self.changes.get(name, healthy)
        return {**healthy, **changed} if isinstance(changed, dict) and isinstance(healthy, dict) else changed

    @property
    def stack(self) -> Any:
        description = {"StackStatus": "UPDATE_COMPLETE", "CreationTime": datetime.fromtimestamp(NOW - 30 * 86400, UTC)}
        settings = {
            "WorkTimeoutMinutes": "480",
            "GraceSeconds": "120",
            "WorkerConcurrency": "3",
            "StarterConcurrency": "10",
        }
        clients = self.changes.get("clients", {})
        return SimpleNamespace(
            description=self._read("description", description),
            parameters=self._read("parameters", settings),
            outputs=self._read(
                "outputs", {"SlotkeeperVersion": __version__, "FailureTopicArn": "topic", "GlueJobName": "job"}
            ),
            not_deployed=(),
            client=clients.get,
        )

    def kept(self, key: tuple[Any, ...], _read: Callable[[], Any], _keeps: float | None = None) -> Any:
        queues = {one.name: ProcessQueue(one.name, one, Listed(), NOW) for one in self.processes()[0]}
        healthy: dict[str, Any] = {
            "functions": {
                "StarterFunction": FunctionSettings(None, "Terminate"),
                "EndingFunction": FunctionSettings(None, "Terminate"),
                "WorkerFunction": FunctionSettings(5, "Allow"),
            },
            "rules": {"JanitorFunctionRound": "ENABLED"},
            "jobs": {"job": {"MaxRetries": 0, "Timeout": 480, "ExecutionProperty": {"MaxConcurrentRuns": 10}}},
            "machines": {},
            "runs_without_slot": [],
            "ledger_rows": ((), True),
            "retry_policy": "{}",
            "unreserved_concurrency": 10,
            "topic_key": "",
            "subscriptions": [{"SubscriptionArn": "arn:aws:sns:...:1", "Endpoint": "us@example.com"}],
            "key_policy": {},
            "queues": Queues(queues, Listed()),
            "open_rows": Listed(),
            "failures": Listed(),
        }
        return self._read(key[1], healthy[key[1]])

    def processes(self) -> Any:
        return self._read("processes", [process()]), []

    def statuses(self, _names: Any) -> Any:
        return {}

    request_ids = statuses

    def usual_seconds(self, target: str) -> float | None:
        return self._read("usual_seconds", {}).get(target)

    def template(self) -> Any:
        whole = {"WorkerFunction": {"RecursiveLoop": "Allow"}}
        return {name: {"Properties": each} for name, each in self._read("template", whole).items()}

    def queues(self) -> Any:
        return self._read(
            "attributes", {name: {} for name in ("RequestQueue", "DispatchQueue", "EndingQueue", "WorkQueue")}
        )

    def event_sources(self, name: str) -> Any:
        return self._read("event_sources", {}).get(name, [OF_WORK if name == "WorkQueue" else mapping()])

    def alarms(self) -> Any:
        return self._read("alarms", [alarm("OK")])

    def downstreams(self) -> Any:
        return self._read("downstreams", {})


def found(check: str, **changes: Any) -> list[str]:
    """The findings of a check over the healthy stack with changes: severity, what, why."""
    account: Any = HealthyAccount(changes)
    return [f"{one.severity}: {one.what}: {one.why}" for one in _CHECKS[check].find(account, NOW)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: HealthCheck) -> None:
    assert found(check.name) == []


def test_check_names_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def alarm(state: str, name: str = "JobAlarm", **more: Any) -> dict[str, Any]:
    return {"LogicalId": name, "StateValue": state, "ActionsEnabled": True, **more}


def _silent(name: str, age: float) -> dict[str, Any]:
    """An alarm in ALARM of a stack of this age."""
    created = datetime.fromtimestamp(NOW - age, UTC)
    return {"alarms": [alarm("ALARM", name, Period=3600)], "description": {"CreationTime": created}}


def _row(status: str, due: float | None = None, lease: float = 0, plan: Any = None, downstream: str = "") -> Row:
    return Row(status, 1, "claim", lease, NOW, "hash", plan, (), due, downstream=downstream)


def _rows(*listed: Any, is_whole: bool = True) -> dict[str, Any]:
    return {"ledger_rows": ([(f"r{number}", row) for number, row in enumerate(listed)], is_whole)}


def _worker(reserved: int | None, unreserved: int = 10, wanted: str = "0") -> dict[str, Any]:
    """The worker's reserved concurrency, the account's unreserved one, and WorkerReservedConcurrency."""
    return {
        "functions": {"WorkerFunction": FunctionSettings(reserved, "Allow")},
        "parameters": {"WorkerReservedConcurrency": wanted},
        "unreserved_concurrency": unreserved,
    }


def _source(name: str, *mappings: dict[str, Any]) -> dict[str, Any]:
    return {"event_sources": {name: list(mappings)}}


def _opened(age: float) -> Health:
    opened = Change(NOW - age, State.OPEN, "18 of the last 18 calls failed")
    return Health(Breaker(state=State.OPEN, since=NOW - 10, probe_at=NOW + 20, changes=(opened,)))


def _of(**changes: Any) -> dict[str, Any]:
    return {"processes": [process(**changes)]}


def _runs(most: int) -> dict[str, Any]:
    return {"ExecutionProperty": {"MaxConcurrentRuns": most}}


CANCELLED = {"code": "Cancelled", "reason": ""}
PENDING = [{"SubscriptionArn": "PendingConfirmation", "Endpoint": "us@example.com"}]
SHARED = [process(name="a"), process(name="b")]  # with 3 slots each
HELD = rules.force_open(Health(), NOW, "maintenance")
MACHINE = {"processes": [process(target="arn:m")], "jobs": {}}


def _machine(machine: Any, allowed: str = "arn:m") -> dict[str, Any]:
    return MACHINE | {"machines": {"arn:m": machine}, "parameters": {"MoreStateMachineArns": allowed}}


FINDINGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("alarms", {"alarms": [alarm("ALARM")]}, ["bad: JobAlarm is in ALARM: First step: see docs/runbooks.md#jobalarm"]),
    # The janitor's alarm treats missing data as breaching, and a new stack has no data of an hour.
    ("alarms", _silent("JanitorSilentAlarm", 600), ["warn: JanitorSilentAlarm is in ALARM: The stack is only 10 min"]),
    ("alarms", _silent("JanitorSilentAlarm", 3600), ["bad: JanitorSilentAlarm is in ALARM"]),
    ("alarms", _silent("StarterErrorAlarm", 600), ["bad: StarterErrorAlarm is in ALARM"]),
    (
        "alarm-data",
        {"alarms": 6 * [alarm("INSUFFICIENT_DATA")]},
        [f"warn: 6 alarms without data: {'JobAlarm, ' * 5}..."],
    ),
    ("alarm-actions", {"alarms": [alarm("OK", ActionsEnabled=False)]}, ["bad: the actions of alarms are disabled"]),
    ("topic", {"subscriptions": []}, ["warn: the alarms' topic has no confirmed subscription"]),
    (
        "topic",
        {"subscriptions": PENDING},
        ["warn: subscription not confirmed yet: us@example.com", "warn: the alarms' topic"],
    ),
    ("keys", {"topic_key": "alias/aws/sns"}, ["bad: the topic is encrypted with alias/aws/sns"]),
    ("keys", {"topic_key": KEY}, [f"bad: the policy of key {KEY} does not let cloudwatch"]),
    (
        "keys",
        {"parameters": {"KmsKeyArn": KEY}},
        [
            f"bad: the policy of key {KEY} does not let events.amazonaws.com use it without a condition: Every status",
            f"bad: the policy of key {KEY} does not let delivery.logs.amazonaws.com use it: The workflow",
        ],
    ),
    ("retries", _rows(_row(WAITING, NOW - 200)), []),
    ("retries", _rows(_row(WAITING, NOW - 400)), ["bad: 1 retry should have started: r0."]),
    ("retries", _rows(_row(RUNNING, lease=NOW - 60)), []),
    ("retries", _rows(_row(RUNNING, lease=NOW - 7200)), ["warn: 1 attempt died without a retry: r0"]),
    ("retries", _rows(_row(FAILED, NOW, plan=CANCELLED)), []),
    ("retries", _rows(_row(FAILED, NOW - 400, plan=CANCELLED)), ["bad: 1 retry should have started"]),
    ("retries", _rows(_row(FAILED, plan={"when": 1, "counted": True})), ["warn: 1 attempt died without a retry"]),
    ("retries", _rows(MalformedRow("item 'r'")), ["bad: item 'r'"]),
    (
        "retries",
        _rows(*(_row(WAITING, NOW - 1000 * n) for n in range(1, 6)), is_whole=False),
        ["bad: 5 retries should have started: r4, r3, r2, ...", "warn: only 200,000 rows"],
    ),
    # They are only a warning while a breaker may hold them back.
    (
        "retries",
        _rows(*(_row(WAITING, NOW - 1000, downstream=each) for each in ("", "mail", "maps")))
        | {"downstreams": {"mail": HELD, "maps": Health()}},
        [
            "bad: 1 retry should have started: r2.",
            "warn: 2 retries should have started, and may be held back: r0, r1. The breaker is not closed (mail)",
        ],
    ),
    (
        "breakers",
        {"downstreams": {"mail": Health(concurrency=Concurrency(limit_set=3)), "maps": Health()}},
        ["warn: downstream mail: an operator has set the limit to 3 callers"],
    ),
    ("breakers", {"downstreams": {"": NotRead("the others are not read")}}, ["warn: the others are not read"]),
    ("breakers", {"downstreams": {"mail": MalformedHealth("item 'mail'")}}, ["bad: item 'mail'; until then"]),
    # Each probe renews its state.
    ("breakers", {"downstreams": {"mail": _opened(3590)}}, ["warn: downstream mail: the breaker is open: 18 of the"]),
    ("breakers", {"downstreams": {"mail": _opened(3660)}}, ["bad: downstream mail: the breaker is open: 18 of the"]),
    ("retry-policy", {"retry_policy": None}, ["bad: the parameter of the retry policy does not exist"]),
    ("retry-policy", {"retry_policy": "not JSON"}, ["bad: the retry policy is invalid"]),
    ("retry-policy", {"retry_policy": '{"default": {"max_attempts": 0}}'}, ["bad: the retry policy is invalid"]),
    ("stack", {"description": {"StackStatus": "UPDATE_ROLLBACK_FAILED"}}, ["bad: the stack is UPDATE_ROLLBACK_FAILED"]),
    ("stack", {"description": {"StackStatus": "UPDATE_IN_PROGRESS"}}, ["warn: the stack is UPDATE_IN_PROGRESS"]),
    ("stack", {"description": {"StackStatus": "UPDATE_ROLLBACK_COMPLETE"}}, []),
    ("stack", {"outputs": {"SlotkeeperVersion": "0.0.9"}}, ["warn: the stack has version 0.0.9"]),
    (
        "event-sources",
        _source("WorkQueue"),
        ["bad: no function receives messages of WorkQueue: deploy the stack again"],
    ),
    ("event-sources", _source("WorkQueue", OF_WORK, OF_WORK), ["bad: WorkQueue has 2 event source mappings"]),
    (
        "event-sources",
        _source("EndingQueue", mapping(State="Disabled")),
        [
            "bad: no function receives messages of EndingQueue: its event source mapping is Disabled: The janitor "
            "alone answers callers and publishes ends, once a minute."
        ],
    ),
    (
        "event-sources",
        _source("WorkQueue", OF_WORK | {"BatchSize": 10}),
        ["bad: the event source of WorkQueue has BatchSize 10, not 1"],
    ),
    (
        "event-sources",
        _source("EndingQueue", mapping(FunctionResponseTypes=[])),
        ["bad: the event source of EndingQueue has FunctionResponseTypes []"],
    ),
    (
        "event-sources",
        _source("DispatchQueue", mapping(ScalingConfig={"MaximumConcurrency": 2})),
        ["warn: the event source of DispatchQueue has MaximumConcurrency 2, not 10: It limits concurrent calls."],
    ),
    ("worker-concurrency", _worker(None), []),
    ("worker-concurrency", _worker(None, wanted="5"), ["warn: the worker has no reserved concurrency, but"]),
    ("worker-concurrency", _worker(3, wanted="3"), ["bad: the worker's reserved concurrency, 3, is not above"]),
    (
        "event-sources",
        _source("WorkQueue", mapping(BatchSize=1, ScalingConfig={})),
        ["bad: the event source of WorkQueue has MaximumConcurrency None, not 3"],
    ),
    ("worker-concurrency", _worker(0), []),  # stopped, which another check reports
    # PutFunctionConcurrency leaves 100 unreserved, and a new account has 10.
    ("worker-concurrency", _worker(None, unreserved=104), []),
    (
        "worker-concurrency",
        _worker(None, unreserved=105),
        [
            "warn: the worker has no reserved concurrency: Lambda throttles it when the account is busy, which uses up "
            "the receives of its messages. Deploy with WorkerReservedConcurrency=5"
        ],
    ),
    (
        "functions",
        {"functions": {"J": FunctionSettings(0, "Terminate")}},
        ["bad: J has a reserved concurrency of 0"],
    ),
    ("recursion", {"functions": {"J": FunctionSettings(1, "Allow")}}, ["bad: J has RecursiveLoop Allow, but"]),
    (
        "rules",
        {"rules": {"JanitorRound": "DISABLED"}},
        ["bad: rule JanitorRound is DISABLED: Slots of dead holders are"],
    ),
    ("rules", {"rules": {"Spare": "DISABLED"}, "template": {"Spare": {"State": "DISABLED"}}}, []),
    ("processes", {"processes": []}, ["warn: there is no process"]),
    ("paused", _of(paused=True), ["warn: process p admits no request: the process is paused"]),
    ("paused", _of(slot_limit=0), ["warn: process p admits no request: the process has no slots"]),
    ("item-size", _of(slot_limit=500), []),
    ("item-size", _of(slot_limit=1000, default_weight=4), []),
    ("item-size", _of(slot_limit=100_000) | {"usual_seconds": {"job": 50.0}}, ["warn: process p with 500 holders is"]),
    ("item-size", _of(slot_limit=100) | {"usual_seconds": {"job": 3.0}}, []),
    ("item-size", _of(slot_limit=150) | {"usual_seconds": {"job": 3.0}}, ["warn: process p with 150 holders is"]),
    *(
        ("job-concurrency", {"processes": SHARED, "jobs": {"job": _runs(most)}}, texts)
        for most, texts in (
            (5, ["bad: Glue job job allows 5 concurrent runs (MaxConcurrentRuns) for 6 slots: Set it above 6."]),
            (6, ["warn: Glue job job allows 6 concurrent runs"]),
            (7, []),
        )
    ),
    ("job-concurrency", _of(slot_limit=30, default_weight=4), []),
    ("job-concurrency", {"jobs": {"job": {}}}, ["bad: Glue job job allows 1 concurrent run "]),  # Glue's default
    ("job-concurrency", {"jobs": {"job": None}}, []),  # another check reports the missing job
    ("job-timeouts", {"jobs": {"job": {"Timeout": 60}}}, ["warn: Glue job job has a timeout of 60 min, but the stack"]),
    ("job-timeouts", {"jobs": {"job": {"Timeout": 2880}}}, []),
    ("job-timeouts", _of(timeout_minutes=481), ["warn: Glue job job has a timeout of 480 min"]),
    ("job-timeouts", MACHINE, []),
    (
        "unheld-runs",
        {"runs_without_slot": [("job", "jr_1", "p-1")]},
        ["bad: Glue run jr_1 of job job is alive, but p-1"],
    ),
    ("targets", _of(target=NO_TARGET), []),
    ("targets", {"jobs": {"job": None}}, ["bad: process p: Glue job 'job' does not exist: create it first"]),
    ("targets", {"jobs": {"job": {"MaxRetries": 1}}}, ["bad: process p: Glue job job has MaxRetries 1"]),
    ("targets", {"outputs": {"GlueJobName": "other"}}, ["bad: process p: the workflow may not run Glue job job"]),
    ("targets", _machine(None), ["bad: process p: state machine arn"]),
    ("targets", _machine({"type": "EXPRESS"}), ["bad: process p: state machine arn"]),
    ("targets", _machine({"type": "STANDARD"}, "arn:other"), ["bad: process p: the workflow may not start"]),
    ("targets", _machine({"type": "STANDARD"}), []),
]


@pytest.mark.parametrize(("check", "changes", "findings"), FINDINGS)
def test_a_finding_states_what_is_wrong(
    check: str, changes: dict[str, Any], findings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    seen = found(check, **changes)
    assert [each[: len(text)] for each, text in zip(seen, findings, strict=True)] == findings


CLOUDWATCH = "cloudwatch.amazonaws.com"
ROOT = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*"}
LETS = {
    "Effect": "Allow",
    "Principal": {"Service": ["sns.amazonaws.com", CLOUDWATCH]},
    "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
}
OF_ACCOUNT = {"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}}}


@pytest.mark.parametrize(
    ("statements", "lets", "unconditionally"),
    [
        ([], False, False),
        (None, False, False),
        ([ROOT], False, False),
        ([ROOT, LETS], True, True),
        (LETS, True, True),
        ([LETS | {"Action": "kms:*"}], True, True),
        ([LETS | {"Principal": "*"}], True, True),
        ([LETS | {"Principal": {"Service": "sns.amazonaws.com"}}], False, False),
        ([LETS | {"Action": "kms:Decrypt"}], False, False),
        ([LETS, LETS | {"Effect": "Deny", "Action": "kms:Decrypt"}], False, False),
        ([LETS | OF_ACCOUNT], True, False),
        ([LETS, LETS | OF_ACCOUNT | {"Effect": "Deny"}], False, False),
    ],
)
def test_a_keys_policy_lets_a_service_use_it(statements: Any, lets: bool, unconditionally: bool) -> None:
    policy = {} if statements is None else {"Statement": statements}
    user = KeyUser(CLOUDWATCH, SEND, "")
    assert alarm_checks.lets(policy, user) is lets
    assert alarm_checks.lets(policy, replace(user, unconditionally=True)) is unconditionally
