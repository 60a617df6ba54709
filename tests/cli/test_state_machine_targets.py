"""Processes whose target is a state machine: what is refused before anything is added, sent or released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.account_contents import waiting
from tests.cli.operator_account import Operator, entered

OTHERS = {
    "region": "arn:aws:states:eu-west-1:123456789012:stateMachine:Load",
    "account": "arn:aws:states:us-east-1:999999999999:stateMachine:Load",
    "alias": "arn:aws:states:us-east-1:123456789012:stateMachine:Load:live",
}


def _add(operator: Operator, target: str, *options: str) -> Any:
    return operator.run("process", "add", "loads", "--limit", "2", "--target", target, *options)


def test_add_stores_the_target_and_its_settings(operator: Operator) -> None:
    machine = operator.machine()

    added = _add(operator, machine, "--timeout-minutes", "90", "--settle-seconds", "60")

    assert added.stdout == (
        f"loads has 2 slots for state machine {machine}. Its work is stopped after 1 h 30 min. Its slots are kept for "
        "1 min after an abort.\n"
    )
    process = operator.process("loads")
    assert (process.target, process.timeout_minutes, process.settle_seconds) == (machine, 90, 60)
    line = operator.audited()[-1]
    assert (line["target"], line["timeout_minutes"], line["settle_seconds"]) == (machine, 90, 60)


@pytest.mark.parametrize("target", OTHERS.values(), ids=OTHERS)
def test_add_refuses_any_other_arn(operator: Operator, target: str) -> None:
    ended = _add(operator, target, "--force")

    assert ended.exit_code == 2
    assert "target must be" in ended.stderr
    assert target in ended.stderr.replace("\n", "")
    assert "Nothing was added." in ended.stderr
    assert operator.slots.read("loads") is None
    assert operator.audited() == []


def test_add_refuses_an_express_state_machine_even_with_force(operator: Operator) -> None:
    add = ("process", "add", "loads", "--limit", "2", "--target", operator.machine(kind="EXPRESS"), "--force")
    reason = "is of type EXPRESS; it must be STANDARD, because executions of Express workflows cannot"
    assert reason in operator.refuses(*add)


def test_add_refuses_a_state_machine_under_a_key_that_is_not_the_stacks(operator: Operator) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    machine = operator.machine(key=key)
    assert f"is encrypted with {key}, which the stack's roles may not use" in _add(operator, machine).stderr
    assert operator.slots.read("loads") is None

    operator.parameters["KmsKeyArn"] = key
    assert _add(operator, machine).exit_code == 0


def test_add_refuses_a_missing_state_machine_and_one_that_the_workflow_may_not_start(operator: Operator) -> None:
    machine = operator.machine()
    assert "does not exist: create it first" in _add(operator, f"{machine}2").stderr

    operator.parameters["MoreStateMachineArns"] = f"{machine}2"
    ended = _add(operator, machine)
    assert ended.exit_code == 3
    assert f"the workflow may not start state machine {machine}: add its ARN to MoreStateMachineArns" in ended.stderr
    assert operator.slots.read("loads") is None

    operator.parameters["MoreStateMachineArns"] = machine[:-3] + "*"
    assert _add(operator, machine).exit_code == 0


# Requests -----------------------------------------------------------------------------------------------------------


def _submit(operator: Operator, process: str, *options: str) -> Any:
    return operator.run("request", "submit", "--process", process, "--request-id", "a", *options)


@pytest.mark.parametrize("source", ["text", "file"])
def test_submit_sends_an_input(operator: Operator, tmp_path: Path, source: str) -> None:
    operator.machine("loads")
    given = '{"day": "2026-11-21", "n": 1}'
    (tmp_path / "input.json").write_text(given)

    ended = _submit(operator, "loads", "--input", given if source == "text" else f"@{tmp_path}/input.json")

    assert ended.exit_code == 0
    (message,) = waiting(operator, "RequestQueue")
    body = json.loads(message["Body"])
    assert (body["input"], "arguments" in body) == ({"day": "2026-11-21", "n": 1}, False)


@pytest.mark.parametrize(
    ("process", "options", "code", "expected"),
    [
        ("loads", ("--arg", "--day=1"), 2, "takes an input (--input), not arguments"),
        ("sample", ("--input", "{}"), 2, "Glue job sample-job takes arguments (--arg), not an input"),
        ("loads", ("--input", "[1]"), 2, "must be a JSON object, got [1]"),
        ("loads", ("--input", "{day"), 2, "--input cannot be read: "),
        ("loads", ("--input", "@no-such-file"), 2, "No such file"),
        ("loads", ("--input", json.dumps({"x": "y" * 40_000})), 2, "input has 40,0"),
        ("loads", ("--input", "{}", "--arg", "--day=1"), 2, "has arguments and input"),
        ("loads", ("--input", '{"a": [{"id": 1234567890123456}]}'), 2, "input.a[0].id is 1234567890123456; "),
        ("loads", ("--input", '{"n": 0.10000000000000000555}'), 2, "input.n is 0.10000000000000000555; "),
    ],
)
def test_submit_refuses_what_the_target_does_not_take(
    operator: Operator, process: str, options: tuple[str, ...], code: int, expected: str
) -> None:
    operator.machine("loads")

    ended = _submit(operator, process, *options)

    assert (ended.exit_code, expected in " ".join(ended.stderr.split())) == (code, True), ended.stderr
    assert waiting(operator, "RequestQueue") == []
    assert "Nothing was sent." in ended.stderr


# Holders ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def held(operator: Operator) -> tuple[str, str]:
    """A holder without a child yet, and its state machine."""
    machine = operator.machine("loads")
    return operator.hold("a", "loads", input={}), machine


def test_status_and_show_name_the_child_with_its_link(operator: Operator, held: tuple[str, str]) -> None:
    name, machine = held
    assert "no child execution found" in operator.run("status", "loads").stdout
    arn = operator.run_child(name, machine)

    (shown,) = operator.run("status", "loads", "--json").json["processes"][0]["holders"]
    assert (shown["target"], shown["glue_run"], shown["request_id"]) == (machine, None, "a")
    assert (shown["child"]["id"], shown["child"]["state"]) == (arn, "RUNNING")
    assert shown["child"]["link"].endswith(f"#/v2/executions/details/{arn}")
    assert f"child execution RUNNING {arn}" in operator.run("status", "loads").stdout

    operator.stop(name, machine)
    (process,) = operator.run("status", "loads", "--json").json["processes"]
    assert process["holders"][0]["child"]["state"] == "ABORTED"
    (attempt,) = operator.run("request", "show", "a", "--process", "loads", "--json").json["found"][0]["attempts"]
    assert (attempt["target"], attempt["child"]["id"], "glue_run" in attempt) == (machine, arn, False)
    assert f"child: ABORTED {arn}" in operator.run("request", "show", "a").stdout


def test_release_is_refused_while_the_child_runs(operator: Operator, held: tuple[str, str]) -> None:
    name, machine = held
    arn = operator.run_child(name, machine)
    operator.stop_long_ago(name)

    reason = operator.refuses("holder", "release", name)
    assert f"its child execution {arn} is RUNNING. The janitor releases the slot by about" in reason


def test_release_needs_one_check_of_a_closed_child_and_two_of_an_absent_one(
    operator: Operator, held: tuple[str, str]
) -> None:
    name, machine = held
    operator.stop_long_ago(name)
    checked = operator.run("holder", "release", name, "--json").json["checked"]
    assert checked[1:] == [f"no child execution of it (check {n} of 2, state machine {machine})" for n in (1, 2)]

    again = operator.hold("b", "loads", input={})
    arn = operator.run_child(again, machine)
    operator.stop(again, machine)
    operator.stop_long_ago(again)
    checked = operator.run("holder", "release", again, "--json").json["checked"]
    assert checked[1:] == [f"its child execution is ABORTED: {arn}"]


def test_release_is_refused_within_the_settle_time_of_an_aborted_child(operator: Operator) -> None:
    machine = operator.machine("loads", settle_seconds=600)
    name = operator.hold("a", "loads", input={})
    operator.run_child(name, machine)
    operator.stop(name, machine)
    operator.stop_long_ago(name)

    reason = operator.refuses("holder", "release", name)
    assert "its child execution was ABORTED; its settle time ends in 9 min" in reason


def test_a_stopped_request_names_its_child_execution(operator: Operator, held: tuple[str, str]) -> None:
    name, machine = held
    arn = operator.run_child(name, machine)

    ended = operator.run("request", "cancel", "a", "--process", "loads", "--stop", "--yes")

    assert "Its child execution is stopped, then the request has failed." in ended.stdout
    assert "after its child execution has ended" in ended.stdout
    assert operator.audited()[-1]["child"]["id"] == arn


# The stack ----------------------------------------------------------------------------------------------------------


def test_reconcile_finds_an_execution_that_runs_a_state_machine(operator: Operator, held: tuple[str, str]) -> None:
    name, _ = held
    operator.release(name, "loads")
    operator.histories[name] = [entered("RunStateMachine"), entered("ConfirmSlot")]

    assert operator.run("stack", "reconcile", "--check", "--json").json["adopted"] == [name]
