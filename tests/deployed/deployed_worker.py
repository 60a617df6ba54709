"""The deployed worker for tests: inputs, messages, a scripted downstream, and the outcomes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from dev.emulator.aws import EmbeddedAws
from dev.emulator.downstream import Downstream, Step
from slotkeeper.retry.delivery import schedule_name
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.message import Message
from tests.waiting import wait_until

# With retries after less than a second. The tests share one downstream, and one test's failures must not hold another
# test's messages back.
POLICY = {
    "default": {"base_seconds": 0.1, "cap_seconds": 1, "max_attempts": 3, "max_age_seconds": 7200},
    "downstream": {part: {"enabled": False} for part in ("breaker", "concurrency", "budget")},
}
LINES = b'{"city": "Oslo", "n": 1}\n{"city": "Rome", "n": 2}\n{"city": "Oslo", "n": 3}\n'
END = ("SUCCEEDED", "DEAD_LETTERED")
_numbers = itertools.count(1)


class DeployedWorker:
    """Clients and helpers for one deployed worker. `restore` resets settings that tests share."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.outputs = aws.outputs
        self.sqs = aws.client("sqs")
        self.s3 = aws.client("s3")
        self.dynamodb = aws.client("dynamodb")
        self.scheduler = aws.client("scheduler")
        self._ssm = aws.client("ssm")
        self.downstream = Downstream(aws.state_dir)
        self.queue_url = self.outputs["WorkQueueUrl"]
        self.bucket = self.outputs["DataBucketName"]
        self.downstreams = DownstreamTable(self.dynamodb, self.outputs["DownstreamTableName"])
        self.group = self.outputs["RetryScheduleGroupName"]
        self._visibility = self._attribute("VisibilityTimeout")
        self.put_policy(json.dumps(POLICY))

    def _attribute(self, name: str) -> str:
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=[name])
        return str(attributes["Attributes"][name])

    def put_policy(self, value: str) -> None:
        self._ssm.put_parameter(Name=self.outputs["RetryPolicyParameterName"], Value=value, Overwrite=True)

    def hide_for(self, seconds: int) -> None:
        """Set the queue's visibility timeout, so that a test does not wait twelve minutes for a redelivery."""
        self.sqs.set_queue_attributes(QueueUrl=self.queue_url, Attributes={"VisibilityTimeout": str(seconds)})

    def restore(self) -> None:
        self.hide_for(int(self._visibility))
        self.downstream.follow({})
        self.put_policy("{}")

    def request(self, *steps: Step, lines: bytes | None = LINES) -> str:
        """Prepare a request whose input follows these steps; return its id. Without `lines` it has no input."""
        request_id = f"request-{next(_numbers)}"
        if lines is not None:
            self.put_input(request_id, lines)
        self.downstream.follow({self.input_key(request_id): steps})
        return request_id

    def put_input(self, request_id: str, lines: bytes = LINES) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=self.input_key(request_id), Body=lines)

    @staticmethod
    def input_key(request_id: str) -> str:
        return f"work/input/{request_id}.jsonl"

    def body(self, request_id: str, **fields: Any) -> str:
        payload = {"bucket": self.bucket, "input_key": self.input_key(request_id)}
        return json.dumps({"request_id": request_id, "payload": payload} | fields)

    def send(self, request_id: str, **fields: Any) -> None:
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=self.body(request_id, **fields))

    def row(self, request_id: str) -> dict[str, Any]:
        """The ledger's row without types; empty if there is none."""
        answer = self.dynamodb.get_item(
            TableName=self.outputs["RequestLedgerTableName"], Key={"request_id": {"S": request_id}}, ConsistentRead=True
        )
        return {name: next(iter(value.values())) for name, value in answer.get("Item", {}).items()}

    def wait_for(self, request_id: str, *statuses: str) -> dict[str, Any]:
        wait_until(
            lambda: self.row(request_id).get("status") in statuses, f"{request_id} to be {' or '.join(statuses)}"
        )
        return self.row(request_id)

    def end_lease(self, request_id: str) -> None:
        """Let the lease of the request's attempt end."""
        self.dynamodb.update_item(
            TableName=self.outputs["RequestLedgerTableName"],
            Key={"request_id": {"S": request_id}},
            UpdateExpression="SET lease_until = :past",
            ExpressionAttributeValues={":past": {"N": "1"}},
        )

    def result(self, request_id: str) -> Any:
        """The result of the work: the content of its input."""
        return json.loads(self.row(request_id)["result"])

    def calls(self, request_id: str) -> int:
        """The number of GetObject calls for a request's input."""
        return sum(call.key == self.input_key(request_id) for call in self.downstream.calls())

    def dead_letter(self, request_id: str) -> dict[str, Any]:
        """The dead letter of a request, which stays on the queue."""
        return wait_until(lambda: self.dead_letters().get(request_id), f"a dead letter of {request_id}")

    def dead_letters(self) -> Mapping[str, dict[str, Any]]:
        """The dead letters by request id; "" for those without an id."""
        answer = self.sqs.receive_message(
            QueueUrl=self.outputs["WorkDeadLetterQueueUrl"],
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            VisibilityTimeout=0,
        )
        dead_letters = {}
        for message in answer.get("Messages", []):
            attributes = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
            dead_letters[attributes.get("idempotency_key", "")] = {"body": message["Body"], **attributes}
        return dead_letters

    def redrive(self) -> None:
        """Redrive like "Start DLQ redrive" to a custom destination: each dead letter becomes a new, equal message."""
        urls = (self.outputs["WorkDeadLetterQueueUrl"], self.queue_url)
        source, destination = (
            self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            for url in urls
        )
        self.sqs.start_message_move_task(SourceArn=source, DestinationArn=destination)

    def empty_dead_letters(self) -> None:
        self.sqs.purge_queue(QueueUrl=self.outputs["WorkDeadLetterQueueUrl"])

    def schedule(self, request_id: str, attempt: int) -> dict[str, Any] | None:
        """The schedule of an attempt; None if there is none."""
        name = schedule_name(Message(request_id, {}, (0.0,) * (attempt - 1)), self._attribute("QueueArn"))
        try:
            schedule: dict[str, Any] = self.scheduler.get_schedule(GroupName=self.group, Name=name)
        except self.scheduler.exceptions.ResourceNotFoundException:
            return None
        return schedule
