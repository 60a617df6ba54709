"""Notes of skipped requests: the record that a request has ended as skipped, for two weeks.

A note is an item of SettledTable whose key is `#skipped:` and the execution's name, which contains no `#`. It is
written before the event and the answer to the caller, so a message that is delivered again after a crash is skipped
again, although a slot may be free by then. Requests that wait write and read no note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table, number
from slotkeeper.slots.request import Delivery, Request

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PREFIX = "#skipped:"
# Seconds: as long as the dead-letter queues keep their messages. TTL deletes an item some days later at most.
KEEP_SECONDS = 14 * 86400


@dataclass(frozen=True)
class SkippedRequest:
    """A note.

    Attributes:
        caller: what identifies the caller in the execution's name; "" without one.
        since: when the request was skipped, in seconds since the epoch.
    """

    execution: str
    process: str
    request_id: str
    attempt: int
    caller: str
    message_id: str
    reason: str
    since: int


class SkippedRequests:
    """Writes and reads the notes in one table. Errors of DynamoDB itself pass through as ClientError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")

    def add_note(self, request: Request, delivery: Delivery, reason: str, now: float) -> None:
        """Record that a request was skipped. A later message of the same request replaces the note."""
        item: Item = {
            "execution_name": {"S": PREFIX + request.execution_name},
            "process": {"S": request.process},
            "request_id": {"S": request.request_id},
            "attempt": number(request.attempt),
            "message_id": {"S": delivery.message_id},
            "reason": {"S": reason},
            "skipped_at": number(int(now)),
            "expires_at": number(int(now) + KEEP_SECONDS),
        }
        if request.caller:
            item["caller"] = {"S": request.caller}
        self._table.dynamodb.put_item(TableName=self._table.name, Item=item)

    def note_of(self, execution: str) -> SkippedRequest | None:
        """The note of an execution's name; None if there is none."""
        return _parse(self._table.read(PREFIX + execution))

    def all_notes(self) -> Iterator[SkippedRequest]:
        """Scan every note."""
        pages = self._table.dynamodb.get_paginator("scan").paginate(
            TableName=self._table.name, FilterExpression="attribute_exists(skipped_at)"
        )
        for page in pages:
            yield from filter(None, map(_parse, page["Items"]))


def _parse(item: Any) -> SkippedRequest | None:
    """The note in an item; None without one, or if an attribute is not of the documented type."""
    attributes = Attributes(item)
    try:
        return SkippedRequest(
            execution=attributes.text("execution_name").removeprefix(PREFIX),
            process=attributes.text("process"),
            request_id=attributes.text("request_id"),
            attempt=attributes.whole("attempt"),
            caller=attributes.text("caller", ""),
            message_id=attributes.text("message_id"),
            reason=attributes.text("reason"),
            since=attributes.whole("skipped_at"),
        )
    except MalformedAttribute:
        return None
