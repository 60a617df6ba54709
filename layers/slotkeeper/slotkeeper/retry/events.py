"""Events of the worker (slotkeeper.events): requests that succeeded or were dead-lettered, breakers' changes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.events import CompletionEvents
from slotkeeper.retry.attempt import Outcome, WorkSucceeded, result_to_json
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import SUCCEEDED, AlreadySettled
from slotkeeper.retry.message import Message, instant


def publish_if_succeeded(events: CompletionEvents, message: Message, record: SQSRecord, outcome: Outcome) -> None:
    """Publish a success that the ledger has recorded.

    A success that an earlier delivery of the same message recorded is published too, because that delivery's worker
    died before the message was deleted, and may not have published. A repeated message at its first receive is another
    message of the same request, so nothing is published for it.
    """
    match outcome:
        case WorkSucceeded(result, started_at):
            _publish_success(events, message, started_at, result_to_json(result))
        case AlreadySettled(status, attempts, started_at, result):
            again = record.raw_event.get("attributes", {}).get("ApproximateReceiveCount", "1") != "1"
            if (status, attempts) == (SUCCEEDED, message.attempt) and again:
                _publish_success(events, message, started_at, result)


def _publish_success(events: CompletionEvents, message: Message, started_at: float, result: str) -> None:
    events.publish(
        "SUCCEEDED",
        f"{message.request_id}/{message.attempt}",
        {
            "flow": "worker",
            "request_id": message.request_id,
            "attempt": message.attempt,
            # NaN and Infinity become null: Python writes them, but they are not JSON, so EventBridge refuses them.
            "result": json.loads(result, parse_constant=lambda _: None),
            "started_at": instant(message.retries[0] if message.retries else started_at),
        },
    )


def publish_dead_letter(events: CompletionEvents, kept_in: str, key: str, detail: Mapping[str, object]) -> None:
    """Publish that a message is in the dead-letter queue of the name `kept_in` (DeadLetterQueue, `on_sent`)."""
    events.publish("DEAD_LETTERED", key, {"flow": "worker", "kept_in": kept_in, **detail})


class BreakerEvents:
    """Keeps breakers' changes until the outcome of the message that made them is recorded, and then publishes them.

    Each change is published by the container that wrote it, once. If it dies first, there is no event.
    """

    def __init__(self, events: CompletionEvents) -> None:
        self._events = events
        self._unpublished: list[tuple[str, Health]] = []

    def keep(self, downstream: str, health: Health) -> None:
        """Keep the last change of a state that was written."""
        self._unpublished.append((downstream, health))

    def publish_kept(self) -> None:
        """Publish the kept changes. Never raises; a change whose event fails is not published again."""
        changes, self._unpublished = self._unpublished, []
        for downstream, health in changes:
            change = health.breaker.changes[-1]
            self._events.publish_breaker(downstream, change.to, change.why, change.at, health.breaker.epoch)
