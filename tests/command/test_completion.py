"""The completion of a shell: names of the stack, without a word on the terminal if that is not possible."""

from __future__ import annotations

import getpass
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotkeeper_cli import completion, stack_connection
from slotkeeper_cli.attention import CHECKS
from tests.command.account_contents import malform_downstream
from tests.command.command_tree import all_commands
from tests.command.operator_account import Operator, StubbedCalls
from tests.command.terminal import terminal


def completed(line: str, shell: str = "bash", before: Callable[[], None] = lambda: None) -> list[str]:
    """The words that the shell gets for the last word of a line, which may be empty."""

    def in_a_shell() -> None:
        # A shell calls the command in a substitution: it is not the leader of a process group.
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.environ["_SLOTKEEPER_COMPLETE"] = f"complete_{shell}"
        os.environ |= {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}  # bash
        os.environ |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # zsh, fish
        before()

    with terminal(piped=True, before=in_a_shell) as shown:
        assert shown.ends() == 0
        assert shown.written == b""
    return shown.piped.split()


@pytest.fixture
def processes(operator: Operator) -> None:
    operator.processes.create("sales", 1, "sample-job")
    operator.processes.create("orders", 1, "sample-job")
    item = {"process_name": {"S": "salty"}, "slot_limit": {"S": "three"}}
    operator.dynamodb.put_item(TableName=operator.outputs["SlotTableName"], Item=item)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "line",
    [
        "slotkeeper process pause orders sa",
        "slotkeeper request submit --process sa",
        "slotkeeper --stack slotkeeper status sa",
        "slotkeeper status --region us-east-1 sa",
    ],
)
def test_names_of_processes_are_completed_also_of_malformed_ones(line: str) -> None:
    assert completed(line) == ["sales", "salty", "sample"]


def test_every_command_completes_the_name_of_a_process_or_downstream_that_exists() -> None:
    without = [
        (path, parameter.name)
        for path, command in all_commands()
        for parameter in command.params
        if parameter.name in {"process", "downstream"} and not parameter._custom_shell_complete
    ]
    assert without == [("process add", "process")]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.usefixtures("processes")
def test_other_shells_get_the_same_names(shell: str) -> None:
    shown = "\n".join(completed("slotkeeper status sa", shell))

    assert [name for name in ("sales", "salty", "sample", "orders") if name in shown] == ["sales", "salty", "sample"]


@pytest.mark.parametrize("line", ["retry breaker open d", "retry limit 5 --downstream d"])
def test_names_of_downstreams_in_table_and_policy_are_completed(operator: Operator, line: str) -> None:
    policy = json.dumps({"downstreams": {"depot": {}}})
    malform_downstream(operator, "docks")
    with StubbedCalls("ssm", {"GetParameter": lambda _: {"Parameter": {"Value": policy}}}):
        assert completed(f"slotkeeper {line}") == ["default", "depot", "docks"]


def no_account() -> None:
    def refuse(**_: Any) -> None:
        raise AssertionError("a constant name needs no session")

    stack_connection.boto3.Session = refuse  # type: ignore[assignment, misc]


def test_names_of_dead_letter_queues_are_completed_without_an_account() -> None:
    assert completed("slotkeeper dlq redrive ", before=no_account) == ["request", "work", "schedule"]
    assert completed("slotkeeper dlq list w", before=no_account) == ["work"]


def test_names_of_checks_are_completed_without_an_account() -> None:
    assert completed("slotkeeper doctor --only ", before=no_account) == [check.name for check in CHECKS]


@pytest.mark.usefixtures("operator")
def test_nothing_is_completed_of_a_stack_that_does_not_exist() -> None:
    assert completed("slotkeeper --stack nowhere status sa") == []
    assert completed("slotkeeper status --stack nowhere sa") == []


@pytest.mark.usefixtures("operator")
def test_nothing_is_completed_without_a_local_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert completed("slotkeeper --local status s") == []


def asks() -> None:
    """As botocore does for the code of an MFA device."""
    stack_connection.boto3.Session = lambda **_: getpass.getpass("Enter MFA code: ")  # type: ignore[assignment, misc]


def hangs() -> None:
    completion._PATIENCE = 0.1
    stack_connection.boto3.Session = lambda **_: time.sleep(60)  # type: ignore[assignment, misc]


def writes() -> None:
    stack_connection.boto3.Session = lambda **_: os.write(2, b"a warning")  # type: ignore[assignment, misc]


@pytest.mark.parametrize("what", [asks, hangs, writes])
def test_no_question_wait_or_warning_disturbs_the_line(what: Callable[[], None]) -> None:
    assert completed("slotkeeper status s", before=what) == []


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("slotkeeper explain o", ["order-1", "order-2", "other"]),
        ("slotkeeper request cancel --process sample or", ["order-1"]),
    ],
)
def test_ids_of_queued_requests_are_completed(operator: Operator, line: str, ids: list[str]) -> None:
    operator.processes.create("sales", 1, "sample-job")
    for request_id, process in (("order-1", "sample"), ("order-2", "sales"), ("other", "sales")):
        operator.wait(request_id, process)
    assert completed(line) == ids
