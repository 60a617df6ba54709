"""stepfunctions_start: a repeated start of a running execution."""

from collections.abc import Callable

import pytest

from tests.engine.conftest import MachineMaker

WAIT = {"Type": "Wait", "Seconds": 60, "End": True}


def test_the_same_name_and_input_is_the_same_execution(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    arn, name = machine({"Wait": WAIT}), unique("same")
    assert machine.start(arn, {"a": 1}, name) == machine.start(arn, {"a": 1}, name)


def test_another_input_is_refused(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    arn, name = machine({"Wait": WAIT}), unique("other")
    machine.start(arn, {"a": 1}, name)
    with pytest.raises(machine.client.exceptions.ExecutionAlreadyExists):
        machine.start(arn, {"a": 2}, name)


def test_a_closed_execution_is_not_started_again(machine: MachineMaker, unique: Callable[[str], str]) -> None:
    arn, name = machine({"Done": {"Type": "Succeed"}}), unique("closed")
    execution = machine.start(arn, {"a": 1}, name)
    machine.end_of(execution)
    with pytest.raises(machine.client.exceptions.ExecutionAlreadyExists):
        machine.start(arn, {"a": 1}, name)
