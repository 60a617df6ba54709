"""What an operator does to a retry that waits, beside workers that claim it meanwhile, and dying at every call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.retry.attempt import Repeated
from slotkeeper.retry.ledger import DEAD_LETTERED, FAILED, HISTORY_LENGTH, RUNNING, SUCCEEDED, WAITING, MalformedRow
from slotkeeper.retry.message import Message, instant
from slotkeeper.retry.operations import (
    Advanced,
    Cancelled,
    NotWaiting,
    OtherPayload,
    OutOfReach,
    Retries,
    is_cancelled,
)
from tests.support.boundary import Killed, refuse
from tests.unit.letters import Letter
from tests.unit.working import NOW, Workplace

LATER = {"default": {"backoff": "fixed", "jitter": "none", "base_seconds": 3000, "max_attempts": 3}}
SOON = {"default": {"backoff": "fixed", "jitter": "none", "base_seconds": 300, "max_attempts": 3}}


@pytest.fixture
def operator(workplace: Workplace) -> Retries:
    return Retries(workplace.ledger, workplace.retries, lambda: workplace.now)


def fail_once(workplace: Workplace, policy: dict[str, Any] = LATER, fails: int = 1) -> None:
    """A request "r" whose first attempt has failed, and whose second one waits."""
    workplace.put_policy(json.dumps(policy))
    workplace.deliver(workplace.send(fails=fails))
    workplace.wait(60)


def only_letter(workplace: Workplace) -> Letter:
    assert len(workplace.dead_letters) == 1
    return workplace.dead_letters[0]


def said(letter: Letter, name: str) -> str:
    return str(letter.attributes[name]["StringValue"])


# Cancel ------------------------------------------------------------------------------------------------------------


def test_a_cancelled_attempt_that_has_a_schedule_is_a_dead_letter_at_once(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace)
    assert operator.cancel("r", "the customer has gone") == Cancelled(2, sent=True)
    assert workplace.schedules() == []
    workplace.live()
    letter = only_letter(workplace)
    assert (said(letter, "code"), workplace.row()["status"]) == ("Cancelled", DEAD_LETTERED)
    assert said(letter, "reason") == "attempt 2 was cancelled before it began: the customer has gone"
    assert workplace.performed == [("r", 1)]


def test_r4_the_dead_letter_of_a_cancelled_attempt_has_the_whole_history(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace)
    operator.cancel("r", "no longer wanted")
    workplace.live()
    letter = only_letter(workplace)
    history = [
        {"attempt": 1, "at": instant(NOW), "error": "not now"},
        {"attempt": 2, "at": instant(NOW + 60), "error": "Cancelled: no longer wanted"},
    ]
    assert json.loads(said(letter, "history")) == history
    assert json.loads(letter.body)["retries"] == [entry["at"] for entry in history]
    assert said(letter, "retry_count") == "2"


def test_a_cancelled_attempt_that_the_queue_delays_is_a_dead_letter_when_it_comes(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace, SOON)
    assert operator.cancel("r", "no longer wanted") == Cancelled(2, sent=False, due=NOW + 300)
    assert is_cancelled(workplace.ledger.read("r"))  # type: ignore[arg-type]
    workplace.live()
    assert said(only_letter(workplace), "code") == "Cancelled"
    assert workplace.performed == [("r", 1)]


def test_a_worker_whose_clock_is_behind_carries_a_cancel_out_all_the_same(
    workplace: Workplace, operator: Retries
) -> None:
    """A lease that ended only now would have it leave the message for another twelve minutes."""
    fail_once(workplace, SOON)
    operator.cancel("r", "no longer wanted")
    workplace.now -= 3600
    workplace.queue[0].visible_at = workplace.now
    workplace.deliver(workplace.queue[0])
    assert said(only_letter(workplace), "code") == "Cancelled"


def test_a_cancelled_request_that_is_redriven_has_one_more_attempt(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    operator.cancel("r", "too early")
    workplace.live()
    workplace.redrive(only_letter(workplace))
    workplace.live()
    assert workplace.effects == [("r", 3)]
    assert workplace.row()["status"] == SUCCEEDED


def test_an_attempt_that_a_worker_has_claimed_is_not_cancelled(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    workplace.fire(workplace.schedules()[0])
    told: list[Any] = []
    # Beside the worker, which has claimed the attempt and is about to have its effect.
    workplace.strike(2, "before", lambda: told.append(beside(workplace, lambda: operator.cancel("r", "too late"))))
    workplace.live()
    assert isinstance(told[0], NotWaiting)
    assert (told[0].row.status, told[0].row.attempts) == (RUNNING, 2)
    assert (workplace.effects, workplace.dead_letters) == ([("r", 2)], [])


def test_of_a_cancel_and_a_claim_of_the_same_moment_the_claim_that_came_first_counts(
    workplace: Workplace, operator: Retries
) -> None:
    """Between the operator's look and its step, the worker claims the attempt and has its effect."""
    fail_once(workplace)
    letter = workplace.fire(workplace.schedules()[0])
    workplace.strike(2, "before", lambda: beside(workplace, lambda: workplace.deliver(letter)))
    told = operator.cancel("r", "too late")
    assert isinstance(told, NotWaiting)
    assert told.row is not None
    assert told.row.status == SUCCEEDED
    assert workplace.effects == [("r", 2)]


