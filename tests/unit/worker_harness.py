"""A worker's world in moto, on a clock that the test moves: messages, schedules, a plug that does as it is told.

moto keeps what is sent, and checks it as AWS would. When a message can be received is reckoned here, since moto's
delays and visibility go by the real clock.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws import sqs as message_attributes
from slotkeeper.retry import Poison, Retryable, WorkRequest
from slotkeeper.retry.attempt import Outcome
from slotkeeper.retry.consumer import Consumer, NotYetDue, StillInProgress
from slotkeeper.retry.dead_letters import DeadLetterQueue
from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.ledger import ClaimLost, Ledger
from slotkeeper.retry.parameter import PolicyParameter, PolicyUnavailable
from tests.support.boundary import Killed
from tests.support.in_process_aws import InProcessAws
from tests.unit.work_messages import ALLOWED, QueuedMessage, due

NOW = 1_800_000_000.0
VISIBILITY = 720.0
INVOCATION = 120.0
LEASE = INVOCATION + 5
LARGEST = 1_047_552  # WorkQueue's MaximumMessageSize
TABLE, EFFECTS, PARAMETER, GROUP = "ledger", "effects", "/slotkeeper/retry-policy", "retries"
ROLE = "arn:aws:iam::123456789012:role/schedules"
ARN = "arn:aws:sqs:us-east-1:123456789012:"

LEFT_ON_THE_QUEUE = (
    ClientError,
    BotoCoreError,
    StillInProgress,
    NotYetDue,
    ClaimLost,
    PolicyUnavailable,
)

When = Literal["before", "after"]


@cache
def _session() -> Any:
    """One for all tests: it keeps the services' models that it has read. What is hooked is hooked into clients."""
    return boto3.Session()


