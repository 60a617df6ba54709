"""SQS: atomic operations, receipt handles, sizes and delays of messages, the redrive of dead letters."""

import base64
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from dev.emulator.engine.emulator import PatchError, locked, patch, replace, sqs, wrap

# Action -> MiniStack's function. ReceiveMessage waits on the event loop, so each of its steps takes the lock, and the
# wait does not.
ACTIONS = {
    "SendMessage": "_act_send_message",
    "SendMessageBatch": "_act_send_message_batch",
    "DeleteMessage": "_act_delete_message",
    "DeleteMessageBatch": "_act_delete_message_batch",
    "ChangeMessageVisibility": "_act_change_visibility",
    "ChangeMessageVisibilityBatch": "_act_change_visibility_batch",
    "GetQueueAttributes": "_act_get_queue_attributes",
    "PurgeQueue": "_act_purge_queue",
}
STEPS = ("_collect_msgs", "_dlq_sweep", "_expire_retained", "_receive_messages_for_esm", "_delete_messages_for_esm")
LONGEST_DELAY = 900  # seconds
REMEMBERED = 50_000  # handles of one queue, the oldest forgotten first

lock = threading.RLock()
_locked = partial(locked, lock)


def _wrap_action(action: str, function: Callable[..., Any]) -> None:
    """As `wrap`, for an action, inside the lock and also in MiniStack's table of actions."""
    replace(sqs, ACTIONS[action], lambda original: _locked(partial(function, original)))
    sqs._HANDLERS[action] = getattr(sqs, ACTIONS[action])


@patch
def sqs_locks() -> None:
    """Every operation on a queue is atomic.

    AWS: "Amazon SQS Developer Guide: FIFO queue delivery logic": an accepted message stays until it is deleted or
    expires, and is delivered to one consumer at a time.
    MiniStack changes a queue from three threads (event loop, Lambda poller, Step Functions tasks): a client and a
    function can receive the same message, and a message is lost if it is sent while another thread replaces the
    queue's list.
    Shown by the row one_consumer_at_a_time of tests/facts.
    """
    replace(sqs, "_queues_lock", lambda _original: lock)  # reentrant: the steps are called inside it
    for action in ACTIONS:
        _wrap_action(action, lambda original, data, url: original(data, url))
    for name in STEPS:
        replace(sqs, name, _locked)


@patch
def sqs_handles() -> None:
    """FIFO receipt handles expire with the visibility timeout and the next receive, those of a standard queue do not.

    AWS: "Amazon SQS API Reference: DeleteMessage" (standard: with an older handle the request succeeds and may delete
    nothing), and re:Post "How do I resolve the ReceiptHandleIsInvalid or InvalidParameterValue error" (FIFO: "The
    receipt handle has expired"). ChangeMessageVisibility on standard queues is recorded.
    MiniStack deletes by a handle of a message that is visible again, and refuses an older handle as invalid.
    Shown by the rows standard_accepts_an_earlier_handle, delete_after_the_timeout, deleted_cannot_be_hidden,
    delete_twice of tests/facts.
    """
    wrap(sqs, "_collect_msgs", _collect)
    _wrap_action("DeleteMessage", _delete)
    _wrap_action("ChangeMessageVisibility", _change_visibility)
    for action in ("DeleteMessage", "ChangeMessageVisibility"):
        _wrap_action(f"{action}Batch", partial(_batch, action))
    replace(sqs, "_delete_messages_for_esm", lambda original: _locked(partial(_delete_for_event_source, original)))


def _collect(original: Callable[..., Any], queue: dict[str, Any], count: int, visibility: int) -> Any:
    messages = original(queue, count, visibility)
    known = queue.setdefault("handles", OrderedDict())
    for message in messages:
        known[message["receipt_handle"]] = message["id"]
    while len(known) > REMEMBERED:
        known.popitem(last=False)
    return messages


def _delete(original: Callable[..., Any], data: dict[str, Any], url: str) -> Any:
    queue, handle, message = _find(data, url)
    if message is None:
        return {}  # deleted earlier: the request succeeds
    if message["receipt_handle"] != handle and not queue["is_fifo"]:
        return {}
    if queue["is_fifo"] and _expired(message, handle):
        raise _error(handle, "The receipt handle has expired.")
    return original(data, url)


def _change_visibility(original: Callable[..., Any], data: dict[str, Any], url: str) -> Any:
    queue, handle, message = _find(data, url)
    if message is None:
        raise _error(handle, "Message does not exist or is not available for visibility timeout change.")
    return original(data if queue["is_fifo"] else {**data, "ReceiptHandle": message["receipt_handle"]}, url)


def _batch(action: str, _original: Any, data: dict[str, Any], url: str) -> Any:
    entries = data.get("Entries", [])
    sqs._validate_batch_entries(entries, f"{action}BatchRequestEntry")
    done, failed = [], []
    for entry in entries:
        try:
            sqs._HANDLERS[action]({**entry, "QueueUrl": data.get("QueueUrl", url)}, url)
            done.append({"Id": entry["Id"]})
        except sqs._Err as error:
            failed.append({"Id": entry["Id"], "Code": error.code, "Message": error.message, "SenderFault": True})
    return {"Successful": done, "Failed": failed}


