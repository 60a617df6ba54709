"""Outcomes of work: the first one is recorded in the request's row, and its end must be published then."""

from __future__ import annotations

from typing import get_args

import pytest

from slotkeeper.aws.dynamodb import number
from slotkeeper.slots.outcomes import MAX_CAUSE, MAX_CODE
from slotkeeper.slots.request_table import State
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

LIMIT = 1


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize("outcome", ["SUCCEEDED", "FAILED"])
def test_an_outcome_is_recorded_of_what_has_none_or_has_failed(outcome: str, state: State, scene: QueueScene) -> None:
    """A redriven execution may find that work which was recorded as failed has succeeded after all. Another failure
    does not replace the first one, which the workflow may have recorded with the error of the work.
    """
    (name,) = scene.queue("a", start_before="2027-01-15T09:00:00Z")
    scene.end(name, state)
    before = scene.row(name)
    failure = {"code": "E" * 300, "cause": "c" * 40_000}

    is_recorded = scene.record(name, outcome, **({} if outcome == "SUCCEEDED" else failure))

    row = scene.row(name)
    assert is_recorded == (state in ("QUEUED", "STARTED") or (state, outcome) == ("FAILED", "SUCCEEDED"))
    if not is_recorded:
        assert row == before
        return
    # Its end must be published. Only then it expires.
    assert (row["state"], row["ended"], row["open"]) == ({"S": outcome}, number(NOW), number(-NOW))
    assert not row.keys() & {"place", "deadline", "expires", "reason"}
    # A failed request can be redriven: it keeps its body.
    shown = ["body" in row, row.get("failed"), *(len(row[key]["S"]) for key in ("code", "cause") if key in row)]
    assert shown == ([False, None] if outcome == "SUCCEEDED" else [True, number(NOW), MAX_CODE, MAX_CAUSE])


def test_a_success_removes_the_failure_that_was_recorded_and_has_the_answer(scene: QueueScene) -> None:
    (name,) = scene.queue("a", task_token="token")
    scene.record(name, "FAILED")
    of_another_end = dict.fromkeys(("reason", "deadline", "expires", "published"), number(NOW))
    scene.dynamodb.put_item(TableName="requests", Item=scene.row(name) | of_another_end)
    scene.record(name, "SUCCEEDED", NOW + 1, answer="[7]")
    row = scene.row(name)
    assert not row.keys() & {"code", "cause", "reason", "failed", "body", "deadline", "expires", "published"}
    assert (row["answer"], row["open"]) == ({"S": "[7]"}, number(-NOW - 1))


@pytest.mark.parametrize("outcome", ["SUCCEEDED", "FAILED"])
def test_an_outcome_of_no_row_makes_none(outcome: str, scene: QueueScene) -> None:
    assert scene.record("p-manual", outcome) is False
    assert scene.row("p-manual") == {}
