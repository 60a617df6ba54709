"""The doctor's checks of processes, their Glue jobs, holders and waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.process import Cancellation, Holder, Lost, MalformedProcess, Process
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.targets import NO_TARGET
from slotkeeper_cli.doctor import CHECKS
from slotkeeper_cli.doctor import slot_checks as checks
from slotkeeper_cli.doctor.facts import HeldSlot
from slotkeeper_cli.doctor.health_checks import HealthCheck
from tests.cli.doctor_facts import NOW, facts, levels, process, queue, seen, waiting_request


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_healthy_stack_has_no_findings(check: HealthCheck) -> None:
    assert seen(check.find) == []


def test_check_names_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 31


SHARED = [process(name="a"), process(name="b")]  # with 3 slots each


def _runs(most: int) -> dict[str, Any]:
    return {"processes": SHARED, "jobs": {"job": {"ExecutionProperty": {"MaxConcurrentRuns": most}}}}


def _held(age: float, status: str) -> dict[str, Any]:
    return {"held": [HeldSlot("p", "p-1", age, status)]}


def _with_caller(slots: int) -> Process:
    return process(slot_limit=slots, holders={"p-1": Holder("RUNNING", 0, "job", None, {}, task_token="t" * 1000)})


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
        (checks.concurrency, {"processes": [process(slot_limit=30, default_weight=4)]}, []),
        (checks.item_size, {"processes": [process(slot_limit=1000, default_weight=4)]}, []),
        (checks.item_size, {"processes": [process(slot_limit=100_000)]}, ["warn"]),
        (checks.item_size, {"processes": [process(slot_limit=36)], "run_seconds": {"job": 3.0}}, []),
        (checks.item_size, {"processes": [process(slot_limit=37)], "run_seconds": {"job": 3.0}}, ["warn"]),
        (checks.item_size, {"processes": [_with_caller(131)], "run_seconds": {"job": 600.0}}, []),
        (checks.item_size, {"processes": [_with_caller(132)], "run_seconds": {"job": 600.0}}, ["warn"]),
        (checks.concurrency, {"jobs": {"job": {}}}, ["problem"]),  # Glue's default is one run
        (checks.concurrency, {"jobs": {"job": None}}, []),  # another check reports the missing job
        (checks.timeouts, {"jobs": {"job": {"Timeout": 60}}}, ["warn"]),
        (checks.timeouts, {"jobs": {"job": {"Timeout": 2880}}}, []),
        (checks.closed_holders, _held(86_400, "RUNNING"), []),
        (checks.closed_holders, _held(86_400, "PENDING_REDRIVE"), []),
        (checks.closed_holders, _held(600, "FAILED"), []),  # the janitor may still release it
        (checks.closed_holders, _held(721, "FAILED"), ["problem"]),
        (checks.closed_holders, _held(721, ""), ["problem"]),
        (checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", -5.0)]}, []),
        (checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", 600.0)]}, []),
        (checks.closed_holders, {"held": [HeldSlot("p", "lease-1", 9999, "", 601.0)]}, ["problem"]),
        (checks.timeouts, {"processes": [process(timeout_minutes=481)]}, ["warn"]),
        (checks.concurrency, {"processes": [process(target="arn:m")], "jobs": {}}, []),
        (checks.timeouts, {"processes": [process(target="arn:m")], "jobs": {}}, []),
    ],
)
def test_the_level_of_a_finding(check: Callable[..., Any], changes: dict[str, Any], expected: list[str]) -> None:
    assert levels(check, **changes) == expected


HIDDEN = {"RequestQueue": queue("RequestQueue", 180, ApproximateNumberOfMessagesNotVisible="1")}
WAITING = {"waiting": {"normal": waiting_request()}}
HEAVY = Holder("RUNNING", 1, "", None, {}, weight=2)


def _heads(**weights: int) -> dict[str, Any]:
    """A process with a limit of 3, of which 2 are in use, with waiting requests of these priorities and weights."""
    waiting = {name: waiting_request(name, request_id=name, weight=weight) for name, weight in weights.items()}
    return {"queues": HIDDEN, "processes": [process(holders={"p-1": HEAVY}, slots_in_use=2, waiting=waiting)]}


NAME = execution_name("p", "order-1", 1)
LOST = Lost("order-1", "high", since=1, noted=2, reported=3)


def _lost(name: str = NAME, **changes: Any) -> dict[str, Any]:
    return {"processes": [process(lost={name: replace(LOST, **changes)})]}


def test_a_lost_request_is_named_with_the_command_that_sends_it_again() -> None:
    (finding,) = checks.lost(facts(**_lost()))
    assert finding.saw.startswith("process p: the message of order-1, sent at 1970-01-01T00:00:01Z, no longer exists")
    assert "slotkeeper request submit --process p --request-id order-1 --priority high;" in finding.do
    (of_caller,) = checks.lost(facts(**_lost("p-of-a-caller")))
    assert of_caller.do.startswith("its caller must repeat it")


def test_a_request_that_the_janitor_has_not_reported_as_lost_is_no_finding() -> None:
    """It may have run, and then it has an execution."""
    assert seen(checks.lost, **_lost(reported=None)) == []


BLOCKED = "process p never admits {}, which is above its limit of 3"


@pytest.mark.parametrize(
    ("check", "changes", "finding"),
    [
        (checks.malformed, {"processes": [], "malformed": [MalformedProcess("not N", "odd")]}, ("problem", "not N")),
        (
            checks.drift,
            {"processes": [process(slots_in_use=2)]},
            ("problem", "process p: slots_in_use is 2 for 0 holders"),
        ),
        (
            checks.drift,
            {"processes": [process(holders={"p-1": HEAVY}, slots_in_use=1)]},
            ("problem", "process p: slots_in_use is 1 for 1 holder of weight 2"),
        ),
        (checks.blocked, _heads(normal=4), ("problem", BLOCKED.format("normal (weight 4)"))),
        (checks.blocked, _heads(low=3, high=4), ("problem", BLOCKED.format("high (priority high, weight 4)"))),
        (checks.waiting, _heads(normal=1), ("warn", "process p has 1 free slot, but normal has waited for 5 min")),
        (
            checks.waiting,
            _heads(low=1, high=4),
            ("warn", "process p has 1 free slot, but low (priority low) has waited for 5 min"),
        ),
        (
            checks.unheld_runs,
            {"unheld_runs": [("job", "jr_1", "p-1")]},
            ("problem", "Glue run jr_1 of job job is alive, but p-1, which started it, holds no slot"),
        ),
        (
            checks.waiting,
            {"queues": HIDDEN, "processes": [process(**WAITING)]},
            ("warn", "process p has 3 free slots, but first has waited for 5 min"),
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
    assert seen(checks.targets, jobs={"job": job}, allowed_jobs=allowed) == [("problem", f"process p: {expected}")]


def test_a_process_for_leases_needs_no_target() -> None:
    assert seen(checks.targets, processes=[process(target=NO_TARGET)], jobs={NO_TARGET: None}) == []


@pytest.mark.parametrize(
    ("machine", "allowed", "expected"),
    [
        (None, {"arn:m"}, "state machine arn:m does not exist"),
        ({"type": "EXPRESS"}, {"arn:m"}, "state machine arn:m is of type EXPRESS"),
        ({"type": "STANDARD", "status": "DELETING"}, {"arn:*"}, "state machine arn:m is being deleted"),
        ({"type": "STANDARD"}, {"arn:other"}, "the workflow may not start state machine arn:m"),
        (
            {"type": "STANDARD", "encryptionConfiguration": {"kmsKeyId": "arn:key"}},
            {"arn:m"},
            "target arn:m is encrypted with arn:key, which the stack's roles may not use",
        ),
    ],
)
def test_a_state_machine_that_a_process_cannot_use_is_a_problem(machine: Any, allowed: set[str], expected: str) -> None:
    found = {"machines": {"arn:m": machine}, "allowed_machines": allowed, "processes": [process(target="arn:m")]}
    assert seen(checks.targets, **found) == [("problem", f"process p: {expected}")]


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": [process(**WAITING)]},  # no message is hidden
        {"queues": HIDDEN},  # no request has ever waited
        {"queues": HIDDEN, "processes": [process(**WAITING, slot_limit=0)]},
        {**_heads(normal=4), "execution_status": lambda _: "SUCCEEDED"},
        _heads(normal=2),  # it does not fit
        _heads(low=1, high=2),  # behind one that does not fit
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
    assert seen(checks.blocked, **changes) == []
