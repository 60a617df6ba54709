"""The queues around the starter: hide and wake a waiting message, set a bad one aside, keep a failed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slotkeeper.aws.sqs import number, text
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import Delivery

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

MAX_HIDE_SECONDS = 1800
FIRST_BACKOFF_SECONDS = 5
MAX_REASON_CHARACTERS = 2000
MAX_CAUSE_CHARACTERS = 8000

# A handle that a later receive, a wake or a deletion has spent. On a FIFO queue an expired handle is an invalid
# parameter (SQS API Reference, ChangeMessageVisibility and DeleteMessage).
_SPENT_HANDLE = ("MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue")


def hide_seconds(waited: float, default_visibility: int) -> int:
    """How long a refused message stays out of sight, in seconds, unless somebody wakes it.

    A quarter of the time it has waited, so that 14 days cost it some 700 receives of the 1,000 that the queue allows;
    at least a quarter more than the queue's default, at most half an hour.
    """
    return int(max(default_visibility * 1.25, min(waited / 4, MAX_HIDE_SECONDS)))


def backoff_seconds(receives: int, most: int) -> int:
    """How long a message stays out of sight after an error, in seconds: 5, doubled at each receive up to `most`.

    By its receives, since they are what an outage uses up: at 180 s each, 980 of them last for two days.
    """
    return int(min(most, FIRST_BACKOFF_SECONDS * 2 ** min(receives - 1, 20)))


def _is_spent(code: str) -> bool:
    return code.removesuffix("Exception").endswith(_SPENT_HANDLE)


class RequestQueue:
    """RequestQueue and its dead-letter queue, as the starter and whoever makes room use them."""

    def __init__(self, sqs: SQSClient, queue_url: str, dead_letter_queue_url: str = "") -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._dead_letter_queue_url = dead_letter_queue_url

    def hide(self, delivery: Delivery, seconds: int) -> None:
        """Keeps a message out of sight for this long. A handle that is spent by now is no error: a wake was faster."""
        self._set_visibility(delivery.receipt_handle, seconds)

    def make_visible(self, receipt_handle: str) -> bool:
        """Makes a hidden message visible at once; False if the handle is spent."""
        return self._set_visibility(receipt_handle, 0)

    def make_all_visible(self, receipt_handles: Sequence[str]) -> list[bool | None]:
        """For up to ten handles in one call what `make_visible` returns for each; None where SQS failed."""
        answer = self._sqs.change_message_visibility_batch(
            QueueUrl=self._queue_url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                for number, handle in enumerate(receipt_handles)
            ],
        )
        visible: list[bool | None] = [True] * len(receipt_handles)
        for failed in answer.get("Failed", []):
            visible[int(failed["Id"])] = False if _is_spent(failed["Code"]) else None
        return visible

    def _set_visibility(self, receipt_handle: str, seconds: int) -> bool:
        try:
            self._sqs.change_message_visibility(
                QueueUrl=self._queue_url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except ClientError as error:
            if not _is_spent(error.response["Error"]["Code"]):
                raise
            return False
        return True

    def dead_letter(self, delivery: Delivery, code: str, reason: str) -> None:
        """Sets a message aside with the reason, in its own group; the caller consumes the original afterwards.

        Deduplicated by the message's id, which a redelivery keeps and a message moved back does not: by the request's
        name, SQS would swallow the letter of a message that is moved back and refused again within five minutes.
        """
        attributes: Mapping[str, MessageAttributeValueTypeDef] = {
            "code": text(code, 100),
            "reason": text(reason, MAX_REASON_CHARACTERS),
            "source_message_id": text(delivery.message_id, 100),
            "receives": number(delivery.receives),
            "sent_at": number(int(delivery.sent_at)),
        }
        self._sqs.send_message(
            QueueUrl=self._dead_letter_queue_url,
            MessageBody=delivery.body,
            MessageAttributes=attributes,
            MessageGroupId=delivery.group_id,
            MessageDeduplicationId=delivery.message_id,
        )


class FailedRequestQueue:
    """Where requests stand that were started and did not succeed: the body is the request, as it can be sent again."""

    def __init__(self, sqs: SQSClient, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def keep(self, body: str, execution: str, error: str, cause: str, glue_run_state: str = "") -> None:
        """Keeps a request with the attributes that the workflow's KeepRequest state gives it too.

        Args:
            glue_run_state: of the execution's Glue run, where it is known; empty leaves the attribute out.
        """
        attributes: Mapping[str, MessageAttributeValueTypeDef] = {
            "execution_name": text(execution, 80),
            "error": text(error, 256),
            "cause": text(cause, MAX_CAUSE_CHARACTERS),
            "kept_by": text("janitor", 20),
        }
        if glue_run_state:
            attributes = {**attributes, "glue_run_state": text(glue_run_state, 20)}
        self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=body or "{}", MessageAttributes=attributes)


def wake_next(slots: Slots, queue: RequestQueue, process: str, but_not: Delivery | None = None) -> bool:
    """The wake: whoever has made room calls it. True if a message was made visible.

    Args:
        but_not: the caller's own delivery. It may still be the one registered, by an earlier receive; waking it would
            only bring the caller back at once to the trouble that made it give up its slot. A later receive is somebody
            else's: the message was given out again under a slow caller, and waits for the room that was made.
    """
    waiter = slots.waiting_at_free_slot(process)
    if waiter is None:
        return False
    if but_not is not None and waiter.sequence == but_not.sortable_sequence and waiter.receives <= but_not.receives:
        return False
    woken = queue.make_visible(waiter.receipt_handle)
    if not woken:
        slots.remove_registration(process, waiter.receipt_handle)
    return woken