def _delete_for_event_source(original: Callable[..., Any], url: str, handles: set[str]) -> None:
    queue = sqs._get_q(url)
    if queue["is_fifo"]:
        # Lambda deletes with the handle that it received. Meanwhile the message may be visible or received again.
        messages = {message["receipt_handle"]: message for message in queue["messages"]}
        handles = {handle for handle in handles if handle in messages and not _expired(messages[handle], handle)}
    original(url, handles)


def _find(data: dict[str, Any], url: str) -> tuple[dict[str, Any], str, dict[str, Any] | None]:
    queue = sqs._get_q(data.get("QueueUrl", url))
    handle = data.get("ReceiptHandle", "")
    owner = queue.get("handles", {}).get(handle)
    if owner is None:
        raise sqs._Err("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')
    return queue, handle, next((message for message in queue["messages"] if message["id"] == owner), None)


def _expired(message: dict[str, Any], handle: str) -> bool:
    return bool(message["receipt_handle"] != handle or message["visible_at"] <= time.time())


def _error(handle: str, reason: str) -> Exception:
    error: Exception = sqs._Err(
        "InvalidParameterValue", f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"
    )
    return error


@patch
def sqs_limits() -> None:
    """A message has a delay of at most 900 seconds, and its attributes count against its queue's MaximumMessageSize.

    AWS: "Amazon SQS API Reference: SendMessage", DelaySeconds. "Amazon SQS Developer Guide: Message metadata for Amazon
    SQS": all components of an attribute (name, type, value) are part of the message's size.
    MiniStack accepts any delay, and delivers the message later than SQS could. It counts the body alone, and accepts a
    dead letter whose history exceeds SQS's limit.
    Shown by the rows longest_delay, attributes_count_as_size of tests/facts.
    """
    _wrap_action("SendMessage", _send)


def _send(original: Callable[..., Any], data: dict[str, Any], url: str) -> Any:
    largest = int(sqs._get_q(data.get("QueueUrl", url))["attributes"].get("MaximumMessageSize", 1_048_576))
    if _size(data) > largest:
        reason = f"One or more parameters are invalid. Reason: Message must be shorter than {largest} bytes."
        raise sqs._Err("InvalidParameterValue", reason)
    delay = int(data.get("DelaySeconds") or 0)
    if not 0 <= delay <= LONGEST_DELAY:
        reason = f"Value {delay} for parameter DelaySeconds is invalid. Reason: Must be between 0 and 900, if provided."
        raise sqs._Err("InvalidParameterValue", reason)
    return original(data, url)


def _size(data: dict[str, Any]) -> int:
    size = len(data.get("MessageBody", "").encode())
    for name, attribute in (data.get("MessageAttributes") or {}).items():
        texts = (name, attribute.get("DataType", ""), attribute.get("StringValue") or "")
        size += sum(len(text.encode()) for text in texts) + len(base64.b64decode(attribute.get("BinaryValue") or ""))
    return size


@patch
def sqs_redrive() -> None:
    """Dead letters can be redriven: StartMessageMoveTask.

    AWS: "Amazon SQS API Reference: StartMessageMoveTask": without a destination each message returns to its source
    queue. "Amazon SQS Developer Guide: Learn how to configure a dead-letter queue redrive": redriven messages are new
    ones, with a new id and time. A message that was sent directly to the dead-letter queue has no source queue, and
    stays ("DLQ and DLQ redrive issues").
    MiniStack does not have the action. Here the task has ended when it answers, and no list has it.
    Shown by tests/deployed/test_worker.py.
    """
    if "StartMessageMoveTask" in sqs._HANDLERS:
        raise PatchError("MiniStack has message move tasks now")
    sqs._HANDLERS["StartMessageMoveTask"] = _locked(_move)


def _move(data: dict[str, Any], _url: str) -> dict[str, str]:
    source = _queue(data["SourceArn"])
    moved = []
    for message in list(source["messages"]):
        target = data.get("DestinationArn") or message["sys"].get("DeadLetterQueueSourceArn")
        if target is None or message["visible_at"] > time.time():
            continue
        again = {"MessageBody": message["body"], "MessageAttributes": message["message_attributes"]}
        if message["group_id"]:
            again |= {"MessageGroupId": message["group_id"], "MessageDeduplicationId": message["id"]}
        sqs._act_send_message(again, _queue(target)["url"])
        moved.append(message["id"])
    source["messages"] = [message for message in source["messages"] if message["id"] not in moved]
    return {"TaskHandle": str(uuid.uuid4())}


def _queue(arn: str) -> dict[str, Any]:
    queue: dict[str, Any] | None = sqs._queue_by_arn(arn)
    if queue is None:
        raise sqs._Err("ResourceNotFoundException", "The resource that you specified for the SourceArn doesn't exist.")
    return queue
