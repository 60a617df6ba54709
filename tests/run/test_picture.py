"""The picture: that it is drawn at all, at its size, from the report alone. Whether it reads well is for eyes."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev.scenarios.slots import picture
from tests.run.handmade import records, report, workflow

FAILED = replace(workflow(2, 1.3, 2.3), status="FAILED")
CUT_OFF = workflow(3, 2.4, 3.0, status="ABORTED", glue_exited=None, release_entered=None, release_exited=None)
STILL_RUNNING = workflow(3, 2.4, 3.0, status="RUNNING", stopped=None, release_entered=None, release_exited=None)


def size_of(png: Path) -> tuple[int, int]:
    """From the header chunk, which comes first ("PNG Specification", IHDR)."""
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.parametrize(
    "made",
    [
        report(3, records([workflow(1, 0.2, 1.2), FAILED, workflow(3, 2.4, 3.4)])),
        report(3, records([workflow(1, 0.2, 1.2), FAILED, CUT_OFF])),
        report(3, records([workflow(1, 0.2, 1.2), FAILED, STILL_RUNNING], kept=[])),
        report(1, records([workflow(1, 0.2, 1.2)])),
        report(1, records([])),
    ],
    ids=["with a failure", "with an abort", "with one that still runs", "without hand-offs", "with nothing at all"],
)
def test_a_run_is_drawn_whatever_became_of_it(made: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "timeline.png"
    picture.draw(json.loads(json.dumps(made)), path)
    wanted = (picture.WIDTH * picture.DPI, picture.height(len(made["workflows"])) * picture.DPI)
    assert size_of(path) == (int(wanted[0]), int(wanted[1]))


def test_the_picture_grows_with_the_run_and_stops_growing() -> None:
    assert picture.height(10) < picture.height(40) < picture.height(90)
    assert picture.height(200) == picture.height(2000) < 20


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (7, 2), (10, 10), (47, 47), (500, 499), (3, 9)])
def test_the_slots_axis_has_a_tick_at_the_limit_and_none_beside_it(limit: int, most: int) -> None:
    top = max(limit, most)
    ticks = picture.slot_ticks(limit, top)
    assert limit in ticks
    assert 0 in ticks
    assert all(abs(tick - limit) > 0.1 * top for tick in ticks if tick != limit)