def test_of_a_cancel_and_a_claim_of_the_same_moment_the_cancel_that_came_first_counts(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace)
    letter = workplace.fire(workplace.schedules()[0])
    workplace.strike(1, "before", lambda: beside(workplace, lambda: operator.cancel("r", "in time")))
    workplace.deliver(letter)
    assert workplace.effects == []
    assert said(only_letter(workplace), "code") == "Cancelled"


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])  # dead after it, which is before the next one
def test_r1_who_dies_over_a_cancel_loses_nothing_and_whoever_repeats_it_ends_it(
    workplace: Workplace, operator: Retries, call: int
) -> None:
    """Read, decide, read the schedule, send, delete."""
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.cancel("r", "no longer wanted")
    told = operator.cancel("r", "no longer wanted")
    assert isinstance(told, Cancelled)
    assert told.sent == (call != 5)
    workplace.live()
    assert {said(letter, "code") for letter in workplace.dead_letters} == {"Cancelled"}
    assert (workplace.performed, workplace.schedules()) == ([("r", 1)], [])
    assert len(json.loads(said(workplace.dead_letters[0], "history"))) == 2


@pytest.mark.parametrize("call", [2, 3, 4])
def test_r1_a_cancel_that_nobody_ends_is_carried_out_when_its_message_comes(
    workplace: Workplace, operator: Retries, call: int
) -> None:
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.cancel("r", "no longer wanted")
    workplace.live()
    assert said(only_letter(workplace), "code") == "Cancelled"
    assert workplace.performed == [("r", 1)]


def test_two_operators_who_cancel_at_once_cancel_once(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    workplace.strike(2, "before", lambda: beside(workplace, lambda: operator.cancel("r", "I was first")))
    assert operator.cancel("r", "no longer wanted") == Cancelled(2, sent=False, due=NOW + 3000)
    workplace.live()
    assert said(only_letter(workplace), "reason") == "attempt 2 was cancelled before it began: I was first"


MADE = HISTORY_LENGTH + 3


def put_long_row(workplace: Workplace) -> list[str]:
    """A request that waits after so many attempts that its row tells of some only; when those began."""
    times = {attempt: instant(NOW + attempt) for attempt in (1, *range(5, MADE + 1))}
    history = [
        {"M": {"attempt": {"N": str(attempt)}, "at": {"S": at}, "error": {"S": "not now"}}}
        for attempt, at in times.items()
    ]
    workplace.put_row(
        status={"S": WAITING},
        attempts={"N": str(MADE)},
        claim={"S": "claim"},
        payload_hash={"S": Message("r", {"fails": 99}).payload_hash},
        last_attempt_at={"S": times[MADE]},
        next_attempt_at={"S": instant(NOW + 300)},
        history={"L": history},
    )
    return list(times.values())


def test_a_long_history_keeps_the_first_attempt_and_the_last_ones(workplace: Workplace, operator: Retries) -> None:
    put_long_row(workplace)
    operator.cancel("r", "it never ends")
    row = workplace.ledger.read("r")
    assert row is not None
    assert [entry["attempt"] for entry in row.history] == [1, *range(6, MADE + 2)]


def test_r4_a_cancelled_retry_whose_message_is_lost_is_a_dead_letter_once_its_payload_is_given(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert operator.cancel("r", "no longer wanted") == Cancelled(2, sent=False, due=NOW + 3000)
    before = workplace.row()
    with pytest.raises(OtherPayload):
        operator.cancel("r", "no longer wanted", {"fails": 2})
    assert workplace.row() == before
    assert operator.cancel("r", "no longer wanted", {"fails": 1}) == Cancelled(2, sent=True)
    workplace.live()
    letter = only_letter(workplace)
    assert [entry["at"] for entry in json.loads(said(letter, "history"))] == json.loads(letter.body)["retries"]
    assert not {"plan", "next_attempt_at"} & workplace.row().keys()


@pytest.mark.parametrize("fate", ["poison", "succeeds"])
def test_what_has_had_its_end_is_not_cancelled(workplace: Workplace, operator: Retries, fate: str) -> None:
    workplace.deliver(workplace.send(**({"poison": "no such thing"} if fate == "poison" else {})))
    before = workplace.row()
    told = operator.cancel("r", "too late")
    assert isinstance(told, NotWaiting)
    assert workplace.row() == before


@pytest.mark.parametrize("step", ["cancel", "run_now"])
def test_a_request_that_was_never_tried_is_not_known(operator: Retries, step: str) -> None:
    assert (operator.cancel("r", "why") if step == "cancel" else operator.run_now("r")) == NotWaiting(None)


# Run now -----------------------------------------------------------------------------------------------------------


def test_an_attempt_that_is_brought_forward_is_made_at_once_and_once(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    assert operator.run_now("r") == Advanced(2)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 60)
    assert workplace.schedules() == []
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.now == NOW + 60


def test_r2_an_attempt_that_its_schedule_brings_too_has_no_second_effect(
    workplace: Workplace, operator: Retries
) -> None:
    """The schedule fires between the operator's look and its message."""
    fail_once(workplace)
    schedule = workplace.schedules()[0]
    workplace.strike(3, "before", lambda: beside(workplace, lambda: workplace.fire(schedule)))
    operator.run_now("r")
    assert len(workplace.queue) == 2
    outcomes = [workplace.deliver(letter) for letter in list(workplace.queue)]
    assert workplace.effects == [("r", 2)]
    assert outcomes[1] == Repeated(SUCCEEDED, 2)


def test_an_attempt_that_begins_meanwhile_is_not_brought_again(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    letter = workplace.fire(workplace.schedules()[0])
    workplace.strike(1, "after", lambda: beside(workplace, lambda: workplace.deliver(letter)))
    assert isinstance(operator.run_now("r", {"fails": 1}), NotWaiting)
    assert workplace.queue == []


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])  # dead after it, which is before the next one
def test_r1_who_dies_over_bringing_an_attempt_forward_loses_nothing(
    workplace: Workplace, operator: Retries, call: int
) -> None:
    """Read, read the schedule, decide, send, delete."""
    fail_once(workplace)
    workplace.strike(call, "after", killed)
    with pytest.raises(Killed):
        operator.run_now("r")
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.schedules() == []


def test_what_the_queue_delays_is_out_of_reach_without_its_payload(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace, SOON)
    assert operator.run_now("r") == OutOfReach(2, NOW + 300)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 300)


