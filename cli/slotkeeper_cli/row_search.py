"""Finds rows of RequestTable that are not known by name: by a request's id, of many processes, or of holders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import batched, islice
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Item
from slotkeeper.slots.rows import LISTED, MAX_PAGES, Listed, MalformedRequestRow, RequestRow, read_row
from slotkeeper_cli.parallel import in_parallel

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Keys of one call (DynamoDB API Reference, BatchGetItem).
MAX_KEYS = 100
MAX_KEY_BYTES = 2048  # DynamoDB guide, "Quotas", partition key length
_NAMES = {"#state": "state", "#open": "open"}


class RowSearch:
    """Reads rows without bodies and tokens. Errors of DynamoDB pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._dynamodb = dynamodb
        self._table_name = table_name

    def row(self, process: str, execution: str) -> RequestRow | None:
        """The row of an execution; None if there is none, or it is malformed."""
        return next(iter(self.named([(process, execution)]).rows), None)

    def body(self, process: str, execution: str) -> str:
        """The content of a request, which a reader of the other attributes need not be permitted to read."""
        key = {"process_name": {"S": process}, "execution": {"S": execution}}
        answer = self._dynamodb.get_item(TableName=self._table_name, Key=key, ProjectionExpression="body")
        return answer.get("Item", {}).get("body", {}).get("S", "")

    def attempts(self, request_id: str) -> Listed[tuple[str, str, int]]:
        """Of each attempt of all requests with an id: process, execution, and its number.

        From a global index, which is late by less than a second as a rule. No request has an id that is empty or
        longer than a key, of which DynamoDB refuses the query.
        """
        if not 0 < len(request_id.encode(errors="replace")) <= MAX_KEY_BYTES:
            return Listed()
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

    def index(self, name: str, listed: Listed[Any]) -> Iterator[Item]:
        """The entries of a sparse index, of at most MAX_PAGES pages. `listed` receives whether there are more."""
        asked: Any = {"TableName": self._table_name, "IndexName": name, "ConsistentRead": True}
        for page in islice(self._dynamodb.get_paginator("scan").paginate(**asked), MAX_PAGES):
            yield from page["Items"]
            listed.is_cut = "LastEvaluatedKey" in page

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


def _listed(items: Iterable[Any], is_cut: bool) -> Listed[RequestRow]:
    listed = Listed[RequestRow](is_cut=is_cut)
    for item in items:
        try:
            listed.rows.append(read_row(item))
        except MalformedRequestRow as error:
            listed.malformed.append(str(error))
    return listed
