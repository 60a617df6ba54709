"""The doctor's checks of processes, their Glue jobs, holders and waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper.slots.cancellation import Cancellation
from slotkeeper.slots.process import Holder
from slotkeeper_cli.doctor import CHECKS
from slotkeeper_cli.doctor import slot_checks as checks
from slotkeeper_cli.doctor.facts import HeldSlot
from slotkeeper_cli.doctor.health_checks import HealthCheck
from tests.cli.doctor_facts import NOW, levels, process, queue, seen, waiting_request


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: HealthCheck) -> None:
    assert seen(check.find) == []


def test_check_names_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 27


SHARED = [process(name="a"), process(name="b")]  # with 3 slots each


def _runs(most: int) -> dict[str, Any]:
    return {"processes": SHARED, "jobs": {"job": {"ExecutionProperty": {"MaxConcurrentRuns": most}}}}


def _held(age: float, status: str) -> dict[str, Any]:
    return {"held": [HeldSlot("p", "p-1", age, status)]}


@pytest.mark.parametrize(
    ("check", "changes", "expected"),
    [
        (checks.malformed, {"processes": []}, ["warn"]),
        (checks.paused, {"processes": [process(paused=True)]}, ["warn"]),
        (checks.paused, {"processes": [process(slot_limit=0)]}, ["warn"]),
        (checks.item_size, {"processes": [process(slot_limit=400)]}, []),
        (checks.item_size, {"processes": [process(slot_limit=500)]}, ["warn"]),
        (checks.concurrency, _runs(5), ["problem"]),
        (checks.concurrency, _runs(6), ["warn"]),
        (checks.concurrency, _runs(7), []),
        (checks.concurrency, {"jobs": {"job": {}}}, ["problem"]),  # Glue's default is one run
        (checks.concurrency, {"jobs": {"job": None}}, []),  # another check reports the missing job
        (checks.timeouts, {"jobs": {"job": {"Timeout": 60}}}, ["warn"]),
        (checks.timeouts, {"jobs": {"job": {"Timeout": 2880}}}, []),
        (checks.closed_holders, _held(86_400, "RUNNING"), []),
        (checks.closed_holders, _held(86_400, "PENDING_REDRIVE"), []),
        (checks.closed_holders, _held(600, "FAILED"), []),  # the janitor may still release it
        (checks.closed_holders, _held(721, "FAILED"), ["problem"]),
        (checks.closed_holders, _held(721, ""), ["problem"]),
    ],
)
def test_the_level_of_a_finding(check: Callable[..., Any], changes: dict[str, Any], expected: list[str]) -> None:
    assert levels(check, **changes) == expected


HIDDEN = {"RequestQueue": queue("RequestQueue", 180, ApproximateNumberOfMessagesNotVisible="1")}
WAITING = {"waiting": {"normal": waiting_request()}}


@pytest.mark.parametrize(
    ("check", "changes", "finding"),
    [
        (checks.malformed, {"processes": [], "malformed": ["not N"]}, ("problem", "not N")),
        (
            checks.drift,
            {"processes": [process(slots_in_use=2)]},
            ("problem", "process p: slots_in_use is 2 for 0 holders"),
        ),
        (
            checks.unheld_runs,
            {"unheld_runs": [("job", "jr_1", "p-1")]},
            ("problem", "Glue run jr_1 of job job is alive, but p-1, which started it, holds no slot"),
        ),
        (
            checks.waiting,
            {"queues": HIDDEN, "processes": [process(**WAITING)]},
            ("warn", "process p has a free slot, but first has waited for 5 min"),
        ),
    ],
)
def test_a_finding_names_the_process_or_run(
    check: Callable[..., Any], changes: dict[str, Any], finding: tuple[str, str]
) -> None:
    assert seen(check, **changes) == [finding]


@pytest.mark.parametrize(
    ("job", "allowed", "expected"),
    [
        (None, {"job"}, "Glue job 'job' does not exist"),
        ({"MaxRetries": 1}, {"job"}, "Glue job job has MaxRetries 1"),
        ({"JobRunQueuingEnabled": True}, {"job"}, "Glue job job has JobRunQueuingEnabled"),
        ({}, {"other"}, "the workflow may not run Glue job job"),
    ],
)
def test_a_job_that_a_process_cannot_use_is_a_problem(job: Any, allowed: set[str], expected: str) -> None:
    assert seen(checks.jobs, jobs={"job": job}, allowed_jobs=allowed) == [("problem", f"process p: {expected}")]


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": [process(**WAITING)]},  # no message is hidden
        {"queues": HIDDEN},  # no request has ever waited
        {"queues": HIDDEN, "processes": [process(**WAITING, slot_limit=0)]},
        {"queues": HIDDEN, "processes": [process(**WAITING, paused=True)]},
        {"queues": HIDDEN, "processes": [process(**WAITING, cancelled={"p-first": Cancellation(int(NOW))})]},
        {"queues": HIDDEN, "processes": [process(waiting={"normal": waiting_request(since=int(NOW) - 14 * 86_400)})]},
        {"queues": HIDDEN, "processes": [process(**WAITING)], "execution_status": lambda _: "SUCCEEDED"},
        {
            "queues": HIDDEN,
            "processes": [process(**WAITING, holders={"p-first": Holder("RESERVED", 1, "", None, {})}, slots_in_use=1)],
        },
    ],
)
def test_a_registration_is_no_finding_without_a_waiting_request_or_a_free_slot(changes: dict[str, Any]) -> None:
    assert seen(checks.waiting, **changes) == []
