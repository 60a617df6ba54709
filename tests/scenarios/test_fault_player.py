"""The player causes each kind of fault as planned, marks it when it has acted, and removes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from dev.emulator.faults import Faults
from dev.judge.slot_item import Holder, Item
from dev.scenarios.soak import fault_player as module
from dev.scenarios.soak.fault_player import FaultPlayer, JanitorClock, SlotState
from dev.scenarios.soak.soak_plan import DECK, Fault, Plan, Send, draw
from dev.scenarios.soak.soak_records import JanitorRun, SentMessage
from tests.support.waiting import wait_until


def play(stack: Any, *faults: Fault, sends: tuple[Send, ...] = (), seconds: float = 0.1) -> FaultPlayer:
    """The player after its plan."""
    plan = Plan(list(sends), list(faults), {"soak-a": 3}, seconds)
    player = FaultPlayer(stack, plan, Mock(interval=0.0), JanitorClock(stack))
    player.storm()
    return player


@pytest.fixture
def stack(tmp_path: Path) -> Any:
    """A stack on which every action succeeds. `r1` is the only request whose workflow has started."""
    stack = Mock()
    stack.aws.state_dir = tmp_path
    stack.journal.read.return_value = {"soak-a": Item("soak-a", 3, 0, {})}
    stack.journal.changes = []
    stack.queued.return_value, stack.running.return_value = 0, []
    stack.unsuccessful.return_value = ["soak-a-2", "soak-a-1"]
    stack.has_started.side_effect = lambda sent: sent.request_id == "r1"
    stack.kill_containers.return_value = 2
    stack.run_janitor.return_value = JanitorRun(0.0, 0.0, True)
    stack.send.side_effect = lambda process, request_id, body, _id, bad="": SentMessage(
        process, request_id, "m", "1", 0.0, body, bad
    )
    return stack


def rules(stack: Any) -> list[dict[str, Any]]:
    """The rules that the engine reads."""
    rules: list[dict[str, Any]] = json.loads((stack.aws.state_dir / "faults.json").read_text())
    return rules


def let_it_act(stack: Any, execution: str) -> None:
    """Record an action of each rule, as the engine does."""
    with (stack.aws.state_dir / "faults.json.fired").open("a") as fired:
        fired.writelines(f"{rule['id']} {execution}\n" for rule in rules(stack))


def test_the_engine_is_restarted_and_killed(stack: Any) -> None:
    made = play(stack, Fault(0, "engine restarted", {"hard": False}), Fault(0, "engine killed", {"hard": True}))
    assert stack.aws.restart.mock_calls == [call(hard=False), call(hard=True)]
    assert [mark.kind for mark in made.marks] == ["engine restarted", "engine killed"]


def test_a_changed_limit_and_a_pause_are_undone(stack: Any) -> None:
    changed = Fault(0, "limit changed", {"process": "soak-a", "limit": 5, "seconds": 0.05})
    made = play(stack, changed, Fault(0, "paused", {"process": "soak-a", "seconds": 0.1}))
    changes = [call.set_limit("soak-a", 5), call.pause("soak-a"), call.set_limit("soak-a", 3), call.resume("soak-a")]
    assert stack.operations.mock_calls == changes
    assert [(mark.kind, mark.process) for mark in made.marks] == [("limit changed", "soak-a"), ("paused", "soak-a")]
    assert all(mark.until - mark.at >= 0.05 for mark in made.marks)
    assert stack.wake_without_release.mock_calls == [call("soak-a")] * 2, "a wake after each new limit"


def test_status_events_are_lost_for_a_while(stack: Any) -> None:
    play(stack, Fault(0, "status events lost", {"process": "soak-a", "seconds": 0.05}))
    assert stack.status_events.mock_calls == [call(lost=True), call(lost=False)]


def test_containers_are_killed_in_the_middle_of_a_call(stack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: [""])
    made = play(stack, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stack.kill_containers.call_count, made.marks[0].detail) == (1, "2 of them, in UpdateItem")
    assert rules(stack) == [], "the call is answered again"


def test_containers_are_killed_without_the_call_if_it_does_not_come(
    stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALL_WITHIN", 0.05)
    made = play(stack, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stack.kill_containers.call_count, made.marks[0].detail) == (1, "2 of them, in no call")


def test_a_workflow_whose_run_is_left_alive_is_aborted_after_the_run_has_started(
    stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    made = play(stack, Fault(0, "abort, run left alive", {}))
    stack.abort.assert_called_once_with("soak-a-7")
    assert [(mark.kind, mark.process) for mark in made.marks] == [("abort, run left alive", "soak-a")]


def test_a_rule_is_marked_when_it_has_acted_and_not_before(stack: Any) -> None:
    fields = {"state": "ReleaseSlot", "action": "refuse", "error": "E", "times": 3}
    made = play(stack, Fault(0, "fault in a task", fields))
    assert made.marks == []
    (rule,) = rules(stack)
    assert (rule["state"], rule["action"], rule["error"], rule["times"]) == ("ReleaseSlot", "refuse", "E", 3)
    let_it_act(stack, "soak-a-7")
    made.remove_faults()
    assert [(mark.kind, mark.detail, mark.process) for mark in made.marks] == [
        ("fault in a task", "ReleaseSlot: refuse", "soak-a")
    ]
    assert rules(stack) == []


def test_a_rule_that_acts_again_is_marked_again(stack: Any) -> None:
    made = play(stack, Fault(0, "fault in a task", {"state": "S", "action": "refuse", "error": "E", "times": 2}))
    let_it_act(stack, "soak-a-7")
    made._mark_rules()
    let_it_act(stack, "soak-b-7")
    let_it_act(stack, "")
    made.remove_faults()
    assert [mark.process for mark in made.marks] == ["soak-a", "soak-b", ""]
    assert made.marks[0].until == made.marks[1].at


def test_a_redelivery_is_of_a_message_that_was_consumed(stack: Any) -> None:
    sends = tuple(Send(0, "soak-a", name, 0.1, "succeed") for name in ("r1", "r2"))
    play(stack, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.0}), sends=sends)
    play(stack, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.99}), sends=sends)
    assert [each.args[0].request_id for each in stack.redeliver.mock_calls] == ["r1"]


def test_a_request_that_is_sent_again_is_another_message_with_the_same_body(stack: Any) -> None:
    made = play(
        stack,
        Fault(0.02, "sent again", {"process": "soak-a", "draw": 0.0}),
        sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),),
    )
    first, again = (each.args for each in stack.send.mock_calls)
    assert (first[:3], first[3] != again[3]) == (again[:3], True)
    assert len(made.sent) == 1


@pytest.mark.parametrize("what", ["not JSON", "unknown process", "another group", "reserved argument"])
def test_every_bad_message_is_recorded_as_bad(stack: Any, what: str) -> None:
    made = play(stack, Fault(0, "bad message", {"process": "soak-a", "what": what}))
    assert [sent.bad for sent in made.sent] == [what]


def test_removing_the_faults_resumes_every_process_and_sets_every_limit_back(stack: Any) -> None:
    play(stack).remove_faults()
    assert stack.operations.mock_calls == [call.resume("soak-a"), call.set_limit("soak-a", 3)]
    stack.status_events.assert_called_once_with(lost=False)


def test_every_kind_of_a_plan_can_be_caused(stack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    first = {fault.kind: fault for fault in draw(4.0, 1, 3).faults}
    quick = [
        Fault(0.01, fault.kind, {**fault.fields, "process": "soak-a", "seconds": 0.01}) for fault in first.values()
    ]
    made = play(stack, *quick, sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),))
    assert set(DECK) - {mark.kind for mark in made.marks} <= {"abort", "redelivery", "sent again"}


def test_the_janitor_runs_until_the_clock_ends(stack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JANITOR_PERIOD", 0.01)
    with JanitorClock(stack) as janitor:
        wait_until(lambda: len(janitor.runs) > 2, "three runs")
    assert not janitor._thread.is_alive()


def test_the_state_is_settled_when_no_request_is_queued_runs_or_holds_a_slot() -> None:
    free, held = Item("p", 1, 0, {}), Item("p", 1, 1, {"p-1": Holder("RUNNING")})
    assert SlotState(0, 0, {"p": free}, 1).settled
    for state in (SlotState(1, 0, {"p": free}, 1), SlotState(0, 1, {"p": free}, 1), SlotState(0, 0, {"p": held}, 1)):
        assert not state.settled
