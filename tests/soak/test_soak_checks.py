"""Each check of a soak is red for records that break its claim, and says what it found; and none of the others is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.scenarios.slots.figures import Interval
from dev.scenarios.slots.records import GlueRun
from dev.scenarios.soak.holding import holdings, merged, overlaps
from dev.scenarios.soak.records import Change, DeadLetter, Execution, Kept, Mark, Records, Round
from tests.soak.diary import (
    ORIGIN,
    change,
    execution,
    failing,
    given_back,
    glue_run,
    not_shown,
    records,
    report,
    sent,
    served,
)

GOOD = records()


def test_good_records_hold_everywhere_but_where_nobody_died_nothing_is_shown_about_dead_holders() -> None:
    assert (failing(GOOD), not_shown(GOOD)) == ({}, {"S4"})


# ---------------------------------------------------------------------------------------------------------------- S3


def test_a_request_that_is_nowhere_is_lost() -> None:
    assert failing(replace(GOOD, sent=[*GOOD.sent, sent(7, 8)]))["S3"].startswith("lost: r7")


def test_what_is_still_queued_at_the_end_is_named() -> None:
    assert failing(replace(GOOD, left={"on RequestQueue": 2})) == {"S3": "still there: 2 on RequestQueue"}


def test_a_request_given_back_has_to_be_started_again() -> None:
    executions = [given_back(2, 3.2, 5) if e.name == "p-2" else e for e in GOOD.executions]
    lost = replace(GOOD, executions=executions, kept=[])
    assert failing(lost) == {"S3": "given back and lost: p-2"}
    again = Execution("p-2b", "r2", 2, "SUCCEEDED", "", ORIGIN + 7.2, ORIGIN + 9)
    run = glue_run(2, 7.5, 8.5, name="p-2b")
    slot = [change(7.2, "p-2b?"), change(7.3, "p-2b"), change(8.9)]
    changes = sorted([*GOOD.changes, *slot], key=lambda each: each.at)
    found = replace(lost, executions=[*executions, again], runs=[*GOOD.runs, run], changes=changes)
    assert failing(found) == {}


def test_a_bad_message_has_one_dead_letter_with_a_reason_and_a_good_one_none() -> None:
    (letter,) = GOOD.dead
    assert "not JSON (0)" in failing(replace(GOOD, dead=[]))["S3"]
    assert "not JSON (2)" in failing(replace(GOOD, dead=[letter, letter]))["S3"]
    assert "without a reason: m9" in failing(replace(GOOD, dead=[replace(letter, reason="")]))["S3"]
    assert "a good request set aside: r1" in failing(replace(GOOD, dead=[letter, replace(letter, source="m1")]))["S3"]
    stranger = DeadLetter("m99", "InvalidRequest", "?", "{}", ORIGIN)
    assert "dead letters of nobody" in failing(replace(GOOD, dead=[letter, stranger]))["S3"]


def test_f24_one_request_has_one_workflow_an_attempt_and_no_workflow_is_of_nobody() -> None:
    twice = [*GOOD.executions, replace(execution(1, 1, 3), name="p-other")]
    assert "started twice: r1 (1)" in failing(replace(GOOD, executions=twice))["S3"]
    stranger = [*GOOD.executions, replace(execution(8, 8, 9, status="FAILED", error="RequestReturned"))]
    assert "workflows of no request: p-8" in failing(replace(GOOD, executions=stranger))["S3"]


def test_f23_what_did_not_succeed_is_kept() -> None:
    assert failing(replace(GOOD, kept=[])) == {"S3": "neither kept nor given back: p-2"}
    assert failing(replace(GOOD, kept=[Kept("p-2", "Error", "", "workflow")]))["S3"].endswith("error or cause: p-2")
    wrong = [*GOOD.kept, Kept("p-1", "Error", "cause", "janitor")]
    assert failing(replace(GOOD, kept=wrong)) == {"S3": "kept and not failed: p-1"}
    redriven = [replace(e, redrives=1) if e.name == "p-1" else e for e in GOOD.executions]
    assert failing(replace(GOOD, kept=wrong, executions=redriven)) == {}


def test_a_success_without_a_run_that_succeeded_is_none_and_two_are_one_too_many() -> None:
    runs = [replace(run, state="STOPPED") if run.execution == "p-1" else run for run in GOOD.runs]
    name = "a success is one Glue run's"
    assert failing(replace(GOOD, runs=runs)) == {name: "SUCCEEDED without a run that did: p-1"}
    assert failing(replace(GOOD, runs=[*GOOD.runs, glue_run(1, 2.6, 2.8)])) == {name: "done twice: p-1"}


# --------------------------------------------------------------------------------------------------------- S1, S1b, S2


def test_f6_an_admission_above_the_limit_is_seen_also_when_it_lasts_for_a_millisecond() -> None:
    changes = [*GOOD.changes[:3], change(2.0, "p-1", "x?"), change(2.001, "p-1"), *GOOD.changes[3:]]
    assert failing(replace(GOOD, changes=changes)) == {"S1": "admitted: p: 2 of 1"}


def test_a_limit_lowered_below_the_holders_is_no_admission() -> None:
    lowered = change(2.0, "p-1", limit=0)
    assert "S1" not in failing(replace(GOOD, changes=[*GOOD.changes[:3], lowered, *GOOD.changes[3:]]))


def test_nobody_is_admitted_while_paused() -> None:
    changes = [replace(each, paused=True) if 3 < each.at - ORIGIN < 4 else each for each in GOOD.changes]
    assert failing(replace(GOOD, changes=changes)) == {"S1": "admitted: p: paused"}


def test_a_run_in_which_no_last_slot_was_taken_does_not_show_the_limit() -> None:
    changes = [replace(each, limit=9) for each in GOOD.changes]
    assert "S1" in not_shown(replace(GOOD, changes=changes))


@pytest.mark.parametrize(
    "run",
    [
        glue_run(1, 2.6, 3.0),  # outlives the slot
        glue_run(1, 1.05, 1.4),  # begins before the slot is confirmed
        glue_run(8, 8.0, 9.0),  # of a workflow that never held one
    ],
)
def test_f2_a_run_outside_its_own_confirmed_slot_is_alive_without_one(run: GlueRun) -> None:
    assert "alive without a slot" in failing(replace(GOOD, runs=[*GOOD.runs, replace(run, state="STOPPED")]))["S1b"]


def test_two_runs_at_once_in_one_slot_are_one_too_many() -> None:
    second = replace(glue_run(1, 2.0, 2.7), state="STOPPED")
    assert failing(replace(GOOD, runs=[*GOOD.runs, second])) == {"S1b": "two at once in one slot: p-1"}


def test_a_run_that_is_alive_at_the_end_is_seen() -> None:
    found = failing(replace(GOOD, runs=[*GOOD.runs, glue_run(3, 6.6, None, "RUNNING")]))
    assert "alive at the end: p-3" in found["S1b"]


def test_f5_a_counter_that_is_not_the_number_of_holders_is_seen_at_every_write() -> None:
    changes = [*GOOD.changes[:-1], replace(GOOD.changes[-1], count=-1)]
    assert failing(replace(GOOD, changes=changes)) == {"S2": "differs: p: -1, held by 0"}


# -------------------------------------------------------------------------------------------------------------- S4, S5


def held_on(until: float) -> Records:
    """r1's workflow is aborted at 3 and its slot is given back at `until`."""
    aborted = execution(1, 1, 3, status="ABORTED", error="Fault")
    changes = [change(-1), *served(1, 1, until), *served(4, 100.2, 101.9), *served(5, 102.1, 103.9)]
    return replace(
        GOOD,
        sent=[sent(1, 0), sent(4, 100.1), sent(5, 100.1)],
        executions=[aborted, *GOOD.executions[3:]],
        runs=[glue_run(1, 1.5, 2.5, "STOPPED"), *GOOD.runs[3:]],
        kept=[Kept("p-1", "Fault", "cause", "janitor")],
        dead=[],
        changes=changes,
    )


