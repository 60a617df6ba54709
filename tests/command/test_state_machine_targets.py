"""Processes whose target is a state machine: wrong ones are refused before anything is added, sent or released."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.work import MARKER, MAX_PAGES
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.target_checks import target_in
from tests.command.account_contents import waiting
from tests.command.operator_account import NOW, Ended, Operator, StubbedCalls, entered

KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
OTHERS = {
    "region": "arn:aws:states:eu-west-1:123456789012:stateMachine:Load",
    "account": "arn:aws:states:us-east-1:999999999999:stateMachine:Load",
    "alias": "arn:aws:states:us-east-1:123456789012:stateMachine:Load:live",
}


def _add(operator: Operator, target: str, *options: str) -> Ended:
    return operator.run("process", "add", "loads", "--limit", "2", "--target", target, *options)


def test_add_stores_the_target_and_its_settings(operator: Operator) -> None:
    machine = operator.machine()
    added = _add(operator, machine, "--timeout-minutes", "90", "--settle-seconds", "60")
    assert added.stdout == f"loads has 2 slots for state machine {machine}.\n"
    process, line = operator.process("loads"), operator.audited()[-1]
    assert (process.target, process.timeout_minutes, process.settle_seconds) == (machine, 90, 60)
    assert (line["target"], line["timeout_minutes"], line["settle_seconds"]) == (machine, 90, 60)


@pytest.mark.parametrize("target", OTHERS.values(), ids=OTHERS)
def test_add_refuses_any_other_arn(operator: Operator, target: str) -> None:
    reason = operator.refuses("process", "add", "l", "--limit", "2", "--target", target, "--force", exit_code=2)
    assert all(text in reason.replace("\n", "") for text in ("target must be", target, "Nothing was added."))


def test_add_refuses_what_no_request_could_use(operator: Operator) -> None:
    machine = operator.machine()
    add = ("process", "add", "loads", "--limit", "2", "--target")
    assert "does not exist: create it first" in operator.refuses(*add, f"{machine}2")

    operator.parameters["MoreStateMachineArns"] = f"{machine}2"
    text = f"the workflow may not start state machine {machine}: add its ARN to MoreStateMachineArns"
    assert text in operator.refuses(*add, machine)

    express = operator.machine(kind="EXPRESS")
    text = "is of type EXPRESS; it must be STANDARD, because executions of Express workflows cannot"
    assert text in operator.refuses(*add, express, "--force")

    operator.parameters["MoreStateMachineArns"] = machine[:-3] + "*"
    assert _add(operator, machine).exit_code == 0


def test_add_refuses_a_state_machine_under_a_key_that_is_not_the_stacks(operator: Operator) -> None:
    machine = operator.machine(key=KEY)
    reason = operator.refuses("process", "add", "loads", "--limit", "2", "--target", machine)
    assert f"is encrypted with {KEY}, which the stack's roles may not use" in reason

    operator.parameters["KmsKeyArn"] = KEY
    assert _add(operator, machine).exit_code == 0


@pytest.mark.parametrize("source", ["text", "file"])
def test_submit_sends_an_input(operator: Operator, tmp_path: Path, source: str) -> None:
    operator.machine("loads")
    given = '{"day": "2026-11-21", "n": 1}'
    (tmp_path / "input.json").write_text(given)
    option = given if source == "text" else f"@{tmp_path}/input.json"

    assert operator.run("request", "submit", "--process", "loads", "--input", option).exit_code == 0

    (message,) = waiting(operator, "RequestQueue")
    body = json.loads(message["Body"])
    assert (body["input"], "arguments" in body) == ({"day": "2026-11-21", "n": 1}, False)


@pytest.mark.parametrize(
    ("process", "options", "expected"),
    [
        ("loads", ("--arg", "--day=1"), "takes an input (--input), not arguments"),
        ("sample", ("--input", "{}"), "Glue job sample-job takes arguments (--arg), not an input"),
        ("loads", ("--input", "[1]"), "must be a JSON object, got [1]"),
        ("loads", ("--input", "{day"), "--input cannot be read: "),
        ("loads", ("--input", "@no-such-file"), "No such file"),
        ("loads", ("--input", json.dumps({"x": "y" * 40_000})), "input has 40,0"),
        ("loads", ("--input", "{}", "--arg", "--day=1"), "has arguments and input"),
        ("loads", ("--input", '{"a": [{"id": 1234567890123456}]}'), "input.a[0].id is 1234567890123456; "),
        ("loads", ("--input", '{"n": 0.10000000000000000555}'), "input.n is 0.10000000000000000555; "),
    ],
)
def test_submit_refuses_what_the_target_does_not_take(
    operator: Operator, process: str, options: tuple[str, ...], expected: str
) -> None:
    operator.machine("loads")
    reason = operator.refuses("request", "submit", "--process", process, *options, exit_code=2)
    assert expected in " ".join(reason.split())
    assert "Nothing was sent." in reason


@pytest.fixture
def held(operator: Operator) -> tuple[str, str]:
    """A holder without a child yet, and its state machine."""
    machine = operator.machine("loads", settle_seconds=600)
    return operator.hold("a", "loads", input={}), machine


def test_status_explain_and_cancel_name_the_child_with_its_link(operator: Operator, held: tuple[str, str]) -> None:
    name, machine = held
    assert "no child execution of it was found" in operator.run("explain", "a").stdout
    arn = operator.run_child(name, machine)

    (shown,) = operator.run("status", "loads", "--json").json["processes"][0]["holders"]
    assert (shown["target"], shown["glue_run"], shown["request_id"]) == (machine, None, "a")
    assert shown["child"] == {"id": arn, "state": "RUNNING", "link": shown["child"]["link"]}
    assert shown["child"]["link"].endswith(f"#/v2/executions/details/{arn}")

    ended = operator.run("request", "cancel", "a", "--process", "loads", "--stop", "--yes").stdout
    assert "Its child execution is stopped, then the request has failed." in ended
    assert "after its child execution has ended" in ended
    assert operator.audited()[-1]["child"]["id"] == arn

    operator.stop(name, machine)
    (attempt,) = operator.run("request", "show", "a", "--process", "loads", "--json").json["found"][0]["attempts"]
    assert (attempt["target"], attempt["child"]["state"], "glue_run" in attempt) == (machine, "ABORTED", False)
    assert f"child: ABORTED {arn}" in operator.run("request", "show", "a").stdout


def test_release_is_refused_while_the_child_runs_and_within_its_settle_time(
    operator: Operator, held: tuple[str, str]
) -> None:
    name, machine = held
    arn = operator.run_child(name, machine)
    operator.stop_long_ago(name)
    reason = operator.refuses("holder", "release", name)
    assert f"its child execution {arn} has not ended. What ends it, and when its slot" in reason

    operator.stop(name, machine)
    reason = operator.refuses("holder", "release", name)
    assert "its child execution was ABORTED; its settle time ends in 9 min" in reason


def test_release_needs_one_check_of_a_closed_child_and_two_of_an_absent_one(operator: Operator) -> None:
    machine = operator.machine("loads")
    name = operator.hold("a", "loads", input={})
    operator.stop_long_ago(name)
    checked = operator.run("holder", "release", name, "--json").json["checked"]
    assert checked[1:] == [f"no live child execution of it (check {n} of 2, state machine {machine})" for n in (1, 2)]

    again = operator.hold("b", "loads", input={})
    arn = operator.run_child(again, machine)
    operator.stop(again, machine)
    operator.stop_long_ago(again)
    checked = operator.run("holder", "release", again, "--json").json["checked"]
    assert checked[1:] == [f"its child execution is ABORTED: {arn}"]


def test_reconcile_finds_an_execution_that_runs_a_state_machine(operator: Operator, held: tuple[str, str]) -> None:
    name, _ = held
    operator.release(name, "loads")
    operator.histories[name] = [entered("RunStateMachine"), entered("ConfirmSlot")]
    assert operator.run("stack", "reconcile", "--check", "--json").json["adopted"] == [name]


@pytest.mark.usefixtures("operator")
def test_the_work_of_holders_is_read_from_a_bounded_number_of_pages() -> None:
    """Work beyond that is not absent: its state is UNKNOWN."""
    started = datetime.fromtimestamp(NOW + 9, UTC)
    run = {"Id": "jr_1", "JobRunState": "RUNNING", "StartedOn": started, "Arguments": {MARKER: "p-1"}}
    pages = []

    def page(asked: dict[str, Any]) -> dict[str, Any]:
        pages.append(asked)
        return {"JobRuns": [run], "NextToken": str(len(pages))}

    with StubbedCalls("glue", {"GetJobRuns": page}):
        glue = target_in(StackConnection("slotkeeper"), "sample-job")
        assert glue.works({"p-1": NOW}) == {"p-1": {"id": "jr_1", "state": "RUNNING"}}
        assert len(pages) == 1
        assert glue.works({"p-1": NOW, "p-2": NOW})["p-2"]["state"] == "UNKNOWN"
        assert len(pages) == 1 + MAX_PAGES
