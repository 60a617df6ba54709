"""Priorities and weights in small worlds without a fault. As controls, each rule is removed, and a world finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots import admission, protocol
from slotkeeper.slots.admission import Starter
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import PRIORITIES
from tests.simulation.slots_world import Plan, SlotsWorld
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import first_violation

Patch = pytest.MonkeyPatch


def rule_1_granted_before_a_higher_priority(patch: Patch) -> None:
    patch.setattr(protocol, "higher", lambda _: ())


def rule_2_a_grant_leaves_the_registration(patch: Patch) -> None:
    patch.setattr(protocol, "GRANTED_UPDATE", ", waiting.unused = :tombstone")


def rule_3_a_dead_letter_leaves_the_registration(patch: Patch) -> None:
    patch.setattr(Slots, "end_wait", lambda *_: False)


def rule_3_no_wake_after_a_dead_letter(patch: Patch) -> None:
    def dead_letter(self: Starter, delivery: Any, _now: float, code: str, reason: str, request: Any = None) -> Any:
        self.queue.dead_letter(delivery, code, reason)
        self.slots.end_wait(protocol.Candidate.of(request, delivery))
        return admission.DeadLettered(code, reason, request)

    patch.setattr(Starter, "_dead_letter", dead_letter)


def rule_4_no_wake_after_a_grant(patch: Patch) -> None:
    patch.setattr(Starter, "_wake", lambda *_: None)


def rule_5_only_the_highest_priority_is_woken(patch: Patch) -> None:
    """A wake picks the lowest registered priority."""
    patch.setattr(protocol, "PRIORITIES", PRIORITIES[::-1])

    def swap(state: dict[str, Any]) -> None:
        first = state["Assign"]["first"]
        state["Assign"]["first"] = first.replace(
            "[$w.high.M, $w.normal.M, $w.low.M]", "[$w.low.M, $w.normal.M, $w.high.M]"
        )

    change_state(patch, "ReadWaiting", swap)


def rule_6_outdated_registrations_stay(patch: Patch) -> None:
    patch.setattr(Slots, "clear", lambda *_: False)
    change_state(patch, "IsReceiptHandleRefused", lambda state: state.update(Choices=[]))


def a_message_stays_hidden_after_a_turn(patch: Patch) -> None:
    delay = protocol.wake_delay
    patch.setattr(protocol, "wake_delay", lambda *given: 225 * delay(*given))

    def hide(state: dict[str, Any]) -> None:
        seconds = state["Arguments"]["VisibilityTimeout"]
        state["Arguments"]["VisibilityTimeout"] = seconds.replace("$max([", "225 * $max([")

    change_state(patch, "WakeWaiting", hide)


def the_limit_may_change_after_the_read(patch: Patch) -> None:
    patch.setattr(
        protocol, "ROOM_FOR_WEIGHT", protocol.ROOM_FOR_WEIGHT.replace("slot_limit = :limit", ":limit <> :room")
    )


def released_by_one(patch: Patch) -> None:
    update = "SET slots_in_use = slots_in_use - :one REMOVE holders.#me"
    change_state(patch, "ReleaseSlot", lambda state: state["Arguments"].update(UpdateExpression=update))


def a_blocked_head_keeps_others_out(patch: Patch) -> None:
    patch.setattr(protocol, "NOT_REGISTERED", "attribute_not_exists(waiting.{0}.receipt_handle)")
    patch.setattr(protocol, "REGISTERED", "attribute_exists(waiting.{0}.receipt_handle)")
    patch.setattr(Process, "is_blocked", lambda *_: False)


def no_wake_after_a_change_of_the_limit(patch: Patch) -> None:
    patch.setattr(Operations, "set_limit", lambda self, process, limit: self.processes.set_limit(process, limit))


def _plan(requests: str, limit: int, **given: Any) -> Plan:
    return Plan(tuple(requests.split()), limit, **{"janitor_runs": 0, "starters": 1, "event_steps": False, **given})


@pytest.mark.parametrize(
    ("remove", "plan", "broken"),
    [
        (rule_1_granted_before_a_higher_priority, _plan("+a b c", 1), {"S8"}),
        (rule_2_a_grant_leaves_the_registration, _plan("+a b", 1), {"S6"}),
        (rule_3_a_dead_letter_leaves_the_registration, _plan("+a b", 1, cancels=("a",)), {"S6", "S3b"}),
        (rule_3_no_wake_after_a_dead_letter, _plan("+a2 b c", 2, cancels=("a",)), {"S6"}),
        (rule_4_no_wake_after_a_grant, _plan("c2 +a -b", 2), {"S6"}),
        (rule_5_only_the_highest_priority_is_woken, _plan("+a b c", 1), {"S6"}),
        (rule_6_outdated_registrations_stay, _plan("+a b c", 1, removals=1), {"S6"}),
        (a_message_stays_hidden_after_a_turn, _plan("c2 +a -b", 2), {"S6"}),
        (the_limit_may_change_after_the_read, _plan("a2", 2, limits=(1, 2)), {"S1"}),
        (released_by_one, _plan("a2", 2), {"S2"}),
        (a_blocked_head_keeps_others_out, _plan("+a3 b", 2, starters=2), {"S6", "S3"}),
        (no_wake_after_a_change_of_the_limit, _plan("+a3 b", 2, limits=(3,)), {"S6"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_without_a_rule_of_priorities_or_weights_a_small_world_breaks(
    remove: Callable[[Patch], None], plan: Plan, broken: set[str], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    name, history = first_violation(lambda: SlotsWorld(plan, timeless=True), 0, 60_000)
    assert name in broken, history
