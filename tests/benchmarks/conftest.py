"""DynamoDB Local, and a check of the designs that the benchmarks of cycles compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.benchmarks.slot_cycle.counter_designs import Design
from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.request import PRIORITIES

Items = list[dict[str, Any]]
TURNS = {f"turn_{priority}" for priority in PRIORITIES}


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("cycles") / "dynamodb.log") as running:
        yield running.client()


def changed_by_a_cycle(design: Design) -> tuple[Items, Items]:
    """A design's items before a whole cycle, and those that it has changed. A cycle adds and removes none.

    Without the time at which a turn began, which each grant writes.
    """
    design.create()
    design.set_up()
    before = _items(design)
    design.cycle("me")
    after = _items(design)
    assert len(after) == len(before)
    return before, [item for item in after if item not in before]


def _items(design: Design) -> Items:
    items = design.dynamodb.scan(TableName=design.table)["Items"]
    return [{name: value for name, value in item.items() if name not in TURNS} for item in items]
