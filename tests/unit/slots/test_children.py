"""Slots of state machines: which child executions the janitor stops, when it frees their slots, how it settles them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from slotkeeper.slots.janitor import RUN_SECONDS
from slotkeeper.slots.work import Children
from tests.unit.conftest import CHECK_GAP, GRACE, NOW, Account
from tests.unit.janitor_scene import TARGET, ChildScene

LATER = NOW + GRACE + 1


@pytest.fixture
def scene(account: Account) -> ChildScene:
    return ChildScene(account)


def _failed(scene: ChildScene) -> list[str]:
    """The codes of the failures that were recorded."""
    return [row.code for row in scene.account.rows.rows("p", ["FAILED"]).rows]


def _in_use(scene: ChildScene, process: str = "p") -> int:
    return int(scene.account.item(process).slots_in_use)


def test_s1b_an_open_child_of_a_dead_workflow_is_stopped_and_keeps_its_slot(aborted: ChildScene) -> None:
    aborted.stopping_takes_long = True
    aborted.child("RUNNING")
    for number in range(3):
        assert aborted.account.run_at(LATER + number * CHECK_GAP).counts["ChildrenStopped"] == 1
    assert (_in_use(aborted), _failed(aborted)) == (1, [])
    aborted.child("ABORTED", at=LATER)
    aborted.account.run_at(LATER + 3 * CHECK_GAP)
    assert (_in_use(aborted), _failed(aborted)) == (0, ["ABORTED"])


def test_s1b_one_check_of_an_absent_child_is_not_enough(aborted: ChildScene) -> None:
    """A StartExecution that was sent before the abort shows later."""
    aborted.account.run_at(LATER)
    aborted.account.run_at(LATER + CHECK_GAP - 1)
    assert (_in_use(aborted), _failed(aborted)) == (1, [])
    aborted.child("RUNNING")
    aborted.account.run_at(LATER + CHECK_GAP)
    assert len(aborted.stops) == 1
    aborted.no_child()
    aborted.account.run_at(LATER + 2 * CHECK_GAP)
    assert _in_use(aborted) == 1
    aborted.account.run_at(LATER + 3 * CHECK_GAP)
    assert (_in_use(aborted), _failed(aborted)) == (0, ["ABORTED"])


@pytest.mark.parametrize(
    "given", ['{"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID": "arn:other"}', "{}", "[]", "null"], ids=str
)
def test_s1b_an_execution_that_is_not_ours_is_never_stopped_and_counts_as_absent(
    aborted: ChildScene, given: str
) -> None:
    aborted.child("RUNNING", input=given)
    aborted.account.run_at(LATER)
    assert _in_use(aborted) == 1
    aborted.account.run_at(LATER + CHECK_GAP)
    assert (_in_use(aborted), aborted.stops) == (0, [])


@pytest.fixture
def settling(account: Account) -> ChildScene:
    """The scene with a settle time of ten minutes, after its execution was aborted."""
    scene = ChildScene(account, settle_seconds=600)
    scene.start()
    scene.abort()
    return scene


@pytest.mark.parametrize(("status", "kept"), [("ABORTED", 600), ("TIMED_OUT", 600), ("FAILED", 0)])
def test_the_slot_of_an_aborted_child_is_kept_for_the_settle_time(settling: ChildScene, status: str, kept: int) -> None:
    """A failed one has ended its own work."""
    settling.child(status, at=LATER)
    if kept:
        settling.account.run_at(LATER + kept - 1)
        assert (_in_use(settling), _failed(settling)) == (1, [])
    settling.account.run_at(LATER + kept)
    assert (_in_use(settling), _failed(settling)) == (0, ["ABORTED"])


def test_s1b_the_slot_is_kept_if_it_is_unknown_who_started_the_child(aborted: ChildScene) -> None:
    aborted.child("RUNNING", input="[" * 100_000 + "]" * 100_000)  # too deep for Python's parser
    for number in range(3):
        aborted.account.run_at(LATER + number * CHECK_GAP)
    assert (_in_use(aborted), aborted.stops) == (1, [])


def test_a_refused_state_machine_leaves_only_its_own_holders_unchecked(aborted: ChildScene) -> None:
    other = f"{TARGET}-other"
    aborted.account.processes.create("q", 1, other)
    aborted.account.slots.adopt("q", "q-1", NOW - 2 * 86400, other)
    aborted.child("FAILED", name="q-1", target=other)
    aborted.refused = TARGET
    counts = aborted.account.run_at(LATER).counts
    assert (counts["JanitorErrors"], counts["HoldersUnreadable"]) == (2, 1)  # with the list
    assert (_in_use(aborted, "p"), _in_use(aborted, "q")) == (1, 0)


def test_the_event_returns_when_the_settle_time_has_passed(settling: ChildScene) -> None:
    settling.child("TIMED_OUT", at=NOW)
    assert settling.account.event_at(settling.execution, NOW + 400)[0] == 201
    assert settling.account.event_at(settling.execution, NOW + 600)[0] is None


def _redrive(scene: ChildScene, **changes: Any) -> None:
    """Let the janitor free the slot of a failed child, which an operator then redrives."""
    scene.child("FAILED")
    scene.account.run_at(LATER)
    assert _in_use(scene) == 0
    scene.child("RUNNING", **({"redrives": 1} | changes))


@pytest.mark.parametrize(
    ("fields", "weight", "key"),
    [
        ({"weight": 3, "key": "acme"}, 3, "acme"),
        ({"weight": 0, "key": "a\t"}, 2, ""),
        ({"weight": "3", "key": 7}, 2, ""),
    ],
    ids=["of the request", "not valid", "of other types"],
)
def test_an_adopted_child_has_the_weight_and_the_key_of_its_request(
    fields: dict[str, Any], weight: int, key: str, account: Account
) -> None:
    scene = ChildScene(account)
    account.processes.set_limit("p", 5)
    account.write("default_weight", {"N": "2"})
    account.stepfunctions.start_execution(
        stateMachineArn=account.workflow_arn, name=scene.execution, input=json.dumps({"process": "p"} | fields)
    )
    scene.abort()
    scene.child("RUNNING", redrives=1)
    account.run_at(NOW)
    assert (_in_use(scene), account.item("p").held_by_key) == (weight, {key: weight})


@pytest.mark.parametrize(
    "changes",
    [{"input": "{}"}, {"redrives": 0}, {"status": "SUCCEEDED"}, {"name": "unknown-1"}],
    ids=["not ours", "not redriven", "closed", "no such process"],
)
def test_only_redriven_running_children_of_ours_are_adopted(aborted: ChildScene, changes: dict[str, Any]) -> None:
    _redrive(aborted, **changes)
    assert aborted.account.run_at(LATER + 60).counts["ChildRedriven"] == 0
    assert _in_use(aborted) == 0


def test_a_child_whose_workflow_runs_is_not_adopted(scene: ChildScene) -> None:
    """The workflow may be about to release the slot of this name."""
    scene.start()
    scene.account.free(scene.execution)
    scene.child("RUNNING", redrives=1)
    assert scene.account.run_at(LATER).counts["ChildRedriven"] == 0


def test_redriven_executions_are_listed_once_for_each_state_machine_in_use(aborted: ChildScene) -> None:
    aborted.account.processes.create("q", 1, TARGET)
    aborted.account.processes.create("g", 1, "job")
    old = f"{TARGET}-before"
    aborted.account.slots.adopt("g", "g-1", NOW, old)
    aborted.account.run_at(NOW + 1)
    lists = sorted(arn for operation, arn in aborted.calls if operation == "ListExecutions")
    assert lists == [TARGET, old]


def test_a_state_machine_that_cannot_be_listed_does_not_stop_the_run(aborted: ChildScene) -> None:
    other = f"{TARGET}-other"
    aborted.account.processes.create("a", 1, other)
    aborted.refused = other
    _redrive(aborted)
    counts = aborted.account.run_at(LATER + 60).counts
    assert (counts["JanitorErrors"], counts["ChildRedriven"]) == (1, 1)


def test_a_long_list_of_running_executions_is_continued_by_the_next_run(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state machine that is also used without slots has pages for minutes. Another one has a redriven child."""
    scene = ChildScene(account)
    account.processes.create("b", 1, f"{TARGET}-busy")
    scene.start()
    scene.abort()
    _redrive(scene)
    pages: list[int] = []

    def busy(_: Children, target: str) -> Iterator[str | None]:
        if target == TARGET:
            yield from (scene.execution, None)
            return
        for number in range(100):
            pages.append(number)
            account.now += 1.0
            yield None

    monkeypatch.setattr(Children, "redriven", busy)
    took = []
    for _ in range(5):
        began = account.now
        account.run_at(began + 60)
        took.append(account.now - began - 60)
    assert pages[:100] == list(range(100))
    assert max(took) <= RUN_SECONDS + 1
    assert account.item().holders[scene.execution].redriven
