"""The benchmark of a lease's cycle: its smallest run, and the protection that a comparison must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks.lease_cycle import lease_cycle_benchmark
from dev.benchmarks.lease_cycle.lease_designs import DESIGNS
from tests.benchmarks.conftest import changed_by_a_cycle


def test_the_smallest_run_measures_every_design_and_a_lease_is_two_writes(tmp_path: Path) -> None:
    outcome = lease_cycle_benchmark.measure(tmp_path, lambda _step, _share: None, small=True)
    assert {row["design"] for row in outcome.figures["rounds"]} == DESIGNS.keys()
    assert {len(row["seconds"]) for row in outcome.figures["rounds"]} == {lease_cycle_benchmark.SMALL.rounds}
    _, units = outcome.grids
    assert [row[1:3] for row in units.rows] == [("2 (2)", "2 (2)")]


@pytest.mark.parametrize("design", ["lease", "record-lock"])
def test_a_cycle_leaves_the_holders_as_they_were(dynamodb: Any, design: str) -> None:
    _, changed = changed_by_a_cycle(DESIGNS[design](dynamodb, f"{design}-restores", 2, 3))
    assert changed == []
