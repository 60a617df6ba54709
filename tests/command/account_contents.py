"""What is in the account of the operator's tests: dead letters, rows of the ledger, edited items, refused requests."""

from __future__ import annotations

import json
from typing import Any

from slotkeeper.aws.sqs import text
from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.ledger import Claimed, Ledger
from slotkeeper.retry.message import Message
from slotkeeper.slots.queues import RequestDeadLetterQueue
from slotkeeper.slots.request import Delivery
from slotkeeper.slots.targets import execution_arn
from tests.command.operator_account import NOW, Operator

# Sets the window's title, adds a line, hides what follows (CSI in one character), and reverses its direction.
HOSTILE = "\x1b]0;owned\x07\nFORGED\u009b8m\u202e"


def is_harmless(printed: str) -> bool:
    """Whether HOSTILE has no effect where this is printed."""
    lines = [line.strip() for line in printed.split("\n")]
    return all(line.isprintable() and not line.startswith("FORGED") for line in lines)


def send_dead_letter(
    operator: Operator, body: str = "not JSON", message_id: str = "m-1", sequence: int = 1, code: str = "InvalidRequest"
) -> None:
    """Send a message that is no request to RequestDeadLetterQueue, as the starter does.

    Args:
        sequence: seconds after which it was sent.
    """
    delivery = Delivery(message_id, body, "sample", str(sequence), NOW + sequence)
    queue = RequestDeadLetterQueue(operator.sqs, operator.outputs["RequestDeadLetterQueueUrl"])
    queue.add(delivery, code, f"because of {code}")


def move_by_sqs(operator: Operator, body: str, **attributes: str) -> str:
    """Move a request as SQS itself does, in its own message group and without further attributes; return its id."""
    sent = operator.sqs.send_message(
        QueueUrl=operator.outputs["RequestDeadLetterQueueUrl"],
        MessageBody=body,
        MessageGroupId="sample",
        MessageDeduplicationId=str(hash(body)),
        MessageAttributes={name: text(value, 8000) for name, value in attributes.items()},
    )
    return str(sent["MessageId"])


def fail(
    operator: Operator,
    request_id: str = "a",
    cause: str = "the job failed",
    process: str = "sample",
    **fields: Any,
) -> str:
    """Let a request run and fail, as its workflow does, and its end be published; return the execution's name."""
    name = operator.hold(request_id, process, **fields)
    return fail_held(operator, name, cause, process)


def fail_held(operator: Operator, name: str, cause: str = "the job failed", process: str = "sample") -> str:
    """Let a request that holds a slot fail; return the execution's name."""
    operator.fail(name, "Glue.Failed", cause, process)
    operator.release(name, process)
    arn = execution_arn(operator.outputs["WorkflowArn"], name)
    operator.end(arn, "FAILED", error="RequestFailed", cause=cause)
    operator.publish(name, process)
    return name


def succeed(operator: Operator, request_id: str = "a", process: str = "sample", **fields: Any) -> str:
    """Let a request run and succeed; return the execution's name."""
    name = operator.hold(request_id, process, **fields)
    operator.succeed(name, process)
    operator.release(name, process)
    operator.end(execution_arn(operator.outputs["WorkflowArn"], name), "SUCCEEDED")
    operator.publish(name, process)
    return name


def job_run(message: str) -> str:
    """The cause of a failed Glue run, as Step Functions returns it: the JobRun."""
    run = {"Arguments": {"--month": "13"}, "ErrorMessage": message, "Id": "jr_1", "JobRunState": "FAILED"}
    return json.dumps(run, separators=(",", ":"))


def give_up(operator: Operator, request_id: str = "w", code: str = "AttemptsExhausted") -> None:
    """Dead-letter work after its second attempt."""
    queue = DeadLetterQueue(operator.sqs, operator.outputs["WorkDeadLetterQueueUrl"])
    message = Message(request_id, {"n": 1}, (1_790_000_000.0,))
    queue.send(message, 1_790_000_060.0, code, "it failed", [])


def start_work(operator: Operator, message: Message, at: float, downstream: str = "default") -> tuple[Ledger, Claimed]:
    """Let the worker start a request's first attempt."""
    ledger = Ledger(operator.dynamodb, operator.outputs["RequestLedgerTableName"])
    claimed = ledger.claim(message, f"claim of {message.request_id}", at, 125, downstream)
    assert isinstance(claimed, Claimed)
    return ledger, claimed


def retry_work(
    operator: Operator, message: Message, at: float, due: float, error: str = "HTTP 503", downstream: str = "default"
) -> None:
    """Let a request's first attempt fail, so that it waits for the next one."""
    ledger, claimed = start_work(operator, message, at, downstream)
    ledger.record(message, claimed, {"when": due, "counted": True}, error, error.partition(":")[0])
    ledger.settle_waiting(message, claimed, due)


def waiting(operator: Operator, queue: str) -> list[dict[str, Any]]:
    """The visible messages of a queue."""
    answer = operator.sqs.receive_message(
        QueueUrl=operator.outputs[f"{queue}Url"],
        MaxNumberOfMessages=10,
        VisibilityTimeout=0,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    )
    return list(answer.get("Messages", []))


def only_id(operator: Operator, queue: str) -> str:
    """The message id of the one message of a queue."""
    (dead_letter,) = waiting(operator, queue)
    return str(dead_letter["MessageId"])


def stored(operator: Operator, process: str = "sample") -> dict[str, Any]:
    """The item of a process, in DynamoDB's format."""
    return operator.processes.read_item(process)


def edit(operator: Operator, path: str, value: dict[str, Any] | None, process: str = "sample") -> None:
    """Replace an attribute of an item, as with the AWS CLI; None removes it."""
    item = stored(operator, process)
    *above, last = path.split("/")
    within = item
    for key in above:
        within = within[key]["M"]
    if value is None:
        del within[last]
    else:
        within[last] = value
    operator.dynamodb.put_item(TableName=operator.outputs["SlotTableName"], Item=item)


def set_in_row(operator: Operator, execution: str, process: str = "sample", **values: dict[str, str]) -> None:
    """Replace attributes of a request's row, each given in DynamoDB's format."""
    operator.dynamodb.update_item(
        TableName=operator.outputs["RequestTableName"],
        Key={"process_name": {"S": process}, "execution": {"S": execution}},
        UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in values),
        ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
    )


def add_malformed(operator: Operator, name: str = "odd") -> None:
    """Add a process whose limit is a text."""
    operator.processes.create(name, 3, "sample-job")
    edit(operator, "slot_limit", {"S": "3"}, name)


def malform_downstream(operator: Operator, name: str) -> None:
    """Write the item of a downstream whose state is empty."""
    item = {"downstream": {"S": name}, "version": {"N": "1"}, "writer": {"S": "w"}, "health": {"S": "{}"}}
    operator.dynamodb.put_item(TableName=operator.outputs["DownstreamTableName"], Item=item)
