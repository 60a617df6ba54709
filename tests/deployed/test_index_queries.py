"""Queries of an index of the embedded AWS: the same answers as MiniStack's, from the entries of one page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.emulator.engine.emulator import dynamodb
from dev.emulator.engine.patches import dynamodb_indexes
from tests.profiles import share

PATCHED = ("_query", "_index_item", "_index_members", "_apply_index_projection")
KEYS = st.sampled_from("ab"), st.sampled_from("abcdefgh")
VALUES = st.sampled_from(["1", "2", "10", "-3", "2.5"])  # as text and as numbers they have different orders
SORTS = ["", " AND n < :v", " AND n <= :v", " AND n = :v", " AND n > :v", " AND n >= :v", " AND n BETWEEN :v AND :w"]


@pytest.fixture
def unpatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MiniStack's own query; at the end its functions are its own again, and it has no table."""
    for name in PATCHED:
        monkeypatch.setattr(dynamodb, name, getattr(dynamodb, name))
    yield dynamodb._query
    dynamodb.reset()


def _table(name: str, kind: str) -> None:
    schema = [{"AttributeName": "p", "KeyType": "HASH"}]
    created = dynamodb._create_table(
        {
            "TableName": name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": each, "AttributeType": type_} for each, type_ in (("p", "S"), ("s", "S"), ("n", kind))
            ],
            "KeySchema": [*schema, {"AttributeName": "s", "KeyType": "RANGE"}],
            "LocalSecondaryIndexes": [
                {
                    "IndexName": "by-n",
                    "KeySchema": [*schema, {"AttributeName": "n", "KeyType": "RANGE"}],
                    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["large"]},
                }
            ],
        }
    )
    assert created[0] == 200, created


def _put(name: str, item: dict[str, Any]) -> None:
    answer = dynamodb._put_item({"TableName": name, "Item": item})
    assert answer[0] == 200, answer


@pytest.mark.parametrize("kind", ["S", "N"])
def test_a_query_of_an_index_is_answered_as_by_ministack(unpatched: Any, kind: str) -> None:
    dynamodb_indexes.dynamodb_index_pages()
    numbers = iter(range(10_000))
    writes = st.tuples(
        *KEYS, st.none() | VALUES, st.sampled_from([0, 0, 300_000]), st.sampled_from([True] + [False] * 5)
    )
    queries = st.fixed_dictionaries(
        {"IndexName": st.just("by-n"), "ScanIndexForward": st.booleans()}, optional={"Limit": st.integers(1, 4)}
    )

    @share(0.7)
    @given(
        steps=st.lists(
            st.tuples(writes, st.none() | st.tuples(queries, st.sampled_from(SORTS), VALUES, VALUES)), min_size=15
        )
    )
    def answered_alike(steps: list[Any]) -> None:
        table = f"table-{next(numbers)}"
        _table(table, kind)
        for (p, s, n, large, deletes), query in steps:
            key = {"p": {"S": p}, "s": {"S": s}}
            if deletes:
                dynamodb._delete_item({"TableName": table, "Key": key})
            else:
                _put(table, key | ({"n": {kind: n}} if n else {}) | {"large": {"S": "x" * large}})
            if query is None:
                continue
            fields, sort, low, high = query
            values = {":p": {"S": p}, ":v": {kind: low}, ":w": {kind: high}}
            data = {"TableName": table, "KeyConditionExpression": f"p = :p{sort}", **fields}
            data["ExpressionAttributeValues"] = {name: value for name, value in values.items() if name in f":p{sort}"}
            while True:
                expected, answer = unpatched(dict(data)), dynamodb._query(dict(data))
                assert answer == expected, data
                last = json.loads(answer[2]).get("LastEvaluatedKey")
                if not last:
                    break
                data["ExclusiveStartKey"] = last

    answered_alike()


def test_a_page_evaluates_its_own_entries_and_those_of_a_binary_search(
    unpatched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamodb_indexes.dynamodb_index_pages()
    _table("long", "S")
    for number in range(1000):
        _put("long", {"p": {"S": "p"}, "s": {"S": str(number)}, "n": {"S": f"{number:04}"}})
    evaluate = Mock(side_effect=dynamodb._evaluate_condition)
    monkeypatch.setattr(dynamodb, "_evaluate_condition", evaluate)
    values = {":p": {"S": "p"}, ":n": {"S": "0500"}}
    asked = {"TableName": "long", "IndexName": "by-n", "KeyConditionExpression": "p = :p AND n > :n", "Limit": 50}
    dynamodb._query({**asked, "ExpressionAttributeValues": values})
    assert evaluate.call_count <= 50 + 2 * 10 + 2  # two binary searches among 1,000
