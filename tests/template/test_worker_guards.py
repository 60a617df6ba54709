"""The worker in the template: the allowed recursive loop, and the alarms on failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slotkeeper.retry.errors import Failure
from slotkeeper.retry.plan import AttemptHistory, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN
from tests.template.test_template import FUNCTIONS, RESOURCES, TEMPLATE

WORKER = FUNCTIONS["WorkerFunction"]
ALARMS = {name: r["Properties"] for name, r in RESOURCES.items() if r["Type"] == "AWS::CloudWatch::Alarm"}
TERMINATED = [name for name in FUNCTIONS if name != "WorkerFunction"]


def _properties(name: str) -> Any:
    return RESOURCES[name]["Properties"]


# --------------------------------------------------------------------------------------------------------- recursion


def test_f27_lambda_does_not_stop_the_workers_own_retries() -> None:
    """Lambda would drop the 17th hop of a chain that a policy still allows."""
    assert WORKER["RecursiveLoop"] == "Allow"


@pytest.mark.parametrize("name", TERMINATED)
def test_f27_no_other_function_may_loop(name: str) -> None:
    assert TEMPLATE["Globals"]["Function"]["RecursiveLoop"] == "Terminate"
    assert "RecursiveLoop" not in FUNCTIONS[name]


def test_f27_only_the_worker_may_send_to_the_queue_that_invokes_it() -> None:
    """Another such function needs a setting and a bound for its loop."""
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
    """Function -> name and properties of the alarm on its dropped invocations."""
    watching = {n: p for n, p in ALARMS.items() if p.get("MetricName") == "RecursiveInvocationsDropped"}
    return {properties["Dimensions"][0]["Value"]["Ref"]: (name, properties) for name, properties in watching.items()}


@pytest.mark.parametrize("name", TERMINATED)
def test_f27_an_alarm_rings_when_lambda_stops_a_loop(name: str) -> None:
    alarm, properties = _dropped_alarms()[name]
    assert properties["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": name}}]
    assert (properties["Namespace"], properties["Statistic"], properties["Threshold"]) == ("AWS/Lambda", "Sum", 0)
    assert properties["ComparisonOperator"] == "GreaterThanThreshold"
    assert properties["AlarmActions"] == [{"Ref": "FailureTopic"}]
    assert RESOURCES[alarm].get("Condition") == RESOURCES[name].get("Condition")


def test_f28_no_alarm_uses_a_metric_that_is_never_written() -> None:
    """Lambda guide, "Types of metrics for Lambda functions": it is not written where loops are allowed."""
    assert "WorkerFunction" not in _dropped_alarms()


def test_f28_an_alarm_on_workhops_watches_the_allowed_loop() -> None:
    alarm = ALARMS["WorkHopsAlarm"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Slotkeeper", "WorkHops", "Maximum")
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


# ------------------------------------------------------------------------------------------------------------ alarms


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _statements(role: str) -> Iterator[Any]:
    for policy in _properties(role)["Policies"]:
        yield from (each for each in policy["PolicyDocument"]["Statement"] if "Action" in each)
