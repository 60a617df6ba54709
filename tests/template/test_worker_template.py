"""The worker in the template: relations between its numbers, its settings, its allowed loop and the alarms on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry.consumer import RESERVED_SECONDS
from slotkeeper.retry.delivery import (
    MAX_DELAY_SECONDS,
    MAX_REASON_CHARACTERS,
    MIN_SCHEDULE_AHEAD_SECONDS,
    DeadLetterQueue,
    RetryQueue,
)
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.ledger import MAX_ERROR_CHARACTERS, MAX_HISTORY_ENTRIES, RETENTION_SECONDS
from slotkeeper.retry.message import Message
from slotkeeper.retry.plan import MAX_TOTAL_ATTEMPTS, AttemptHistory, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN, MAX_AGE_SECONDS, parse_policy
from slotkeeper.retry.worker import CLIENT_CONFIG
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from tests.template.client_configs import longest_call
from tests.template.test_template import FUNCTIONS, RESOURCES, TEMPLATE, properties, statements
from tests.template.watched import ALARMS, STACK

MEBIBYTE = 1_048_576  # SQS guide, "Amazon SQS message quotas": the largest message
DAY = 86_400

WORKER = FUNCTIONS["WorkerFunction"]
LOOPING = ("StarterFunction", "WorkerFunction")
TERMINATED = [name for name in FUNCTIONS if name not in LOOPING]
PARAMETERS: dict[str, Any] = TEMPLATE["Parameters"]


def _variables(function: str) -> Any:
    return {
        **TEMPLATE["Globals"]["Function"]["Environment"]["Variables"],
        **FUNCTIONS[function]["Environment"]["Variables"],
    }


# ------------------------------------------------------------------------------------------------------------- times


def test_the_lease_of_a_dead_worker_has_expired_when_its_message_returns() -> None:
    """Otherwise each such message would be left for another twelve minutes."""
    assert WORKER["Timeout"] + CLOCK_SKEW_SECONDS < properties("WorkQueue")["VisibilityTimeout"]


def test_a_schedules_time_is_in_the_future_even_after_the_last_attempt_to_create_it() -> None:
    assert longest_call(CLIENT_CONFIG) + CLOCK_SKEW_SECONDS <= MIN_SCHEDULE_AHEAD_SECONDS


def test_an_attempt_gets_its_maximum_seconds() -> None:
    """The worker reserves the end of an invocation for its own calls."""
    assert PARAMETERS["WorkSeconds"]["MaxValue"] + RESERVED_SECONDS < WORKER["Timeout"]


def test_a_delay_is_never_longer_than_sqs_allows() -> None:
    assert PARAMETERS["SchedulerBeyondSeconds"]["MaxValue"] == MAX_DELAY_SECONDS


def test_f25_the_ledger_outlives_every_message_of_a_request() -> None:
    """The retries' age, then both queues' retention: without its row, a redelivery would start again."""
    queues = ("WorkQueue", "WorkDeadLetterQueue")
    retention = sum(properties(queue)["MessageRetentionPeriod"] for queue in queues)
    assert MAX_AGE_SECONDS + retention + DAY <= RETENTION_SECONDS
    ttl = properties("RequestLedgerTable")["TimeToLiveSpecification"]
    assert ttl == {"AttributeName": "expires_at", "Enabled": True}


def test_f21_the_receive_count_is_a_backstop_only() -> None:
    """SQS dead-letters without a reason, so days of failing calls must come first."""
    allowed = properties("WorkQueue")["RedrivePolicy"]["maxReceiveCount"]
    assert allowed == 1000  # the maximum of SQS (SQS API Reference, SetQueueAttributes)
    assert allowed * properties("WorkQueue")["VisibilityTimeout"] > 7 * DAY


# ------------------------------------------------------------------------------------------------------------- sizes


def test_the_workers_setting_is_the_queues_maximum_message_size() -> None:
    largest = properties("WorkQueue")["MaximumMessageSize"]
    assert _variables("WorkerFunction")["WORK_QUEUE_LARGEST_MESSAGE"] == str(largest)


def test_the_largest_request_fits_the_queues_with_its_history_and_after_a_redrive() -> None:
    sqs, largest = Mock(), properties("WorkQueue")["MaximumMessageSize"]
    request = RetryQueue(sqs, Mock(), "url", Mock(), max_message_bytes=largest).max_request_bytes
    empty = len(Message("r" * 128, {"x": ""}).to_json())
    first = Message("r" * 128, {"x": "x" * (request - empty)})
    message = replace(first, retries=(1.0,) * (MAX_TOTAL_ATTEMPTS - 1))
    history = [
        {"attempt": n, "at": "2026-11-21T09:30:00.000Z", "error": "\U0001f600" * MAX_ERROR_CHARACTERS}
        for n in range(20)
    ]
    assert (len(first.to_json()), len(history)) == (request, MAX_HISTORY_ENTRIES)
    dead_letters = DeadLetterQueue(sqs, "url", largest)
    dead_letters.send(message, 1.0, "AttemptsExhausted", "x" * MAX_REASON_CHARACTERS, history)
    sent = sqs.send_message.call_args.kwargs
    assert len(sent["MessageAttributes"]) == 7
    assert message_attributes.size(sent["MessageBody"], sent["MessageAttributes"]) <= largest


def test_every_message_of_the_queue_fits_the_dead_letter_queue_with_a_reason() -> None:
    sqs, largest = Mock(), properties("WorkQueue")["MaximumMessageSize"]
    assert properties("WorkDeadLetterQueue")["MaximumMessageSize"] == MEBIBYTE
    message = Message("r" * 128, {}, source="x" * largest)
    DeadLetterQueue(sqs, "url", largest).send_unworked(message, "0" * 36, "TooLarge", "x" * 200)
    assert "reason" in sqs.send_message.call_args.kwargs["MessageAttributes"]


# ------------------------------------------------------------------------------------------------- queues and tables


def test_a_deployment_does_not_overwrite_the_operators_policy() -> None:
    """CloudFormation writes a parameter only if the template's value changes, and this value is constant."""
    assert properties("RetryPolicyParameter")["Value"] == "{}"
    assert parse_policy(properties("RetryPolicyParameter")["Value"]) == BUILT_IN


