"""A case: an invocation of a function, and the account that it runs in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.least_privilege.recording import Recorded

DAY = 86_400
Item = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One invocation. `arrange` prepares the account."""

    function: str
    name: str
    event: dict[str, Any]
    arrange: Callable[[Recorded], None]


def number(value: float) -> Item:
    return {"N": str(int(value))}


def put(table: str, *items: Item) -> Callable[[Recorded], None]:
    def arrange(account: Recorded) -> None:
        for item in items:
            account.tables.put(table, item)

    return arrange


def message(body: Any, queue: str, receives: int = 1, age: float = 0, **attributes: Any) -> dict[str, Any]:
    """An event of the event source mapping with one message."""
    record = {
        "messageId": "message-1",
        "receiptHandle": "handle-1",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": {
            "ApproximateReceiveCount": str(receives),
            "SentTimestamp": str(int((time.time() - age) * 1000)),
            "MessageGroupId": "p",
            "SequenceNumber": "18849496460467696128",
        },
        "messageAttributes": attributes,
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{queue}",
    }
    return {"Records": [record]}
