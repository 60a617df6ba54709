"""The template's third flow: numbers that came from reasoning, whose loops are allowed, and who may do what."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.config import Config

from slotkeeper import message_attributes
from slotkeeper.clients import QUICK
from slotkeeper.retry.booking import LONGEST_DELAY, SOONEST, RetryQueue
from slotkeeper.retry.consumer import CLOCK_SKEW, RESERVE
from slotkeeper.retry.dead_letters import LONGEST_REASON, DeadLetterQueue
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.ledger import ERROR_LENGTH, HISTORY_LENGTH, KEEP
from slotkeeper.retry.message import Message
from slotkeeper.retry.parameter import parse_policy
from slotkeeper.retry.plan import MOST_ALTOGETHER, History, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN, LONGEST_AGE
from slotkeeper.settings import JanitorSettings, RetrySettings, StarterSettings, WorkSettings
from tests.template.test_template import FUNCTIONS, RESOURCES, ROOT, TEMPLATE

MEBIBYTE = 1_048_576  # SQS guide, "Amazon SQS message quotas": the largest message
DAY = 86_400

WORKER = FUNCTIONS["WorkerFunction"]
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]
ALARMS = {name: r["Properties"] for name, r in RESOURCES.items() if r["Type"] == "AWS::CloudWatch::Alarm"}
TERMINATED = [name for name in FUNCTIONS if name != "WorkerFunction"]


def _properties(name: str) -> Any:
    return RESOURCES[name]["Properties"]


def _source() -> Any:
    return WORKER["Events"]["Work"]["Properties"]


def _variables(function: str) -> Any:
    return {
        **TEMPLATE["Globals"]["Function"]["Environment"]["Variables"],
        **FUNCTIONS[function]["Environment"]["Variables"],
    }


def test_the_outputs_that_others_build_on_are_there() -> None:
    promised = {
        "WorkQueueUrl",
        "WorkDeadLetterQueueUrl",
        "RequestLedgerTableName",
        "WorkerFunctionName",
        "RetryPolicyParameterName",
        "RetryScheduleGroupName",
        "RetryScheduleDeadLetterQueueUrl",
    }
    assert promised <= TEMPLATE["Outputs"].keys()


# ------------------------------------------------------------------------------------------------------------- times


def test_a_message_is_hidden_for_six_times_the_workers_timeout() -> None:
    assert _properties("WorkQueue")["VisibilityTimeout"] == 6 * WORKER["Timeout"]


def test_a_message_that_comes_back_finds_the_lease_of_who_died_over() -> None:
    """Else each such message would be left for another twelve minutes."""
    assert WORKER["Timeout"] + CLOCK_SKEW < _properties("WorkQueue")["VisibilityTimeout"]


def test_the_longest_work_with_its_worst_overrun_can_still_be_noted(s3_client: Config) -> None:
    calls = 3  # the one under way when the time is up, a look whether it took effect, and the clean-up
    assert s3_client.retries["total_max_attempts"] == 1
    hanging = calls * _one_attempt(s3_client)
    assert PARAMETERS["WorkSeconds"]["MaxValue"] + hanging + _all_attempts(QUICK) <= WORKER["Timeout"]


def test_a_schedule_is_still_ahead_of_the_clock_when_the_last_attempt_to_make_it_gets_through() -> None:
    assert _all_attempts(QUICK) + CLOCK_SKEW <= SOONEST


def _all_attempts(client: Config) -> float:
    waits = 1 + 2  # botocore guide, "Retries": standard mode waits at most 2 ** (attempt - 1) seconds
    return client.retries["total_max_attempts"] * _one_attempt(client) + waits


def _one_attempt(client: Config) -> float:
    seconds: float = client.connect_timeout + client.read_timeout
    return seconds


@pytest.fixture
def s3_client(monkeypatch: pytest.MonkeyPatch) -> Config:
    """The settings of the shipped work's client, in a worker that may work for as long as the template allows."""
    folder = ROOT / "functions" / "worker"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DATA_BUCKET_NAME", "bucket")
    monkeypatch.setenv("WORK_SECONDS", str(PARAMETERS["WorkSeconds"]["MaxValue"]))
    spec = importlib.util.spec_from_file_location("work_with_all_its_time", folder / "work.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    settings: Config = module._s3.meta.config
    return settings


def test_an_attempt_gets_the_seconds_that_it_is_promised() -> None:
    """The worker keeps the end of an invocation to itself."""
    assert PARAMETERS["WorkSeconds"]["MaxValue"] + RESERVE < WORKER["Timeout"]


def test_a_delay_is_never_longer_than_sqs_allows() -> None:
    assert PARAMETERS["SchedulerBeyondSeconds"]["MaxValue"] == LONGEST_DELAY


def test_f25_the_ledger_outlives_every_message_of_a_request() -> None:
    """The retries' age, then both queues' retention: a row that went earlier would let a redelivery start anew."""
    queues = ("WorkQueue", "WorkDeadLetterQueue")
    retention = sum(_properties(queue)["MessageRetentionPeriod"] for queue in queues)
    assert LONGEST_AGE + retention + DAY <= KEEP
    ttl = _properties("RequestLedgerTable")["TimeToLiveSpecification"]
    assert ttl == {"AttributeName": "expires_at", "Enabled": True}


def test_f21_the_receive_count_is_a_backstop_only() -> None:
    """What SQS moves by itself carries no reason: days of failing calls come first."""
    allowed = _properties("WorkQueue")["RedrivePolicy"]["maxReceiveCount"]
    assert allowed == 1000  # the most that SQS takes (SQS API Reference, SetQueueAttributes)
    assert allowed * _properties("WorkQueue")["VisibilityTimeout"] > 7 * DAY


# ------------------------------------------------------------------------------------------------------------- sizes


def test_the_worker_knows_the_size_of_its_queue() -> None:
    largest = _properties("WorkQueue")["MaximumMessageSize"]
    assert _variables("WorkerFunction")["WORK_QUEUE_LARGEST_MESSAGE"] == str(largest)


def test_the_largest_request_has_room_for_its_story_and_for_its_redrive() -> None:
    sqs, largest = Mock(), _properties("WorkQueue")["MaximumMessageSize"]
    request = RetryQueue(sqs, Mock(), "url", Mock(), largest=largest).largest_request
    empty = len(Message("r" * 128, {"x": ""}).to_json())
    first = Message("r" * 128, {"x": "x" * (request - empty)})
    message = replace(first, retries=(1.0,) * (MOST_ALTOGETHER - 1))
    history = [
        {"attempt": n, "at": "2026-11-21T09:30:00.000Z", "error": "\U0001f600" * ERROR_LENGTH} for n in range(20)
    ]
    assert (len(first.to_json()), len(history)) == (request, HISTORY_LENGTH)
    letters = DeadLetterQueue(sqs, "url", largest)
    letters.send(message, 1.0, "AttemptsExhausted", "x" * LONGEST_REASON, history)
    sent = sqs.send_message.call_args.kwargs
    assert len(sent["MessageAttributes"]) == 7
    assert message_attributes.size(sent["MessageBody"], sent["MessageAttributes"]) <= largest


def test_whatever_the_queue_takes_finds_room_in_the_dead_letter_queue_with_a_reason() -> None:
    sqs, largest = Mock(), _properties("WorkQueue")["MaximumMessageSize"]
    assert _properties("WorkDeadLetterQueue")["MaximumMessageSize"] == MEBIBYTE
    message = Message("r" * 128, {}, source="x" * largest)
    DeadLetterQueue(sqs, "url", largest).send_unworked(message, "0" * 36, "TooLarge", "x" * 200)
    assert "reason" in sqs.send_message.call_args.kwargs["MessageAttributes"]


# ------------------------------------------------------------------------------------------------ how many at a time


def test_one_message_a_batch_and_failed_items_are_reported() -> None:
    assert (_source()["BatchSize"], _source()["FunctionResponseTypes"]) == (1, ["ReportBatchItemFailures"])


def test_f21_the_event_source_takes_no_more_than_can_run() -> None:
    """More reserved than used at once, or the throttled ones use up receives."""
    assert _source()["ScalingConfig"] == {"MaximumConcurrency": {"Ref": "WorkerConcurrency"}}
    assert PARAMETERS["WorkerConcurrency"]["Default"] == 3
    assert PARAMETERS["WorkerReservedConcurrency"]["Default"] > PARAMETERS["WorkerConcurrency"]["Default"]


def test_an_account_without_concurrency_to_spare_can_leave_it_out() -> None:
    reserved = WORKER["ReservedConcurrentExecutions"]["Fn::If"]
    assert reserved[0] == "HasReservedConcurrency"
    assert reserved[2] == {"Ref": "AWS::NoValue"}
    condition = TEMPLATE["Conditions"]["HasReservedConcurrency"]
    assert condition == {"Fn::Not": [{"Fn::Equals": [{"Ref": "WorkerReservedConcurrency"}, 0]}]}
    assert PARAMETERS["WorkerReservedConcurrency"]["MinValue"] == 0


# --------------------------------------------------------------------------------------------------------- recursion


def test_f27_the_workers_own_retries_are_no_loop_to_be_stopped() -> None:
    """Lambda would drop the 17th hop of a chain that a policy still allows."""
    assert WORKER["RecursiveLoop"] == "Allow"


@pytest.mark.parametrize("name", TERMINATED)
def test_f27_no_other_functions_loops_are_allowed(name: str) -> None:
    assert TEMPLATE["Globals"]["Function"]["RecursiveLoop"] == "Terminate"
    assert "RecursiveLoop" not in FUNCTIONS[name]


def test_f27_the_worker_is_the_only_function_that_may_send_to_what_invokes_it() -> None:
    """Whoever makes another one do so has to think of its setting and of its bounds."""
    senders = []
    for name, function in FUNCTIONS.items():
        sources = {str(e["Properties"].get("Queue")) for e in function.get("Events", {}).values()}
        for statement in _statements(name.removesuffix("Function") + "Role"):
            if "sqs:SendMessage" in _listed(statement["Action"]) and sources & {
                str(r) for r in _listed(statement["Resource"])
            }:
                senders.append(name)
    assert senders == ["WorkerFunction"]


def _dropped_alarms() -> dict[str, Any]:
    """The functions whose dropped invocations are alarmed on, and the alarms."""
    watching = {n: p for n, p in ALARMS.items() if p["MetricName"] == "RecursiveInvocationsDropped"}
    return {properties["Dimensions"][0]["Value"]["Ref"]: (name, properties) for name, properties in watching.items()}


@pytest.mark.parametrize("name", TERMINATED)
def test_f27_a_loop_that_lambda_stopped_is_heard_of(name: str) -> None:
    alarm, properties = _dropped_alarms()[name]
    assert properties["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": name}}]
    assert (properties["Namespace"], properties["Statistic"], properties["Threshold"]) == ("AWS/Lambda", "Sum", 0)
    assert properties["ComparisonOperator"] == "GreaterThanThreshold"
    assert properties["AlarmActions"] == [{"Ref": "FailureTopic"}]
    assert RESOURCES[alarm].get("Condition") == RESOURCES[name].get("Condition")


