"""Finds a request of the worker: its row in RequestLedgerTable, and its dead-letter message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slotkeeper.retry import ledger
from slotkeeper.retry.ledger import Ledger, Row
from slotkeeper.retry.operations import is_cancelled
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.search import Search, read_dead_letters
from slotkeeper_cli.stack_connection import StackConnection

WORK_QUEUES = (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE)
_STATES = {
    ledger.RUNNING: RequestState.RUNNING,
    ledger.FAILED: RequestState.FAILED,
    ledger.WAITING: RequestState.WAITING,
    ledger.SUCCEEDED: RequestState.SUCCEEDED,
    ledger.DEAD_LETTERED: RequestState.DEAD_LETTERED,
}


@dataclass(frozen=True)
class FoundWork:
    """A request of the worker. `row` is None if only its dead-letter message is known."""

    request_id: str
    row: Row | None
    dlq_message: DeadLetterMessage | None

    @property
    def state(self) -> RequestState:
        if self.row is None:
            return RequestState.DEAD_LETTERED
        return RequestState.CANCELLED if is_cancelled(self.row) else _STATES[self.row.status]

    def as_dict(self) -> dict[str, Any]:
        """The request as JSON shows it."""
        data: dict[str, Any] = {"request_id": self.request_id, "state": self.state}
        if (row := self.row) is not None:
            data |= {
                "attempts": row.attempts,
                "last_attempt_at": iso(row.last_attempt_at),
                "next_attempt_at": None if row.next_attempt_at is None else iso(row.next_attempt_at),
                "last_error": row.last_error,
                "history": [dict(entry) for entry in row.history],
            }
        if self.dlq_message is not None:
            data["dead_letter"] = {"queue": self.dlq_message.queue.full_name, **self.dlq_message.summary()}
        return data


def is_deployed(stack: StackConnection) -> bool:
    """Whether the stack has the worker."""
    return "RequestLedgerTableName" in stack.outputs


def find_work(stack: StackConnection, search: Search, given: str, *, search_dead_letters: bool) -> FoundWork | None:
    """The worker's request with an id; None if there is none.

    Args:
        given: the id of the request, or the message id of its dead-letter message.
        search_dead_letters: read the dead-letter queues also if the ledger does not know the request, as for a message
            that was malformed. They are read in any case for a request that was dead-lettered.

    Raises:
        MalformedRow: the request's row does not have the documented types.
    """
    rows = Ledger(stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"])
    row = rows.read(given)
    has_message = search_dead_letters if row is None else row.status in (ledger.FAILED, ledger.DEAD_LETTERED)
    message = _dead_letter(stack, search, given) if has_message else None
    if row is not None or message is None:
        return None if row is None else FoundWork(given, row, message)
    request_id = message.request_id or given
    return FoundWork(request_id, None if request_id == given else rows.read(request_id), message)


def _dead_letter(stack: StackConnection, search: Search, given: str) -> DeadLetterMessage | None:
    return next((one for one in read_dead_letters(stack, search, WORK_QUEUES) if one.is_named(given)), None)
