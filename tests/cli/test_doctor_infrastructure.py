"""The doctor's checks of queues, functions, event sources, tables and rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper_cli.doctor import infrastructure_checks
from slotkeeper_cli.doctor.deployed_settings import FunctionSettings, RecursionSetting, TableSettings
from tests.cli.doctor_facts import WHOLE, facts, levels, mapping, queue, seen


@pytest.mark.parametrize(
    ("status", "found"),
    [("UPDATE_ROLLBACK_FAILED", ["problem"]), ("UPDATE_IN_PROGRESS", ["warn"]), ("UPDATE_ROLLBACK_COMPLETE", [])],
)
def test_a_deployment_that_came_to_no_end(status: str, found: list[str]) -> None:
    assert levels(infrastructure_checks.stack, stack_status=status) == found


def test_a_visibility_below_six_times_the_functions_timeout_is_a_problem() -> None:
    queues = {**WHOLE["queues"], "RequestQueue": queue("RequestQueue", 179)}
    assert seen(infrastructure_checks.visibility, queues=queues) == [
        ("problem", "RequestQueue has a visibility timeout of 179 s, but StarterFunction may run for 30 s")
    ]


@pytest.mark.parametrize("policy", [{}, {"deadLetterTargetArn": "arn:other", "maxReceiveCount": 1000}])
def test_a_queue_without_its_dead_letter_queue_is_a_problem(policy: dict[str, Any]) -> None:
    queues = {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=json.dumps(policy))}
    assert levels(infrastructure_checks.redrive, queues=queues) == ["problem"]


def test_few_receives_are_a_problem() -> None:
    policy = json.dumps({"deadLetterTargetArn": "arn:WorkDeadLetterQueue", "maxReceiveCount": "5"})
    queues = {**WHOLE["queues"], "WorkQueue": queue("WorkQueue", 720, RedrivePolicy=policy)}
    assert seen(infrastructure_checks.redrive, queues=queues)[0][1].startswith(
        "WorkQueue dead-letters a message after 5 receives"
    )


@pytest.mark.parametrize(
    "found",
    [
        [],
        [mapping(), mapping()],
        [mapping(State="Disabled")],
        [mapping(BatchSize=10)],
        [mapping(FunctionResponseTypes=[])],
    ],
)
def test_an_event_source_that_is_missing_doubled_off_or_set_otherwise_is_a_problem(found: list[dict[str, Any]]) -> None:
    assert levels(infrastructure_checks.mappings, mappings={"RequestQueue": [mapping()], "WorkQueue": found}) == [
        "problem"
    ]


@pytest.mark.parametrize(
    ("most", "reserved", "parameters", "found"),
    [
        (3, None, {"WorkerReservedConcurrency": "0"}, []),
        (3, None, {"WorkerReservedConcurrency": "5"}, ["warn"]),
        (3, 3, {}, ["problem"]),
        (None, 5, {}, ["problem"]),
        (4, 5, {}, ["warn"]),
        (3, 0, {}, []),  # stopped, which another check says
    ],
)
def test_the_workers_concurrency(most: int | None, reserved: int | None, parameters: Any, found: list[str]) -> None:
    scaling = {} if most is None else {"ScalingConfig": {"MaximumConcurrency": most}}
    given = {
        "functions": {"WorkerFunction": FunctionSettings("WorkerFunction", 120, reserved)},
        "mappings": {"WorkQueue": [mapping(**scaling)]},
        "parameters": {"WorkerConcurrency": "3", **parameters},
    }
    assert levels(infrastructure_checks.worker_concurrency, **given) == found


@pytest.mark.parametrize(("unreserved", "found"), [(10, []), (104, []), (105, ["warn"]), (1000, ["warn"])])
def test_a_reservation_for_the_worker_is_advised_where_the_account_can_spare_it(
    unreserved: int, found: list[str]
) -> None:
    """PutFunctionConcurrency leaves 100 unreserved, and a new account has 10."""
    given = {
        "functions": {"WorkerFunction": FunctionSettings("WorkerFunction", 120, None)},
        "parameters": {"WorkerConcurrency": "3", "WorkerReservedConcurrency": "0"},
        "unreserved_concurrency": unreserved,
    }
    assert levels(infrastructure_checks.worker_concurrency, **given) == found
    advised = [finding.do for finding in infrastructure_checks.worker_concurrency(facts(**given))]
    assert all("WorkerReservedConcurrency=5," in do for do in advised)


def test_a_function_with_no_concurrency_is_a_problem() -> None:
    functions = {"JanitorFunction": FunctionSettings("JanitorFunction", 300, 0)}
    assert levels(infrastructure_checks.stopped_functions, functions=functions) == ["problem"]


def test_another_recursion_setting_than_the_templates_is_a_problem() -> None:
    settings = [RecursionSetting("WorkerFunction", "Terminate", "Allow")]
    assert levels(infrastructure_checks.recursion, recursion=settings) == ["problem"]


def test_a_table_that_does_not_expire_or_cannot_be_restored_as_it_should_is_a_problem() -> None:
    tables = [TableSettings("Ledger", False, True, False, True), TableSettings("Plain", False, False, False, False)]
    assert levels(infrastructure_checks.tables, tables=tables) == ["problem", "problem"]


def test_a_rule_that_is_off_is_a_problem_unless_the_template_has_it_so() -> None:
    assert seen(infrastructure_checks.rules, rules={"JanitorFunctionRound": "DISABLED"})[0][1].endswith("not released")
    template = {"Spare": {"Properties": {"State": "DISABLED"}}}
    assert seen(infrastructure_checks.rules, rules={"Spare": "DISABLED"}, template=template) == []


def test_what_cloudformation_finds_changed_is_a_warning() -> None:
    drifted = {"WorkQueue": "MODIFIED", "RetryPolicyParameter": "MODIFIED"}  # whose policy is the operators' own
    assert seen(infrastructure_checks.stack_drift, drifted=drifted) == [
        ("warn", "WorkQueue is MODIFIED, compared with the template")
    ]