def test_f28_no_alarm_waits_for_a_metric_that_is_never_written() -> None:
    """Lambda guide, "Types of metrics for Lambda functions": not where loops are allowed."""
    assert "WorkerFunction" not in _dropped_alarms()


def test_f28_the_allowed_loop_is_watched_by_a_metric_of_our_own() -> None:
    alarm = ALARMS["WorkHopsAlarm"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Slotkeeper", "WorkHops", "Maximum")
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


@pytest.mark.parametrize("types", [("Retryable",), ("RateLimited", "Retryable"), ("Died",)])
def test_f28_no_built_in_policy_reaches_the_alarm_for_hops(types: tuple[str, ...]) -> None:
    failure = Failure(types=types, reason="always", retry_after=None, final=False)
    longest = max(len(_attempts(failure, f"request-{number}")) for number in range(300))
    assert longest < ALARMS["WorkHopsAlarm"]["Threshold"]


def _attempts(failure: Failure, key: str) -> tuple[float, ...]:
    """When the attempts of a request begin that always fails so."""
    attempts, uncounted = (0.0,), 0
    while isinstance(plan := plan_retry(failure, History(key, attempts, uncounted), BUILT_IN, attempts[-1]), RetryAt):
        attempts, uncounted = (*attempts, plan.when), uncounted + (not plan.counted)
    return attempts


# ------------------------------------------------------------------------------------------------------------ alarms


@pytest.mark.parametrize(
    "alarm", ["WorkLeftAlarm", "RetryPolicyInvalidAlarm", "RetryScheduleRefusedAlarm", "WorkHopsAlarm"]
)
def test_an_alarm_watches_a_metric_that_the_worker_writes(alarm: str) -> None:
    metric = ALARMS[alarm]["MetricName"]
    assert f'"{metric}"' in (ROOT / "layers" / "slotkeeper" / "slotkeeper" / "retry" / "worker.py").read_text()
    assert ALARMS[alarm]["Dimensions"] == [{"Name": "service", "Value": {"Ref": "AWS::StackName"}}]


@pytest.mark.parametrize("queue", ["WorkDeadLetterQueue", "RetryScheduleDeadLetterQueue"])
def test_a_message_that_is_set_aside_is_heard_of(queue: str) -> None:
    dimensions = [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}]
    (alarm,) = (properties for properties in ALARMS.values() if properties["Dimensions"] == dimensions)
    assert (alarm["MetricName"], alarm["Threshold"]) == ("ApproximateNumberOfMessagesVisible", 0)
    assert alarm["AlarmActions"] == [{"Ref": "FailureTopic"}]


