"""The worker in front of a fragile downstream, in virtual time: what it completes, and which figures miss a goal."""

from __future__ import annotations

from itertools import product

import pytest

from dev.benchmarks.outage import outage_benchmark
from dev.benchmarks.outage.outage_benchmark import (
    CASES,
    COMPLETED,
    CONTAINERS,
    OUTAGE_CONTAINERS,
    RECOVERIES,
    completed,
    outage,
    outcome,
)


@pytest.mark.parametrize(
    ("case", "containers", "seconds"),
    [
        ("down 20 s of 40 s", 3, 400.0),
        ("429 above 2, then 16 callers, 30 s each", 8, 120.0),
        ("0.5 % of the table's calls fail", 8, 100.0),
        ("5 % of the table's calls fail", 8, 400.0),
    ],
)
def test_at_a_fault_the_worker_completes_nearly_all_that_no_breaker_completes(
    case: str, containers: int, seconds: float
) -> None:
    done, _, unwatched, _ = completed(case, containers, 1, seconds)
    assert done >= COMPLETED * unwatched


def test_an_outage_costs_few_calls_and_its_end_is_found_within_the_longest_wait_in_each_run() -> None:
    calls, first = outage(10, 3, 1, 60.0)
    assert calls <= 40
    assert first <= 10 + 1
    assert outage(10, 3, 1, 60.0) == (calls, first)


def test_each_figure_beyond_its_goal_misses_it() -> None:
    def missed(done: int, calls: int, first: float) -> list[str]:
        cases = dict.fromkeys(product(CASES, CONTAINERS, (1,)), (done, 0, 100, 0))
        outages = dict.fromkeys(product(RECOVERIES, OUTAGE_CONTAINERS, (1,)), (calls, first))
        return [goal.aim for goal in outcome(cases, outages).goals if not goal.met]

    each = len(OUTAGE_CONTAINERS)
    assert missed(95, 45, 5.0) == []
    assert [len(missed(*given)) for given in ((94, 45, 5.0), (95, 46, 5.0), (95, 45, 5.1), (95, 45, 31))] == [
        1,
        each,
        each,
        2 * each,
    ]


def test_the_smallest_run_has_each_fault_and_each_longest_wait(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_benchmark, "CONTAINERS", (2,))
    monkeypatch.setattr(outage_benchmark, "OUTAGE_CONTAINERS", (2,))
    found = outage_benchmark.measure(tmp_path, lambda *_: None, small=True)  # type: ignore[arg-type]
    assert [len(grid.rows) for grid in found.grids] == [len(CASES), len(RECOVERIES)]
