"""The write units of an item, as DynamoDB Local computes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.process import read_process
from slotkeeper_cli.write_units import KB, demand, item_bytes, process_item, write_units
from tests.support.tables import create_table

SHORT, LONG = ("sample", "sample"), ("p" * 47, "j" * 47)
TABLE = "slots"


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("write-units") / "dynamodb.log") as running:
        client = running.client()
        create_table(client, TABLE, "process_name")
        yield client


def units_of_a_put(dynamodb: Any, item: dict[str, Any]) -> float:
    dynamodb.delete_item(TableName=TABLE, Key={"process_name": item["process_name"]})
    answer = dynamodb.put_item(TableName=TABLE, Item=item, ReturnConsumedCapacity="TOTAL")
    units: float = answer["ConsumedCapacity"]["CapacityUnits"]
    return units


VALUES: list[dict[str, Any]] = [
    *({"N": number} for number in ("0", "7", "12", "123", "1000", "0.001", "-5", "1789999999")),
    {"S": "abc"},
    {"S": "ä€"},
    {"BOOL": True},
    {"M": {}},
    {"M": {"ab": {"M": {"c": {"S": "d"}}}}},
]


def test_an_unknown_type_is_rejected() -> None:
    with pytest.raises(ValueError, match="'X'"):
        item_bytes({"a": {"X": ""}})


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_dynamodb_local_computes_the_same_size_of_a_value(dynamodb: Any, value: dict[str, Any]) -> None:
    item = {"process_name": {"S": "p"}, "value": value, "filler": {"S": "x"}}
    filler = "x" * (1 + KB - item_bytes(item))
    assert units_of_a_put(dynamodb, item | {"filler": {"S": filler}}) == 1
    assert units_of_a_put(dynamodb, item | {"filler": {"S": filler + "x"}}) == 2


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [(0, 1, 1), (0, 1024, 1), (0, 1025, 2), (2049, 100, 3), (100, 2049, 3), (39_626, 39_626, 39)],
)
def test_a_write_consumes_units_of_the_larger_size(before: int, after: int, units: int) -> None:
    assert write_units(before, after) == units


@pytest.mark.parametrize("holders", [1, 10, 100, 500])
@pytest.mark.parametrize("names", [SHORT, LONG], ids=["short", "long"])
def test_dynamodb_local_computes_the_same_units_of_a_process(
    dynamodb: Any, names: tuple[str, str], holders: int
) -> None:
    item = process_item(*names, holders)
    size = item_bytes(item)
    assert units_of_a_put(dynamodb, item) == write_units(0, size)
    answer = dynamodb.update_item(
        TableName=TABLE,
        Key={"process_name": item["process_name"]},
        UpdateExpression="SET holders = :none",
        ExpressionAttributeValues={":none": {"M": {}}},
        ReturnConsumedCapacity="TOTAL",
    )
    assert answer["ConsumedCapacity"]["CapacityUnits"] == write_units(size, 0)


def test_the_layer_can_read_the_computed_item() -> None:
    process = read_process(process_item(*LONG, 3))
    assert len(process.holders) == process.slots_in_use == process.slot_limit == 3
    assert {holder.target for holder in process.holders.values()} == {process.target}
    assert max(len(name) for name in process.holders) == 80
    weighted = read_process(process_item(*LONG, 3, weight=4))
    assert (weighted.held_weight, weighted.slot_limit, weighted.default_weight) == (12, 12, 4)


@pytest.mark.parametrize(("names", "each"), [(SHORT, 78), (LONG, 160)], ids=["short", "long"])
def test_a_holder_takes_66_bytes_and_both_names(names: tuple[str, str], each: int) -> None:
    nine, ninety = (item_bytes(process_item(*names, holders)) for holders in (9, 90))
    assert ninety - nine == 81 * each == 81 * (66 + sum(map(len, names)))


def test_a_request_takes_three_writes_of_the_whole_item() -> None:
    most = demand(*SHORT, 500)
    assert (most.bytes, most.cycle_units) == (39_095, 3 * 39)
    assert most.starts_a_second == pytest.approx(1000 / 117)
    assert most.shortest_job == pytest.approx(58.5)
    assert demand(*SHORT, 0).shortest_job == 0
    assert demand(*SHORT, 500, weight=4).bytes == most.bytes + 500 * 9 + 16
