"""The benchmark of a waiting caller: its figures from calls."""

from __future__ import annotations

import pytest

from dev.benchmarks.callers.callers_benchmark import MOST_TRANSITIONS, outcome


@pytest.mark.parametrize(("transitions", "met"), [(2 + MOST_TRANSITIONS, True), (3 + MOST_TRANSITIONS, False)])
def test_the_goal_counts_the_transitions_and_the_time_is_a_ratio_of_the_same_round(transitions: int, met: bool) -> None:
    made = outcome({"direct": [(1.0, 2), (2.0, 2)], "waiting": [(3.0, 2), (2.0, transitions)]})
    (goal,) = made.goals
    assert goal.met is met
    assert f"{transitions - 2} more; 2.0 x the time" in goal.found
