"""What producers hear of the worker's requests: that one is done, or was set aside (slotkeeper.events)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from slotkeeper.events import CompletionNews
from slotkeeper.retry.attempt import Outcome, Repeated, Succeeded, as_text
from slotkeeper.retry.dead_letters import LARGEST, DeadLetterQueue
from slotkeeper.retry.ledger import SUCCEEDED
from slotkeeper.retry.message import Message, instant

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


def tell_if_done(news: CompletionNews, message: Message, record: SQSRecord, outcome: Outcome) -> None:
    """Tells of a success that the ledger knows.

    Also of one that an earlier delivery of the same message has noted: it died before it could give the message up, and
    nobody knows whether it told. The first delivery of a message that is repeated is another message of the same
    request, and no end of it.
    """
    match outcome:
        case Succeeded(result, began):
            _tell_done(news, message, began, as_text(result))
        case Repeated(status, attempts, began, result):
            again = record.raw_event.get("attributes", {}).get("ApproximateReceiveCount", "1") != "1"
            if (status, attempts) == (SUCCEEDED, message.attempt) and again:
                _tell_done(news, message, began, result)


def _tell_done(news: CompletionNews, message: Message, began: float, result: str) -> None:
    news.tell(
        "SUCCEEDED",
        _key(message),
        {
            "flow": "worker",
            "request_id": message.request_id,
            "attempt": message.attempt,
            # NaN and Infinity, which Python writes and JSON has not, would cost the event.
            "result": json.loads(result, parse_constant=lambda _: None),
            "started_at": _started(message, began),
        },
    )


class AnnouncedDeadLetters(DeadLetterQueue):
    """The dead-letter queue, of whose letters producers hear.

    Right after the letter, before anybody notes that it was sent: where the worker dies in between, the next delivery
    sends both again.
    """

    def __init__(self, sqs: SQSClient, queue_url: str, redrivable: int = LARGEST, *, news: CompletionNews) -> None:
        super().__init__(sqs, queue_url, redrivable)
        self._news = news
        self._kept_in = queue_url.rpartition("/")[2]

    def send_invalid(self, body: str, message_id: str, reason: str) -> None:
        super().send_invalid(body, message_id, reason)
        self._tell(message_id, {"code": "InvalidMessage", "reason": reason, "message_id": message_id})

    def send_unworked(self, message: Message, message_id: str, code: str, reason: str) -> None:
        super().send_unworked(message, message_id, code, reason)
        asked = {"request_id": message.request_id, "attempt": message.attempt}
        self._tell(message_id, {**asked, "code": code, "reason": reason, "message_id": message_id})

    def send(
        self, message: Message, began: float, code: str, reason: str, history: Sequence[Mapping[str, Any]]
    ) -> None:
        super().send(message, began, code, reason, history)
        asked = {"request_id": message.request_id, "attempt": message.attempt}
        self._tell(_key(message), {**asked, "code": code, "reason": reason, "started_at": _started(message, began)})

    def _tell(self, key: str, detail: Mapping[str, object]) -> None:
        self._news.tell("DEAD_LETTERED", key, {"flow": "worker", "kept_in": self._kept_in, **detail})


def _key(message: Message) -> str:
    return f"{message.request_id}/{message.attempt}"


def _started(message: Message, began: float) -> str:
    return instant(message.retries[0] if message.retries else began)
