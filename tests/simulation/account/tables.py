"""Create a DynamoDB table whose keys are strings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple


class Index(NamedTuple):
    """A secondary index by the table's key: its sort key, the type of that, and the other attributes in it.

    `is_by_itself`: its only key is the one that is its sort key otherwise.
    """

    sort_key: str
    kind: str
    included: tuple[str, ...]
    is_global: bool = False
    is_by_itself: bool = False


def create_table(
    dynamodb: Any, name: str, key: str, sort_key: str = "", indexes: Mapping[str, Index] | None = None
) -> None:
    """`indexes`: by name."""
    indexes = indexes or {}
    types = {key: "S"} | ({sort_key: "S"} if sort_key else {}) | {each.sort_key: each.kind for each in indexes.values()}
    schema = [{"AttributeName": key, "KeyType": "HASH"}]
    by_kind: dict[str, list[Any]] = defaultdict(list)
    for index, each in indexes.items():
        by_kind[f"{'Global' if each.is_global else 'Local'}SecondaryIndexes"].append(
            {
                "IndexName": index,
                "KeySchema": [{"AttributeName": each.sort_key, "KeyType": "HASH"}]
                if each.is_by_itself
                else [*schema, {"AttributeName": each.sort_key, "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(each.included)},
            }
        )
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": kind} for each, kind in types.items()],
        KeySchema=schema + ([{"AttributeName": sort_key, "KeyType": "RANGE"}] if sort_key else []),
        **by_kind,
    )
