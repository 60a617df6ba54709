"""The player causes each kind of fault as planned, marks it when it has acted, and removes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.faults import Faults
from dev.scenarios.soak import fault_player as module
from dev.scenarios.soak.fault_player import FaultPlayer, JanitorClock, SlotState
from dev.scenarios.soak.soak_plan import DECK, Fault, Plan, Send, draw
from dev.scenarios.soak.soak_records import Change, JanitorRun, SentMessage
from tests.support.waiting import wait_until


class Engine:
    """The part of the embedded AWS that a player uses."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.restarts: list[bool] = []

    def restart(self, *, hard: bool) -> None:
        self.restarts.append(hard)


class Operators:
    """Records the commands, in order."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Any]] = []

    def pause(self, process: str) -> None:
        self.commands.append(("pause", process))

    def resume(self, process: str) -> None:
        self.commands.append(("resume", process))

    def set_limit(self, process: str, limit: int) -> None:
        self.commands.append((process, limit))


class Journal:
    """One process with free slots."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def read(self) -> dict[str, Change]:
        return {"soak-a": Change(0, "soak-a", 3, 0, {}, False)}


class RecordingStack:
    """A stack that records every action. All succeed."""

    def __init__(self, state_dir: Path) -> None:
        self.aws, self.operations, self.journal = Engine(state_dir), Operators(), Journal()
        self.done: list[tuple[str, Any]] = []

    def send(self, process: str, request_id: str, body: str, deduplication_id: str, *, bad: str = "") -> SentMessage:
        self.done.append(("send", (process, request_id, body, deduplication_id)))
        return SentMessage(process, request_id, f"m-{len(self.done)}", "1", 0.0, body, bad)

    def redeliver(self, sent: SentMessage) -> None:
        self.done.append(("redeliver", sent.request_id))

    def has_started(self, sent: SentMessage) -> bool:
        return sent.request_id == "r1"

    def wake_without_release(self, process: str) -> bool:
        self.done.append(("wake", process))
        return True

    def queued(self) -> int:
        return 0

    def running(self) -> list[str]:
        return []

    def unsuccessful(self) -> list[str]:
        return ["soak-a-2", "soak-a-1"]

    def abort(self, name: str) -> bool:
        self.done.append(("abort", name))
        return True

    def redrive(self, name: str) -> bool:
        self.done.append(("redrive", name))
        return True

    def status_events(self, *, lost: bool) -> None:
        self.done.append(("status events", lost))

    def kill_containers(self) -> int:
        self.done.append(("kill", None))
        return 2

    def run_janitor(self) -> JanitorRun:
        return JanitorRun(0.0, 0.0, True)


class Blind:
    """A view that shows nothing."""

    interval = 0.0

    def __enter__(self) -> Blind:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, progress: object) -> None: ...


def play(stack: RecordingStack, *faults: Fault, sends: tuple[Send, ...] = (), seconds: float = 0.1) -> FaultPlayer:
    """The player after its plan."""
    plan = Plan(list(sends), list(faults), {"soak-a": 3}, seconds)
    player = FaultPlayer(stack, plan, Blind(), JanitorClock(stack))  # type: ignore[arg-type]
    player.storm()
    return player


@pytest.fixture
def stack(tmp_path: Path) -> RecordingStack:
    return RecordingStack(tmp_path)


def rules(stack: RecordingStack) -> list[dict[str, Any]]:
    """The rules that the engine reads."""
    rules: list[dict[str, Any]] = json.loads((stack.aws.state_dir / "faults.json").read_text())
    return rules


def let_it_act(stack: RecordingStack, execution: str) -> None:
    """Record an action of each rule, as the engine does."""
    with (stack.aws.state_dir / "faults.json.fired").open("a") as fired:
        fired.writelines(f"{rule['id']} {execution}\n" for rule in rules(stack))


def test_the_engine_is_restarted_and_killed(stack: RecordingStack) -> None:
    made = play(stack, Fault(0, "engine restarted", {"hard": False}), Fault(0, "engine killed", {"hard": True}))
    assert stack.aws.restarts == [False, True]
    assert [mark.kind for mark in made.marks] == ["engine restarted", "engine killed"]


def test_a_changed_limit_and_a_pause_are_undone(stack: RecordingStack) -> None:
    changed = Fault(0, "limit changed", {"process": "soak-a", "limit": 5, "seconds": 0.05})
    made = play(stack, changed, Fault(0, "paused", {"process": "soak-a", "seconds": 0.1}))
    assert stack.operations.commands == [("soak-a", 5), ("pause", "soak-a"), ("soak-a", 3), ("resume", "soak-a")]
    assert [(mark.kind, mark.process) for mark in made.marks] == [("limit changed", "soak-a"), ("paused", "soak-a")]
    assert all(mark.until - mark.at >= 0.05 for mark in made.marks)
    assert stack.done == [("wake", "soak-a")] * 2, "a wake after each new limit"


