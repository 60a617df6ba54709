"""The requests of `make run PRIORITIES=yes`, and the steps by which they are sent, cancelled and unblocked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from dev.emulator.sample_data import read_dataset
from dev.scenarios.runner.scenario import CannotContinue
from dev.scenarios.slots import priority_scenario
from dev.scenarios.slots import slot_requests as work
from dev.scenarios.slots.priority_requests import MIN_LIMIT, MIN_REQUESTS, Action, Mix, mix
from dev.scenarios.slots.priority_scenario import Director
from dev.scenarios.slots.slot_report import SlotsOfRun
from dev.scenarios.slots.slot_requests import PROCESS, Request, SentRequest
from slotkeeper.slots.process import Process, WaitingRequest
from slotkeeper.slots.processes import CancelOutcome
from slotkeeper.slots.request import Delivery, execution_name, parse_request
from slotkeeper_cli.audit.work_history import GLUE_RUN
from tests.cli.work_histories import START, attempt, history

TEXT = read_dataset()


def mixed(requests: int = 40, limit: int = 4) -> Mix:
    return mix(work.plan(TEXT, requests=requests, fail=0.0, run_id="run"), limit)


def all_requests(made: Mix) -> list[Request]:
    return [*made.backlog, *(step.request for step in made.steps if step.request)]


@pytest.mark.parametrize(("requests", "limit"), [(MIN_REQUESTS, MIN_LIMIT), (40, 4), (40, 500), (2000, 3)])
def test_a_mix_of_any_size_has_every_kind_and_can_end(requests: int, limit: int) -> None:
    made = mixed(requests, limit)
    sent = all_requests(made)
    assert len({each.request_id for each in sent}) == requests
    assert {each.priority for each in made.backlog} == {"low", "normal"}
    assert {each.weight for each in made.backlog} == {1, limit - 1}
    by_id = {each.request_id: each for each in sent}
    cancelled, blocked = by_id[made.cancelled], by_id[made.blocked]
    assert (cancelled.priority, cancelled.weight) == ("high", limit)
    assert (blocked.priority, limit < blocked.weight <= made.raised) == ("high", True)
    urgent = [each for each in sent if each.priority == "high" and each not in (cancelled, blocked)]
    assert sum(each.weight > 1 for each in urgent) == 1
    assert all(each.weight <= limit for each in sent if each is not blocked)


@pytest.mark.parametrize("requests", [MIN_REQUESTS, 40, 2000])
def test_every_step_becomes_due_and_the_blocked_request_stays_the_last_of_its_group_until_the_limit_is_raised(
    requests: int,
) -> None:
    made = mixed(requests)
    queued, after = len(made.backlog), 0
    for step in made.steps:
        assert after <= step.after <= queued, "so many requests can have ended"
        after = step.after
        # A blocked request ends later, and those behind it wait too.
        queued += step.request is not None and step.request.request_id != made.blocked
    actions = [step.action for step in made.steps][-4:]
    assert actions == [Action.CANCEL, Action.SEND, Action.RAISE, Action.SEND]


def test_the_messages_are_valid_requests_in_the_group_of_their_priority() -> None:
    queue = Mock()
    queue.send_message_batch.side_effect = lambda Entries, **_: {
        "Successful": [{"Id": each["Id"], "SequenceNumber": "1"} for each in Entries]
    }
    made = all_requests(mixed())
    work.send(queue, "url", made)
    entries = [each for call in queue.send_message_batch.mock_calls for each in call.kwargs["Entries"]]
    for request, entry in zip(made, entries, strict=True):
        parsed = parse_request(Delivery("m", entry["MessageBody"], entry["MessageGroupId"], "h", "1", 1, 0.0))
        assert (parsed.priority, parsed.weight or 1) == (request.priority, request.weight)


class Stack:
    """A stack of which the process has these states, one after another, and then the last one."""

    def __init__(self, *states: Process, outcome: CancelOutcome = CancelOutcome.CANCELLED) -> None:
        self.calls: list[Any] = []
        self._states = list(states)
        self._outcome = outcome

    def send(self, requests: list[Request]) -> list[SentRequest]:
        self.calls += [f"send {each.request_id}" for each in requests]
        return [SentRequest(each, 1, 0.0) for each in requests]

    def process(self) -> Process:
        self.calls.append("read")
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def cancel(self, execution: str) -> CancelOutcome:
        self.calls.append(("cancel", execution))
        return self._outcome

    def set_limit(self, limit: int) -> None:
        self.calls.append(("set_limit", limit))


def process(in_use: int, waiting: str | None = None, weight: int = 1) -> Process:
    name = execution_name(PROCESS, waiting or "", 1)
    registered = {"high": WaitingRequest("high", "h", "1", 1, weight, 0, name, "", 0)} if waiting else {}
    return replace(Process(PROCESS, 4, in_use, {}, False, "job"), waiting=registered)


def director(stack: Any, made: Mix, *actions: Action) -> Director:
    steps = [step for step in made.steps if step.action in actions]
    return Director(stack, replace(made, steps=steps), 4)


@pytest.mark.parametrize(("in_use", "reads"), [((3, 3, 4), 3), ((3,), 1)], ids=["when all are in use", "or never are"])
def test_an_urgent_request_is_sent_when_enough_workflows_have_ended_and_all_slots_are_in_use(
    in_use: tuple[int, ...], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_scenario, "FULL_WITHIN", 30 if 4 in in_use else 0)
    made, stack = mixed(), Stack(*map(process, in_use))
    player = director(stack, made, Action.SEND)
    player.act(made.steps[0].after - 1)
    assert stack.calls == []
    player.act(made.steps[0].after)
    assert stack.calls == ["read"] * reads + [f"send {made.steps[0].request.request_id}"]  # type: ignore[union-attr]
    assert len(player.sent) == 1


def test_the_limit_is_raised_although_no_other_request_is_left_to_start() -> None:
    made = mixed()
    player = director(Stack(process(0, made.blocked, 5)), made, Action.RAISE)
    player.act(40)
    assert player.limit == 6


def test_a_head_is_cancelled_when_a_slot_is_kept_free_for_it() -> None:
    made = mixed()
    stack = Stack(process(4), process(4, made.cancelled, 4), process(3, made.cancelled, 4))
    director(stack, made, Action.CANCEL).act(40)
    cancelled = execution_name(PROCESS, made.cancelled, 1)
    assert stack.calls == [f"send {made.cancelled}", "read", "read", "read", ("cancel", cancelled)]


def test_the_limit_is_raised_when_others_have_started_while_the_blocked_request_was_registered() -> None:
    made = mixed()
    blocked = process(4, made.blocked, 5)
    others = [replace(blocked, holders=dict.fromkeys(names, Mock())) for names in ("ab", "bc", "cd")]
    stack = Stack(process(4), blocked, *others)
    player = director(stack, made, Action.RAISE)
    player.act(40)
    assert stack.calls == ["read"] * 5 + [("set_limit", 6)]
    assert (player.limit, player.raised is not None) == (6, True)


@pytest.mark.parametrize(
    ("action", "text"), [(Action.CANCEL, "registered, with a slot kept free for it"), (Action.RAISE, "as blocked")]
)
def test_a_run_in_which_a_request_is_never_registered_cannot_continue(
    action: Action, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_scenario, "WITHIN", 0.05)
    with pytest.raises(CannotContinue, match=text):
        director(Stack(process(4)), mixed(), action).act(40)


@pytest.mark.parametrize("outcome", [CancelOutcome.CANCELLED, CancelOutcome.HOLDS_SLOT])
def test_a_request_that_took_its_slots_before_it_was_cancelled_is_recorded_as_such(outcome: CancelOutcome) -> None:
    made = mixed()
    player = director(Stack(process(3, made.cancelled, 4), outcome=outcome), made, Action.CANCEL)
    player.act(40)
    assert player.cancel_was_late is (outcome is CancelOutcome.HOLDS_SLOT)
    (sending,) = player.sendings()
    assert sending.outcome == ("SUCCEEDED" if player.cancel_was_late else "Cancelled")
    slots = SlotsOfRun(PROCESS, GLUE_RUN, history([attempt("a", 1)]))
    blocked = SentRequest(replace(player.sent[0].request, request_id=made.blocked), 2, START)
    player.sent, player.raised = [blocked], (START + 2, START + 3)
    assert priority_scenario.others_started(slots, made, player).ok is (None if player.cancel_was_late else True)
    player.raised = (START + 0.5, START + 1)
    assert priority_scenario.others_started(slots, made, player).ok is None, "no other request started meanwhile"
