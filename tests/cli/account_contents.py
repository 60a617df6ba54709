"""What is in the account of the operator's tests: dead letters, rows of the ledger, edited items, refused requests."""

from __future__ import annotations

import json
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.stepfunctions.models import stepfunctions_backends

from slotkeeper.aws.sqs import text
from slotkeeper.retry.delivery import DeadLetterQueue
from slotkeeper.retry.ledger import Claimed, Ledger
from slotkeeper.retry.message import Message
from slotkeeper.slots.admission import Starter, Waiting
from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.queues import FailedRequestQueue
from slotkeeper.slots.request import Delivery, execution_name
from slotkeeper.slots.skipped_requests import SkippedRequests
from tests.cli.operator_account import Operator

REQUEST = '{"process": "sample", "request_id": "a"}'
# Sets the window's title, adds a line, hides what follows (CSI in one character), and reverses its direction.
HOSTILE = "\x1b]0;owned\x07\nFORGED\u009b8m\u202e"


def is_harmless(printed: str) -> bool:
    """Whether HOSTILE has no effect where this is printed."""
    lines = [line.strip() for line in printed.split("\n")]
    return all(line.isprintable() and not line.startswith("FORGED") for line in lines)


def send_dead_letter(
    operator: Operator,
    body: str = REQUEST,
    code: str = "Expired",
    message_id: str = "m-1",
    group: str = "sample",
    sequence: str = "1",
) -> None:
    """Send a dead-letter message as the starter does."""
    delivery = Delivery(message_id, body, group, "handle", sequence, 1, 1_790_000_000.0)
    operator.queue.dead_letter(delivery, code, f"because of {code}")


def move_by_sqs(operator: Operator, body: str, **attributes: str) -> str:
    """Move a request as SQS itself does, in its own message group and without further attributes; return its id."""
    sent = operator.sqs.send_message(
        QueueUrl=operator.outputs["RequestDeadLetterQueueUrl"],
        MessageBody=body,
        MessageGroupId="sample",
        MessageDeduplicationId=str(hash(body)),
        MessageAttributes={name: text(value, 2000) for name, value in attributes.items()},
    )
    return str(sent["MessageId"])


def fail(
    operator: Operator,
    request_id: str = "a",
    attempt: int = 1,
    cause: str = "the job failed",
    process: str = "sample",
    **fields: Any,
) -> str:
    """Keep the request of a failed execution as the janitor does; return the execution's name."""
    name = execution_name(process, request_id, attempt)
    body = json.dumps({"process": process, "arguments": {}, "request_id": request_id, "attempt": attempt, **fields})
    queue = FailedRequestQueue(operator.sqs, operator.outputs["FailedRequestQueueUrl"])
    queue.keep(body, name, "Glue.Failed", cause)
    return name


def run_before(operator: Operator, *outcomes: str) -> list[str]:
    """Run request `a` of day 1 once for each outcome; return the executions' names.

    Args:
        outcomes: a status, RequestReturned, or the cause of a failed Glue run.
    """
    names = []
    for number, outcome in enumerate(outcomes, 1):
        body = {"process": "sample", "arguments": {"--day": "1"}, "request_id": "a", "attempt": number}
        names.append(execution_name("sample", "a", number))
        arn = operator.stepfunctions.start_execution(
            stateMachineArn=operator.outputs["WorkflowArn"], name=names[-1], input=json.dumps(body)
        )["executionArn"]
        if outcome != "RUNNING":
            operator.stepfunctions.stop_execution(executionArn=arn)
            execution = stepfunctions_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].describe_execution(arn)
            execution.status = outcome if outcome in CLOSED_STATUSES else "FAILED"
            execution.error = outcome if outcome == "RequestReturned" else ""
            execution.cause = outcome if outcome.startswith("{") else ""
    return names


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


def add_malformed(operator: Operator, name: str = "odd") -> None:
    """Add a process whose limit is a text."""
    operator.processes.create(name, 3, "sample-job")
    edit(operator, "slot_limit", {"S": "3"}, name)


def malform_downstream(operator: Operator, name: str) -> None:
    """Write the item of a downstream whose state is empty."""
    item = {"downstream": {"S": name}, "version": {"N": "1"}, "writer": {"S": "w"}, "health": {"S": "{}"}}
    operator.dynamodb.put_item(TableName=operator.outputs["DownstreamTableName"], Item=item)


NOW = 1_790_000_000.0


def starter(operator: Operator) -> Starter:
    skipped = SkippedRequests(operator.dynamodb, operator.outputs["SettledTableName"])
    return Starter(operator.slots, operator.queue, operator.workflow, skipped, 180, 1_209_600, 1000)


def receive(operator: Operator) -> Delivery:
    """Receive a request as the event source mapping does."""
    (received,) = operator.sqs.receive_message(
        QueueUrl=operator.outputs["RequestQueueUrl"], VisibilityTimeout=180, AttributeNames=["All"]
    )["Messages"]
    return Delivery(
        received["MessageId"],
        received["Body"],
        received["Attributes"]["MessageGroupId"],
        received["ReceiptHandle"],
        received["Attributes"]["SequenceNumber"],
        int(received["Attributes"]["ApproximateReceiveCount"]),
        NOW,
    )


def wait_first(operator: Operator, request_id: str = "a") -> str:
    """Let the starter refuse a request of a process without slots; return its execution name."""
    operator.processes.set_limit("sample", 0)
    operator.send(request_id)
    assert isinstance(starter(operator).admit(receive(operator), NOW), Waiting)
    return execution_name("sample", request_id, 1)