def test_status_events_are_lost_for_a_while(stack: RecordingStack) -> None:
    play(stack, Fault(0, "status events lost", {"process": "soak-a", "seconds": 0.05}))
    assert stack.done == [("status events", True), ("status events", False)]


def test_containers_are_killed_in_the_middle_of_a_call(stack: RecordingStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: [""])
    made = play(stack, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stack.done, made.marks[0].detail) == ([("kill", None)], "2 of them, in UpdateItem")
    assert rules(stack) == [], "the call is answered again"


def test_containers_are_killed_without_the_call_if_it_does_not_come(
    stack: RecordingStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALL_WITHIN", 0.05)
    made = play(stack, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stack.done, made.marks[0].detail) == ([("kill", None)], "2 of them, in no call")


def test_a_workflow_whose_run_is_left_alive_is_aborted_after_the_run_has_started(
    stack: RecordingStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    made = play(stack, Fault(0, "abort, run left alive", {}))
    assert stack.done == [("abort", "soak-a-7")]
    assert [(mark.kind, mark.process) for mark in made.marks] == [("abort, run left alive", "soak-a")]


def test_a_rule_is_marked_when_it_has_acted_and_not_before(stack: RecordingStack) -> None:
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


def test_a_rule_that_acts_again_is_marked_again(stack: RecordingStack) -> None:
    made = play(stack, Fault(0, "fault in a task", {"state": "S", "action": "refuse", "error": "E", "times": 2}))
    let_it_act(stack, "soak-a-7")
    made._mark_rules()
    let_it_act(stack, "soak-b-7")
    let_it_act(stack, "")
    made.remove_faults()
    assert [mark.process for mark in made.marks] == ["soak-a", "soak-b", ""]
    assert made.marks[0].until == made.marks[1].at


def test_a_redelivery_is_of_a_message_that_was_consumed(stack: RecordingStack) -> None:
    sends = tuple(Send(0, "soak-a", name, 0.1, "succeed") for name in ("r1", "r2"))
    play(stack, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.0}), sends=sends)
    play(stack, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.99}), sends=sends)
    assert [what for what in stack.done if what[0] == "redeliver"] == [("redeliver", "r1")]


def test_a_request_that_is_sent_again_is_another_message_with_the_same_body(stack: RecordingStack) -> None:
    made = play(
        stack,
        Fault(0.02, "sent again", {"process": "soak-a", "draw": 0.0}),
        sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),),
    )
    first, again = (what[1] for what in stack.done)
    assert (first[:3], first[3] != again[3]) == (again[:3], True)
    assert len(made.sent) == 1


@pytest.mark.parametrize("what", ["not JSON", "unknown process", "another group", "reserved argument"])
def test_every_bad_message_is_recorded_as_bad(stack: RecordingStack, what: str) -> None:
    made = play(stack, Fault(0, "bad message", {"process": "soak-a", "what": what}))
    assert [sent.bad for sent in made.sent] == [what]


def test_removing_the_faults_resumes_every_process_and_sets_every_limit_back(stack: RecordingStack) -> None:
    play(stack).remove_faults()
    assert stack.operations.commands == [("resume", "soak-a"), ("soak-a", 3)]
    assert stack.done == [("status events", False)]


def test_every_kind_of_a_plan_can_be_caused(stack: RecordingStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    first = {fault.kind: fault for fault in draw(4.0, 1, 3).faults}
    quick = [
        Fault(0.01, fault.kind, {**fault.fields, "process": "soak-a", "seconds": 0.01}) for fault in first.values()
    ]
    made = play(stack, *quick, sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),))
    assert set(DECK) - {mark.kind for mark in made.marks} <= {"abort", "redelivery", "sent again"}


def test_the_janitor_runs_until_the_clock_ends(stack: RecordingStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JANITOR_PERIOD", 0.01)
    with JanitorClock(stack) as janitor:  # type: ignore[arg-type]
        wait_until(lambda: len(janitor.runs) > 2, "three runs")
    assert not janitor._thread.is_alive()


def test_the_state_is_settled_when_no_request_is_queued_runs_or_holds_a_slot() -> None:
    free, held = Change(0, "p", 1, 0, {}, False), Change(0, "p", 1, 1, {"p-1": "RUNNING"}, False)
    assert SlotState(0, 0, {"p": free}, 1).settled
    for state in (SlotState(1, 0, {"p": free}, 1), SlotState(0, 1, {"p": free}, 1), SlotState(0, 0, {"p": held}, 1)):
        assert not state.settled
