"""Create a DynamoDB table whose keys are strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class LocalIndex(NamedTuple):
    """A local secondary index: its sort key, the type of that, and the other attributes that it contains."""

    sort_key: str
    kind: str
    included: tuple[str, ...]


def create_table(
    dynamodb: Any, name: str, key: str, sort_key: str = "", indexes: Mapping[str, LocalIndex] | None = None
) -> None:
    """`indexes`: the local indexes by name."""
    indexes = indexes or {}
    types = {key: "S"} | ({sort_key: "S"} if sort_key else {}) | {each.sort_key: each.kind for each in indexes.values()}
    schema = [{"AttributeName": key, "KeyType": "HASH"}]
    local = [
        {
            "IndexName": index,
            "KeySchema": [*schema, {"AttributeName": each.sort_key, "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(each.included)},
        }
        for index, each in indexes.items()
    ]
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": kind} for each, kind in types.items()],
        KeySchema=schema + ([{"AttributeName": sort_key, "KeyType": "RANGE"}] if sort_key else []),
        **({"LocalSecondaryIndexes": local} if local else {}),
    )
