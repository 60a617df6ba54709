"""stepfunctions_sdk_errors: the names that a Catch matches."""

from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker
from tests.engine.test_sqs_handles import hide, receive, send
from tests.support.waiting import wait_until


def test_a_task_gets_the_error_by_its_exceptions_name(
    aws: EmbeddedAws, fifo: Callable[..., str], machine: MachineMaker
) -> None:
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    handle = receive(sqs, url)["ReceiptHandle"]
    hide(sqs, url, handle, 0)
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:changeMessageVisibility", "End": True}
    arguments = {"QueueUrl": url, "ReceiptHandle": "{% $states.input.handle %}", "VisibilityTimeout": 0}
    arn = machine({"Wake": task | {"Arguments": arguments}})
    visible, unknown = machine.start(arn, {"handle": handle}), machine.start(arn, {"handle": "junk"})
    wait_until(lambda: machine.closed(visible) and machine.closed(unknown), "the executions' end")
    assert machine.describe(visible)["error"] == "Sqs.MessageNotInflightException"
    assert machine.describe(unknown)["error"] == "Sqs.ReceiptHandleIsInvalidException"


def test_the_error_of_an_outdated_handle_names_the_parameter(
    aws: EmbeddedAws, fifo: Callable[..., str], machine: MachineMaker
) -> None:
    """The Java SDK has no class for InvalidParameterValue, so only the cause distinguishes it from other errors."""
    sqs, url = aws.client("sqs"), fifo()
    send(sqs, url)
    older = receive(sqs, url, visibility=0)["ReceiptHandle"]
    deleted = receive(sqs, url)["ReceiptHandle"]
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:changeMessageVisibility", "End": True}
    arguments = {"QueueUrl": url, "ReceiptHandle": "{% $states.input.handle %}", "VisibilityTimeout": 0}
    arn = machine({"Wake": task | {"Arguments": arguments}})
    ended = [machine.end_of(machine.start(arn, {"handle": older}))]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=deleted)
    ended.append(machine.end_of(machine.start(arn, {"handle": deleted})))
    assert [each["error"] for each in ended] == ["Sqs.SqsException"] * 2
    assert all("for parameter ReceiptHandle is invalid" in each["cause"] for each in ended)
