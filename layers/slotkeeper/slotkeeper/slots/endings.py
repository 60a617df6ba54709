"""Publishes that a request has ended without a start: its caller is answered, and its completion event is published.

Then its row leaves the index `open`. Until then the janitor repeats it: an answer is given at least once, and Step
Functions accepts one for each task token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from slotkeeper.aws.dynamodb import Table
from slotkeeper.slots.callers import AnswerOutcome, Callers
from slotkeeper.slots.request_events import RequestEvents
from slotkeeper.slots.request_table import ENDED_WITHOUT_START
from slotkeeper.slots.rows import RequestRow, read_row

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# The answer's error, by the row's state; the code of a rejected one.
_ERRORS = {"SKIPPED": "Skipped", "TOO_LATE": "TooLate", "CANCELLED": "Cancelled"}


class Endings:
    """Publishes ends. Errors of DynamoDB pass through as ClientError or BotoCoreError.

    Args:
        on_published: receives each row after it was published, and the outcome of the answer; None if no caller waited.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        callers: Callable[[], Callers],
        events: RequestEvents,
        on_published: Callable[[RequestRow, AnswerOutcome | None], object] = lambda *_: None,
    ) -> None:
        self._table = Table(dynamodb, table_name, "process_name", "execution")
        self._callers, self._events, self._on_published = callers, events, on_published

    def publish(self, process: str, executions: Iterable[str]) -> list[str]:
        """Publish the ends of these requests, if they are not published; return those that must be published again.

        A caller that has an answer, or is gone, counts as answered. Raises MalformedRequestRow.
        """
        return [execution for execution in executions if not self._publish(process, execution)]

    def _publish(self, process: str, execution: str) -> bool:
        item = self._table.read((process, execution))
        row = read_row(item) if item else None
        if row is None or row.state not in ENDED_WITHOUT_START or row.open is None:
            return True
        given: AnswerOutcome | None = None
        if row.task_token:
            error = _ERRORS.get(row.state, row.code)
            given = self._callers().fail(row.task_token, error, row.reason)
            if given is AnswerOutcome.FAILED:
                return False
        self._events.ended(row)
        # The token is spent.
        self._table.update((process, execution), "REMOVE #open, task_token", "attribute_exists(execution)", None, _OPEN)
        self._on_published(row, given)
        return True


_OPEN = {"#open": "open"}
