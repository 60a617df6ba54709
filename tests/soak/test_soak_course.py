"""The course: that each kind of fault is done to the stack as planned, is marked when it has acted, and is mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.faults import Faults
from dev.scenarios.soak import beside
from dev.scenarios.soak import course as module
from dev.scenarios.soak.beside import Rounds, Snapshot
from dev.scenarios.soak.course import Course
from dev.scenarios.soak.plan import DECK, Fault, Plan, Send, draw
from dev.scenarios.soak.records import Change, Round, Sent
from tests.support.waiting import wait_until


class Engine:
    """As much of the embedded AWS as a course uses."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.restarts: list[bool] = []

    def restart(self, *, hard: bool) -> None:
        self.restarts.append(hard)


class Operators:
    """What was said to the processes, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def pause(self, process: str) -> None:
        self.said.append(("pause", process))

    def resume(self, process: str) -> None:
        self.said.append(("resume", process))

    def set_limit(self, process: str, limit: int) -> None:
        self.said.append((process, limit))


class Journal:
    """One process, whose slots are free."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def read(self) -> dict[str, Change]:
        return {"soak-a": Change(0, "soak-a", 3, 0, {}, False)}


class Stand:
    """A stage on which every deed succeeds, and is remembered."""

    def __init__(self, state_dir: Path) -> None:
        self.aws, self.operations, self.journal = Engine(state_dir), Operators(), Journal()
        self.done: list[tuple[str, Any]] = []

    def send(self, process: str, request_id: str, body: str, deduplication_id: str, *, bad: str = "") -> Sent:
        self.done.append(("send", (process, request_id, body, deduplication_id)))
        return Sent(process, request_id, f"m-{len(self.done)}", "1", 0.0, body, bad)

    def redeliver(self, sent: Sent) -> None:
        self.done.append(("redeliver", sent.request_id))

    def has_started(self, sent: Sent) -> bool:
        return sent.request_id == "r1"

    def wake_for_nothing(self, process: str) -> bool:
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

    def go_round(self) -> Round:
        return Round(0.0, 0.0, True)


class Blind:
    """A view that nobody looks at."""

    interval = 0.0

    def __enter__(self) -> Blind:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, snapshot: Snapshot) -> None: ...


def play(stage: Stand, *faults: Fault, sends: tuple[Send, ...] = (), seconds: float = 0.1) -> Course:
    """The course after its storm."""
    plan = Plan(list(sends), list(faults), {"soak-a": 3}, seconds)
    course = Course(stage, plan, Blind(), Rounds(stage))  # type: ignore[arg-type]
    course.storm()
    return course


