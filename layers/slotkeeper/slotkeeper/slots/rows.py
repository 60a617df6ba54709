"""The rows of RequestTable as they are read. request_table.py describes their attributes, and writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table, number
from slotkeeper.slots.queued import Queued, key_of, rank_of, sent_at
from slotkeeper.slots.request import PRIORITIES, Priority
from slotkeeper.slots.request_table import State, read_queued, read_state

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Of 1 MB each: some 40,000 queued requests, or a thousand rows with a body of 10 KB.
MAX_PAGES = 10
# The attributes that a list shows: not the body and the task token, which a reader of lists need no permission for.
LISTED = (
    "process_name, execution, #state, request_id, attempt, message_id, digest, priority, weight, skips, start_before, "
    "sent, place, placed, #open, granted, put_back, started, ended, failed, code, reason, cause, expires"
)
_NAMES = {"#state": "state", "#open": "open"}


@dataclass(frozen=True)
class RequestRow:
    """A request's row. Times are seconds since the epoch; None and "": the row does not have the attribute.

    `body`, `task_token` and `answer` are "" in what RequestRows reads. `granted` and `put_back` order grants
    (request_table.py).
    """

    process: str
    execution: str
    state: State
    request_id: str
    attempt: int
    priority: Priority
    sent: float
    place: str = ""
    placed: str = ""
    weight: int | None = None
    skips: bool = False
    start_before: float | None = None
    open: float | None = None
    granted: str = ""
    put_back: int | None = None
    started: float | None = None
    ended: float | None = None
    code: str = ""
    reason: str = ""
    cause: str = ""
    failed: float | None = None
    published: int = 0
    expires: float | None = None
    message_id: str = ""
    digest: str = ""
    body: str = field(default="", repr=False)
    task_token: str = field(default="", repr=False)
    answer: str = field(default="", repr=False)

    @property
    def is_unpublished(self) -> bool:
        """Whether it has ended, and its end is not published yet."""
        return self.open is not None and self.open < 0

    @property
    def key(self) -> str:
        """Whose turn it takes or took; "" for none."""
        return key_of(self.placed)

    @property
    def queued(self) -> Queued | None:
        """The request as `plan` reads it; None if it is not in the queue."""
        return Queued(self.execution, self.place, self.weight, self.start_before, self.skips) if self.place else None


@dataclass(frozen=True)
class QueuedRow:
    """A queued request, as the index of the queue contains it. `sent`: seconds since the epoch."""

    queued: Queued
    request_id: str
    priority: Priority
    sent: float


class MalformedRequestRow(ValueError):
    """A row does not have the documented types. The message names it and its attribute."""


def read_row(item: Item) -> RequestRow:
    """Parse a row in DynamoDB's format. Raises MalformedRequestRow."""
    row = Attributes(item)
    try:
        return RequestRow(
            process=row.text("process_name"),
            execution=row.text("execution"),
            state=row.parsed("state", read_state),
            request_id=row.text("request_id"),
            attempt=row.whole("attempt"),
            priority=row.parsed("priority", _priority),
            sent=row.number("sent"),
            place=row.text("place", ""),
            placed=row.text("placed", ""),
            weight=row.whole("weight", None),
            skips=row.flag("skips", False),
            start_before=row.number("start_before", None),
            open=row.number("open", None),
            granted=row.text("granted", ""),
            put_back=row.whole("put_back", None),
            started=row.number("started", None),
            ended=row.number("ended", None),
            code=row.text("code", ""),
            reason=row.text("reason", ""),
            cause=row.text("cause", ""),
            failed=row.number("failed", None),
            published=row.whole("published", 0),
            expires=row.number("expires", None),
            message_id=row.text("message_id", ""),
            digest=row.text("digest", ""),
            body=row.text("body", ""),
            task_token=row.text("task_token", ""),
            answer=row.text("answer", ""),
        )
    except MalformedAttribute as error:
        raise MalformedRequestRow(f"request {item.get('execution', {}).get('S', '?')}: {error}") from None


def _priority(text: str) -> Priority:
    for each in PRIORITIES:
        if each == text:
            return each
    raise ValueError(f"must be one of {', '.join(PRIORITIES)}, got {text!r}")


@dataclass
class Listed[T]:
    """The result of a bounded read.

    Attributes:
        rows: those that were read.
        malformed: why rows could not be read.
        is_cut: whether more rows exist than were read.
    """

    rows: list[T] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    is_cut: bool = False


