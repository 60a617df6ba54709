"""Completion events of the requests of RequestQueue (slotkeeper.events), which endings.py publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slotkeeper.events import CompletionEvents, instant

if TYPE_CHECKING:
    from slotkeeper.slots.rows import RequestRow

_FLOW = "slots"


class RequestEvents:
    """Publishes the ends of requests.

    Args:
        kept_in: the name of the table that keeps them.
        dead_letters: that of the queue that keeps messages which are no requests.
    """

    def __init__(self, events: CompletionEvents, kept_in: str, dead_letters: str) -> None:
        self._events = events
        self._kept_in, self._dead_letters = kept_in, dead_letters

    def dead_lettered(self, refused: Mapping[str, str]) -> bool:
        """Publish that a message is no request; False if that failed. `refused`: as of EndingQueue.refused."""
        detail = {
            "process": refused["group_id"],
            "message_id": refused["message_id"],
            "code": refused["code"],
            "reason": refused["reason"],
        }
        return self._events.publish(
            "DEAD_LETTERED", refused["message_id"], {"flow": _FLOW, **detail, "kept_in": self._dead_letters}
        )

    def ended(self, row: RequestRow, reason: str, execution_arn: str) -> bool:
        """Publish how a request has ended; False if that failed. `reason`: of a request that did not succeed."""
        detail: dict[str, Any] = {
            "flow": _FLOW,
            "process": row.process,
            "request_id": row.request_id,
            "key": row.key or None,
            "attempt": row.attempt,
            "priority": row.priority,
            "weight": row.weight or 0,
        }
        if row.state in ("SUCCEEDED", "FAILED"):
            started = None if row.started is None else instant(row.started)
            detail |= {"execution_name": row.execution, "execution_arn": execution_arn, "started_at": started}
        else:
            detail |= {"message_id": row.message_id, "reason": reason}
        match row.state:
            case "SUCCEEDED":
                return self._events.publish("SUCCEEDED", row.execution, detail, row.ended)
            case "FAILED":
                detail |= {"error": row.code, "cause": reason, "kept_in": self._kept_in}
                return self._events.publish("FAILED", row.execution, detail, row.ended)
            case "SKIPPED":
                return self._events.publish("SKIPPED", row.execution, detail, row.ended)
            case _:
                detail |= {"code": row.code, "kept_in": self._kept_in}
                return self._events.publish("DEAD_LETTERED", row.execution, detail, row.ended)
