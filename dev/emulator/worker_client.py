"""The deployed worker from outside: a message is sent to it, and watched until its request has an end for now."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rich.text import Text

from dev.emulator.aws import EmbeddedAws
from dev.scenarios.runner.checking import counted
from dev.scenarios.worker.inputs import SPLIT_BY, content, read_months
from dev.scenarios.worker.records import DeadLetter, Row, parse_dead_letter, parse_row, queue_depth

MONTH = "2012-01"  # of the sample data
INPUT_KEY = f"work/input/{MONTH}.jsonl"
# Seconds. Whoever has to wait longer for the next attempt is told when it begins, and may go.
SOON = 60.0
# A worker that has taken a message claims it within this, or has failed before it could.
BEGUN_WITHIN = 30.0
# An attempt ends within the function's 120 s, whatever becomes of it.
STALLED_AFTER = 150.0
LEDGER_KEY = 128  # characters of a request id

End = Literal["succeeded", "dead-lettered", "waiting", "dropped", "not begun"]
ENDS: dict[str, End] = {"SUCCEEDED": "succeeded", "DEAD_LETTERED": "dead-lettered"}


@dataclass(frozen=True)
class Sight:
    """What an onlooker sees of a message that was sent.

    Args:
        elapsed: seconds since then.
        visible, in_flight: messages on WorkQueue, others than this one among them.
        before: the request's row before it was sent; None: there was none, or the body names no request.
        row: the row now.
        letter: the dead letter of this very message, or of the request whose row says that it is dead-lettered.
        unworked: the letter is of this very message, which nobody has worked on.
        far: the next attempt is due later than `SOON`.
    """

    elapsed: float
    visible: int
    in_flight: int
    before: Row | None = None
    row: Row | None = None
    letter: DeadLetter | None = None
    unworked: bool = False
    far: bool = False

    @property
    def moved(self) -> bool:
        """Whether the ledger has learnt of something since the message was sent."""
        return self.row != self.before

    @property
    def end(self) -> End | None:
        """Where the request stands, if there is no more to be waited for."""
        if self.unworked:
            return "dead-lettered"
        if self.row is not None and self.moved:
            if self.row.status == "WAITING":
                return "waiting" if self.far else None
            return ENDS.get(self.row.status)
        if self.visible:
            return None
        if not self.in_flight:
            return "dropped"
        return "not begun" if self.elapsed > BEGUN_WITHIN else None

    @property
    def over(self) -> bool:
        return self.end is not None

    def said(self) -> str:
        """What stands where, on a line."""
        if self.row is not None and self.moved:
            due = f", attempt {self.row.attempts + 1} begins at {self.row.next_attempt_at}"
            return f"{self.row.status}: attempt {self.row.attempts}{due if self.row.next_attempt_at else ''}"
        queued = self.visible + self.in_flight
        if not queued:
            return "off WorkQueue"
        return f"on WorkQueue: {counted(queued, 'message')}, {self.in_flight} in flight"


def plain_line(sight: Sight) -> str:
    return f"{sight.elapsed:6.1f} s  {sight.said()}"


def live_line(sight: Sight) -> Text:
    return Text(plain_line(sight))


def upload_sample(aws: EmbeddedAws) -> None:
    """What the sample request reads: a month of the sample data as JSON Lines, into DataBucket."""
    lines = dict(read_months())[MONTH]
    aws.client("s3").put_object(
        Bucket=aws.outputs["DataBucketName"],
        Key=INPUT_KEY,
        Body=content(lines),
        ContentType="application/x-ndjson",
    )


def sample_body(request_id: str = "") -> str:
    """A message body for WorkQueue that has the sample split, under a fresh id if none is given."""
    payload = {"input_key": INPUT_KEY, "split_by": SPLIT_BY}
    return json.dumps({"request_id": request_id or f"sample-{secrets.token_hex(4)}", "payload": payload})


def named(body: str) -> str | None:
    """The request id of a body; None if it has none by which the ledger could know it."""
    try:
        request_id = json.loads(body)["request_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return request_id if isinstance(request_id, str) and 0 < len(request_id) <= LEDGER_KEY else None


class Sent:
    """A message that WorkQueue has taken, and what to look at for what becomes of it."""

    def __init__(self, aws: EmbeddedAws, body: str) -> None:
        """Sends it. `name` is for people. What SQS refuses is raised as ClientError."""
        self._sqs, self._dynamodb, self._s3 = aws.client("sqs"), aws.client("dynamodb"), aws.client("s3")
        self._outputs = aws.outputs
        self.body, self.request_id = body, named(body)
        self.name = self.request_id or "a body that names no request"
        self._before = self._row()
        answer = self._sqs.send_message(QueueUrl=self._outputs["WorkQueueUrl"], MessageBody=body)
        self._message_id = answer["MessageId"]

    def look(self, elapsed: float) -> Sight:
        """The queue is read first: what has left it by then, the ledger or a dead letter tells of."""
        depth = queue_depth(self._sqs, self._outputs["WorkQueueUrl"])
        row = self._row()
        gone = row == self._before and not depth["visible"] and not depth["in flight"]
        letter = self._letter(row) if gone or (row and row.status == "DEAD_LETTERED") else None
        return Sight(
            elapsed=elapsed,
            visible=depth["visible"],
            in_flight=depth["in flight"],
            before=self._before,
            row=row,
            letter=letter,
            unworked=letter is not None and letter.source_message_id == self._message_id,
            far=row is not None and row.next_attempt_at is not None and _seconds_until(row.next_attempt_at) > SOON,
        )

    def manifest(self, row: Row | None) -> dict[str, Any] | None:
        """What the shipped work has published, by its result; None for a result of another form."""
        result = json.loads(row.result) if row and row.result else None
        if not isinstance(result, dict) or not isinstance(result.get("manifest"), str):
            return None
        bucket, key = self._outputs["DataBucketName"], result["manifest"]
        found: dict[str, Any] = json.loads(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        return {"bucket": bucket, "key": key, "parts": found["parts"]}

    def _row(self) -> Row | None:
        if self.request_id is None:
            return None
        table = self._outputs["RequestLedgerTableName"]
        key = {"request_id": {"S": self.request_id}}
        item = self._dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        return parse_row(item) if item else None

    def _letter(self, row: Row | None) -> DeadLetter | None:
        letters = dead_letters(self._sqs, self._outputs["WorkDeadLetterQueueUrl"])
        own = [letter for letter in letters if letter.source_message_id == self._message_id]
        if not own and row is not None:
            wanted = (row.request_id, row.attempts)  # not an earlier one's, which stays there after a redrive by hand
            own = [letter for letter in letters if (letter.idempotency_key, letter.retry_count) == wanted]
        return own[-1] if own else None


def _seconds_until(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp() - time.time()


def dead_letters(sqs: Any, queue_url: str) -> list[DeadLetter]:
    """Every message of the queue, which stays there: it is out of others' sight for no longer than this takes."""
    held: list[dict[str, Any]] = []
    try:
        while messages := sqs.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["SentTimestamp"],
            VisibilityTimeout=30,
        ).get("Messages"):
            held += messages
    finally:
        for message in held:
            sqs.change_message_visibility(
                QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
    return [parse_dead_letter(message) for message in held]