class WorkerHarness:
    """The worker's clients have `calls` noted and can be struck; the test looks through others."""

    def __init__(self, engine: InProcessAws | None = None) -> None:
        session = _session()
        self._looking = SimpleNamespace(**{name: session.client(name) for name in ("dynamodb", "scheduler", "ssm")})
        self.dynamodb, self.sqs, self.scheduler, self.ssm = (
            session.client(name) for name in ("dynamodb", "sqs", "scheduler", "ssm")
        )
        self.calls: list[str] = []
        self._strikes: dict[tuple[int, When], Callable[[], None]] = {}
        self._unnoted = True
        self._hook("before")
        if engine:
            for client in (self.dynamodb, self.sqs, self.scheduler, self.ssm, *vars(self._looking).values()):
                engine.answer_calls_of(client)
        for table in (TABLE, EFFECTS):
            self._looking.dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "request_id", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "request_id", "KeyType": "HASH"}],
            )
        self._looking.scheduler.create_schedule_group(Name=GROUP)
        self.put_policy("{}")
        self.queue_url = self.sqs.create_queue(QueueName="work")["QueueUrl"]
        self.dead_letter_url = self.sqs.create_queue(QueueName="work-dead")["QueueUrl"]

        self.now = NOW
        self.queue: list[QueuedMessage] = []
        self.delivering: QueuedMessage | None = None
        self.seen: list[QueuedMessage] = []
        self.dead_letters: list[QueuedMessage] = []
        self.performed: list[tuple[str, int]] = []
        self.effects: list[tuple[str, int]] = []
        self.left: list[BaseException] = []
        self.deaths = 0
        self.refused_schedules: list[str] = []
        self.invalid_policies: list[str] = []
        self.remaining = INVOCATION
        self._ids = itertools.count(1)
        self.sqs.meta.events.register("before-parameter-build.sqs.SendMessage", self._note_asked)
        self.dynamodb.meta.events.register("before-parameter-build.dynamodb.PutItem", self._note_asked)
        self.sqs.meta.events.register("after-call.sqs.SendMessage", self._note_sent)
        self.dynamodb.meta.events.register("after-call.dynamodb.PutItem", self._note_effect)
        self.sqs.meta.events.register_last("before-call.sqs.ChangeMessageVisibility", self._change_visibility)
        self._hook("after")
        self._unnoted = False
        self.use()

    def use(self, max_delay: int = 900, max_message_bytes: int = LARGEST) -> None:
        """A new container, with these settings; the queue takes messages as large."""
        with self.unnoted():
            self.sqs.set_queue_attributes(
                QueueUrl=self.queue_url, Attributes={"MaximumMessageSize": str(max_message_bytes)}
            )
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
        self.policy = PolicyParameter(
            self.ssm, PARAMETER, on_invalid=self.invalid_policies.append, clock=lambda: self.now
        )
        self.consumer = Consumer(
            self.ledger,
            self.retries,
            DeadLetterQueue(self.sqs, self.dead_letter_url),
            self.policy,
            work_seconds=50,
            clock=lambda: self.now,
        )

    def _hook(self, when: When) -> None:
        for client in (self.dynamodb, self.sqs, self.scheduler, self.ssm):
            client.meta.events.register(f"{when}-call", lambda model, **_: self._at(when, model.name))

    def _at(self, when: When, name: str) -> None:
        if self._unnoted:
            return
        if when == "before":
            self.calls.append(name)
        strike = self._strikes.pop((len(self.calls), when), None)
        if strike:
            strike()

    def _note_asked(self, params: dict[str, Any], context: Any, **_: Any) -> None:
        context["asked"] = dict(params)

    def _note_sent(self, parsed: dict[str, Any], context: Any, **_: Any) -> None:
        sent = context["asked"]
        if "MessageId" not in parsed:
            return
        texts = [sent["MessageBody"], *(value["StringValue"] for value in sent["MessageAttributes"].values())]
        assert all(text and ALLOWED.fullmatch(text) for text in texts), "SQS would have refused it"
        assert message_attributes.size(texts[0], sent["MessageAttributes"]) <= 1_048_576
        delay = sent.get("DelaySeconds", 0)
        assert 0 <= delay <= 900
        letter = QueuedMessage(sent["MessageBody"], self.now + delay, parsed["MessageId"], sent["MessageAttributes"])
        letter.sent_at = self.now
        (self.queue if sent["QueueUrl"] == self.queue_url else self.dead_letters).append(letter)

    def _change_visibility(self, params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        asked = json.loads(params["body"])
        (letter,) = [each for each in self.seen if each.handle == asked["ReceiptHandle"]]
        assert 0 <= asked["VisibilityTimeout"] <= 43_200  # SQS API Reference, ChangeMessageVisibility
        letter.visible_at = self.now + asked["VisibilityTimeout"]
        return SimpleNamespace(status_code=200), {}

    def _note_effect(self, parsed: dict[str, Any], context: Any, **_: Any) -> None:
        if "Error" not in parsed:
            item = context["asked"]["Item"]
            self.effects.append((item["request_id"]["S"], int(item["attempt"]["N"])))

    def strike(self, call: int, when: When, strike: Callable[[], None]) -> None:
        """Has something happen at the worker's call of this number from now, the next one being 1."""
        self._strikes[len(self.calls) + call, when] = strike

    def unstruck(self) -> bool:
        """Whether a strike has found no call; it is taken back."""
        left, self._strikes = bool(self._strikes), {}
        return left

    @contextmanager
    def unnoted(self) -> Any:
        """What another worker does meanwhile, whose calls are not counted."""
        before, self._unnoted = self._unnoted, True
        yield
        self._unnoted = before

    # What a producer, an operator and the event source mapping do.

    def send(
        self, request_id: str = "r", body: str | None = None, attributes: Any = None, **payload: Any
    ) -> QueuedMessage:
        text = body if body is not None else json.dumps({"request_id": request_id, "payload": payload})
        letter = QueuedMessage(text, self.now, f"message-{next(self._ids)}", attributes or {}, sent_at=self.now)
        self.queue.append(letter)
        return letter

    def copy(self, letter: QueuedMessage) -> QueuedMessage:
        """The same message once more, as a standard queue may deliver it."""
        again = QueuedMessage(
            letter.body, self.now, letter.message_id, letter.attributes, letter.receives + 1, letter.sent_at
        )
        self.queue.append(again)
        return again

    def copy_in_flight(self) -> QueuedMessage:
        """The message that is being worked on, once more."""
        assert self.delivering
        return self.copy(self.delivering)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def redrive(self, letter: QueuedMessage) -> QueuedMessage:
        """A dead letter moved back by SQS: the same body and attributes under a new message id."""
        self.dead_letters.remove(letter)
        return self.send(body=letter.body, attributes=letter.attributes)

    def put_policy(self, value: str) -> None:
        self._looking.ssm.put_parameter(Name=PARAMETER, Value=value, Type="String", Overwrite=True)

    def consume(self, letter: QueuedMessage) -> Outcome:
        """A delivery that is seen through, or raises what it raised and leaves the message on the queue."""
        self.now = max(self.now, letter.visible_at)
        letter.visible_at = self.now + VISIBILITY
        context: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: int(self.remaining * 1000))
        outer, self.delivering = self.delivering, letter
        if letter not in self.seen:
            self.seen.append(letter)
        try:
            outcome = self.consumer.consume(letter.record, self.perform, context)
        finally:
            letter.receives += 1
            self.delivering = outer
        if letter in self.queue:  # another delivery may have been the end of it
            self.queue.remove(letter)
        return outcome

    def deliver(self, letter: QueuedMessage) -> Outcome | None:
        """A delivery, whatever becomes of it; None if the message stays on the queue."""
        try:
            return self.consume(letter)
        except Killed:
            self.deaths += 1
        except LEFT_ON_THE_QUEUE as error:
            self.left.append(error)
        return None

    def live(self, deliveries: int = 60) -> None:
        """Delivers what there is, each message and schedule at its time, until nothing is left."""
        for _ in range(deliveries):
            first = min(self.queue, key=lambda letter: letter.visible_at, default=None)
            schedule = min(self.schedules(), key=due, default=None)
            if schedule and (first is None or due(schedule) <= first.visible_at):
                self.fire(schedule)
            elif first:
                self.deliver(first)
            else:
                return
        raise AssertionError(f"not at an end after {deliveries} deliveries: {self.queue}")

    def fire(self, schedule: dict[str, Any]) -> QueuedMessage:
        """A schedule's time has come: it sends its input, and is gone."""
        self.now = max(self.now, due(schedule))
        self._looking.scheduler.delete_schedule(Name=schedule["Name"], GroupName=GROUP)
        return self.send(body=schedule["Target"]["Input"])

    def schedules(self) -> list[dict[str, Any]]:
        listed = self._looking.scheduler.list_schedules(GroupName=GROUP)["Schedules"]
        return [self._looking.scheduler.get_schedule(Name=one["Name"], GroupName=GROUP) for one in listed]

    def row(self, request_id: str = "r") -> dict[str, Any]:
        """The ledger's item, without the types."""
        key = {"request_id": {"S": request_id}}
        item = self._looking.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True).get("Item", {})
        return {name: next(iter(value.values())) for name, value in item.items()}

    def put_row(self, request_id: str = "r", **attributes: Any) -> None:
        """The ledger's item, as somebody else may have written it."""
        item = {"request_id": {"S": request_id}, **attributes}
        self._looking.dynamodb.put_item(TableName=TABLE, Item=item)

    # The plug.

    def perform(self, request: WorkRequest, seconds: float) -> dict[str, Any]:
        """Has its effect once, by a conditional write; `dies`, `fails` and `poison` in the payload say when not."""
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
