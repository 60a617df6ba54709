"""The token benchmark: its figures, and its smallest run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dev.benchmarks.token import token_benchmark, token_tables
from dev.benchmarks.token.crowds import Invalidation, waits_for_others
from dev.benchmarks.token.thin_client import ThinDynamoDb
from dev.benchmarks.token.token_designs import DESIGNS, LOCK, NAME, TEXTBOOK, Store
from dev.emulator.aws import EmbeddedAws


def test_the_instance_of_a_single_post_is_left_out_of_the_waits() -> None:
    messages = [(1.2, True), (1.0, True), (1.1, False)]
    assert (waits_for_others(messages, 1), waits_for_others(messages, 2)) == ([1.1, 1.2], [1.0, 1.1, 1.2])


def _measured(by_count: dict[int, dict[str, list[Invalidation]]]) -> token_tables.TokenFigures:
    timed = {
        count: {design: [replace(each, latencies=[0.001]) for each in rounds] for design, rounds in by_design.items()}
        for count, by_design in by_count.items()
    }
    return token_tables.TokenFigures(1.0, timed)


@pytest.mark.parametrize(("posts", "waits", "met"), [(1, [1.0, 1.75], [True, True]), (2, [1.0, 1.76], [False, False])])
def test_goals_are_judged_by_the_figures(posts: int, waits: list[float], met: list[bool]) -> None:
    rounds = [Invalidation(1, 0, [1.0], Counter(reads=1)), Invalidation(posts, 0, waits, Counter(reads=1))]
    assert [goal.met for goal in token_tables.goals(_measured({10: {LOCK: rounds, TEXTBOOK: rounds}}))] == met


def test_ratios_are_of_consecutive_rounds() -> None:
    def round_of(seconds: float) -> Invalidation:
        return Invalidation(1, 0, [seconds], Counter(reads=10))

    ours, theirs = [round_of(1.0), round_of(3.0)], [round_of(2.0), round_of(3.0)]
    grid = next(
        grid for grid in token_tables.grids(_measured({10: {LOCK: ours, TEXTBOOK: theirs}})) if "relative" in grid.title
    )
    assert grid.rows == [["10", "0.75 (0.50 to 1.00)", "0.75 (0.50 to 1.00)", "1.00 (1.00 to 1.00)"]]


def test_the_thin_client_counts_a_refused_condition(tmp_path: Path) -> None:
    with EmbeddedAws.start(tmp_path) as engine:
        token_benchmark.create_table(engine)
        client = ThinDynamoDb(engine.endpoint)
        store = Store(client)
        store.put("token-0")
        seen = store.read(NAME)
        assert [store.acquire(NAME, seen, code, 10.0) for code in ("a", "b")] == [True, False]
    # The refusal contains the item, so there is no further read.
    assert (client.counts, len(client.latencies)) == (Counter(reads=1, writes=3, refused=1), 4)


def test_the_smallest_run_measures_every_design_and_one_post(tmp_path: Path) -> None:
    outcome = token_benchmark.measure(tmp_path, lambda _text, _share: None, small=True)
    assert [goal.met for goal in outcome.goals if not goal.aim.startswith("wait")] == [True]
    assert len(outcome.grids[0].rows) == len(token_benchmark.SMALL_ROUNDS) * len(DESIGNS)
