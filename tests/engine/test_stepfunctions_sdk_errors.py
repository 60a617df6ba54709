"""stepfunctions_sdk_errors: the names that a Catch matches."""

import json
from collections.abc import Callable

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
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


def test_a_task_describes_and_stops_an_execution(machine: MachineMaker) -> None:
    waiting = machine.start(machine({"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}), {"a": 1})
    resource = "arn:aws:states:::aws-sdk:sfn:"
    about = {"ExecutionArn": "{% $states.input.arn %}"}
    task = {"Type": "Task", "Output": "{% $merge([$states.input, {'seen': $states.result}]) %}"}
    states = {
        "Stop": task | {"Resource": f"{resource}stopExecution", "Arguments": about | {"Error": "E"}, "Next": "Read"},
        "Read": task | {"Resource": f"{resource}describeExecution", "Arguments": about, "End": True},
    }
    arn = machine(states)
    closed = machine.end_of(machine.start(arn, {"arn": waiting}))
    seen = json.loads(closed["output"])["seen"]
    assert (seen["Status"], seen["Error"], seen["Input"]) == ("ABORTED", "E", '{"a": 1}')
    assert seen["StopDate"].endswith("Z")
    missing = machine.end_of(machine.start(arn, {"arn": f"{waiting}-missing"}))
    assert missing["error"] == "Sfn.ExecutionDoesNotExistException"


def test_an_error_of_step_functions_without_a_class_has_the_services_name(
    machine: MachineMaker, faults: Faults, unique: Callable[[str], str]
) -> None:
    arn = machine({"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}})
    name = unique("throttled")
    faults.add("StartExecution", "refuse", execution=name, error="ThrottlingException")
    arguments = {"StateMachineArn": arn, "Name": name, "Input": "{}"}
    task = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sfn:startExecution", "Arguments": arguments}
    assert machine.end_of(machine.start(machine({"Start": task | {"End": True}})))["error"] == "Sfn.SfnException"
