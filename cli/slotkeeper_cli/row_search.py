"""Finds rows of RequestTable that are not known by name: by a request's id, of many processes, or of holders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import batched, pairwise
from typing import TYPE_CHECKING, Any

from slotkeeper.slots.rows import (
    LISTED,
    Listed,
    MalformedRequestRow,
    QueuedRow,
    RequestRow,
    RequestRows,
    read_row,
)
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.stack_connection import in_parallel
from slotkeeper_cli.unread import Search

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Keys of one call (DynamoDB API Reference, BatchGetItem).
MAX_KEYS = 100
_NAMES = {"#state": "state", "#open": "open"}
# Pages of 1 MB, each of some 2,000 requests: of the queue, of open requests, and of each part of what has ended.
MAX_HISTORY_PAGES = 50
PARTS = 48
# With a page that shows whether there are parts, and the rows that have started.
MAX_HISTORY_CALLS = (2 + PARTS) * MAX_HISTORY_PAGES + 1 + MAX_HISTORY_PAGES


class RowSearch:
    """Reads rows without bodies and tokens. Errors of DynamoDB pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name

    def attempt(self, process: str, execution: str) -> Listed[RequestRow]:
        """The row of an execution, and those of other requests that were sent with its id, read consistently.

        The name of each of the latter begins with that of the execution (intake.py).
        """
        answer = self._dynamodb.query(
            TableName=self._table_name,
            ConsistentRead=True,
            KeyConditionExpression="process_name = :process AND begins_with(execution, :execution)",
            ProjectionExpression=LISTED,
            ExpressionAttributeNames=_NAMES,
            ExpressionAttributeValues={":process": {"S": process}, ":execution": {"S": execution}},
        )
        return _listed(answer["Items"], "LastEvaluatedKey" in answer)

    def row(self, process: str, execution: str) -> RequestRow | None:
        """The row of an execution; None if there is none, or it is malformed."""
        return next((row for row in self.attempt(process, execution).rows if row.execution == execution), None)

    def body(self, process: str, execution: str) -> str:
        """The content of a request, which a reader of the other attributes need not be permitted to read."""
        key = {"process_name": {"S": process}, "execution": {"S": execution}}
        answer = self._dynamodb.get_item(TableName=self._table_name, Key=key, ProjectionExpression="body")
        return answer.get("Item", {}).get("body", {}).get("S", "")

    def attempts(self, request_id: str) -> Listed[tuple[str, str, int]]:
        """Of each attempt of all requests with an id: process, execution, and its number.

        From a global index, which is late by less than a second as a rule.
        """
        answer = self._dynamodb.query(
            TableName=self._table_name,
            IndexName="request_id",
            KeyConditionExpression="request_id = :id",
            ExpressionAttributeValues={":id": {"S": request_id}},
        )
        found = [
            (item["process_name"]["S"], item["execution"]["S"], int(item["attempt"]["N"])) for item in answer["Items"]
        ]
        return Listed(found, is_cut="LastEvaluatedKey" in answer)

    def named(self, names: Iterable[tuple[str, str]]) -> Listed[RequestRow]:
        """The rows of executions, each given with its process, in any order."""
        read = in_parallel(self._batch, batched(names, MAX_KEYS, strict=False))
        return _listed((item for items in read for item in items), is_cut=False)

    def request_ids(self, holders: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The request ids of up to MAX_KEYS executions, each given with its process; those that are not known miss."""
        return {row.execution: row.request_id for row in self.named(holders[:MAX_KEYS]).rows}

    def _batch(self, names: Sequence[tuple[str, str]]) -> list[Any]:
        found: list[Any] = []
        keys: Any = [{"process_name": {"S": process}, "execution": {"S": name}} for process, name in names]
        asked: Any = {"ConsistentRead": True, "ProjectionExpression": LISTED, "ExpressionAttributeNames": _NAMES}
        while keys:  # DynamoDB leaves keys unprocessed under load (API Reference, BatchGetItem)
            asked["Keys"] = keys
            answer: Any = self._dynamodb.batch_get_item(RequestItems={self._table_name: asked})
            found += answer["Responses"].get(self._table_name, [])
            keys = answer.get("UnprocessedKeys", {}).get(self._table_name, {}).get("Keys")
        return found


class ProcessRows:
    """Reads the requests of a process.

    Attributes:
        search: what could not be read.
    """

    def __init__(self, rows: RequestRows, row_search: RowSearch, process: str) -> None:
        self.search = Search()
        self._rows, self._row_search, self._process = rows, row_search, process

    def started(self) -> list[RequestRow]:
        """The requests that have started and not ended, in the order of their grants."""
        opened = self.search.rows(self._rows.open(self._process, MAX_HISTORY_PAGES), "open requests")
        names = ((self._process, execution) for execution, state in opened if state == "STARTED")
        rows = self.search.rows(self._row_search.named(names), "started requests")
        return sorted((row for row in rows if row.state == "STARTED"), key=lambda row: row.granted)

    def history(self, since: float, until: float) -> list[RequestRow]:
        """The requests that have ended in a period, and those that have not ended, in the order of their sending.

        What starts or ends meanwhile is in a later read.
        """
        queued = self.search.rows(self._rows.queue(self._process, MAX_HISTORY_PAGES), "queued requests")
        waiting = [_row(self._process, each) for each in queued]
        found = {row.execution: row for row in [*waiting, *self.started(), *self._ended(since, until)]}
        return sorted(found.values(), key=lambda row: row.sent)

    def _ended(self, since: float, until: float) -> list[RequestRow]:
        """What has ended in a period: one page; of more, the rest in parts of equal time, some at the same time."""
        read = partial(self._rows.history, self._process)
        first = read(since, until, 1)
        if not first.is_cut:
            return self.search.rows(first, "requests that have ended")
        begin = first.rows[-1].ended or since if first.rows else since
        ends = [begin + (until - begin) * number / PARTS for number in range(PARTS + 1)]
        parts = in_parallel(lambda part: read(*part, MAX_HISTORY_PAGES), pairwise(ends))
        found = self.search.rows(replace(first, is_cut=False), "")
        for at, part in zip(ends, parts, strict=False):
            found += self.search.rows(part, f"requests that have ended since {iso(at)}")
        return found


def _row(process: str, queued: QueuedRow) -> RequestRow:
    """A queued request as a row. Its index does not contain the attempt, which is 0."""
    of, place = queued.queued, queued.queued.place
    made = RequestRow(process, of.execution, "QUEUED", queued.request_id, 0, queued.priority, queued.sent)
    return replace(made, place=place, placed=place, weight=of.weight, start_before=of.start_before, skips=of.skips)


def _listed(items: Iterable[Any], is_cut: bool) -> Listed[RequestRow]:
    listed = Listed[RequestRow](is_cut=is_cut)
    for item in items:
        try:
            listed.rows.append(read_row(item))
        except MalformedRequestRow as error:
            listed.malformed.append(str(error))
    return listed