def test_f16_the_slot_of_a_dead_holder_is_back_after_two_rounds() -> None:
    # Dead at 3, grace to 5: the round at 6 looks, the one at 9 frees.
    assert (failing(held_on(9.1)), not_shown(held_on(9.1))) == ({}, set())
    assert failing(held_on(12.1)) == {"S4": "held on: p-1 (2 rounds)"}


def test_a_round_that_was_cut_off_is_none() -> None:
    found = held_on(12.1)
    rounds = [replace(each, ok=each.began != ORIGIN + 9) for each in found.rounds]
    assert failing(replace(found, rounds=rounds)) == {}


def test_a_holder_is_not_dead_while_its_run_lives() -> None:
    found = held_on(18.1)
    alive = glue_run(1, 1.5, 12.9, "STOPPED")
    assert failing(replace(found, runs=[alive, *found.runs[1:]])) == {}


def test_f15_a_reservation_without_a_workflow_is_dead_from_its_beginning() -> None:
    slot = [change(10, "p-nobody?"), change(30)]
    changes = sorted([*GOOD.changes, *slot], key=lambda each: each.at)
    assert "p-nobody" in failing(replace(GOOD, changes=changes))["S4"]


def test_a_slot_that_nobody_ever_gave_back_is_held_on() -> None:
    found = held_on(9.1)
    kept: list[Change] = [each for each in found.changes if each.at != ORIGIN + 9.1 and each.at < ORIGIN + 100]
    assert "held on" in failing(replace(found, changes=kept))["S4"]


