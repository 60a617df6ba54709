"""The picture: that it is drawn at all, at its size, from the report alone. Whether it reads well is for eyes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from dev.scenarios.runner.drawing import DPI, WIDTH
from dev.scenarios.token import picture
from dev.scenarios.token.sending import Try
from tests.chat_run.notes import ORIGIN, delivery, one_invalidation, records, report, two_dead_tokens

LOST = delivery(1, 0.0, 0.0, answer=None, first=502)


def size_of(png: Path) -> tuple[int, int]:
    """From the header chunk, which comes first ("PNG Specification", IHDR)."""
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def with_everything() -> dict[str, Any]:
    """A message given up, one sent again, and a POST /auth that gave no token."""
    log = one_invalidation()
    log.auth(3.2, None, 503)
    again = Try(ORIGIN + 4, ORIGIN + 4.2, 200)
    deliveries = [
        *records().deliveries[:2],
        delivery(3, 2.9, 3.0, again, first=503),
        delivery(4, 2.95, 4.2, answer=None, first=502),
    ]
    return report(records(log=log.requests, deliveries=deliveries))


@pytest.mark.parametrize(
    "made",
    [
        report(records()),
        with_everything(),
        report(two_dead_tokens(), messages=5, invalidations=2),
        report(records(invalidations=[])),
        report(records(deliveries=[LOST], log=[], tokens=[], invalidations=[])),
    ],
    ids=["all well", "with everything", "two dead tokens", "without invalidations", "without a token"],
)
def test_a_run_is_drawn_whatever_became_of_it(made: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tokens.png"
    picture.draw(json.loads(json.dumps(made)), path)
    width, height = size_of(path)
    assert width == int(WIDTH * DPI)
    assert height > sum(picture.heights(len(made["tokens"]), len(made["fates"]))) * DPI


def test_one_token_is_number_one_and_one_sender_is_no_plural() -> None:
    made = report(records(invalidations=[], tokens=records().tokens[:1]), senders=1)
    top, middle = Figure().subplots(2)
    picture._draw_tokens(top, made)
    picture._draw_messages(middle, made)
    assert all(float(tick).is_integer() for tick in top.get_yticks())
    assert middle.get_title(loc="left").endswith("; 1 sender, 2 containers")


def test_the_picture_grows_with_the_run_and_stops_growing() -> None:
    assert sum(picture.heights(2, 10)) < sum(picture.heights(6, 200)) < sum(picture.heights(12, 300))
    assert sum(picture.heights(51, 2000)) < 18
