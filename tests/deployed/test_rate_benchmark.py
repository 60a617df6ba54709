"""The rate benchmark without an engine: its figures from the times of starts."""

from __future__ import annotations

import pytest

from dev.benchmarks.rate.rate_benchmark import figures_of, outcome
from dev.scenarios.runner.scenario import CannotContinue
from slotkeeper.slots.rate import Rate

RATE = Rate(10, 60, 2)


def test_the_share_of_a_rate_is_that_of_the_starts_without_the_burst() -> None:
    figures = figures_of(RATE, [0.0, 0.0, 6.0, 12.0, 24.0])
    assert (figures["starts"], figures["used"]) == (5, pytest.approx(0.75))
    assert [goal.met for goal in outcome({str(RATE): figures}).goals] == [False, True]


@pytest.mark.parametrize(("last", "above"), [(12.0, False), (4.0, True)])
def test_starts_above_the_bound_are_found(last: float, above: bool) -> None:
    figures = figures_of(RATE, [0.0, 0.1, 0.2 if above else 6.0, last])
    assert (figures["above"] > 0) is above
    assert outcome({str(RATE): figures}).goals[-1].met is not above


def test_a_single_start_shows_nothing() -> None:
    with pytest.raises(CannotContinue, match="1 requests started"):
        figures_of(RATE, [0.0])
