"""Requests that an operator has cancelled while they were on RequestQueue.

SQS has no call that removes a message from the middle of a FIFO queue, and receiving it manually would invalidate the
receipt handle that wakes it. Draining the queue and sending the rest again would change the order and lose messages in
flight. So the message stays, and a cancellation is recorded in its process's item: `cancelled`, execution name ->
{since, by}. It makes every reserve of the request fail (protocol.py), and the starter then dead-letters the message.

The janitor removes a cancellation only when the queue can no longer hold the message. With an earlier removal, a
cancelled request could start:

1. The starter sends the message to the dead-letter queue and dies before it deletes the original.
2. The cancellation is removed.
3. SQS delivers the original again, and the request starts. A redrive of the dead-letter message may start it twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from slotkeeper.aws.dynamodb import Item, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Of RequestQueue, in seconds (template.yaml, MessageRetentionPeriod).
RETENTION_SECONDS = 14 * 86400
# One day more, for clock differences.
KEEP_SECONDS = RETENTION_SECONDS + 86400
# Each cancellation adds up to 200 bytes to the item, and so to the price of each write.
MAX_CANCELLATIONS = 100
_LONGEST_BY = 64

CANCEL_UPDATE = "SET cancelled.#me = :entry"
# A holder is no longer queued: its workflow has started, or is about to start.
CANCEL_CONDITION = (
    "attribute_exists(process_name) AND attribute_not_exists(holders.#me) "
    "AND (attribute_exists(cancelled.#me) OR size(cancelled) < :most)"
)


@dataclass(frozen=True)
class Cancellation:
    """A cancelled request. `since`: seconds since the epoch. `by`: the operator, empty if unknown."""

    since: int
    by: str = ""

    def is_expired(self, now: float) -> bool:
        """Whether no queue can still hold a message of the request."""
        return now >= self.since + KEEP_SECONDS


class CancelOutcome(Enum):
    """The result of cancelling a request."""

    CANCELLED = auto()
    HOLDS_SLOT = auto()
    TOO_MANY = auto()  # the process has MAX_CANCELLATIONS already


class Cancellations:
    """The cancellations in one table. Errors of DynamoDB itself pass through as ClientError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def add(self, process: str, execution: str, now: float, by: str = "") -> tuple[CancelOutcome, Item]:
        """Record that a request is cancelled, and return the outcome and the item after the write. Safe to repeat.

        Raises:
            LookupError: the process does not exist.
        """
        # Two updates: DynamoDB cannot set a key of a map that does not exist, and an item has no map at first.
        add_map = "SET cancelled = if_not_exists(cancelled, :none)"
        self._table.update(process, add_map, "attribute_exists(process_name)", {":none": {"M": {}}})
        entry = {"since": {"N": str(int(now))}} | ({"by": {"S": by[:_LONGEST_BY]}} if by else {})
        values = {":entry": {"M": entry}, ":most": {"N": str(MAX_CANCELLATIONS)}}
        names = {"#me": execution}
        added, item, _ = self._table.update_and_read(process, CANCEL_UPDATE, CANCEL_CONDITION, values, names)
        if added:
            return CancelOutcome.CANCELLED, item
        if not item:
            raise LookupError(f"process {process!r} does not exist in table {self._table.name}")
        is_holder = execution in item.get("holders", {}).get("M", {})
        return (CancelOutcome.HOLDS_SLOT if is_holder else CancelOutcome.TOO_MANY), item

    def drop_expired(self, process: str, cancellations: Mapping[str, Cancellation], now: float) -> int:
        """Remove those of these cancellations whose messages no queue holds any more; return how many."""
        expired = [(execution, each) for execution, each in cancellations.items() if each.is_expired(now)]
        return sum(self.drop(process, execution, each) for execution, each in expired)

    def drop(self, process: str, execution: str, seen: Cancellation) -> bool:
        """Remove a cancellation; False if it was repeated since it was read.

        Before it expires, call this only if an execution with the name exists: no message can start a second one.
        """
        names = {"#me": execution, "#since": "since"}
        values = {":since": {"N": str(seen.since)}}
        return self._table.update(process, "REMOVE cancelled.#me", "cancelled.#me.#since = :since", values, names).held