def test_what_the_queue_delays_is_brought_forward_with_its_payload_and_its_own_message_is_dropped(
    workplace: Workplace, operator: Retries
) -> None:
    fail_once(workplace, SOON)
    assert operator.run_now("r", {"fails": 1}) == Advanced(2)
    workplace.live()
    assert workplace.effects == [("r", 2)]
    assert workplace.performed == [("r", 1), ("r", 2)]


def test_r1_a_retry_whose_message_is_lost_is_made_good_with_its_payload(
    workplace: Workplace, operator: Retries
) -> None:
    """Nobody could deliver the schedule's message, and nobody kept it."""
    fail_once(workplace)
    workplace.wait(86_400)
    workplace.queue.remove(workplace.fire(workplace.schedules()[0]))
    assert operator.run_now("r") == OutOfReach(2, NOW + 3000)
    assert operator.run_now("r", {"fails": 1}) == Advanced(2)
    workplace.live()
    assert workplace.effects == [("r", 2)]


@pytest.mark.parametrize("payload", [{"fails": 2}, {}])
def test_another_payload_is_refused(workplace: Workplace, operator: Retries, payload: dict[str, Any]) -> None:
    fail_once(workplace, SOON)
    with pytest.raises(OtherPayload, match="is not the one that the 1 earlier attempts of 'r' had"):
        operator.run_now("r", payload)
    assert workplace.row()["next_attempt_at"] == instant(NOW + 300)


def test_a_message_that_is_made_good_has_as_many_times_as_attempts_were_made(
    workplace: Workplace, operator: Retries
) -> None:
    kept = put_long_row(workplace)
    assert operator.run_now("r", {"fails": 99}) == Advanced(MADE + 1)
    assert json.loads(workplace.queue[0].body)["retries"] == [*kept[:1] * 4, *kept[1:]]


# Looking -----------------------------------------------------------------------------------------------------------


def test_a_scan_finds_what_waits_and_names_what_cannot_be_read(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    workplace.deliver(workplace.send("done"))
    workplace.put_row("odd", status={"S": WAITING})
    looked: list[int] = []
    found = dict(workplace.ledger.rows({WAITING, FAILED}, looked.append))
    assert found.keys() == {"r", "odd"}
    assert isinstance(found["odd"], MalformedRow)
    assert sum(looked) == 3
    row = found["r"]
    assert not isinstance(row, MalformedRow)
    assert (row.next_attempt_at, row.last_error) == (NOW + 3000, "not now")
    assert operator.schedule_name("r", row) == workplace.schedules()[0]["Name"]


def test_what_scheduler_refuses_is_raised(workplace: Workplace, operator: Retries) -> None:
    fail_once(workplace)
    refuse(workplace.scheduler, "GetSchedule", "AccessDeniedException")
    with pytest.raises(workplace.scheduler.exceptions.ClientError, match="AccessDenied"):
        operator.run_now("r")
    assert workplace.row()["status"] == WAITING


def killed() -> None:
    raise Killed


def beside(workplace: Workplace, act: Any) -> Any:
    with workplace.unnoted():
        return act()