@pytest.fixture
def stage(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def rules(stage: Stand) -> list[dict[str, Any]]:
    """The rules that the engine would act by."""
    found: list[dict[str, Any]] = json.loads((stage.aws.state_dir / "faults.json").read_text())
    return found


def let_it_act(stage: Stand, execution: str) -> None:
    """What the engine does when a rule has acted."""
    with (stage.aws.state_dir / "faults.json.fired").open("a") as fired:
        fired.writelines(f"{rule['id']} {execution}\n" for rule in rules(stage))


def test_the_engine_is_restarted_and_killed(stage: Stand) -> None:
    made = play(stage, Fault(0, "engine restarted", {"hard": False}), Fault(0, "engine killed", {"hard": True}))
    assert stage.aws.restarts == [False, True]
    assert [mark.kind for mark in made.marks] == ["engine restarted", "engine killed"]


def test_a_limit_is_changed_and_set_back_and_a_pause_is_lifted(stage: Stand) -> None:
    changed = Fault(0, "limit changed", {"process": "soak-a", "limit": 5, "seconds": 0.05})
    made = play(stage, changed, Fault(0, "paused", {"process": "soak-a", "seconds": 0.1}))
    assert stage.operations.said == [("soak-a", 5), ("pause", "soak-a"), ("soak-a", 3), ("resume", "soak-a")]
    assert [(mark.kind, mark.process) for mark in made.marks] == [("limit changed", "soak-a"), ("paused", "soak-a")]
    assert all(mark.until - mark.at >= 0.05 for mark in made.marks)
    assert stage.done == [("wake", "soak-a")] * 2, "somebody knocks at each new limit"


def test_status_events_are_lost_for_a_while(stage: Stand) -> None:
    play(stage, Fault(0, "status events lost", {"process": "soak-a", "seconds": 0.05}))
    assert stage.done == [("status events", True), ("status events", False)]


def test_containers_are_killed_in_the_middle_of_a_call(stage: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: [""])
    made = play(stage, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stage.done, made.marks[0].said) == ([("kill", None)], "2 of them, in UpdateItem")
    assert rules(stage) == [], "the call is answered again"


def test_containers_are_killed_anyway_if_the_call_does_not_come(stage: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    made = play(stage, Fault(0, "containers killed", {"call": "UpdateItem"}))
    assert (stage.done, made.marks[0].said) == ([("kill", None)], "2 of them, in no call")


def test_a_workflow_whose_run_is_left_alive_is_aborted_after_its_run_has_begun(
    stage: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    made = play(stage, Fault(0, "abort, run left alive", {}))
    assert stage.done == [("abort", "soak-a-7")]
    assert [(mark.kind, mark.process) for mark in made.marks] == [("abort, run left alive", "soak-a")]


def test_a_rule_is_marked_when_it_has_acted_and_not_before(stage: Stand) -> None:
    fields = {"state": "ReleaseSlot", "action": "refuse", "error": "E", "times": 3}
    made = play(stage, Fault(0, "fault in a task", fields))
    assert made.marks == []
    (rule,) = rules(stage)
    assert (rule["state"], rule["action"], rule["error"], rule["times"]) == ("ReleaseSlot", "refuse", "E", 3)
    let_it_act(stage, "soak-a-7")
    made.mend()
    assert [(mark.kind, mark.said, mark.process) for mark in made.marks] == [
        ("fault in a task", "ReleaseSlot: refuse", "soak-a")
    ]
    assert rules(stage) == []


def test_a_rule_that_acts_again_is_marked_again(stage: Stand) -> None:
    made = play(stage, Fault(0, "fault in a task", {"state": "S", "action": "refuse", "error": "E", "times": 2}))
    let_it_act(stage, "soak-a-7")
    made._note_rules()
    let_it_act(stage, "soak-b-7")
    let_it_act(stage, "")
    made.mend()
    assert [mark.process for mark in made.marks] == ["soak-a", "soak-b", ""]
    assert made.marks[0].until == made.marks[1].at


def test_a_redelivery_is_of_a_message_that_was_consumed(stage: Stand) -> None:
    sends = tuple(Send(0, "soak-a", name, 0.1, "succeed") for name in ("r1", "r2"))
    play(stage, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.0}), sends=sends)
    play(stage, Fault(0.02, "redelivery", {"process": "soak-a", "draw": 0.99}), sends=sends)
    assert [what for what in stage.done if what[0] == "redeliver"] == [("redeliver", "r1")]


def test_a_request_that_is_sent_again_is_another_message_with_the_same_body(stage: Stand) -> None:
    made = play(
        stage,
        Fault(0.02, "sent again", {"process": "soak-a", "draw": 0.0}),
        sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),),
    )
    first, again = (what[1] for what in stage.done)
    assert (first[:3], first[3] != again[3]) == (again[:3], True)
    assert len(made.sent) == 1


@pytest.mark.parametrize("what", ["not JSON", "unknown process", "another group", "reserved argument"])
def test_every_bad_message_is_remembered_as_bad(stage: Stand, what: str) -> None:
    made = play(stage, Fault(0, "bad message", {"process": "soak-a", "what": what}))
    assert [sent.bad for sent in made.sent] == [what]


def test_mending_resumes_everybody_and_sets_every_limit_back(stage: Stand) -> None:
    play(stage).mend()
    assert stage.operations.said == [("resume", "soak-a"), ("soak-a", 3)]
    assert stage.done == [("status events", False)]


def test_every_kind_that_a_plan_can_hold_can_be_done(stage: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "met", lambda *_: ["soak-a-7"])
    first = {fault.kind: fault for fault in draw(4.0, 1, 3).faults}
    quick = [
        Fault(0.01, fault.kind, {**fault.fields, "process": "soak-a", "seconds": 0.01}) for fault in first.values()
    ]
    made = play(stage, *quick, sends=(Send(0, "soak-a", "r1", 0.1, "succeed"),))
    assert set(DECK) - {mark.kind for mark in made.marks} <= {"abort", "redelivery", "sent again"}


def test_the_janitor_goes_round_until_the_course_is_over(stage: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "JANITOR_PERIOD", 0.01)
    with Rounds(stage) as rounds:  # type: ignore[arg-type]
        wait_until(lambda: len(rounds.done) > 2, "three rounds")
    assert not rounds._thread.is_alive()
