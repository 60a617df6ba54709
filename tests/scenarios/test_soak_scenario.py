"""`make soak`: each claim fails on records that break it, and no other claim does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dev.judge.slot_item import Item
from dev.scenarios.slots.slot_records import Execution, GlueRun
from dev.scenarios.soak.slot_use import holdings, merged, overlaps
from dev.scenarios.soak.soak_records import FaultMark, JanitorRun, Records
from slotkeeper_cli.intervals import Interval
from tests.scenarios.soak_run import (
    ORIGIN,
    change,
    dead_letter,
    execution,
    failing,
    given_back,
    glue_run,
    kept,
    not_shown,
    records,
    report,
    sent,
    served,
)

GOOD = records()
NONE_FREE = "of weight 1 takes a slot although none is free"


def test_records_without_a_defect_satisfy_all_claims_but_show_s4_only_with_a_dead_holder() -> None:
    assert (failing(GOOD), not_shown(GOOD)) == ({}, {"S4"})


STOPPED = [replace(run, state="STOPPED") if run.execution == "p-1" else run for run in GOOD.runs]
SECOND = replace(glue_run(1, 2.0, 2.7), state="STOPPED")
PAUSED = [*GOOD.changes[:4], change(3.0, paused=True), *GOOD.changes[4:]]
LOWERED = [*GOOD.changes[:3], change(2.0, "p-1", limit=0), *GOOD.changes[3:]]
LATE_START = [replace(e, started=ORIGIN + 5.3) if e.name == "p-2" else e for e in GOOD.executions]


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({"left": {"on RequestQueue": 2}}, {"S3": "left: 2 on RequestQueue"}),
        ({"runs": STOPPED}, {"each success is one Glue run": "SUCCEEDED without a Glue run that did: p-1"}),
        (
            {"runs": [*GOOD.runs, glue_run(1, 2.6, 2.8)]},
            {"each success is one Glue run": "two Glue runs that SUCCEEDED: p-1"},
        ),
        (
            {"changes": PAUSED},
            {"S1": f"admitted: p: p-2 {NONE_FREE}: slots_in_use 0, 0 holders of 0, the limit 1, paused True"},
        ),
        pytest.param({"changes": LOWERED}, {}, id="a lowered limit is no admission"),
        ({"runs": [*GOOD.runs, SECOND]}, {"S1b": "two concurrent runs in one slot: p-1"}),
        ({"executions": LATE_START}, {"S5": "out of order: r2 after r3"}),
    ],
)
def test_records_that_break_a_claim_fail_it_alone(changes: dict[str, Any], findings: dict[str, str]) -> None:
    assert failing(replace(GOOD, **changes)) == findings


def test_a_request_without_an_execution_and_a_run_that_is_alive_at_the_end_are_named() -> None:
    assert failing(replace(GOOD, sent=[*GOOD.sent, sent(7, 8)]))["S3"].startswith("lost: r7")
    alive = failing(replace(GOOD, runs=[*GOOD.runs, glue_run(3, 6.6, None, "RUNNING")]))
    assert "alive at the end: p-3" in alive["S1b"]


# ---------------------------------------------------------------------------------------------------------------- S3


def test_a_returned_request_must_be_started_again() -> None:
    executions = [given_back(2, 3.2, 5) if e.name == "p-2" else e for e in GOOD.executions]
    lost = replace(GOOD, executions=executions, kept=[])
    assert failing(lost) == {"S3": "returned and lost: p-2"}
    again = Execution("p-2b", "r2", 2, "SUCCEEDED", ORIGIN + 7.2, ORIGIN + 9)
    run = glue_run(2, 7.5, 8.5, name="p-2b")
    slot = [change(7.2, "p-2b?"), change(7.3, "p-2b"), change(8.9)]
    changes = sorted([*GOOD.changes, *slot], key=lambda each: each.at)
    recorded = replace(lost, executions=[*executions, again], runs=[*GOOD.runs, run], changes=changes)
    assert failing(recorded) == {}


def test_a_bad_message_has_one_dead_letter_with_a_reason_and_a_good_one_none() -> None:
    (message,) = GOOD.dead
    wrong = replace(message, source="m1")
    assert "not JSON (0)" in failing(replace(GOOD, dead=[]))["S3"]
    assert "not JSON (2)" in failing(replace(GOOD, dead=[message, message]))["S3"]
    assert "without a reason: m9" in failing(replace(GOOD, dead=[replace(message, cause="")]))["S3"]
    assert "a good request dead-lettered: r1" in failing(replace(GOOD, dead=[message, wrong]))["S3"]
    assert "dead letters of no message" in failing(replace(GOOD, dead=[message, dead_letter("m99")]))["S3"]


def test_f24_one_request_has_one_workflow_an_attempt_and_no_workflow_is_of_no_request() -> None:
    twice = [*GOOD.executions, replace(execution(1, 1, 3), name="p-other")]
    assert "started twice: r1 (1)" in failing(replace(GOOD, executions=twice))["S3"]
    foreign = [*GOOD.executions, replace(execution(8, 8, 9, status="FAILED", error="RequestReturned"))]
    assert "workflows of no request: p-8" in failing(replace(GOOD, executions=foreign))["S3"]


def test_f23_a_request_without_success_is_kept() -> None:
    assert failing(replace(GOOD, kept=[])) == {"S3": "neither kept nor returned: p-2"}
    assert failing(replace(GOOD, kept=[kept("p-2", cause="")]))["S3"].endswith("error or cause: p-2")
    wrong = [*GOOD.kept, kept("p-1")]
    assert failing(replace(GOOD, kept=wrong)) == {"S3": "kept and not failed: p-1"}
    redriven = [replace(e, redrives=1) if e.name == "p-1" else e for e in GOOD.executions]
    assert failing(replace(GOOD, kept=wrong, executions=redriven)) == {}


# --------------------------------------------------------------------------------------------------------- S1, S1b, S2


def test_f6_an_admission_above_the_limit_is_found_even_for_a_millisecond() -> None:
    changes = [*GOOD.changes[:3], change(2.0, "p-1", "x?"), change(2.001, "p-1"), *GOOD.changes[3:]]
    (found,) = failing(replace(GOOD, changes=changes)).items()
    assert found == ("S1", f"admitted: p: x {NONE_FREE}: slots_in_use 1, 1 holders of 1, the limit 1, paused False")


def test_the_limit_is_not_shown_unless_all_slots_were_in_use() -> None:
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
def test_f2_a_run_outside_its_confirmed_slot_is_alive_without_one(run: GlueRun) -> None:
    assert "alive without a slot" in failing(replace(GOOD, runs=[*GOOD.runs, replace(run, state="STOPPED")]))["S1b"]


def test_f5_a_counter_other_than_the_weight_held_is_found_at_every_write() -> None:
    changes = [*GOOD.changes[:-1], replace(GOOD.changes[-1], count=-1)]
    assert "differs: p: slots_in_use is -1, and 0 holders weigh 0" in failing(replace(GOOD, changes=changes))["S2"]


def test_a_step_that_no_condition_allows_is_found() -> None:
    changes = [change(-1), *served(1, 1, 2.9)[1:], *GOOD.changes[4:]]
    finding = failing(replace(GOOD, changes=changes))["S1"]
    assert finding.startswith("no condition allows: p: p-1 begins as Holder(state='RUNNING'")


# -------------------------------------------------------------------------------------------------------------- S4, S5


def held_on(until: float) -> Records:
    """The workflow of r1 is aborted at 3, and its slot is freed at `until`."""
    aborted = execution(1, 1, 3, status="ABORTED", error="Fault")
    changes = [change(-1), *served(1, 1, until), *served(4, 100.2, 101.9), *served(5, 102.1, 103.9)]
    return replace(
        GOOD,
        sent=[sent(1, 0), sent(4, 100.1), sent(5, 100.1)],
        executions=[aborted, *GOOD.executions[3:]],
        runs=[glue_run(1, 1.5, 2.5, "STOPPED"), *GOOD.runs[3:]],
        kept=[kept("p-1")],
        dead=[],
        changes=changes,
    )


def test_f16_the_slot_of_a_dead_holder_is_freed_after_two_janitor_runs() -> None:
    # Dead at 3, grace to 5: the run at 6 checks, the one at 9 frees.
    assert (failing(held_on(9.1)), not_shown(held_on(9.1))) == ({}, set())
    assert failing(held_on(12.1)) == {"S4": "not freed: p-1 (2 runs)"}


def test_an_interrupted_janitor_run_does_not_count() -> None:
    recorded = held_on(12.1)
    complete = [replace(each, ok=each.started != ORIGIN + 9) for each in recorded.janitor_runs]
    assert failing(replace(recorded, janitor_runs=complete)) == {}


def test_a_holder_is_not_dead_while_its_run_is_alive() -> None:
    recorded = held_on(18.1)
    alive = glue_run(1, 1.5, 12.9, "STOPPED")
    assert failing(replace(recorded, runs=[alive, *recorded.runs[1:]])) == {}


def test_f15_a_reservation_without_a_workflow_is_dead_from_its_start() -> None:
    slot = [change(10, "p-unknown?"), change(30)]
    changes = sorted([*GOOD.changes, *slot], key=lambda each: each.at)
    assert "p-unknown" in failing(replace(GOOD, changes=changes))["S4"]


def test_a_slot_that_was_never_freed_is_named() -> None:
    recorded = held_on(9.1)
    kept: list[Item] = [each for each in recorded.changes if each.at != ORIGIN + 9.1 and each.at < ORIGIN + 100]
    assert "not freed" in failing(replace(recorded, changes=kept))["S4"]


# ------------------------------------------------------------------------------------------------------------------ S6


def late(seconds: float, calm: bool) -> Records:
    """The second of two requests is admitted so late after the first released its slot."""
    started = 100.2 if calm else 1.0
    first, second = (4, 5) if calm else (1, 2)
    shifted = started + 2 + seconds
    changes = [change(-1), *served(first, started, started + 1.8), *served(second, shifted, shifted + 1.8)]
    executions = [execution(first, started, started + 2), execution(second, shifted + 0.1, shifted + 2)]
    runs = [glue_run(first, started + 0.3, started + 1), glue_run(second, shifted + 0.3, shifted + 1)]
    messages = [sent(first, started - 0.1), sent(second, started - 0.1)]
    return replace(GOOD, sent=messages, executions=executions, runs=runs, changes=changes, kept=[], dead=[], faults=[])


def test_without_faults_a_slot_may_be_free_for_seconds_while_a_request_waits() -> None:
    assert failing(late(1, calm=True)) == {}
    assert failing(late(9, calm=True)) == {"S6": "idle: p (9.2 s)"}


def test_the_same_holds_during_the_faults_if_no_fault_can_be_the_cause() -> None:
    assert failing(late(1, calm=False)) == {}
    assert failing(late(9, calm=False)) == {"S6": "idle without a fault: p (9.2 s)"}


@pytest.mark.parametrize(
    ("mark", "fine"),
    [
        (FaultMark(ORIGIN + 4, "containers killed", "", "", ORIGIN + 4), True),
        (FaultMark(ORIGIN + 4, "abort", "", "p", ORIGIN + 4), True),
        (FaultMark(ORIGIN + 4, "abort", "", "another", ORIGIN + 4), False),
        (FaultMark(ORIGIN + 4, "bad message", "", "p", ORIGIN + 4), False),
        (FaultMark(ORIGIN + 20, "containers killed", "", "", ORIGIN + 20), False),
    ],
)
def test_a_fault_excuses_only_a_wait_that_it_can_have_caused(mark: FaultMark, fine: bool) -> None:
    assert (failing(replace(late(9, calm=False), faults=[mark])) == {}) is fine


def test_a_wait_of_a_minute_is_excused_only_by_the_absence_of_the_engine() -> None:
    killed = FaultMark(ORIGIN + 4, "containers killed", "", "", ORIGIN + 4)
    absent = FaultMark(ORIGIN + 5, "engine killed", "", "", ORIGIN + 45)
    assert "idle for too long" in failing(replace(late(60, calm=False), faults=[killed]))["S6"]
    assert failing(replace(late(60, calm=False), faults=[killed, absent])) == {}


def test_a_limit_of_0_and_a_pause_free_no_slot() -> None:
    recorded = late(9, calm=False)
    for closed in (change(2.9, paused=True), change(2.9, limit=0)):
        changes = sorted([*recorded.changes, closed, change(11.9)], key=lambda each: each.at)
        assert failing(replace(recorded, changes=changes)) == {}


# -------------------------------------------------------------------------------------------------------------- others


def test_faults_that_have_not_acted_are_named() -> None:
    recorded = replace(GOOD, faults=GOOD.faults[1:])
    assert "every kind of fault has acted" in not_shown(recorded)
    assert any("not: abort" in check["found"] for check in report(recorded)["checks"])


def test_empty_records_show_no_claim() -> None:
    empty = Records([], [], [], [], [], [], [JanitorRun(ORIGIN, ORIGIN, True)], [], ORIGIN, 2, {})
    assert failing(empty) == {}
    assert {check["ok"] for check in report(empty)["checks"]} == {None}


def test_holdings_have_the_times_of_each_holder() -> None:
    twice = [change(1, "a?"), change(2, "a"), change(3), change(4, "a?"), change(5)]
    recorded = [(h.taken - ORIGIN, h.confirmed - ORIGIN, h.freed - ORIGIN) for h in holdings(twice)]
    assert recorded == [(1, 2, 3), (4, float("inf"), 5)]


def test_intervals_are_merged_and_overlapped() -> None:
    some: list[Interval] = merged([(3, 4), (1, 2), (2, 2.5), (5, 5)])
    assert some == [(1, 2.5), (3, 4)]
    assert overlaps(some, [(2, 3.5)]) == [(2, 2.5), (3, 3.5)]
