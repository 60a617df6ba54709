"""FIFO receipt handles expire with the visibility timeout and the next receive, those of a standard queue do not.

AWS: "Amazon SQS API Reference: ChangeMessageVisibility" (MessageNotInflight for a message that is visible),
"DeleteMessage" (standard: with an older handle the request succeeds and may delete nothing), and re:Post "How do I
resolve the ReceiptHandleIsInvalid or InvalidParameterValue error" (FIFO: "The receipt handle has expired"). The
recordings of ChangeMessageVisibility on standard queues are in tests/conformance/test_sqs.py.
MiniStack accepts a handle for a message that is visible again, and refuses an older handle as invalid.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import replace, sqs, wrap
from dev.emulator.engine.patches.sqs_locks import locked

REMEMBERED = 50_000  # handles of one queue, the oldest forgotten first


def apply() -> None:
    """Store the message of each handle, and check every use of a handle."""
    wrap(sqs, "_collect_msgs", _collect)
    replace(sqs, "_act_delete_message", _delete)
    replace(sqs, "_act_change_visibility", _change_visibility)
    replace(sqs, "_act_delete_message_batch", lambda _original: _batch("_act_delete_message"))
    replace(sqs, "_act_change_visibility_batch", lambda _original: _batch("_act_change_visibility"))
    sqs._HANDLERS["DeleteMessage"] = sqs._act_delete_message
    sqs._HANDLERS["ChangeMessageVisibility"] = sqs._act_change_visibility
    sqs._HANDLERS["DeleteMessageBatch"] = sqs._act_delete_message_batch
    sqs._HANDLERS["ChangeMessageVisibilityBatch"] = sqs._act_change_visibility_batch
    replace(sqs, "_delete_messages_for_esm", _delete_for_event_source)


def _collect(original: Callable[..., Any], queue: dict[str, Any], count: int, visibility: int) -> Any:
    messages = original(queue, count, visibility)
    known = queue.setdefault("handles", OrderedDict())
    for message in messages:
        known[message["receipt_handle"]] = message["id"]
    while len(known) > REMEMBERED:
        known.popitem(last=False)
    return messages


def _delete(original: Callable[..., Any]) -> Callable[..., Any]:
    def delete(data: dict[str, Any], url: str) -> Any:
        queue, handle, message = _find(data, url)
        if message is None:
            return {}  # deleted earlier: the request succeeds
        if message["receipt_handle"] != handle and not queue["is_fifo"]:
            return {}
        if queue["is_fifo"] and _expired(message, handle):
            raise _error(handle, "The receipt handle has expired.")
        return original(data, url)

    return locked(delete)


def _change_visibility(original: Callable[..., Any]) -> Callable[..., Any]:
    def change(data: dict[str, Any], url: str) -> Any:
        queue, handle, message = _find(data, url)
        if message is None:
            raise _error(handle, "Message does not exist or is not available for visibility timeout change.")
        if not queue["is_fifo"]:
            return original({**data, "ReceiptHandle": message["receipt_handle"]}, url)
        if message["receipt_handle"] != handle:
            raise _error(handle, "The receipt handle has expired.")
        if message["visible_at"] <= time.time():
            raise sqs._Err("MessageNotInflight", "The specified message is not in flight.")
        return original(data, url)

    return locked(change)


def _batch(single: str) -> Callable[..., Any]:
    def run(data: dict[str, Any], url: str) -> Any:
        entries = data.get("Entries", [])
        kind = "DeleteMessage" if "delete" in single else "ChangeMessageVisibility"
        sqs._validate_batch_entries(entries, f"{kind}BatchRequestEntry")
        done, failed = [], []
        for entry in entries:
            try:
                getattr(sqs, single)({**entry, "QueueUrl": data.get("QueueUrl", url)}, url)
                done.append({"Id": entry["Id"]})
            except sqs._Err as error:
                failed.append({"Id": entry["Id"], "Code": error.code, "Message": error.message, "SenderFault": True})
        return {"Successful": done, "Failed": failed}

    return locked(run)


def _delete_for_event_source(original: Callable[..., Any]) -> Callable[..., Any]:
    def delete(url: str, handles: set[str]) -> None:
        queue = sqs._get_q(url)
        if queue["is_fifo"]:
            # Lambda deletes with the handle that it received. Meanwhile the message may be visible or received again.
            messages = {message["receipt_handle"]: message for message in queue["messages"]}
            handles = {handle for handle in handles if handle in messages and not _expired(messages[handle], handle)}
        original(url, handles)

    return locked(delete)


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
