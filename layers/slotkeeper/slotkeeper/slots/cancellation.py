"""Requests that an operator has cancelled while they were on RequestQueue.

SQS lets nobody take a message out of the middle of a FIFO queue, and who receives it by hand spends the receipt handle
by which it would be woken. So the message stays, and a note stands in its process's item: `cancelled`, execution name
-> {since, by}. No reserve succeeds against it (protocol.py), and the starter that is told of it sets the message aside.

The note outlives what it stops. A starter sends the dead letter, dies, and the message comes once more: were the note
gone by then, the request would start after all, and its dead letter could start it a second time. So the janitor drops
it only when the queue cannot hold the message any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from slotkeeper.aws.dynamodb import Item, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# The longest that RequestQueue keeps a message, and a day for clocks that are apart. In seconds.
KEEP_SECONDS = 15 * 86400
# Each costs every write of the item its share, some 200 bytes at most.
MAX_CANCELLATIONS = 100
_LONGEST_BY = 64

CANCEL_UPDATE = "SET cancelled.#me = :entry"
# Who holds a slot is not queued any more: its workflow has begun, or is about to.
CANCEL_CONDITION = (
    "attribute_exists(process_name) AND attribute_not_exists(holders.#me) "
    "AND (attribute_exists(cancelled.#me) OR size(cancelled) < :most)"
)


@dataclass(frozen=True)
class Cancellation:
    """A request that is not to start. `since` is in seconds since the epoch; `by` is empty if nobody said."""

    since: int
    by: str = ""

    def is_over(self, now: float) -> bool:
        """Whether no message that it could stop is kept any more."""
        return now >= self.since + KEEP_SECONDS


class CancelOutcome(Enum):
    """Whether a request is cancelled, and why not."""

    CANCELLED = auto()
    HOLDS_SLOT = auto()
    TOO_MANY = auto()  # MAX_CANCELLATIONS are kept already


class Cancellations:
    """The notes in one table. Errors of DynamoDB itself pass through as ClientError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def add(self, process: str, execution: str, now: float, by: str = "") -> tuple[CancelOutcome, Item]:
        """Notes that a request is not to start, once more if it is noted already; and the item as it then stands.

        Raises:
            LookupError: there is no such process.
        """
        # Two updates: no path leads into a map that is not there, and an item that was never needed it has none.
        add_map = "SET cancelled = if_not_exists(cancelled, :none)"
        self._table.update(process, add_map, "attribute_exists(process_name)", {":none": {"M": {}}})
        entry = {"since": {"N": str(int(now))}} | ({"by": {"S": by[:_LONGEST_BY]}} if by else {})
        values = {":entry": {"M": entry}, ":most": {"N": str(MAX_CANCELLATIONS)}}
        noted, item = self._table.update_and_read(process, CANCEL_UPDATE, CANCEL_CONDITION, values, {"#me": execution})
        if noted:
            return CancelOutcome.CANCELLED, item
        if not item:
            raise LookupError(f"there is no process {process!r} in table {self._table.name}")
        is_holder = execution in item.get("holders", {}).get("M", {})
        return (CancelOutcome.HOLDS_SLOT if is_holder else CancelOutcome.TOO_MANY), item

    def drop_what_is_over(self, process: str, noted: Mapping[str, Cancellation], now: float) -> int:
        """Drops those of these notes whose messages no queue keeps any more; how many."""
        over = [(execution, note) for execution, note in noted.items() if note.is_over(now)]
        return sum(self.drop(process, execution, note) for execution, note in over)

    def drop(self, process: str, execution: str, seen: Cancellation) -> bool:
        """Drops a note, unless it was made anew since it was seen.

        Before its time only where an execution has taken the name: no message can start another under it.
        """
        names = {"#me": execution, "#since": "since"}
        values = {":since": {"N": str(seen.since)}}
        return self._table.update(process, "REMOVE cancelled.#me", "cancelled.#me.#since = :since", values, names).held
