"""The measurement of the slot's cycle: complete cycles, refusals and units of each design, and the goals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks.slot_cycle import slot_cycle_benchmark
from dev.benchmarks.slot_cycle.counter_designs import (
    PROCESS,
    Refused,
    Slotkeeper,
    Weighted,
    WithoutPriorities,
    item_with_tombstones,
)
from dev.benchmarks.slot_cycle.crew import DESIGNS
from dev.benchmarks.slot_cycle.lock_client import LockClient
from dev.benchmarks.slot_cycle.slot_cycle_run import (
    COMPARED,
    FORMS,
    METERED,
    SMALL,
    WHOLE,
    Cell,
    Extent,
    Measurements,
    Metered,
    metered,
    permanent,
)
from slotkeeper.slots.process import MAX_HOLDERS, read_process
from slotkeeper.slots.request import PRIORITIES
from slotkeeper_cli.write_units import item_bytes
from tests.benchmarks.conftest import changed_by_a_cycle


def test_the_smallest_run_measures_every_design_in_every_cell(tmp_path: Path) -> None:
    shares: list[float] = []
    outcome = slot_cycle_benchmark.measure(tmp_path, lambda _, share: shares.append(share), small=True)
    cells = outcome.figures["cells"]
    assert len(cells) == (len(COMPARED) * len(SMALL.contenders) + len(FORMS)) * len(SMALL.holders)
    assert {cell["cycles"] >= cell["contenders"] for cell in cells} == {True}
    assert shares == sorted(shares)
    units = next(grid for grid in outcome.grids if grid.title == "Write units of a cycle")
    assert [row[1] for row in units.rows] == ["3", "6"]
    forms = next(grid for grid in outcome.grids if grid.title.startswith("What priorities and weights cost"))
    assert [row[3:] for row in forms.rows] == [("3", "3", "3", "3", "3 + 1 read"), ("6", "6", "6", "6", "6 + 1 read")]
    assert [goal.met for goal in outcome.goals if "write units" in goal.aim] == [True]


@pytest.mark.parametrize("contenders", WHOLE.contenders)
def test_no_process_has_more_holders_than_the_protocol_admits(contenders: int) -> None:
    assert max(permanent("slotkeeper", holders, contenders) for holders in WHOLE.holders) + contenders == MAX_HOLDERS


def test_the_stated_sizes_of_tombstones_and_of_a_registration() -> None:
    def first_in_second_kb(*priorities: str, more: int = 0) -> int:
        return next(n for n in range(100) if item_bytes(item_with_tombstones(n, priorities)) + more > 1024)

    no_map = -item_bytes({"waiting": {"M": {}}})
    registration = item_bytes({"waiting": {"M": WithoutPriorities.registration}})
    assert registration == 605
    assert [first_in_second_kb(more=no_map), first_in_second_kb(more=no_map + registration)] == [11, 3]
    assert [first_in_second_kb("normal"), first_in_second_kb(*PRIORITIES)] == [10, 8]


@pytest.mark.parametrize("design", [*COMPARED, *FORMS, *METERED])
def test_a_cycle_restores_its_item(dynamodb: Any, design: str) -> None:
    before, changed = changed_by_a_cycle(DESIGNS[design](dynamodb, f"{design}-whole-cycle", 5, 6))
    # The bare writes only increment a number.
    assert [set(item) for item in changed] == ([set(before[0])] if "floor" in design else [])


def test_a_reserve_leaves_the_tombstone_that_the_starters_reserve_leaves(dynamodb: Any) -> None:
    made = Slotkeeper(dynamodb, "slotkeeper-tombstone", 5, 6)
    made.create()
    dynamodb.put_item(TableName=made.table, Item=item_with_tombstones(5, ()) | {"slot_limit": {"N": "6"}})
    (_, reserve), *_ = made.steps()
    reserve("me")
    (item,) = dynamodb.scan(TableName=made.table)["Items"]
    assert item["waiting"] == item_with_tombstones(5)["waiting"]


def test_the_lock_clients_keys_are_free_after_a_set_up_with_fewer_holders(dynamodb: Any) -> None:
    LockClient(dynamodb, "fewer-holders", 5, 6).create()
    for holders in (5, 3):
        made = LockClient(dynamodb, "fewer-holders", holders, 6)
        made.set_up()
    assert dynamodb.scan(TableName=made.table, Select="COUNT")["Count"] == 3


def test_weights_are_admitted_while_they_fit(dynamodb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Weighted(dynamodb, "weighted-fits", 5, 6)
    made.create()
    made.set_up()
    (_, reserve), *_, (_, release) = made.steps()

    def in_use() -> int:
        return read_process(
            dynamodb.get_item(TableName=made.table, Key={"process_name": {"S": PROCESS}})["Item"]
        ).held_weight

    monkeypatch.setattr(Weighted, "weights", [4])
    reserve("first")
    assert (in_use(), made.limit) == (9, 11)
    monkeypatch.setattr(Weighted, "weights", [3])
    with pytest.raises(Refused):
        reserve("second")
    monkeypatch.setattr(Weighted, "weights", [2])
    reserve("second")
    assert in_use() == 11
    release("first")
    release("second")
    assert in_use() == 5


@pytest.mark.parametrize("design", ["without-priorities", *(name for name in COMPARED if "floor" not in name)])
def test_one_free_slot_is_granted_once(dynamodb: Any, design: str) -> None:
    made = DESIGNS[design](dynamodb, f"{design}-one-place", 5, 6)
    made.create()
    made.set_up()
    (_, reserve), *_, (_, release) = made.steps()
    reserve("first")
    made.full("second")  # if it took the slot, the reserve below would fail
    if design != "lock-client":  # which would try forever
        with pytest.raises((Refused, dynamodb.exceptions.ClientError)):
            reserve("second")
    release("first")
    reserve("second")
    release("second")  # ends the lock client's heartbeats before the engine


@pytest.mark.parametrize(
    ("design", "reads", "writes"), [("slotkeeper", 1, 1), ("reads-first", 1, 0), ("counter", 1, 1)]
)
def test_a_refusal_has_the_expected_calls(dynamodb: Any, design: str, reads: int, writes: int) -> None:
    made = DESIGNS[design](dynamodb, f"{design}-refused", 5, 5)
    made.create()
    made.set_up()
    with metered(dynamodb) as meter:
        made.full("me")
    assert (meter.read_off().calls.get("GetItem", 0), meter.read_off().calls.get("UpdateItem", 0)) == (reads, writes)


ROUNDS = {1: [1.0, 1.0, 9.0], 10: [1.2, 1.2, 1.0], 100: [1.0, 1.0, 1.0]}  # by the number of holders


@pytest.mark.parametrize(
    ("contenders", "found", "met"),
    [
        (1, "1.00 at 1, 1.20 at 10, 1.00 at 100 holders", False),
        (8, "1.00 (1.00 at 1, 1.20 at 10, 1.00 at 100 holders)", True),
    ],
)
def test_one_contender_is_judged_by_the_worst_cell_and_several_over_all(contenders: int, found: str, met: bool) -> None:
    course, extent = Measurements(), Extent(tuple(ROUNDS), {contenders: (3, 0.0)}, refused_seconds=0.0)
    for holders, mine in ROUNDS.items():
        course.cells["floor", holders, contenders] = Cell("floor", holders, contenders, rounds=[1.0, 1.0, 1.0])
        course.cells["slotkeeper", holders, contenders] = Cell("slotkeeper", holders, contenders, rounds=mine)
    (goal,) = slot_cycle_benchmark.goals(course, extent)
    assert (goal.found, goal.met) == (found, met)


@pytest.mark.parametrize(
    ("mine", "written", "read", "met"),
    [
        ([1.0, 1.05, 9.0], 3.0, 0.0, [True, True]),
        ([1.0, 1.06, 9.0], 3.0, 0.0, [False, True]),
        ([1.0, 1.0, 1.0], 4.0, 0.0, [True, False]),
        ([1.0, 1.0, 1.0], 3.0, 1.0, [True, False]),
    ],
)
def test_weight_1_is_judged_by_its_time_and_units_without_priorities(
    mine: list[float], written: float, read: float, met: list[bool]
) -> None:
    course, extent = Measurements(), Extent((1,), {1: (3, 0.0)}, refused_seconds=0.0)
    for design, rounds, units in (
        ("slotkeeper", mine, Metered(written, read, {})),
        ("without-priorities", [1.0, 1.0, 1.0], Metered(3.0, 0.0, {})),
    ):
        course.cells[design, 1, 1] = Cell(design, 1, 1, rounds=rounds)
        course.cycle_units[design, 1] = units
    assert [goal.met for goal in slot_cycle_benchmark.goals_of_priorities(course, extent)] == met
