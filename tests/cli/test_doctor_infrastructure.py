"""The doctor's checks of queues, functions, event source mappings, tables and rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slotkeeper_cli.doctor import infrastructure_checks as checks
from slotkeeper_cli.doctor.facts import FunctionSettings, RecursionSetting, TableSettings
from tests.cli.doctor_facts import WHOLE, facts, levels, mapping, queue, seen


def _work_queue(**policy: Any) -> dict[str, Any]:
    return {"queues": {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=json.dumps(policy))}}


def _mappings(*of_work_queue: dict[str, Any]) -> dict[str, Any]:
    return {"mappings": {"RequestQueue": [mapping()], "WorkQueue": list(of_work_queue)}}


def _worker(most: int | None, reserved: int | None, unreserved: int = 10, wanted: str = "0") -> dict[str, Any]:
    """The event source's concurrency, the reserved one, the account's unreserved one, and WorkerReservedConcurrency."""
    scaling = {} if most is None else {"ScalingConfig": {"MaximumConcurrency": most}}
    return {
        "functions": {"WorkerFunction": FunctionSettings("WorkerFunction", 120, reserved)},
        "mappings": {"WorkQueue": [mapping(**scaling)]},
        "parameters": {"WorkerConcurrency": "3", "WorkerReservedConcurrency": wanted},
        "unreserved_concurrency": unreserved,
    }


TABLES = [TableSettings("Ledger", False, True, False, True), TableSettings("Plain", False, False, False, False)]
OFF = {"Spare": {"Properties": {"State": "DISABLED"}}}


@pytest.mark.parametrize(
    ("check", "changes", "expected"),
    [
        (checks.stack, {"stack_status": "UPDATE_ROLLBACK_FAILED"}, ["problem"]),
        (checks.stack, {"stack_status": "UPDATE_IN_PROGRESS"}, ["warn"]),
        (checks.stack, {"stack_status": "UPDATE_ROLLBACK_COMPLETE"}, []),
        (checks.stack, {"stack_version": "0.0.9"}, ["warn"]),
        (checks.redrive, _work_queue(), ["problem"]),
        (checks.redrive, _work_queue(deadLetterTargetArn="arn:other", maxReceiveCount=1000), ["problem"]),
        (checks.mappings, _mappings(), ["problem"]),
        (checks.mappings, _mappings(mapping(), mapping()), ["problem"]),
        (checks.mappings, _mappings(mapping(State="Disabled")), ["problem"]),
        (checks.mappings, _mappings(mapping(BatchSize=10)), ["problem"]),
        (checks.mappings, _mappings(mapping(FunctionResponseTypes=[])), ["problem"]),
        (checks.stopped_functions, {"functions": {"J": FunctionSettings("J", 300, 0)}}, ["problem"]),
        (checks.recursion, {"recursion": [RecursionSetting("W", "Terminate", "Allow")]}, ["problem"]),
        (checks.tables, {"tables": TABLES}, ["problem", "problem"]),
        (checks.rules, {"rules": {"Spare": "DISABLED"}}, ["problem"]),
        (checks.rules, {"rules": {"Spare": "DISABLED"}, "template": OFF}, []),
        (checks.worker_concurrency, _worker(3, None), []),
        (checks.worker_concurrency, _worker(3, None, wanted="5"), ["warn"]),
        (checks.worker_concurrency, _worker(3, 3, wanted="3"), ["problem"]),
        (checks.worker_concurrency, _worker(None, 5, wanted="5"), ["problem"]),
        (checks.worker_concurrency, _worker(4, 5, wanted="5"), ["warn"]),
        (checks.worker_concurrency, _worker(3, 0), []),  # stopped, which another check reports
        # PutFunctionConcurrency leaves 100 unreserved, and a new account has 10.
        (checks.worker_concurrency, _worker(3, None, unreserved=104), []),
        (checks.worker_concurrency, _worker(3, None, unreserved=105), ["warn"]),
    ],
)
def test_the_level_of_a_finding(check: Callable[..., Any], changes: dict[str, Any], expected: list[str]) -> None:
    assert levels(check, **changes) == expected


@pytest.mark.parametrize(
    ("check", "changes", "finding"),
    [
        (
            checks.visibility,
            {"queues": {**WHOLE["queues"], "RequestQueue": queue("RequestQueue", 179)}},
            ("problem", "RequestQueue has a visibility timeout of 179 s, but StarterFunction may run for 30 s"),
        ),
        (
            checks.redrive,
            _work_queue(deadLetterTargetArn="arn:WorkDeadLetterQueue", maxReceiveCount="5"),
            ("problem", "WorkQueue dead-letters a message after 5 receives, but a waiting request may need 700"),
        ),
        (
            checks.rules,
            {"rules": {"JanitorFunctionRound": "DISABLED"}},
            ("problem", "rule JanitorFunctionRound is DISABLED: slots of dead holders are not released"),
        ),
        (
            checks.stack_drift,  # operators change the retry policy
            {"drifted": {"WorkQueue": "MODIFIED", "RetryPolicyParameter": "MODIFIED"}},
            ("warn", "WorkQueue is MODIFIED, compared with the template"),
        ),
    ],
)
def test_a_finding_states_the_deployed_setting(
    check: Callable[..., Any], changes: dict[str, Any], finding: tuple[str, str]
) -> None:
    assert seen(check, **changes) == [finding]


def test_advice_on_reserved_concurrency_names_the_parameter_and_its_value() -> None:
    (finding,) = checks.worker_concurrency(facts(**_worker(3, None, unreserved=1000)))
    assert "WorkerReservedConcurrency=5," in finding.do
