"""The benchmark of the tables: a small run shows the calls and units of a request, and what is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.benchmarks.tables import tables_benchmark
from dev.benchmarks.tables.measured_stack import Used
from dev.benchmarks.tables.tables_benchmark import CALLS, SMALL, goals


def test_the_smallest_run_measures_every_part(tmp_path: Path) -> None:
    outcome = tables_benchmark.measure(tmp_path, lambda _: None, small=True)
    figures = outcome.figures
    assert figures["items"].keys() == set(SMALL.holders)
    # A holder more is part of no KB; 25 holders together are one write.
    assert figures["items"][30]["units"] == dict.fromkeys(("grant", "grant of 25", "confirm", "release"), 3.0)
    calls = {name: sum(used["calls"].values()) for name, used in figures["requests"].items()}
    assert list(calls.values()) == [7, 3, 2, 3, 2, 6, 5]
    assert {used["calls"]["StartExecution"] for used in figures["requests"].values()} == {0, 1}
    assert figures["queues"][1024]["a page"]["calls"] == 1
    assert len(outcome.grids) == 4


@pytest.mark.parametrize(("to_floor", "calls", "met"), [(1.05, CALLS, [True, True]), (1.2, CALLS + 1, [False, False])])
def test_goals_are_judged_by_the_figures(to_floor: float, calls: int, met: list[bool]) -> None:
    used = Used()
    used.calls["PutItem"] = calls
    judged = goals({1: {"to_floor": 1.0}, 10: {"to_floor": to_floor}}, {"free slot, until its start": used})
    assert [goal.met for goal in judged] == met
