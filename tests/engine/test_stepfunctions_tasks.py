"""stepfunctions_tasks: retries, timeouts and limits of a task."""

from collections.abc import Callable

import pytest

from dev.emulator.engine.patches.stepfunctions_tasks import delay
from dev.emulator.faults import Faults
from tests.engine.conftest import MachineMaker

LIST = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:listQueues", "Arguments": {}}
CAUGHT = {"Type": "Pass", "Output": "caught", "End": True}
CATCH_ALL = [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}]


def test_a_timeout_may_be_an_expression(machine: MachineMaker, faults: Faults, unique: Callable[[str], str]) -> None:
    name = unique("timeout")
    states = {"List": LIST | {"TimeoutSeconds": "{% $states.input.limit %}", "End": True}}
    hold = faults.add("List", "hold", execution=name)
    execution = machine.start(machine(states), {"limit": 1}, name)
    assert machine.end_of(execution)["error"] == "States.Timeout"
    faults.remove(hold)


def test_a_delay_has_jitter_and_a_maximum() -> None:
    retrier = {"IntervalSeconds": 60, "BackoffRate": 10, "MaxDelaySeconds": 600}
    assert [delay(retrier, before) for before in range(4)] == [60, 600, 600, 600]
    drawn = [delay(retrier | {"JitterStrategy": "FULL"}, 9) for _ in range(100)]
    assert 0 <= min(drawn) < 300 < max(drawn) <= 600


def test_a_task_is_retried_after_its_delay(machine: MachineMaker, faults: Faults, unique: Callable[[str], str]) -> None:
    name, attempts = unique("jitter"), 6
    retry = {"ErrorEquals": ["Flaky"], "IntervalSeconds": 60, "MaxAttempts": attempts, "BackoffRate": 10}
    states = {"List": LIST | {"Retry": [retry | {"MaxDelaySeconds": 1, "JitterStrategy": "FULL"}], "End": True}}
    faults.add("List", "refuse", execution=name, error="Flaky", times=attempts)
    description = machine.end_of(machine.start(machine(states), name=name))
    assert description["status"] == "SUCCEEDED"  # without the maximum, in months


@pytest.mark.parametrize(
    ("error", "status"),
    [("States.Runtime", "FAILED"), ("Some.Error", "SUCCEEDED")],
)
def test_states_all_matches_every_error_but_those_of_the_runtime(
    machine: MachineMaker, faults: Faults, unique: Callable[[str], str], error: str, status: str
) -> None:
    name = unique("limit")
    faults.add("List", "refuse", execution=name, error=error)
    arn = machine({"List": LIST | {"Catch": CATCH_ALL, "End": True}, "Caught": CAUGHT})
    assert machine.end_of(machine.start(arn, name=name))["status"] == status
