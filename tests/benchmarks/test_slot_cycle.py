"""The measurement of the slot's cycle: complete cycles and units of each design, what is compared, and the goals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from dev.benchmarks.slot_cycle import slot_cycle_benchmark
from dev.benchmarks.slot_cycle.counter_designs import Refused, Slotkeeper
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.slot_cycle_benchmark import SMALL, WHOLE, Cell, Extent, permanent
from slotkeeper.slots.process import MAX_HOLDERS
from slotkeeper.slots.request import PRIORITIES

TURNS = {f"turn_{priority}" for priority in PRIORITIES}  # the time at which a turn began, which each grant writes


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("dynamodb", "us-east-1")


def test_the_smallest_run_measures_every_design_in_every_cell(tmp_path: Path) -> None:
    outcome = slot_cycle_benchmark.measure(tmp_path, lambda _: None, small=True)
    cells = outcome.figures["cells"]
    assert len(cells) == len(DESIGNS) * len(SMALL.cells)
    assert all(cell["median"] > 0 for cell in cells)
    written = {(cell["design"], cell["holders"]): cell["written"] for cell in cells if cell["contenders"] == 1}
    assert [written["slotkeeper", holders] for holders in (1, 10)] == [3, 6]
    assert [len(grid.rows) for grid in outcome.grids] == [len(SMALL.cells)] * 3


@pytest.mark.parametrize("contenders", WHOLE.turns)
def test_no_process_has_more_holders_than_the_protocol_admits(contenders: int) -> None:
    assert max(permanent("slotkeeper", holders, contenders) for holders in WHOLE.holders) + contenders == MAX_HOLDERS


def test_a_cycle_restores_its_item_and_a_free_slot_is_granted_once(dynamodb: Any) -> None:
    made = Slotkeeper(dynamodb, "whole-cycle", 5, 6)

    def items() -> list[dict[str, Any]]:
        found = dynamodb.scan(TableName=made.table)["Items"]
        return [{name: value for name, value in item.items() if name not in TURNS} for item in found]

    made.create()
    made.set_up()
    before = items()
    made.cycle("me")
    assert items() == before
    reserve, *_, release = made.steps()
    reserve("first")
    with pytest.raises(Refused):
        reserve("second")
    release("first")
    reserve("second")


@pytest.mark.parametrize(("contenders", "found", "met"), [(1, "1.20", False), (8, "1.00", True)])
def test_one_contender_is_judged_by_the_worst_cell_and_several_over_all(contenders: int, found: str, met: bool) -> None:
    rounds = {1: [1.0, 1.0, 9.0], 10: [1.2, 1.2, 1.0], 100: [1.0, 1.0, 1.0]}  # by the number of holders
    cells = {("floor", holders, contenders): Cell(3.0, rounds=[1.0, 1.0, 1.0]) for holders in rounds}
    cells |= {("slotkeeper", holders, contenders): Cell(3.0, rounds=mine) for holders, mine in rounds.items()}
    (goal,) = slot_cycle_benchmark.goals(cells, Extent(tuple(rounds), {contenders: (3, 0.0)}))
    assert goal.found.startswith(found)
    assert goal.met is met