# ------------------------------------------------------------------------------------------------------- environment


def test_a_function_has_only_the_variables_that_it_uses() -> None:
    """A table's name in an environment suggests that the function uses the table.

    A function without a variable that it reads fails when its calls are recorded (tests/template/roles).
    """
    functions = {name for name in FUNCTIONS if "SLOT_TABLE_NAME" in _variables(name)}
    assert functions == {"StarterFunction", "JanitorFunction", "EndingFunction", "ProcessRegistrarFunction"}


# --------------------------------------------------------------------------------------------------------- recursion


def test_f27_lambda_stops_the_loops_of_all_functions_but_two() -> None:
    """Of the worker it would drop the 17th hop of a chain that a policy still allows, of the starter a wake."""
    assert TEMPLATE["Globals"]["Function"]["RecursiveLoop"] == "Terminate"
    assert {
        name: each["RecursiveLoop"] for name, each in FUNCTIONS.items() if "RecursiveLoop" in each
    } == dict.fromkeys(LOOPING, "Allow")


def test_f27_only_these_functions_may_send_to_a_queue_that_invokes_them() -> None:
    """Another such function needs a setting and a bound for its loop."""
    senders = []
    for name, function in FUNCTIONS.items():
        sources = {str(e["Properties"].get("Queue")) for e in function.get("Events", {}).values()}
        for statement in statements(name.removesuffix("Function") + "Role"):
            resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
            if "sqs:SendMessage" in statement["Action"] and sources & set(map(str, resources)):
                senders.append(name)
    assert senders == list(LOOPING)


def _dropped_alarms() -> dict[str, Any]:
    """Function -> name and properties of the alarm on its dropped invocations."""
    watching = {n: p for n, p in ALARMS.items() if p.get("MetricName") == "RecursiveInvocationsDropped"}
    return {properties["Dimensions"][0]["Value"]: (name, properties) for name, properties in watching.items()}


@pytest.mark.parametrize("name", TERMINATED)
def test_f27_an_alarm_rings_when_lambda_stops_a_loop(name: str) -> None:
    alarm, properties = _dropped_alarms()[name]
    assert properties["Dimensions"] == [{"Name": "FunctionName", "Value": name}]
    assert (properties["Namespace"], properties["Statistic"], properties["Threshold"]) == ("AWS/Lambda", "Sum", 0)
    assert properties["ComparisonOperator"] == "GreaterThanThreshold"
    assert properties["AlarmActions"] == [STACK.arn("FailureTopic")]
    assert RESOURCES[alarm].get("Condition") == RESOURCES[name].get("Condition")


@pytest.mark.parametrize("metric", ["DispatchChain", "WorkHops"])
def test_f28_an_alarm_on_its_length_watches_an_allowed_loop_instead(metric: str) -> None:
    """Lambda guide, "Types of metrics for Lambda functions": the other one is not written where loops are allowed."""
    assert not _dropped_alarms().keys() & set(LOOPING)
    alarm = ALARMS[f"{metric}Alarm"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Slotkeeper", metric, "Maximum")
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"


@pytest.mark.parametrize("types", [("Retryable",), ("RateLimited", "Retryable"), ("Died",)])
def test_f28_no_built_in_policy_reaches_the_alarm_for_hops(types: tuple[str, ...]) -> None:
    failure = Failure(types=types, reason="always", retry_after=None, final=False)
    longest = max(len(_attempts(failure, f"request-{number}")) for number in range(300))
    assert longest < ALARMS["WorkHopsAlarm"]["Threshold"]


def _attempts(failure: Failure, key: str) -> tuple[float, ...]:
    """The start times of the attempts of a request that always fails with these errors."""
    attempts, uncounted = (0.0,), 0
    while isinstance(
        plan := plan_retry(failure, AttemptHistory(key, attempts, uncounted), BUILT_IN, attempts[-1]), RetryAt
    ):
        attempts, uncounted = (*attempts, plan.when), uncounted + (not plan.counted)
    return attempts
