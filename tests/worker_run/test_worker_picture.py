"""The picture: drawn from the report alone, of a calm run and of one in which everything went wrong."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import StepPatch

from dev.scenarios.worker import picture
from tests.worker_run.jottings import call, changed, many, records, report


def axes() -> Axes:
    return Figure().add_subplot()


def test_a_report_read_from_its_file_can_be_drawn(tmp_path: Path) -> None:
    picture.draw(json.loads(json.dumps(report(records()))), tmp_path / "worker.png")
    assert imread(tmp_path / "worker.png").shape[0] > 400


def test_a_run_that_ended_badly_can_be_drawn(tmp_path: Path) -> None:
    found = records()
    bad = records(calls=changed(found.calls, 1, ended=None, answer=None), rows=[], dead=[], manifests=[], parts={})
    picture.draw(report(bad), tmp_path / "worker.png")
    picture.draw(report(records(calls=[])), tmp_path / "worker.png")


def test_a_large_run_is_no_poster() -> None:
    assert sum(picture.heights(1000)) < 20
    assert picture.heights(1)[1] >= 1


def test_the_lanes_are_sorted_by_kind() -> None:
    kinds = [fate["kind"] for fate in picture.in_lanes(report(records())["fates"])]
    assert kinds == ["normal", "normal", "slow", "poison", "poison"]


def test_each_call_is_drawn_in_its_lane_by_how_it_ended() -> None:
    drawn = axes()
    picture._draw_lanes(drawn, report(records()))
    segments = [segment.tolist() for lines in drawn.collections for segment in getattr(lines, "get_segments", list)()]
    assert [[1.2, 3.0], [3.2, 3.0]] in segments  # the slow one's first call, in the third lane
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["normal: 2", "slow: 1", "poison: 2"]


def test_the_title_says_whether_the_limit_was_kept() -> None:
    kept, broken = axes(), axes()
    picture._draw_callers(kept, report(records()))
    picture._draw_callers(broken, report(records(calls=[*records().calls, call("x", 1, 0.7, 0.9)])))
    assert kept.get_title(loc="left").startswith("The downstream takes 2 callers at once, and never had more (line")
    assert broken.get_title(loc="left").startswith("The downstream takes 2 callers at once, and HAD 3 (line")


def test_a_third_caller_is_seen_however_short_its_call_was() -> None:
    drawn = axes()
    picture._draw_callers(drawn, report(records(calls=[*records().calls, call("a/2", 2, 0.7, 0.701)])))
    means, mosts = (stairs.get_data().values for stairs in drawn.patches if isinstance(stairs, StepPatch))
    assert max(mosts) == 3
    assert max(means) <= 2.01


def test_the_attempts_are_counted_by_kind() -> None:
    drawn = axes()
    picture._draw_attempts(drawn, report(many(40, 30.0)))
    assert [text.get_text() for text in drawn.texts] == ["0", "40"]
