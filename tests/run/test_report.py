"""The report's figures and checks, on runs small enough to work out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dev.scenarios.slots import report as report_module
from dev.scenarios.slots.records import EndMessage
from tests.run.handmade import failing, glue_run, kept, not_shown, records, report, workflow

# Three requests through one slot: each start lies 0.15 s after the release before it (exit at stop - 0.05).
THREE = [workflow(1, 0.2, 1.2), workflow(2, 1.3, 2.3), workflow(3, 2.4, 3.4)]


def test_a_run_as_it_should_be_passes_every_check() -> None:
    made = report(3, records(THREE))
    assert failing(made) == {}
    assert made["ok"]
    assert (made["requests"], made["succeeded"], made["failed"], made["given_back"]) == (3, 3, 0, 0)
    assert made["max_glue_runs_alive"] == made["max_glue_states_open"] == made["max_slots_held"] == 1
    assert made["starts_in_message_order"] is True
    assert made["total_seconds"] == 3.4


def test_the_hand_off_is_measured_from_the_release_to_the_next_start() -> None:
    made = report(3, records(THREE))
    assert made["handoff"] == {"count": 2, "median": 0.15, "p99": 0.15, "max": 0.15}
    assert made["handoffs"][0] == {"released": 1.15, "seconds": 0.15, "from": "sample-1", "to": "sample-2"}


def test_utilisation_counts_the_time_from_the_first_start_to_the_last() -> None:
    made = report(3, records(THREE))
    # Window 0.2 to 2.4; held 0.2-1.1 and 1.3-2.2; in Glue 0.3-1.0 and 1.4-2.1.
    assert made["slot_utilisation"] == pytest.approx(1.8 / 2.2, abs=0.001)
    assert made["glue_utilisation"] == pytest.approx(1.4 / 2.2, abs=0.001)


def test_every_key_of_the_report_is_explained_in_the_module_s_table() -> None:
    explained = set(re.findall(r"`(\w+)`", report_module.__doc__ or ""))
    assert set(report(3, records(THREE))) <= explained


def test_two_glue_runs_alive_at_once_are_seen_in_glue_s_own_records() -> None:
    found = records(THREE, glue_runs=[glue_run(1, 0.3, 1.5), glue_run(2, 1.4, 2.1), glue_run(3, 2.5, 3.2)])
    made = report(3, found)
    assert made["max_glue_runs_alive"] == 2
    assert list(failing(made)) == ["never more than 1 at once"]


def test_a_glue_run_that_ends_in_the_instant_the_next_begins_does_not_overlap_it() -> None:
    found = records(THREE, glue_runs=[glue_run(1, 0.0, 1.0), glue_run(2, 1.0, 2.0), glue_run(3, 2.0, 3.0)])
    assert report(3, found)["max_glue_runs_alive"] == 1


def test_a_glue_run_that_never_completed_is_alive_for_ever() -> None:
    found = records(THREE, glue_runs=[glue_run(1, 0.3, None, "RUNNING"), glue_run(2, 1.4, 2.1)])
    assert report(3, found)["max_glue_runs_alive"] == 2


def test_an_overlap_hidden_by_glue_s_whole_seconds_is_seen_in_the_workflows_states() -> None:
    overlapping = [workflow(1, 0.2, 1.9), workflow(2, 1.3, 2.9)]
    found = records(overlapping, glue_runs=[glue_run(1, 0.0, 1.0), glue_run(2, 1.0, 2.0)])
    made = report(2, found)
    assert (made["max_glue_runs_alive"], made["max_glue_states_open"]) == (1, 2)
    assert "never more than 1 at once" in failing(made)


def test_a_workflow_that_starts_before_its_turn_is_out_of_order() -> None:
    swapped = [workflow(1, 0.2, 1.2), workflow(3, 1.3, 2.3), workflow(2, 2.4, 3.4)]
    made = report(3, records(swapped))
    assert made["starts_in_message_order"] is False
    assert failing(made) == {"workflows start in message order": "r2 started after r3, which was sent later"}


def test_a_request_given_back_comes_again_at_the_tail_and_breaks_no_order() -> None:
    returned = workflow(1, 0.2, 0.4, status="FAILED", glue_entered=None, release_entered=None, release_exited=None)
    again = replace(workflow(1, 3.5, 4.5), name="sample-1-again", attempt=2)
    found = records([returned, *THREE[1:], again], kept=[])
    made = report(3, found)
    assert failing(made) == {}
    assert (made["succeeded"], made["failed"], made["given_back"]) == (3, 0, 1)


def test_a_lost_request_is_named() -> None:
    made = report(3, records(THREE[:2]))
    assert failing(made)["every request is accounted for"] == "neither started nor dead-lettered: r3"


def test_a_dead_lettered_request_is_accounted_for() -> None:
    letter = EndMessage("r3", None, "UnknownProcess", "no such process", "{}")
    made = report(3, records(THREE[:2], dead=[letter]))
    assert failing(made) == {}
    assert made["dead_lettered"][0]["error"] == "UnknownProcess"


def test_a_request_started_twice_is_named() -> None:
    twin = replace(workflow(1, 3.5, 4.5), name="sample-1-twin")
    assert "started twice: r1" in failing(report(3, records([*THREE, twin])))["every request is accounted for"]


def test_a_workflow_that_has_not_ended_is_named() -> None:
    open_end = workflow(3, 2.4, 3.4, status="RUNNING", stopped=None, release_entered=None, release_exited=None)
    found = records([*THREE[:2], open_end], kept=[])
    assert "not ended: r3" in failing(report(3, found))["every request is accounted for"]


def test_a_message_left_on_the_queue_is_reported() -> None:
    finding = failing(report(3, records(THREE, still_queued=2)))["every request is accounted for"]
    assert finding == "still on RequestQueue: 2"


def test_failed_requests_that_are_kept_with_error_and_cause_pass() -> None:
    failed = [THREE[0], replace(THREE[1], status="FAILED", error="GlueJobFailed"), THREE[2]]
    made = report(3, records(failed), damaged=(2,))
    assert failing(made) == {}
    assert (made["succeeded"], made["failed"], len(made["kept"])) == (2, 1, 1)
    assert made["kept"][0] == {
        "request_id": "r2",
        "execution": "sample-2",
        "error": "States.TaskFailed",
        "cause": "not a number",
        "reason": "not a number",
    }


@pytest.mark.parametrize(
    ("messages", "finding"),
    [
        ([], "failed and not kept: r2"),
        ([kept(2, cause=None)], "kept without error or cause: r2"),
        ([kept(2), kept(3)], "kept and not failed: r3"),
    ],
)
def test_the_failed_requests_queue_holds_exactly_the_failed_ones(messages: list[EndMessage], finding: str) -> None:
    failed = [THREE[0], replace(THREE[1], status="FAILED"), THREE[2]]
    made = report(3, records(failed, kept=messages), damaged=(2,))
    assert failing(made) == {"failed requests are in FailedRequestQueue": finding}


def test_a_damaged_input_whose_job_succeeds_is_a_finding() -> None:
    made = report(3, records(THREE), damaged=(2,))
    assert failing(made) == {"outcomes are what the input says": "ended otherwise than their input says: r2 SUCCEEDED"}


def test_a_success_without_its_result_is_a_finding() -> None:
    made = report(3, records(THREE, outputs=frozenset({"output/r1.json", "output/r2.json"})))
    assert failing(made) == {"outcomes are what the input says": "succeeded without a result: output/r3.json"}


def test_a_slot_that_is_not_back_is_a_finding() -> None:
    made = report(3, records(THREE, slots_in_use=1, holders=["sample-3"]))
    assert failing(made) == {"every slot is back": "slots_in_use 1, holders: sample-3"}


def test_a_holder_that_the_counter_does_not_know_is_a_finding() -> None:
    made = report(3, records(THREE, holders=["sample-3"]))
    assert failing(made) == {"every slot is back": "slots_in_use 0, holders: sample-3"}


def test_a_result_that_no_success_wrote_is_a_finding() -> None:
    failed = [THREE[0], replace(THREE[1], status="FAILED"), THREE[2]]
    found = records(failed, outputs=frozenset(f"output/r{i}.json" for i in (1, 2, 3)))
    assert failing(report(3, found, damaged=(2,))) == {
        "outcomes are what the input says": "result without a success: output/r2.json"
    }


def test_slow_hand_offs_are_a_finding() -> None:
    slow = [workflow(1, 0.2, 1.2), workflow(2, 3.2, 4.2), workflow(3, 6.2, 7.2)]
    assert list(failing(report(3, records(slow)))) == ["hand-off median below 1.5 s"]


def test_fewer_requests_than_slots_hand_nothing_off() -> None:
    made = report(2, records([workflow(1, 0.2, 1.2), workflow(2, 0.3, 1.3)]), limit=3)
    assert made["handoff"] == {"count": 0, "median": None, "p99": None, "max": None}
    assert failing(made) == {}
    assert not_shown(made) == {
        "never more than 3 at once": (
            "at most 2 Glue runs alive, 2 inside RunGlueJob, 2 holding a slot: nobody found them all taken"
        ),
        "failed requests are in FailedRequestQueue": "no request failed; with FAIL above 0 some do",
        "hand-off median below 1.5 s": "no request had to wait for a slot",
    }


def test_one_start_is_in_no_order() -> None:
    made = report(1, records([workflow(1, 0.2, 1.2)]))
    assert not_shown(made)["workflows start in message order"] == "1 start: nothing was there to be out of order"
    assert made["starts_in_message_order"]


def test_nothing_started_at_all_still_makes_a_report() -> None:
    made = report(2, records([]))
    assert made["total_seconds"] == 0
    assert failing(made)["every request is accounted for"] == "neither started nor dead-lettered: r1, r2"


def test_instants_count_from_the_first_request_sent() -> None:
    made = report(3, records(THREE))
    assert made["workflows"][0]["started"] == 0.2
    assert made["started_at"].startswith("1970-01-01T00:16:40")