def test_a_retry_that_scheduler_has_dropped_is_heard_of() -> None:
    """Scheduler guide, "Monitoring Amazon EventBridge Scheduler with Amazon CloudWatch": by group."""
    alarm = ALARMS["RetryScheduleLostAlarm"]
    assert alarm["MetricName"] == "InvocationsFailedToBeSentToDeadLetterCount"
    assert (alarm["Namespace"], alarm["Threshold"]) == ("AWS/Scheduler", 0)
    assert alarm["Dimensions"] == [{"Name": "ScheduleGroup", "Value": {"Ref": "RetryScheduleGroup"}}]
    assert alarm["AlarmActions"] == [{"Ref": "FailureTopic"}]


# ------------------------------------------------------------------------------------------------- queues and tables


@pytest.mark.parametrize("name", ["WorkQueue", "WorkDeadLetterQueue", "RetryScheduleDeadLetterQueue"])
def test_the_queues_are_standard_encrypted_long_lived_and_refuse_plain_http(name: str) -> None:
    queue, policy = _properties(name), _properties("QueuePolicy")
    assert "FifoQueue" not in queue
    assert queue["MessageRetentionPeriod"] == 1_209_600
    assert (queue["SqsManagedSseEnabled"]["Fn::If"], queue["KmsMasterKeyId"]["Fn::If"]) == (
        ["HasKey", {"Ref": "AWS::NoValue"}, True],
        ["HasKey", {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}],
    )
    (refusal,) = policy["PolicyDocument"]["Statement"]
    assert {"Ref": name} in policy["Queues"]
    assert {"Fn::GetAtt": [name, "Arn"]} in refusal["Resource"]


