"""The benchmark's figures from records; `scenario_runs.py` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks import keys
from dev.benchmarks.__main__ import rows_of
from dev.benchmarks.designs import Span
from dev.benchmarks.measurement import hand_offs, starts_a_second, tasks_of, write_units

ROWS = {
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "LocalSecondaryIndexes": [
        {
            "KeySchema": [
                {"AttributeName": "id", "KeyType": "HASH"},
                {"AttributeName": "place", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["weight"]},
        }
    ],
}


def row(**texts: str) -> tuple[str, Any]:
    return "rows", {name: {"S": text} for name, text in {"id": "a", **texts}.items()}


@pytest.mark.parametrize(
    ("ends", "starts", "expected"),
    [
        # Two slots: the first two starts wait for no release.
        pytest.param([5.0, 5.1, 9.0, 9.0], [0.0, 0.1, 5.3, 5.6], [0.3, 0.5], id="each end has the next start"),
        pytest.param([5.0, 5.1, 9.0, 9.0], [5.6, 0.0, 5.3, 0.1], [0.3, 0.5], id="records in any order"),
        pytest.param([1.0, 2.0], [0.0, 0.5], [], id="no request had to wait"),
    ],
)
def test_a_hand_off_is_from_each_end_to_the_next_start(
    ends: list[float], starts: list[float], expected: list[float]
) -> None:
    spans = [Span(*both) for both in zip(starts, ends, strict=True)]
    assert hand_offs(spans, 2) == pytest.approx(expected)


def test_starts_a_second_are_counted_between_the_first_and_the_last() -> None:
    assert starts_a_second([Span(at, at + 1) for at in (2.0, 1.0, 1.5)]) == 2.0


@pytest.mark.parametrize(
    ("changes", "units"),
    [
        pytest.param([row(), row(state="x")], 1, id="an index without the item"),
        pytest.param([row(), row(place="1")], 2, id="an entry that appears"),
        pytest.param([row(place="1"), row(place="1", state="x")], 1, id="an entry without the changed attribute"),
        pytest.param([row(place="1"), row(place="1", weight="2")], 2, id="an entry that changes"),
        pytest.param([row(place="1"), row(place="2")], 3, id="an entry with another key"),
        pytest.param([row(place="1"), row()], 2, id="an entry that disappears"),
        pytest.param([row(body="x" * 2000), row()], 2, id="the larger of before and after"),
    ],
)
def test_a_change_takes_the_units_of_the_item_and_of_each_entry_that_it_changes(
    changes: list[tuple[str, Any]], units: int
) -> None:
    assert write_units(changes, 1, {"rows": ROWS}, writes=1) == units
    assert write_units(changes, 1, {"rows": ROWS}, writes=3) == units + 2, "refused writes take one each"


def test_the_tasks_of_a_state_machine_are_those_that_call_dynamodb() -> None:
    resources = {"A": "arn:aws:states:::dynamodb:updateItem", "B": "arn:aws:states:::dynamodb:getItem", "C": "arn:sqs"}
    states = {name: {"Type": "Task", "Resource": resource} for name, resource in resources.items()}
    assert list(tasks_of({"States": {**states, "D": {"Type": "Wait"}}})) == [("A", True), ("B", False)]


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    own, other = ([{"calls": each} for each in calls] for calls in ((1.0, 2.0, 4.0), (3.0, 4.0, 4.0)))
    assert rows_of({"own": own, "other": other}) == [["", "calls"], ["own", "2"], ["other", "4 (2 x)"]]


def test_the_page_states_the_cost_of_keys_and_their_turns(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    for rows in keys.measure(tmp_path / "dynamodb.log", keys.SMALL).values():
        assert [row for row in rows if f"\n| {' | '.join(row)} |\n" not in page] == []
