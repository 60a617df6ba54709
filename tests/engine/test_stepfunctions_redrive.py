"""stepfunctions_redrive: an unsuccessful execution continues from its unsuccessful state."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker
from tests.support.waiting import wait_until

SENT = "{% {'count': $states.context.Execution.RedriveCount, 'kept': $kept, 'given': $states.input} %}"


def states_that_need(url: str) -> dict[str, Any]:
    """A state that succeeds, and one that fails until the queue at `url` exists."""
    send = {"QueueUrl": url, "MessageBody": SENT}
    return {
        "Keep": {"Type": "Pass", "Assign": {"kept": "{% $states.input.a %}"}, "Output": {"b": 2}, "Next": "Send"},
        "Send": {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Arguments": send, "End": True},
    }


def test_a_failed_execution_continues_with_the_same_input_and_variables(
    aws: EmbeddedAws, machine: MachineMaker, unique: Callable[[str], str]
) -> None:
    sqs, name = aws.client("sqs"), unique("late")
    url = f"{aws.endpoint}/000000000000/{name}"
    execution = machine.start(machine(states_that_need(url)), {"a": 1})
    failed = machine.end_of(execution)
    assert (failed["status"], failed["redriveStatus"], failed["redriveCount"]) == ("FAILED", "REDRIVABLE", 0)
    sqs.create_queue(QueueName=name)
    machine.client.redrive_execution(executionArn=execution)
    redriven = machine.end_of(execution)
    assert (redriven["status"], redriven["redriveCount"]) == ("SUCCEEDED", 1)
    message = sqs.receive_message(QueueUrl=url)["Messages"][0]
    assert json.loads(message["Body"]) == {"count": 1, "kept": 1, "given": {"b": 2}}
    history = machine.history(execution)
    assert history.count("PassStateEntered") == 1
    assert "ExecutionRedriven" in history


def test_a_redriven_wait_continues_once(machine: MachineMaker) -> None:
    states = {"Wait": {"Type": "Wait", "Seconds": 1, "Next": "Done"}, "Done": {"Type": "Pass", "End": True}}
    execution = machine.start(machine(states))
    wait_until(lambda: "WaitStateEntered" in machine.history(execution), "the wait")
    machine.client.stop_execution(executionArn=execution)
    machine.client.redrive_execution(executionArn=execution)
    description = machine.end_of(execution)
    assert description["status"] == "SUCCEEDED"
    assert machine.history(execution).count("PassStateEntered") == 1


def test_a_successful_execution_is_not_redrivable(machine: MachineMaker) -> None:
    execution = machine.start(machine({"Done": {"Type": "Succeed"}}))
    machine.end_of(execution)
    with pytest.raises(machine.client.exceptions.ExecutionNotRedrivable):
        machine.client.redrive_execution(executionArn=execution)
