"""The doctor's checks of processes, their jobs, and who holds or awaits a slot."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.process import Holder
from slotkeeper_cli.doctor import CHECKS, slot_checks
from slotkeeper_cli.doctor.facts import HeldSlot
from slotkeeper_cli.doctor.health_checks import HealthCheck
from tests.cli.doctor_facts import NOW, levels, process, queue, seen


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: HealthCheck) -> None:
    assert seen(check.find) == []


def test_checks_have_names_of_their_own() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 26


def test_a_process_that_cannot_be_read_is_a_problem_and_none_at_all_is_a_warning() -> None:
    malformed = {"processes": [], "malformed": ["slot_limit must be N"]}
    assert seen(slot_checks.malformed, **malformed) == [("problem", "slot_limit must be N")]
    assert levels(slot_checks.malformed, processes=[]) == ["warn"]


def test_a_counter_that_is_not_the_number_of_holders_is_a_problem() -> None:
    assert seen(slot_checks.drift, processes=[process(slots_in_use=2)]) == [
        ("problem", "process p: slots_in_use is 2 for 0 holders")
    ]


@pytest.mark.parametrize("change", [{"paused": True}, {"slot_limit": 0}])
def test_a_process_that_admits_no_request_is_a_warning(change: dict[str, Any]) -> None:
    assert levels(slot_checks.paused, processes=[process(**change)]) == ["warn"]


@pytest.mark.parametrize(
    ("job", "allowed", "said"),
    [
        (None, {"job"}, "Glue job 'job' does not exist"),
        ({"MaxRetries": 1}, {"job"}, "Glue job job has MaxRetries 1"),
        ({"JobRunQueuingEnabled": True}, {"job"}, "Glue job job has JobRunQueuingEnabled"),
        ({}, {"other"}, "the workflow may not run Glue job job"),
    ],
)
def test_a_job_that_a_process_cannot_use_is_a_problem(job: Any, allowed: set[str], said: str) -> None:
    assert seen(slot_checks.jobs, jobs={"job": job}, allowed_jobs=allowed) == [("problem", f"process p: {said}")]


@pytest.mark.parametrize(("slots_", "found"), [(400, []), (500, ["warn"])])
def test_so_many_slots_that_usual_jobs_cannot_keep_them_busy_are_worth_a_word(slots_: int, found: list[str]) -> None:
    assert levels(slot_checks.item_size, processes=[process(slot_limit=slots_)]) == found


@pytest.mark.parametrize(("most", "found"), [(5, ["problem"]), (6, ["warn"]), (7, [])])
def test_the_slots_of_the_processes_that_share_a_job_add_up(most: int, found: list[str]) -> None:
    job = {"ExecutionProperty": {"MaxConcurrentRuns": most}}
    shared = [process(name="a"), process(name="b")]
    assert levels(slot_checks.concurrency, processes=shared, jobs={"job": job}) == found


def test_a_job_without_a_word_on_it_allows_one_run_and_one_that_is_missing_is_anothers_business() -> None:
    assert levels(slot_checks.concurrency, jobs={"job": {}}) == ["problem"]
    assert levels(slot_checks.concurrency, jobs={"job": None}) == []


def test_a_job_whose_own_timeout_is_shorter_than_the_stacks_is_a_warning() -> None:
    assert levels(slot_checks.timeouts, jobs={"job": {"Timeout": 60}}) == ["warn"]
    assert levels(slot_checks.timeouts, jobs={"job": {"Timeout": 2880}}) == []


@pytest.mark.parametrize(
    ("age", "status", "found"),
    [
        (86_400, "RUNNING", []),
        (86_400, "PENDING_REDRIVE", []),
        (600, "FAILED", []),
        (721, "FAILED", ["problem"]),
        (721, "", ["problem"]),
    ],
)
def test_a_holder_whose_execution_is_over_for_longer_than_the_janitor_takes_is_a_problem(
    age: float, status: str, found: list[str]
) -> None:
    assert levels(slot_checks.closed_holders, held=[HeldSlot("p", "p-1", age, status)]) == found


def test_a_live_run_without_a_holder_is_a_problem() -> None:
    """After a restore of the table, say: one more runs than the slots allow."""
    assert seen(slot_checks.unheld_runs, unheld_runs=[("job", "jr_1", "p-1")]) == [
        ("problem", "Glue run jr_1 of job job is alive, but p-1, which started it, holds no slot")
    ]


HIDDEN = {"RequestQueue": queue("RequestQueue", 180, ApproximateNumberOfMessagesNotVisible="1")}
WAITER = {"waiting_since": int(NOW) - 300, "waiting_execution": "p-first"}


def test_a_request_that_waits_although_a_slot_is_free_is_a_warning() -> None:
    assert seen(slot_checks.waiting, queues=HIDDEN, processes=[process(**WAITER)]) == [
        ("warn", "process p has a free slot, but p-first has waited for 5 min")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": [process(**WAITER)]},  # no message is hidden
        {"queues": HIDDEN},  # nobody has ever waited
        {"queues": HIDDEN, "processes": [process(**WAITER, slot_limit=0)]},
        {"queues": HIDDEN, "processes": [process(**WAITER, paused=True)]},
        {"queues": HIDDEN, "processes": [process(**WAITER)], "execution_status": lambda _: "SUCCEEDED"},
        {
            "queues": HIDDEN,
            "processes": [process(**WAITER, holders={"p-first": Holder("RESERVED", 1, "", None, {})}, slots_in_use=1)],
        },
    ],
)
def test_a_registration_that_is_behind_the_times_is_not(changes: dict[str, Any]) -> None:
    assert seen(slot_checks.waiting, **changes) == []
