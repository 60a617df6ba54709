"""A message's attributes count against its queue's MaximumMessageSize.

AWS: "Amazon SQS Developer Guide: Message metadata for Amazon SQS": all components of an attribute (name, type, value)
are part of the message's size.
MiniStack counts the body alone, and accepts a dead letter whose history exceeds SQS's limit.
"""

import base64
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import sqs, wrap


def apply() -> None:
    """Check the size of every message, sent alone or in a batch."""
    wrap(sqs, "_act_send_message", _send)
    sqs._HANDLERS["SendMessage"] = sqs._act_send_message


def _send(original: Callable[..., Any], data: dict[str, Any], url: str) -> Any:
    largest = int(sqs._get_q(data.get("QueueUrl", url))["attributes"].get("MaximumMessageSize", 1_048_576))
    if _size(data) > largest:
        reason = f"One or more parameters are invalid. Reason: Message must be shorter than {largest} bytes."
        raise sqs._Err("InvalidParameterValue", reason)
    return original(data, url)


def _size(data: dict[str, Any]) -> int:
    size = len(data.get("MessageBody", "").encode())
    for name, attribute in (data.get("MessageAttributes") or {}).items():
        size += len(name.encode()) + len(attribute.get("DataType", "").encode())
        size += len((attribute.get("StringValue") or "").encode())
        size += len(base64.b64decode(attribute.get("BinaryValue") or ""))
    return size
