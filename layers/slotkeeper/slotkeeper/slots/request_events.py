"""Completion events of the requests of RequestQueue that the functions publish (slotkeeper.events)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slotkeeper.events import CompletionEvents, instant
from slotkeeper.slots.executions import Execution, failure_reason
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, Delivery

if TYPE_CHECKING:
    from slotkeeper.slots.rows import RequestRow

_FLOW = "slots"


class RequestEvents:
    """Publishes the ends of requests that one function records.

    Args:
        kept_in: where they are kept: the URL of a queue, or the name of a table.
    """

    def __init__(self, events: CompletionEvents, kept_in: str) -> None:
        self._events = events
        self._kept_in = kept_in.rpartition("/")[2]

    def dead_lettered(self, delivery: Delivery, code: str, reason: str) -> bool:
        """Publish that the starter has dead-lettered a message, which is no request."""
        detail = {"process": delivery.group_id, "message_id": delivery.message_id, "code": code, "reason": reason}
        return self._events.publish(
            "DEAD_LETTERED", delivery.message_id, {"flow": _FLOW, **detail, "kept_in": self._kept_in}
        )

    def ended(self, row: RequestRow) -> bool:
        """Publish that a request has ended without a start."""
        detail: dict[str, Any] = {
            "flow": _FLOW,
            "process": row.process,
            "request_id": row.request_id,
            "attempt": row.attempt,
            "priority": row.priority,
            "weight": row.weight or 0,
            "message_id": row.message_id,
            "reason": row.reason,
        }
        if row.state == "SKIPPED":
            return self._events.publish("SKIPPED", row.execution, detail, finished=row.ended)
        detail |= {"code": row.code, "kept_in": self._kept_in}
        return self._events.publish("DEAD_LETTERED", row.execution, detail, finished=row.ended)

    def succeeded(self, execution: Execution, finished: float | None) -> bool:
        """Publish that a request has succeeded whose workflow could not, with the fields of PublishSuccessEvent.

        Args:
            finished: when its child execution ended, epoch seconds; None: when the workflow ended.
        """
        return self._events.publish(
            "SUCCEEDED",
            execution.name,  # and not `closing`: if the workflow has published it too, consumers drop one of them
            {"flow": _FLOW, **_request_fields(execution.input), **_execution_fields(execution)},
            finished=execution.stopped_at if finished is None else finished,
        )

    def failed(self, execution: Execution, error: str, cause: str) -> bool:
        """Publish that the janitor has kept a request, because its workflow could not."""
        return self._events.publish(
            "FAILED",
            execution.closing,
            {
                "flow": _FLOW,
                **_request_fields(execution.input),
                **_execution_fields(execution),
                "error": error,
                "cause": failure_reason(cause),  # without the run's arguments
                "kept_in": self._kept_in,
            },
            finished=execution.stopped_at,
        )


def _execution_fields(execution: Execution) -> dict[str, Any]:
    return {
        "execution_name": execution.name,
        "execution_arn": execution.arn,
        "started_at": None if execution.started_at is None else instant(execution.started_at),
    }


def _request_fields(execution_input: str) -> dict[str, Any]:
    """The request's fields from an execution's input. A manually started execution may have any input."""
    try:
        request = json.loads(execution_input)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(request, dict):
        return {}
    types = {"process": str, "request_id": str, "attempt": int, "weight": int}
    asked = {"weight": 0} | {name: request[name] for name in types if type(request.get(name)) is types[name]}
    return asked | {
        "priority": next((each for each in PRIORITIES if each == request.get("priority")), DEFAULT_PRIORITY)
    }