def test_what_requests_have_done_outlives_the_stack() -> None:
    table = RESOURCES["RequestLedgerTable"]
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["Properties"]["KeySchema"] == [{"AttributeName": "request_id", "KeyType": "HASH"}]


def test_a_deployment_never_has_a_policy_to_overwrite_the_operators_with() -> None:
    """CloudFormation writes a parameter when the template's value has changed, and so this one never does."""
    assert _properties("RetryPolicyParameter")["Value"] == "{}"
    assert parse_policy(_properties("RetryPolicyParameter")["Value"]) == BUILT_IN


# ------------------------------------------------------------------------------------------------------- permissions


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _statements(role: str) -> Iterator[Any]:
    for policy in _properties(role)["Policies"]:
        yield from (each for each in policy["PolicyDocument"]["Statement"] if "Action" in each)


def _allowed(role: str) -> dict[str, list[Any]]:
    """The resources of every action that a role may do without a key of one's own."""
    found: dict[str, list[Any]] = {}
    for statement in _statements(role):
        for action in _listed(statement["Action"]):
            found.setdefault(action, []).extend(_listed(statement["Resource"]))
    return found


def _arn(text: str) -> Any:
    return {"Fn::Sub": "arn:${AWS::Partition}:" + text}


def test_the_worker_may_do_what_it_does_and_no_more() -> None:
    queue = {"Fn::GetAtt": ["WorkQueue", "Arn"]}
    ledger = {"Fn::GetAtt": ["RequestLedgerTable", "Arn"]}
    here = "${AWS::Region}:${AWS::AccountId}"
    assert _allowed("WorkerRole") == {
        "dynamodb:GetItem": [ledger],
        "dynamodb:UpdateItem": [ledger],
        "sqs:ReceiveMessage": [queue],
        "sqs:DeleteMessage": [queue],
        "sqs:GetQueueAttributes": [queue],
        "sqs:SendMessage": [queue, {"Fn::GetAtt": ["WorkDeadLetterQueue", "Arn"]}],
        "scheduler:CreateSchedule": [_arn(f"scheduler:{here}:schedule/${{RetryScheduleGroup}}/*")],
        "iam:PassRole": [{"Fn::GetAtt": ["RetryScheduleRole", "Arn"]}],
        "ssm:GetParameter": [_arn(f"ssm:{here}:parameter/${{RetryPolicyParameter}}")],
        "s3:GetObject": [{"Fn::Sub": "${DataBucket.Arn}/*"}],
        "s3:PutObject": [{"Fn::Sub": "${DataBucket.Arn}/work/*"}],
        "s3:DeleteObject": [{"Fn::Sub": "${DataBucket.Arn}/work/*"}],
        "s3:ListBucket": [{"Fn::GetAtt": ["DataBucket", "Arn"]}],
        "logs:CreateLogStream": [{"Fn::GetAtt": ["WorkerLogGroup", "Arn"]}],
        "logs:PutLogEvents": [{"Fn::GetAtt": ["WorkerLogGroup", "Arn"]}],
        "xray:PutTraceSegments": ["*"],
        "xray:PutTelemetryRecords": ["*"],
    }


