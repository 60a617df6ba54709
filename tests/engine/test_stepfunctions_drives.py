"""stepfunctions_drives: a final status, and no call after the end."""

import json
from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.engine.conftest import MachineMaker
from tests.support.waiting import wait_until


def test_an_aborted_execution_makes_no_further_call(
    aws: EmbeddedAws, machine: MachineMaker, faults: Faults, unique: Callable[[str], str]
) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName=unique("after"))["QueueUrl"]
    send = {"Resource": "arn:aws:states:::sqs:sendMessage", "Arguments": {"QueueUrl": url, "MessageBody": "x"}}
    arn = machine(
        {"First": {"Type": "Task", **send, "Next": "Second"}, "Second": {"Type": "Task", **send, "End": True}}
    )
    name = unique("aborted")
    hold = faults.add("First", "hold", execution=name)
    execution = machine.start(arn, name=name)
    wait_until(lambda: faults.fired(hold), "the first call")
    machine.client.stop_execution(executionArn=execution)
    faults.remove(hold)
    # A second execution completes meanwhile, so the first one has had enough time for another call.
    other = machine.start(arn)
    machine.end_of(other)
    assert machine.describe(execution)["status"] == "ABORTED"
    assert machine.history(execution)[-1] == "ExecutionAborted"
    count = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    assert count["Attributes"]["ApproximateNumberOfMessages"] == "2"


def test_a_retry_ends_with_the_execution(machine: MachineMaker) -> None:
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:deleteQueue", "Retry": retry, "End": True}
    arn = machine({"Try": task | {"Arguments": {"QueueUrl": "http://127.0.0.1/none"}}})
    execution, other = machine.start(arn), machine.start(arn)
    wait_until(lambda: "TaskFailed" in machine.history(execution), "a failed attempt")
    machine.client.stop_execution(executionArn=execution, error="Stopped", cause="manually")
    machine.end_of(other)
    description = machine.describe(execution)
    assert (description["status"], description["error"], description["cause"]) == ("ABORTED", "Stopped", "manually")


def test_a_jsonata_succeed_state_has_an_output(machine: MachineMaker) -> None:
    execution = machine.start(
        machine({"Done": {"Type": "Succeed", "Output": {"n": "{% $states.input.a + 1 %}"}}}), {"a": 1}
    )
    description = machine.end_of(execution)
    assert json.loads(description["output"]) == {"n": 2}
