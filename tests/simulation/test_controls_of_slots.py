"""Without one of its guards, a small world of slots breaks the guarantee: the controls of test_small_worlds.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from slotkeeper.slots import admission, lease_protocol, process, processes, protocol
from slotkeeper.slots.admission import Starter
from slotkeeper.slots.executions import NameTaken, StartUnavailable, Workflow
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.lease_protocol import LeaseSteps
from slotkeeper.slots.process import Holder, Process, WaitingRequest, Wake
from slotkeeper.slots.processes import Operations
from slotkeeper.slots.protocol import Candidate, Slots
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.request import PRIORITIES, Delivery, parse_request
from slotkeeper.slots.work import JobRunSearch
from tests.simulation import small_worlds
from tests.simulation.slots_state import Plan, token_of
from tests.simulation.slots_world import SlotsWorld
from tests.simulation.targets_world import TargetsWorld
from tests.simulation.workflow import change_state
from tests.simulation.world_runs import Control, first_violation
from tests.simulation.worlds import World

Patch = pytest.MonkeyPatch
TWO_STARTERS = {"starters": 2, "event_steps": True}
NEXT_TO_A_LEASE: dict[str, Any] = {"leases": (0,), "blocks": (0,)}  # for which the requests wait, with fewer states


def _world(requests: str, limit: int = 1, **given: Any) -> Callable[[], World]:
    """A world with these requests, separated by spaces. See Plan."""
    fields = {"janitor_runs": 0, "starters": 1, "event_steps": False, "blocks": (30,)} | given
    plan = Plan(tuple(requests.split()), limit, **fields)
    return lambda: SlotsWorld(plan, timeless=True)


REPLACED = _world("a", limits=(0,), replacements=1, lax=True)
CANCELLED = _world("a", limits=(0,), cancels=("a",), lax=True, **TWO_STARTERS)


# The workflow ------------------------------------------------------------------------------------------------------

# What ConfirmSlot assigns.
CONFIRMED = {
    "target": "job",
    "permitted": ["job"],
    "token": {},
    "timeout_minutes": 480,
    "settle_seconds": 0,
    "caller": "NONE",
    "answer": "",
    "starts": 0,
    "pages": 0,
}


def f13_no_confirm(patch: Patch) -> None:
    def skip(state: dict[str, Any]) -> None:
        following = state["Next"]
        state.clear()
        state.update(Type="Pass", Assign=CONFIRMED, Next=following)

    change_state(patch, "ConfirmSlot", skip)


def f1_cancelled_after_an_unanswered_start(patch: Patch) -> None:
    start = Workflow.start

    def hasty(self: Workflow, request: Any) -> Any:
        try:
            return start(self, request)
        except BotoCoreError as error:
            return StartUnavailable(str(error))

    patch.setattr(Workflow, "start", hasty)
    f13_no_confirm(patch)  # otherwise the confirm prevents the bug


def f2_freed_without_a_check_of_glue(patch: Patch) -> None:
    def read_page(self: JobRunSearch) -> None:
        self._ended = True

    patch.setattr(JobRunSearch, "read_page", read_page)


def started_again_after_a_throttled_poll(patch: Patch) -> None:
    """Every throttle counts as one of the start."""

    def start(state: dict[str, Any]) -> None:
        state["Choices"].insert(0, {"Condition": "{% $start_again %}", "Next": "RunGlueJob"})

    change_state(patch, "IsGlueRunFound", start)


def an_error_of_the_poll_counts_as_no_run(patch: Patch) -> None:
    def trust(state: dict[str, Any]) -> None:
        trusted = state["Choices"][2]
        trusted["Condition"] = trusted["Condition"].replace("[", "['Glue.InvalidInputException', ")

    change_state(patch, "IsGlueRunKnownToHaveEnded", trust)


def _state(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Patch], None]:
    return lambda patch: change_state(patch, name, change)


WORKFLOW = {
    "f13_no_confirm": Control(f13_no_confirm, _world("a b"), 1, "S1b"),
    "f5_released_without_condition": Control(
        _state("ReleaseSlot", lambda state: state["Arguments"].pop("ConditionExpression")), _world("a b"), 1, "S2"
    ),
    "f1_cancelled_after_an_unanswered_start": Control(f1_cancelled_after_an_unanswered_start, _world("a"), 1, "S1b"),
    "f2_freed_without_a_check_of_glue": Control(f2_freed_without_a_check_of_glue, _world("a"), 1, "S1b"),
    "released_at_a_task_timeout": Control(
        _state("IsGlueRunKnownToHaveEnded", lambda state: state.update(Default="KeepRequest")), _world("a"), 1, "S1b"
    ),
    "started_again_after_a_lost_answer": Control(
        _state("RunGlueJob", lambda state: state["Retry"][0]["ErrorEquals"].append("Glue.SdkClientException")),
        _world("a"),
        1,
        "S1b",
    ),
    "started_again_after_a_throttled_poll": Control(started_again_after_a_throttled_poll, _world("a"), 1, "S7"),
    "an_error_of_the_poll_counts_as_no_run": Control(an_error_of_the_poll_counts_as_no_run, _world("a"), 1, "S1b"),
    # Other users' runs fill the page, and the own run is on the next one.
    "a_search_of_one_page": Control(
        _state("FindGlueRun", lambda state: state["Assign"].update(next_page="")),
        _world("a", page=1, others=1),
        1,
        "S1b",
    ),
    "f4_redriven_without_a_slot": Control(
        _state("RunGlueJob", lambda state: state["Arguments"].update(JobName="{% $target %}")),
        _world("a", janitor_ahead=False),
        2,
        "S1b",
    ),
    "no_wake": Control(_state("IsRequestWaiting", lambda state: state.update(Choices=[])), _world("a b"), 0, "S6"),
    "a_release_of_one": Control(
        _state(
            "ReleaseSlot",
            lambda state: state["Arguments"].update(
                UpdateExpression="SET slots_in_use = slots_in_use - :one REMOVE holders.#me"
            ),
        ),
        _world("a2", 2),
        0,
        "S2",
    ),
}

# The starter and operators -----------------------------------------------------------------------------------------


def registered_although_a_slot_is_free(patch: Patch) -> None:
    """The waiting request registers after the last release, so no release wakes it."""
    patch.setattr(protocol, "NO_SLOT_FREE", f"({protocol.NO_SLOT_FREE} OR NOT {protocol.NO_SLOT_FREE})")
    patch.setattr(Slots, "can_proceed", lambda *_: False)


def no_check_for_a_cancellation_after_hiding(patch: Patch) -> None:
    def can_proceed(self: Slots, candidate: Candidate, _: float) -> bool:
        seen = self.read(candidate.process)
        return seen is not None and seen.fits(1)

    patch.setattr(Slots, "can_proceed", can_proceed)


def no_check_for_the_process_after_hiding(patch: Patch) -> None:
    def can_proceed(self: Slots, candidate: Candidate, _: float) -> bool:
        seen = self.read(candidate.process)
        return seen is not None and (seen.fits(1) or candidate.execution in seen.cancelled)

    patch.setattr(Slots, "can_proceed", can_proceed)


def a_cancellation_ends_with_its_dead_letter(patch: Patch) -> None:
    """The message may be delivered again, after a starter died or to a second starter."""
    dead_letter = Starter._dead_letter

    def forgetful(self: Starter, delivery: Delivery, code: str, reason: str) -> Any:
        outcome = dead_letter(self, delivery, code, reason)
        if code == "Cancelled":
            request = parse_request(delivery)
            noted = processes.Cancellations(self.slots._table.dynamodb, self.slots._table.name)
            seen = self.slots.read(request.process)
            assert seen is not None
            for name, note in seen.cancelled.items():
                noted.drop(request.process, name, note)
        return outcome

    patch.setattr(Starter, "_dead_letter", forgetful)


STARTER = {
    "f6_not_equal_instead_of_less": Control(
        lambda patch: patch.setattr(protocol, "ONE_SLOT_FREE", "slots_in_use <> slot_limit AND size(holders) < :most"),
        _world("a2 b", 2, limits=(1,)),
        0,
        "S1",
    ),
    # A wake between registration and hide is undone by the hide.
    "no_check_after_hiding": Control(
        lambda patch: patch.setattr(Slots, "can_proceed", lambda *_: False),
        _world("a b", lax=True, **TWO_STARTERS),
        0,
        "S6",
    ),
    "registered_although_a_slot_is_free": Control(registered_although_a_slot_is_free, _world("a b"), 0, "S6"),
    "cancelled_requests_are_admitted": Control(
        lambda patch: patch.setattr(
            protocol,
            "RESERVE_CONDITION",
            protocol.RESERVE_CONDITION.replace("attribute_not_exists(cancelled.#me) AND ", ""),
        ),
        CANCELLED,
        0,
        "S3",
    ),
    "holders_are_cancelled": Control(
        lambda patch: patch.setattr(processes, "CANCEL_CONDITION", "size(cancelled) < :most"), CANCELLED, 0, "S3"
    ),
    "no_wake_of_a_cancelled_request": Control(
        lambda patch: patch.setattr(
            Operations, "cancel_request", lambda self, *request: self.processes.cancellations.add(*request)[0]
        ),
        CANCELLED,
        0,
        "S6",
    ),
    "no_check_for_a_cancellation_after_hiding": Control(no_check_for_a_cancellation_after_hiding, CANCELLED, 0, "S6"),
    "a_cancellation_ends_with_its_dead_letter": Control(a_cancellation_ends_with_its_dead_letter, CANCELLED, 0, "S6"),
    # A second message with the id of another request cancels that request's reservation.
    "executions_are_compared_by_name_only": Control(
        lambda patch: patch.setattr(Workflow, "_refused_by", lambda *_: NameTaken(is_open=False)),
        _world("a a*", **TWO_STARTERS),
        0,
        "S5",
    ),
    "no_check_for_the_process_after_hiding": Control(no_check_for_the_process_after_hiding, REPLACED, 0, "S6"),
    "no_wake_after_a_change_of_the_limit": Control(
        lambda patch: patch.setattr(
            Operations, "set_limit", lambda self, process, limit: self.processes.set_limit(process, limit)
        ),
        _world("+a3 b", 2, limits=(3,)),
        0,
        "S6",
    ),
}

# Priorities and weights --------------------------------------------------------------------------------------------


def rule_3_no_wake_after_a_dead_letter(patch: Patch) -> None:
    def dead_letter(self: Starter, delivery: Any, _now: float, code: str, reason: str, request: Any = None) -> Any:
        self.queue.dead_letter(delivery, code, reason)
        self.slots.end_wait(Candidate.of(request, delivery))
        return admission.DeadLettered(code, reason, request)

    patch.setattr(Starter, "_dead_letter", dead_letter)


def rule_5_only_the_highest_priority_is_woken(patch: Patch) -> None:
    """A wake picks the lowest registered priority."""
    read_wake = process.read_wake

    def lowest(item: Mapping[str, Any], now: float) -> Wake | None:
        with pytest.MonkeyPatch.context() as of_wake:
            of_wake.setattr(process, "PRIORITIES", PRIORITIES[::-1])
            return read_wake(item, now)

    patch.setattr(protocol, "read_wake", lowest)

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
    delay = process.wake_delay
    patch.setattr(process, "wake_delay", lambda *given: 225 * delay(*given))

    def hide(state: dict[str, Any]) -> None:
        seconds = state["Arguments"]["VisibilityTimeout"]
        state["Arguments"]["VisibilityTimeout"] = seconds.replace("$max([", "225 * $max([")

    change_state(patch, "WakeWaiting", hide)


def a_blocked_head_keeps_others_out(patch: Patch) -> None:
    patch.setattr(protocol, "NOT_REGISTERED", "attribute_not_exists(waiting.{0}.receipt_handle)")
    patch.setattr(protocol, "REGISTERED", "attribute_exists(waiting.{0}.receipt_handle)")
    patch.setattr(WaitingRequest, "is_above", lambda *_: False)


PRIORITIES_AND_WEIGHTS = {
    "rule_1_granted_before_a_higher_priority": Control(
        lambda patch: patch.setattr(protocol, "higher", lambda _: ()), _world("+a b c"), 0, "S8"
    ),
    "rule_2_a_grant_leaves_the_registration": Control(
        lambda patch: patch.setattr(protocol, "GRANTED_UPDATE", ", waiting.unused = :tombstone"),
        _world("+a b"),
        0,
        "S6",
    ),
    "rule_3_a_dead_letter_leaves_the_registration": Control(
        lambda patch: patch.setattr(Slots, "end_wait", lambda *_: False), _world("+a b", cancels=("a",)), 0, "S6 S3b"
    ),
    "rule_3_no_wake_after_a_dead_letter": Control(
        rule_3_no_wake_after_a_dead_letter, _world("+a2 b c", 2, cancels=("a",)), 0, "S6"
    ),
    "rule_4_no_wake_after_a_grant": Control(
        lambda patch: patch.setattr(Starter, "_wake", lambda *_: None), _world("c2 +a -b", 2), 0, "S6"
    ),
    "rule_5_only_the_highest_priority_is_woken": Control(
        rule_5_only_the_highest_priority_is_woken, _world("+a b c"), 0, "S6"
    ),
    "rule_6_outdated_registrations_stay": Control(
        rule_6_outdated_registrations_stay, _world("+a b", removals=1, **NEXT_TO_A_LEASE), 0, "S6"
    ),
    "a_message_stays_hidden_after_a_turn": Control(a_message_stays_hidden_after_a_turn, _world("+a -b c2", 2), 0, "S6"),
    "the_limit_may_change_after_the_read": Control(
        lambda patch: patch.setattr(
            protocol, "WEIGHT_FITS", protocol.WEIGHT_FITS.replace("slot_limit = :limit", ":limit <> :room")
        ),
        _world("a2", 2, limits=(1, 2)),
        0,
        "S1",
    ),
    "a_blocked_head_keeps_others_out": Control(
        a_blocked_head_keeps_others_out, _world("+a3 b", 2, starters=2), 0, "S6 S3"
    ),
}

# Requests whose message is gone ------------------------------------------------------------------------------------


def a_later_message_replaces_a_name(patch: Patch) -> None:
    patch.setattr(protocol, "NOTHING_VANISHED", "attribute_exists(process_name)")
    patch.setattr(Process, "vanished_before", lambda *_: None)


LOST = {
    "a_later_message_replaces_a_name": Control(
        a_later_message_replaces_a_name, _world("a b", removals=1, **NEXT_TO_A_LEASE), 0, "S3b"
    ),
    "an_overdue_request_is_lost": Control(
        lambda patch: patch.setattr(RequestQueue, "is_empty", lambda _: True),
        _world("a2", limits=(2,), janitor_ahead=True),
        1,
        "S3b",
    ),
    "a_dead_letter_ends_only_a_registration": Control(
        lambda patch: patch.setattr(
            protocol, "OWN_NAME", "attribute_exists(waiting.{0}.receipt_handle) AND " + protocol.OWN_NAME
        ),
        _world("a b", cancels=("b",)),
        1,
        "S3b",
    ),
    "the_janitor_notes_nothing": Control(
        lambda patch: patch.setattr(Janitor, "_note_lost", lambda *_: None), _world("a b", removals=1), 0, "S3b"
    ),
}

# Leases ------------------------------------------------------------------------------------------------------------


def a_lease_expires_at_its_end(patch: Patch) -> None:
    patch.setattr(Holder, "has_expired", lambda self, now: self.until is not None and now >= self.until)


def a_lease_overtakes_a_request(patch: Patch) -> None:
    patch.setattr(protocol, "NOT_REGISTERED", "attribute_exists(process_name)")
    patch.setattr(Process, "first", None)


def a_release_without_the_code(patch: Patch) -> None:
    patch.setattr(lease_protocol, "OWN_LEASE", f"({lease_protocol.OWN_LEASE} OR attribute_exists(holders.#me))")


def an_extension_without_the_code(patch: Patch) -> None:
    patch.setattr(lease_protocol, "ONLY_LATER", f"{lease_protocol.ONLY_LATER} OR attribute_exists(holders.#me)")


def a_takeover_of_a_changed_lease(patch: Patch) -> None:
    patch.setattr(lease_protocol, "STILL_EXPIRED", f"({lease_protocol.STILL_EXPIRED} OR attribute_exists(holders))")


LEASES = {
    "a_release_without_the_code": Control(a_release_without_the_code, _world("", leases=(0, 65, 0)), 0, "S1c"),
    "an_extension_without_the_code": Control(an_extension_without_the_code, _world("", leases=(1, 66, 0)), 0, "S1c"),
    "a_takeover_of_a_changed_lease": Control(a_takeover_of_a_changed_lease, _world("", leases=(0, 65, 65)), 0, "S2"),
    "a_lease_expires_at_its_end": Control(a_lease_expires_at_its_end, _world("", leases=(0, 64)), 0, "S1c"),
    "no_wake_after_a_release": Control(
        lambda patch: patch.setattr(LeaseSteps, "_wake", lambda *_: None), _world("a", leases=(0,)), 0, "S6"
    ),
    "a_lease_overtakes_a_request": Control(a_lease_overtakes_a_request, _world("a", leases=(0, 0)), 0, "S8"),
}
CONTROLS = WORKFLOW | STARTER | PRIORITIES_AND_WEIGHTS | LOST | LEASES


@pytest.mark.parametrize("name", CONTROLS)
def test_without_its_guard_a_small_world_of_slots_breaks(name: str, monkeypatch: Patch) -> None:
    CONTROLS[name].check(monkeypatch)


def test_blocks_that_run_are_counted_although_their_lease_was_removed(monkeypatch: Patch) -> None:
    """Without the check of each removal, the count of what works alone finds a removal that comes too early."""
    monkeypatch.setattr(SlotsWorld, "_writer", lambda _: None)
    make = _world("", leases=(0, 64), starters=2)
    assert first_violation(make, 0) == ("", "")
    a_lease_expires_at_its_end(monkeypatch)
    small_worlds.forget()
    name, history = first_violation(make, 0)
    assert (name, "the weight at work is 2, the limit 1" in history) == ("S1c", True), history


# Task tokens that do not fit into the item -------------------------------------------------------------------------


def _callers(requests: str, starters: int = 1) -> Callable[[], World]:
    plan = Plan(tuple(requests.split()), 2, callers="ab", starters=starters, event_steps=False, janitor_runs=0)
    return lambda: TargetsWorld(plan)


def a_refused_token_registers_although_a_holder_has_left(patch: Patch) -> None:
    patch.setattr(Slots, "can_proceed", lambda *_: False)
    patch.setattr(protocol, "WAIT_CONDITION", "({refused} OR attribute_exists(slot_limit)) AND {newer}")


@pytest.fixture
def one_token_fits(monkeypatch: Patch) -> None:
    monkeypatch.setattr(process, "MAX_TOKEN_BYTES", len(token_of("a", "a")))
    monkeypatch.setattr(protocol, "ALWAYS_FIT", 1)


@pytest.mark.usefixtures("one_token_fits")
@pytest.mark.parametrize(("requests", "starters"), [("a b", 1), ("a -b", 2), ("a b -c", 1)])
def test_a_token_that_does_not_fit_waits_and_is_woken(requests: str, starters: int) -> None:
    assert first_violation(_callers(requests, starters), 0) == ("", "")


@pytest.mark.usefixtures("one_token_fits")
@pytest.mark.parametrize(
    "control",
    [
        Control(lambda patch: patch.setattr(protocol, "ALWAYS_FIT", 500), _callers("a b"), 0, "S2b"),
        Control(a_refused_token_registers_although_a_holder_has_left, _callers("a b"), 0, "S6"),
    ],
    ids=["a token is not measured", "a refused token registers although a holder has left"],
)
def test_without_its_guard_a_token_that_does_not_fit_breaks_a_world(control: Control, monkeypatch: Patch) -> None:
    control.check(monkeypatch)
