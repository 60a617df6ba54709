"""The queues of requests: hide and wake waiting messages, dead-letter invalid ones, keep failed requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from slotkeeper.aws.sqs import number, text
from slotkeeper.slots.process import MAX_HIDE_SECONDS
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import PRIORITIES, Delivery, without_token

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

FIRST_BACKOFF_SECONDS = 5
MAX_REASON_CHARACTERS = 2000
# One for each priority, and one for a request that registered meanwhile. The janitor repeats a wake that needs more.
MAX_WAKES = len(PRIORITIES) + 1
MAX_CAUSE_CHARACTERS = 8000

# A receipt handle that a later receive, a wake or a deletion has invalidated. For a FIFO queue SQS rejects an expired
# handle as an invalid parameter (SQS API Reference, ChangeMessageVisibility and DeleteMessage).
_SPENT_HANDLE = ("MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue")


def hide_seconds(waited: float, default_visibility: int) -> int:
    """The seconds for which a refused message is hidden, unless a wake makes it visible earlier.

    A quarter of the time it has waited, so that 14 days use about 700 of the 1,000 receives that the queue allows. At
    least 1.25 times the queue's default visibility timeout, at most half an hour.
    """
    return int(max(default_visibility * 1.25, min(waited / 4, MAX_HIDE_SECONDS)))


def backoff_seconds(receives: int, most: int) -> int:
    """The seconds for which a message is hidden after an error: 5, doubled at each receive up to `most`.

    It depends on the receives, because their number is limited: at 180 s each, 980 receives last for two days.
    """
    return int(min(most, FIRST_BACKOFF_SECONDS * 2 ** min(receives - 1, 20)))


def _is_spent(code: str) -> bool:
    return code.removesuffix("Exception").endswith(_SPENT_HANDLE)


class RequestQueue:
    """RequestQueue and its dead-letter queue, for the starter and for each caller that wakes a request."""

    def __init__(self, sqs: SQSClient, queue_url: str, dead_letter_queue_url: str = "") -> None:
        self._sqs = sqs
        self._queue_url = queue_url
        self._dead_letter_queue_url = dead_letter_queue_url

    def hide(self, delivery: Delivery, seconds: int) -> None:
        """Hide a message for `seconds`. An outdated handle is not an error: a wake came first."""
        self._set_visibility(delivery.receipt_handle, seconds)

    def make_visible(self, receipt_handle: str, after: int = 0) -> bool:
        """Make a hidden message visible, immediately or `after` some seconds; False if the handle is outdated."""
        return self._set_visibility(receipt_handle, after)

    def make_all_visible(self, wakes: Sequence[tuple[str, int]]) -> list[bool | None]:
        """Make up to ten messages visible in one call; for each the result of `make_visible`, or None if SQS failed.

        Args:
            wakes: the receipt handle of each, and the seconds after which it becomes visible.
        """
        answer = self._sqs.change_message_visibility_batch(
            QueueUrl=self._queue_url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": after}
                for number, (handle, after) in enumerate(wakes)
            ],
        )
        visible: list[bool | None] = [True] * len(wakes)
        for failed in answer.get("Failed", []):
            visible[int(failed["Id"])] = False if _is_spent(failed["Code"]) else None
        return visible

    def is_empty(self) -> bool:
        """Whether the queue has no message, neither a visible nor a hidden one.

        The counts are approximate, and lag by up to a minute (SQS API Reference, GetQueueAttributes).
        """
        counts: Sequence[QueueAttributeNameType] = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        ]
        counted = self._sqs.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=counts)["Attributes"]
        return all(int(counted[name]) == 0 for name in counts)

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
        """Send a message with the reason to the dead-letter queue. The caller must delete the original afterwards.

        Its body has no task token, so that a redriven request answers no caller a second time.

        It has a message group of its own, since at most ten messages of a group can be read before one is deleted. The
        order of the requests is in the attributes: `sent_at`, then `sequence_number`.

        The deduplication id is the message id, which is the same for a redelivery and different for a redriven message.
        With the request's name instead, SQS would drop the dead-letter message of a request that is redriven and
        refused again within five minutes.
        """
        attributes: Mapping[str, MessageAttributeValueTypeDef] = {
            "code": text(code, 100),
            "reason": text(reason, MAX_REASON_CHARACTERS),
            "source_message_id": text(delivery.message_id, 100),
            "message_group": text(delivery.group_id, 128),
            "sequence_number": text(delivery.sequence, 40),
            "receives": number(delivery.receives),
            "sent_at": number(int(delivery.sent_at)),
        }
        self._sqs.send_message(
            QueueUrl=self._dead_letter_queue_url,
            MessageBody=without_token(delivery.body),
            MessageAttributes=attributes,
            MessageGroupId=delivery.message_id,
            MessageDeduplicationId=delivery.message_id,
        )


class FailedRequestQueue:
    """The queue that keeps failed requests: those that were started and did not succeed. The body can be sent again."""

    def __init__(self, sqs: SQSClient, queue_url: str) -> None:
        self._sqs = sqs
        self._queue_url = queue_url

    def keep(self, body: str, execution: str, error: str, cause: str, glue_run_state: str = "") -> None:
        """Keep a request with the same attributes as the workflow's KeepRequest state.

        Args:
            glue_run_state: the state of the execution's Glue run; if empty, the attribute is omitted.
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


def wake_next(slots: Slots, queue: RequestQueue, process: str, now: float) -> bool:
    """Wake the waiting request that is next, if it fits; True if its message was made visible, or will be after a turn.

    Call it after each release, and whenever a message that may have kept others out is consumed. A registration whose
    receipt handle is outdated is cleared, and the next one is woken: it would keep lower priorities out.

    A second wake before the end of a turn sets the same message's time again, since the message is still hidden.
    """
    for _ in range(MAX_WAKES):
        due = slots.to_wake(process, now)
        if due is None:
            return False
        if queue.make_visible(due.waiting.receipt_handle, due.delay):
            return True
        slots.clear(process, due.waiting, now)
    return False
