"""injected_faults: each action at a task's call and at StartExecution."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Action, Faults
from tests.engine.conftest import MachineMaker


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("lose_answer", ("FAILED", "1")),
        ("refuse", ("FAILED", "0")),
        ("abort_before", ("ABORTED", "0")),
        ("abort_after", ("ABORTED", "1")),
        ("delay", ("SUCCEEDED", "1")),
        ("late", ("SUCCEEDED", "1")),
    ],
)
def test_a_tasks_call(
    aws: EmbeddedAws, machine: MachineMaker, faults: Faults, action: Action, outcome: tuple[str, str]
) -> None:
    sqs, name = aws.client("sqs"), f"fault-{action}"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    task = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "End": True}
    arn = machine({"Send": task | {"Arguments": {"QueueUrl": url, "MessageBody": "x"}}})
    rule = faults.add("Send", action, execution=name, error="Sqs.AnyError", seconds=0.1)
    execution = machine.start(arn, name=name)
    machine.end_of(execution)
    count = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    sent = count["Attributes"]["ApproximateNumberOfMessages"]
    assert (machine.describe(execution)["status"], sent) == outcome
    assert faults.met(rule) == [f"fault-{action}"]


def test_a_lost_answer_of_start_execution(machine: MachineMaker, faults: Faults, unique: Callable[[str], str]) -> None:
    arn, name = machine({"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}), unique("lost")
    faults.add("StartExecution", "lose_answer", execution=name)
    with pytest.raises(ClientError, match="InternalFailure"):
        machine.start(arn, {}, name)
    assert machine.describe(machine.start(arn, {}, name))["status"] == "RUNNING"


def test_a_refused_start_execution(machine: MachineMaker, faults: Faults, unique: Callable[[str], str]) -> None:
    arn, name = machine({"Done": {"Type": "Succeed"}}), unique("refused")
    faults.add("StartExecution", "refuse", execution=name, error="ExecutionLimitExceeded")
    with pytest.raises(machine.client.exceptions.ExecutionLimitExceeded):
        machine.start(arn, {}, name)
    with pytest.raises(machine.client.exceptions.ExecutionDoesNotExist):
        machine.describe(arn.replace(":stateMachine:", ":execution:") + f":{name}")
