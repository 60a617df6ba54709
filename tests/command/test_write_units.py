"""The write units of a process's item, as DynamoDB Local computes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.emulator.dynamodb_local import DynamoDbLocal
from slotkeeper.slots.process import read_process
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.write_units import CYCLE_WRITES, KB, demand, key_bytes, size_problems
from tests.simulation.account.tables import create_table
from tests.simulation.aws.attributes import item_bytes
from tests.simulation.frozen import freeze

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


def process_item(process: str, target: str, holders: int, weight: int = 1, key: str = "") -> dict[str, Any]:
    """The item of a process whose slots are all in use, in DynamoDB's own form."""
    weights = {} if weight == 1 else {"weight": {"N": str(weight)}}
    keys = {"key": {"S": key}} if key else {}
    holder = {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1789999999"}, "job": {"S": target}, **weights, **keys}}
    item: dict[str, Any] = {
        "process_name": {"S": process},
        "slot_limit": {"N": str(holders * weight)},
        "slots_in_use": {"N": str(holders * weight)},
        "holders": {"M": {execution_name(process, str(number), 1): holder for number in range(holders)}},
        "target": {"S": target},
        "run_settings": {"M": {}},
        "grants": {"N": "1789999999999"},
    }
    assert read_process(item).held_weight == holders * weight
    return item | ({"default_weight": weights["weight"]} if weights else {})


VALUES: list[dict[str, Any]] = [
    *({"N": number} for number in ("0", "7", "12", "123", "1000", "0.001", "-5", "1789999999")),
    {"S": "abc"},
    {"S": "ä€"},
    {"BOOL": True},
    {"M": {"ab": {"M": {"c": {"S": "d"}}}}},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_dynamodb_local_computes_the_same_size_of_a_value(dynamodb: Any, value: dict[str, Any]) -> None:
    item = {"process_name": {"S": "p"}, "value": value, "filler": {"S": "x"}}
    filler = "x" * (1 + KB - item_bytes(freeze(item)))
    assert units_of_a_put(dynamodb, item | {"filler": {"S": filler}}) == 1
    assert units_of_a_put(dynamodb, item | {"filler": {"S": filler + "x"}}) == 2


@pytest.mark.parametrize("weight", [1, 4, 100])
@pytest.mark.parametrize("holders", [1, 10, 100, 500])
@pytest.mark.parametrize("names", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("key", ["", "ä" * 32])
def test_dynamodb_local_computes_the_same_units_of_a_process(
    dynamodb: Any, names: tuple[str, str], holders: int, weight: int, key: str
) -> None:
    item = process_item(*names, holders, weight, key)
    needed = demand(*names, holders, weight, key_bytes(read_process(item)))
    assert needed.bytes == item_bytes(freeze(item))
    assert needed.cycle_units == CYCLE_WRITES * units_of_a_put(dynamodb, item)


def test_a_request_takes_three_writes_of_the_whole_item() -> None:
    most = demand(*SHORT, 500)
    assert (most.bytes, most.cycle_units) == (39_095, 3 * 39)
    assert most.starts_a_second == pytest.approx(1000 / 117)
    assert most.shortest_job == pytest.approx(58.5)
    assert demand(*SHORT, 0).shortest_job == 0


def test_jobs_that_are_too_short_for_all_slots_are_a_problem() -> None:
    process = read_process(process_item(*SHORT, 1))
    assert size_problems(process, 500) == size_problems(process, 500, 60.0) == []
    (text,) = size_problems(process, 500, 30.0)
    assert "an item of 38 KB, which DynamoDB can write for at most 8.5 starts a second, so jobs under 58 s" in text
