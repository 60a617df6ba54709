"""A worker with a test's clock: messages, schedules, and work whose outcome the payload sets.

The account validates each message and stores each schedule. The harness delivers the messages.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.retry import Poison, Retryable, WorkRequest
from slotkeeper.retry.attempt import Outcome
from slotkeeper.retry.consumer import Consumer, DownstreamOf, StillInProgress
from slotkeeper.retry.deferral import NotYetDue, WaitsForDownstream
from slotkeeper.retry.delivery import DeadLetterQueue, RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream.downstreams import DEFAULT, Downstreams, DownstreamTable
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import ClaimLost, Ledger
from slotkeeper.retry.operations import RetryOperations
from slotkeeper.retry.policy import PolicyParameter, PolicyUnavailable
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import Killed
from tests.simulation.account.quick_clients import shared_client
from tests.unit.work_messages import QueuedMessage, due

NOW = 1_800_000_000.0
VISIBILITY = 720.0
INVOCATION = 120.0
LEASE = INVOCATION + 5
LARGEST = 1_047_552  # WorkQueue's MaximumMessageSize
TABLE, EFFECTS, PARAMETER, GROUP = "ledger", "effects", "/slotkeeper/retry-policy", "retries"
ROLE = "arn:aws:iam::123456789012:role/schedules"
WORK, WORK_DEAD = "work", "work-dead"
DOWNSTREAMS = "downstreams"
CONCURRENCY = 4
ARN = "arn:aws:sqs:us-east-1:123456789012:"

LEFT_ON_THE_QUEUE = (
    ClientError,
    BotoCoreError,
    StillInProgress,
    NotYetDue,
    WaitsForDownstream,
    ClaimLost,
    PolicyUnavailable,
)

When = Literal["before", "after"]


class WorkerHarness:
    """A worker whose calls are recorded in `calls` and can be interrupted."""

    def __init__(self, aws: AwsAccount) -> None:
        self.aws, self.now = aws, NOW
        aws.clock = lambda: self.now
        self.dynamodb, self.sqs, self.scheduler, self.ssm = map(shared_client, ("dynamodb", "sqs", "scheduler", "ssm"))
        self.calls: list[str] = []
        self._strikes: dict[tuple[int, When], Callable[[], None]] = {}
        self._unnoted = True
        self._hook("before")
        self.queue_url, self.dead_letter_url = map(aws.make_queue, (WORK, WORK_DEAD))
        self.put_policy("{}")

        self.queue: list[QueuedMessage] = []
        self.seen: list[QueuedMessage] = []
        self.dead_letters: list[QueuedMessage] = []
        self.performed: list[tuple[str, int]] = []
        self.left: list[BaseException] = []
        self.deaths = 0
        self.refused_schedules: list[str] = []
        self.invalid_policies: list[str] = []
        self.remaining = INVOCATION
        self._ids = itertools.count(1)
        self.sqs.meta.events.register("after-call.sqs.SendMessage", self._note_sent)
        self.sqs.meta.events.register_last("before-call.sqs.ChangeMessageVisibility", self._change_visibility)
        self._hook("after")
        self._unnoted = False
        self.use()

    def use(
        self, max_delay: int = 900, max_message_bytes: int = LARGEST, *, watches: DownstreamOf | None = None
    ) -> None:
        """Replace the container. The queue allows messages of the same size.

        Args:
            watches: the downstream whose state it asks before each attempt; None: it asks none.
        """
        self.aws.make_queue(WORK, MaximumMessageSize=str(max_message_bytes))
        self.ledger = Ledger(self.dynamodb, TABLE)
        self.retries = RetryQueue(
            self.sqs,
            self.scheduler,
            self.queue_url,
            ScheduleTarget(GROUP, ROLE, f"{ARN}work", f"{ARN}schedules-dead"),
            max_delay=max_delay,
            max_message_bytes=max_message_bytes,
            on_refused=self.refused_schedules.append,
        )
        self.dead_letter_queue = DeadLetterQueue(self.sqs, self.dead_letter_url)
        self.operator = RetryOperations(self.ledger, self.retries, lambda: self.now)
        self.policy = PolicyParameter(
            self.ssm, PARAMETER, on_invalid=self.invalid_policies.append, clock=lambda: self.now
        )
        table = DownstreamTable(self.dynamodb, DOWNSTREAMS)
        downstreams = Downstreams(table, most=CONCURRENCY, clock=lambda: self.now)
        self.consumer = Consumer(
            self.ledger,
            self.retries,
            self.dead_letter_queue,
            self.policy,
            downstreams=downstreams if watches else None,
            downstream=watches or DEFAULT,
            work_seconds=50,
            clock=lambda: self.now,
        )

    def _hook(self, when: When) -> None:
        for client in (self.dynamodb, self.sqs, self.scheduler, self.ssm):
            client.meta.events.register(f"{when}-call", lambda model, **_: self._at(when, model.name))

    def _at(self, when: When, name: str) -> None:
        if self._unnoted:
            return
        if isinstance(sys.exception(), Killed):
            raise Killed  # a dead worker makes no call, not even while its context managers end
        if when == "before":
            self.calls.append(name)
        strike = self._strikes.pop((len(self.calls), when), None)
        if strike:
            strike()

    def _note_sent(self, parsed: dict[str, Any], context: Any, **_: Any) -> None:
        sent = context["parameters"]
        if "MessageId" not in parsed:
            return
        delay = sent.get("DelaySeconds", 0)
        message = QueuedMessage(sent["MessageBody"], self.now + delay, parsed["MessageId"], sent["MessageAttributes"])
        message.sent_at = self.now
        (self.queue if sent["QueueUrl"] == self.queue_url else self.dead_letters).append(message)

    def _change_visibility(self, context: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        asked = context["parameters"]
        (message,) = [each for each in self.seen if each.handle == asked["ReceiptHandle"]]
        assert 0 <= asked["VisibilityTimeout"] <= 43_200  # SQS API Reference, ChangeMessageVisibility
        message.visible_at = self.now + asked["VisibilityTimeout"]
        return SimpleNamespace(status_code=200), {}

    @property
    def effects(self) -> list[tuple[str, int]]:
        """Request id and attempt of the effects that were written."""
        items = self.aws.tables.items(EFFECTS)
        return [(item["request_id"]["S"], int(item["attempt"]["N"])) for item in items]

    def strike(self, call: int, when: When, strike: Callable[[], None]) -> None:
        """Call `strike` before or after the worker's call of this number. The next call has number 1."""
        self._strikes[len(self.calls) + call, when] = strike

    @contextmanager
    def unnoted(self) -> Any:
        """For the actions of another worker: its calls are not recorded."""
        before, self._unnoted = self._unnoted, True
        yield
        self._unnoted = before

    # The producer, the operator and the event source mapping.

    def send(
        self, request_id: str = "r", body: str | None = None, attributes: Any = None, **payload: Any
    ) -> QueuedMessage:
        text = body if body is not None else json.dumps({"request_id": request_id, "payload": payload})
        message = QueuedMessage(text, self.now, f"message-{next(self._ids)}", attributes or {}, sent_at=self.now)
        self.queue.append(message)
        return message

    def copy(self, message: QueuedMessage) -> QueuedMessage:
        """A second delivery of a message, as a standard queue allows."""
        again = QueuedMessage(
            message.body, self.now, message.message_id, message.attributes, message.receives + 1, message.sent_at
        )
        self.queue.append(again)
        return again

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def redrive(self, message: QueuedMessage) -> QueuedMessage:
        """A dead-letter message moved back by SQS: the same body and attributes under a new message id."""
        self.dead_letters.remove(message)
        return self.send(body=message.body, attributes=message.attributes)

    @property
    def dead_letter(self) -> QueuedMessage:
        """The only dead-letter message."""
        (only,) = self.dead_letters
        return only

    def put_policy(self, value: str) -> None:
        self.aws.parameters[PARAMETER] = value

    def consume(self, message: QueuedMessage) -> Outcome:
        """Deliver a message and delete it. If the consumer raises, the message stays on the queue."""
        self.now = max(self.now, message.visible_at)
        message.visible_at = self.now + VISIBILITY
        context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: int(self.remaining * 1000))
        if message not in self.seen:
            self.seen.append(message)
        try:
            outcome = self.consumer.consume(message.record, self.perform, context)
        finally:
            message.receives += 1
        if message in self.queue:  # another delivery may have deleted it
            self.queue.remove(message)
        return outcome

    def consumed[T: Outcome](self, message: QueuedMessage, kind: type[T]) -> T:
        """Deliver a message whose outcome must be of this type."""
        outcome = self.consume(message)
        assert isinstance(outcome, kind)
        return outcome

    def deliver(self, message: QueuedMessage) -> Outcome | None:
        """Deliver a message. Returns None if it stays on the queue."""
        try:
            return self.consume(message)
        except Killed:
            self.deaths += 1
        except LEFT_ON_THE_QUEUE as error:
            self.left.append(error)
        return None

    def live(self, deliveries: int = 60) -> None:
        """Deliver each message and schedule at its time until none is left."""
        for _ in range(deliveries):
            first = min(self.queue, key=lambda message: message.visible_at, default=None)
            schedule = min(self.schedules(), key=due, default=None)
            if schedule and (first is None or due(schedule) <= first.visible_at):
                self.fire(schedule)
            elif first:
                self.deliver(first)
            else:
                return
        raise AssertionError(f"the queue is not empty after {deliveries} deliveries: {self.queue}")

    def fire(self, schedule: dict[str, Any]) -> QueuedMessage:
        """Advance the clock to a schedule's time: it sends its input and is deleted."""
        self.now = max(self.now, due(schedule))
        self.aws.drop_schedule(schedule["Name"])
        return self.send(body=schedule["Target"]["Input"])

    def schedules(self) -> list[dict[str, Any]]:
        return list(self.aws.schedules.values())

    def row(self, request_id: str = "r") -> dict[str, Any]:
        """The ledger's item, without the types."""
        item = self.aws.tables.item(TABLE, request_id)
        return {name: next(iter(value.values())) for name, value in item.items()}

    def put_row(self, request_id: str = "r", **attributes: Any) -> None:
        """Replace the ledger's item."""
        self.aws.tables.put(TABLE, {"request_id": {"S": request_id}, **attributes})

    def health(self) -> Health:
        """The state of the downstream."""
        with self.unnoted():
            return DownstreamTable(self.dynamodb, DOWNSTREAMS).read(DEFAULT)

    def set_health(self, health: Health) -> None:
        with self.unnoted():
            DownstreamTable(self.dynamodb, DOWNSTREAMS).change(DEFAULT, lambda _before: (health, None))

    # The work.

    def perform(self, request: WorkRequest, seconds: float) -> dict[str, Any]:
        """Write the effect once, by a conditional write, unless `dies`, `fails` or `poison` of the payload apply."""
        payload = request.payload
        self.performed.append((request.request_id, request.attempt))
        self.seconds = seconds
        if "poison" in payload:
            raise Poison(payload["poison"])
        if request.attempt <= payload.get("fails", 0):
            raise Retryable("not now", retry_after=payload.get("retry_after"))
        try:
            self.dynamodb.put_item(
                TableName=EFFECTS,
                Item={"request_id": {"S": request.request_id}, "attempt": {"N": str(request.attempt)}},
                ConditionExpression="attribute_not_exists(request_id)",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
        if request.attempt <= payload.get("dies", 0):
            raise Killed
        return {"attempt": request.attempt}