class RequestRows:
    """Reads RequestTable. Errors of DynamoDB pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table = Table(dynamodb, table_name, "process_name", "execution")

    def row(self, process: str, execution: str) -> RequestRow | None:
        """The row of an execution, without body and token; None if there is none. Raises MalformedRequestRow."""
        asked = {"ProjectionExpression": LISTED, "ExpressionAttributeNames": _NAMES}
        item = self._table.read((process, execution), **asked)
        return read_row(item) if item else None

    def rows(self, process: str, states: Sequence[State] = (), max_pages: int = MAX_PAGES) -> Listed[RequestRow]:
        """The rows of a process, without bodies and tokens, in the order of their executions' names.

        Args:
            states: those to return; by default all.
        """
        values: Item = {f":s{at}": {"S": state} for at, state in enumerate(states)}
        options = {"FilterExpression": f"#state IN ({', '.join(values)})"} if states else {}
        pages = self._pages(process, values, _NAMES, max_pages, ProjectionExpression=LISTED, **options)
        return _parsed(pages, read_row)

    def history(
        self, process: str, since: float, until: float, max_pages: int = MAX_PAGES, *, newest_first: bool = False
    ) -> Listed[RequestRow]:
        """The requests of a process that have ended in a time, in the order of their ends, without cause and body.

        Args:
            since, until: seconds since the epoch; a request that has ended at one of them is included.
        """
        values: Item = {":since": number(since), ":until": number(until)}
        condition = "process_name = :process AND ended BETWEEN :since AND :until"
        options = {"IndexName": "ended", "KeyConditionExpression": condition, "ScanIndexForward": not newest_first}
        return _parsed(self._pages(process, values, {}, max_pages, **options), read_row)

    def failures(
        self, process: str | None, since: float, until: float, max_pages: int = MAX_PAGES
    ) -> Listed[RequestRow]:
        """The failures of a process, the newest first, or of all, also of removed ones, in any order.

        They are eventually consistent, and have no cause and no body.

        Args:
            since, until: as of `history`.
        """
        values: Item = {":since": number(since), ":until": number(until)}
        between = "failed BETWEEN :since AND :until"
        if process is None:
            scan = self._dynamodb.get_paginator("scan").paginate(
                TableName=self._table.name,
                IndexName="failed",
                FilterExpression=between,
                ExpressionAttributeValues=values,
            )
            pages = ((page["Items"], "LastEvaluatedKey" in page) for page in islice(scan, max_pages))
            return _parsed(pages, read_row)
        options = {"KeyConditionExpression": f"process_name = :process AND {between}", "ScanIndexForward": False}
        queried = self._pages(process, values, {}, max_pages, IndexName="failed", ConsistentRead=False, **options)
        return _parsed(queried, read_row)

    def open(self, process: str, max_pages: int = MAX_PAGES) -> Listed[tuple[str, State]]:
        """The executions of a process that have not ended, each QUEUED or STARTED. The oldest come first."""
        return self._open(process, "> :zero", max_pages)

    def unpublished(self, process: str, max_pages: int = 1) -> Listed[tuple[str, State]]:
        """The executions of a process that have ended, and whose end must still be published."""
        return self._open(process, "< :zero", max_pages)

    def _open(self, process: str, compared: str, max_pages: int) -> Listed[tuple[str, State]]:
        names, condition = {"#open": "open"}, f"process_name = :process AND #open {compared}"
        options = {"IndexName": "open", "KeyConditionExpression": condition}
        pages = self._pages(process, {":zero": {"N": "0"}}, names, max_pages, **options)
        return _parsed(pages, lambda item: (item["execution"]["S"], Attributes(item).parsed("state", read_state)))

    def queue(self, process: str, max_pages: int = MAX_PAGES) -> Listed[QueuedRow]:
        """The queue of a process in its order, also the requests whose weight is above the limit."""
        return _parsed(self._pages(process, {}, {}, max_pages, IndexName="place"), read_queued_row)

    def _pages(
        self, process: str, values: Item, names: Mapping[str, str], max_pages: int, **options: Any
    ) -> Iterator[tuple[list[Item], bool]]:
        """The items of up to `max_pages` pages, each with whether there is more after it."""
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "ConsistentRead": True,
            "KeyConditionExpression": "process_name = :process",
            "ExpressionAttributeValues": {":process": {"S": process}, **values},
            **({"ExpressionAttributeNames": dict(names)} if names else {}),
            **options,
        }
        for page in islice(self._dynamodb.get_paginator("query").paginate(**request), max_pages):
            yield page["Items"], "LastEvaluatedKey" in page


def _parsed[T](pages: Iterable[tuple[list[Item], bool]], parse: Callable[[Item], T]) -> Listed[T]:
    listed = Listed[T]()
    for page, listed.is_cut in pages:
        for item in page:
            try:
                listed.rows.append(parse(item))
            except MalformedRequestRow as error:
                listed.malformed.append(str(error))
            except (ValueError, IndexError) as error:
                listed.malformed.append(f"request {item['execution']['S']}: {error}")
    return listed


def read_queued_row(item: Item) -> QueuedRow:
    """Parse an entry of the index of the queue. Raises MalformedAttribute, ValueError or IndexError."""
    entry = Attributes(item)
    place = entry.text("place")
    return QueuedRow(read_queued(item), entry.text("request_id"), PRIORITIES[int(rank_of(place))], sent_at(place))
