"""DynamoDB Local, and a check of the designs that the benchmarks of cycles compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.benchmarks.slot_cycle.counter_designs import Design
from dev.emulator.dynamodb_local import DynamoDbLocal

Items = list[dict[str, Any]]


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("cycles") / "dynamodb.log") as running:
        yield running.client()


def changed_by_a_cycle(design: Design) -> tuple[Items, Items]:
    """A design's items before a whole cycle, and those that it has changed. A cycle adds and removes none."""
    design.create()
    design.set_up()
    before = design.dynamodb.scan(TableName=design.table)["Items"]
    design.cycle("me")
    after = design.dynamodb.scan(TableName=design.table)["Items"]
    assert len(after) == len(before)
    return before, [item for item in after if item not in before]