def test_a_role_is_passed_to_scheduler_only() -> None:
    passing = [
        (role, statement["Condition"])
        for role, resource in RESOURCES.items()
        if resource["Type"] == "AWS::IAM::Role"
        for statement in _statements(role)
        if "iam:PassRole" in _listed(statement["Action"])
    ]
    assert passing == [("WorkerRole", {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}})]


def test_only_this_stacks_schedules_may_use_the_role_that_they_send_with() -> None:
    (trust,) = _properties("RetryScheduleRole")["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {
            "aws:SourceAccount": {"Ref": "AWS::AccountId"},
            "aws:SourceArn": {"Fn::GetAtt": ["RetryScheduleGroup", "Arn"]},
        }
    }


def test_a_schedule_may_send_to_the_queue_and_to_its_dead_letter_queue_and_no_more() -> None:
    queues = [{"Fn::GetAtt": [name, "Arn"]} for name in ("WorkQueue", "RetryScheduleDeadLetterQueue")]
    assert _allowed("RetryScheduleRole") == {"sqs:SendMessage": queues}


@pytest.mark.parametrize("role", ["WorkerRole", "RetryScheduleRole"])
def test_a_key_of_ones_own_may_be_used_by_whoever_reads_and_writes_with_it(role: str) -> None:
    policies = json.dumps(_properties(role)["Policies"])
    assert '"Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": {"Ref": "KmsKeyArn"}' in policies


# ------------------------------------------------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        ("WorkerFunction", RetrySettings),
        ("WorkerFunction", WorkSettings),
        ("StarterFunction", StarterSettings),
        ("JanitorFunction", JanitorSettings),
    ],
)
def test_what_a_functions_settings_read_is_set(monkeypatch: pytest.MonkeyPatch, function: str, settings: Any) -> None:
    for name in _variables(function):
        monkeypatch.setenv(name, "1")
    settings.from_environment()


def test_each_function_is_told_of_what_it_uses_only() -> None:
    """A table's name in an environment says to whoever reads it that the function works on that table."""
    told = {name for name in FUNCTIONS if "SLOT_TABLE_NAME" in _variables(name)}
    assert told == {"StarterFunction", "JanitorFunction", "ProcessRegistrarFunction"}