def test_workflows_that_start_out_of_message_order_are_named() -> None:
    executions = [replace(e, started=ORIGIN + 5.3) if e.name == "p-2" else e for e in GOOD.executions]
    assert failing(replace(GOOD, executions=executions)) == {"S5": "out of order: r2 after r3"}


# ------------------------------------------------------------------------------------------------------------------ S6


def late(seconds: float, calm: bool) -> Records:
    """The second of two requests is admitted so late after the first has given its slot back."""
    began = 100.2 if calm else 1.0
    first, second = (4, 5) if calm else (1, 2)
    shifted = began + 2 + seconds
    changes = [change(-1), *served(first, began, began + 1.8), *served(second, shifted, shifted + 1.8)]
    executions = [execution(first, began, began + 2), execution(second, shifted + 0.1, shifted + 2)]
    runs = [glue_run(first, began + 0.3, began + 1), glue_run(second, shifted + 0.3, shifted + 1)]
    messages = [sent(first, began - 0.1), sent(second, began - 0.1)]
    return replace(GOOD, sent=messages, executions=executions, runs=runs, changes=changes, kept=[], dead=[], marks=[])


def test_undisturbed_room_beside_a_request_may_last_for_seconds_and_no_longer() -> None:
    assert failing(late(1, calm=True)) == {}
    assert failing(late(9, calm=True)) == {"S6": "idle: p (9.2 s)"}


def test_in_the_storm_too_if_there_is_no_fault_to_blame() -> None:
    assert failing(late(1, calm=False)) == {}
    assert failing(late(9, calm=False)) == {"S6": "idle, and nothing to blame: p (9.2 s)"}


@pytest.mark.parametrize(
    ("mark", "fine"),
    [
        (Mark(ORIGIN + 4, "containers killed", "", "", ORIGIN + 4), True),
        (Mark(ORIGIN + 4, "abort", "", "p", ORIGIN + 4), True),
        (Mark(ORIGIN + 4, "abort", "", "another", ORIGIN + 4), False),
        (Mark(ORIGIN + 4, "bad message", "", "p", ORIGIN + 4), False),
        (Mark(ORIGIN + 20, "containers killed", "", "", ORIGIN + 20), False),
    ],
)
def test_a_fault_excuses_what_it_can_have_caused(mark: Mark, fine: bool) -> None:
    assert (failing(replace(late(9, calm=False), marks=[mark])) == {}) is fine


def test_no_fault_excuses_a_minute_but_an_engine_that_was_away_does() -> None:
    killed = Mark(ORIGIN + 4, "containers killed", "", "", ORIGIN + 4)
    away = Mark(ORIGIN + 5, "engine killed", "", "", ORIGIN + 45)
    assert "idle for too long" in failing(replace(late(60, calm=False), marks=[killed]))["S6"]
    assert failing(replace(late(60, calm=False), marks=[killed, away])) == {}


def test_a_limit_of_nothing_and_a_pause_are_no_room() -> None:
    found = late(9, calm=False)
    for closed in (change(2.9, paused=True), change(2.9, limit=0)):
        changes = sorted([*found.changes, closed, change(11.9)], key=lambda each: each.at)
        assert failing(replace(found, changes=changes)) == {}


# -------------------------------------------------------------------------------------------------------------- others


def test_faults_that_have_not_acted_are_named() -> None:
    found = replace(GOOD, marks=GOOD.marks[1:])
    assert "every kind of fault has acted" in not_shown(found)
    assert any("not: abort" in check["found"] for check in report(found)["checks"])


def test_nothing_recorded_shows_nothing() -> None:
    empty = Records([], [], [], [], [], [], [Round(ORIGIN, ORIGIN, True)], [], ORIGIN, 2, {})
    assert failing(empty) == {}
    assert {check["ok"] for check in report(empty)["checks"]} == {None}


def test_holdings_say_who_held_from_when_to_when() -> None:
    twice = [change(1, "a?"), change(2, "a"), change(3), change(4, "a?"), change(5)]
    found = [(h.taken - ORIGIN, h.confirmed - ORIGIN, h.freed - ORIGIN) for h in holdings(twice)]
    assert found == [(1, 2, 3), (4, float("inf"), 5)]


def test_intervals_are_merged_and_overlapped() -> None:
    some: list[Interval] = merged([(3, 4), (1, 2), (2, 2.5), (5, 5)])
    assert some == [(1, 2.5), (3, 4)]
    assert overlaps(some, [(2, 3.5)]) == [(2, 2.5), (3, 3.5)]
