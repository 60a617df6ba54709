"""What the benchmarks reckon and say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import looks, token_lock, token_picture


def test_a_share_of_the_waits_is_one_of_the_waits() -> None:
    assert [token_lock.percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 2.0, 3.0]
    assert math.isnan(token_lock.percentile([], 0.5))


@pytest.mark.parametrize("way", looks.PAUSES)
def test_nobody_finds_the_token_before_it_is_stored_and_everybody_does_then(way: str) -> None:
    reckoned = looks.reckon(way, 50, 0.3)
    assert len(reckoned.waits) == 50
    assert min(reckoned.waits) >= 0.3 + 3 * looks.LOOK_SECONDS


def test_no_more_looks_are_served_than_dynamodb_serves_of_one_item() -> None:
    reckoned = looks.reckon("token lock", 1000, 0.3)
    assert sum(reckoned.throttled) > 0
    assert sum(reckoned.served) <= looks.MOST_READS * (looks.BIN * len(reckoned.served) + looks.BIN)


def test_a_hundred_who_wait_meet_the_goal_where_a_call_takes_as_long_as_inside_a_region() -> None:
    for auth_seconds in (0.2, 1.0, 4.0):
        p99 = token_lock.percentile(looks.reckon("token lock", 100, auth_seconds).waits, 0.99)
        assert p99 <= token_lock.goal(auth_seconds)


def test_the_report_is_drawn_and_tabled(tmp_path: Path) -> None:
    rounds = [
        {"posts": 1, "failed": 0, "losers_seconds": [1.1, 1.2], "reads": 9, "writes": 3, "refused_writes": 1,
         "call_seconds": 0.005},
    ]  # fmt: skip
    rows = [token_lock.summary(way, 100, 1.0, rounds) for way in ("token lock", "textbook loop", "no coordination")]
    report = {"auth_seconds": 1.0, "rounds": 1, "measured": rows, "thousand": token_lock.thousand(1.0)}
    token_picture.draw(report, token_lock.goal(1.0), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0
    assert token_lock.figures(report).row_count == len(rows)
