"""`slotkeeper process repair`: its writes, their conditions, and the holders that it keeps."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.process import find_faults
from slotkeeper.slots.processes import MAX_REPLACED
from slotkeeper_cli.context import CommandContext
from tests.command.account_contents import edit, stored
from tests.command.operator_account import Operator, StubbedCalls
from tests.command.situations import set_clock

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"
REPAIR = ("process", "repair", "sample", "--yes")


def _repair(operator: Operator, *arguments: str) -> dict[str, Any]:
    """Repair the sample process; return its item, which is valid afterwards."""
    ended = operator.run(*REPAIR, *arguments, "--json")
    assert ended.exit_code == 0, ended.stderr
    assert ended.json["valid"]
    item = stored(operator)
    assert find_faults(item) == []
    return item


def _with_a_new_plan(item: dict[str, Any]) -> dict[str, Any]:
    """The item after a write that refuses each grant that was planned before."""
    return {**item, "grants": {"N": str(int(item["grants"]["N"]) + 1)}}


def test_only_what_is_malformed_is_written_and_audited_and_it_rings(operator: Operator) -> None:
    operator.hold("a")
    operator.wait("b")
    before = stored(operator)
    edit(operator, "slot_limit", {"S": "1"})

    assert _repair(operator) == _with_a_new_plan(before)
    assert operator.rings() == [{"process": "sample"}]
    (line,) = operator.audited()
    assert (line["action"], line["process"]) == ("process repair", "sample")
    change = {"path": ["slot_limit"], "has": {"S": "1"}, "writes": {"N": "1"}, "source": "the value itself"}
    assert line["changes"] == [change]


def test_settings_that_the_operator_states_are_written_together(operator: Operator) -> None:
    machine = operator.machine("flows", default_weight=4, timeout_minutes=30, settle_seconds=60)
    valid = stored(operator, "flows")
    for name in ("slot_limit", "target", "default_weight", "run_settings"):
        edit(operator, name, {"L": []}, "flows")
    names = ("slot_limit=1", f"target={machine}", "default_weight=4", "run_settings.settle_seconds=60")
    given = [part for name in names for part in ("--set", name)]

    refused = operator.refuses("process", "repair", "flows", "--yes", *given[2:])
    assert "no value is known to be safe: slot_limit" in refused
    timeout = ("--set", "run_settings.timeout_minutes=30")
    assert operator.run("process", "repair", "flows", "--yes", *given, *timeout).exit_code == 0
    assert stored(operator, "flows") == _with_a_new_plan(valid)


def test_an_audit_log_that_may_not_be_read_is_named(operator: Operator) -> None:
    edit(operator, "slot_limit", None)
    with StubbedCalls("logs", {"FilterLogEvents": lambda _: {"Error": {"Code": "AccessDeniedException"}}}):
        ended = operator.run(*REPAIR)
    assert ended.exit_code == 3
    assert "Not read: AuditLogGroup: FilterLogEvents failed with AccessDeniedException" in ended.stdout


@pytest.mark.parametrize("changed", ["slot_limit", "holders"])
def test_a_change_after_the_question_is_not_overwritten(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    operator.processes.set_limit("sample", 5)
    operator.hold("a", weight=3)
    edit(operator, "slot_limit", {"S": "5"})
    edit(operator, "slots_in_use", None)

    def change(*_: object) -> None:
        if changed == "slot_limit":
            operator.processes.set_limit("sample", 1)
        else:
            edit(
                operator, "holders/late", {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}, "weight": {"N": "2"}}}
            )

    monkeypatch.setattr(CommandContext, "confirm", change)
    ended = operator.run("process", "repair", "sample")

    assert ended.exit_code == 1
    assert "changed meanwhile, so nothing was written: run this again" in ended.stderr
    assert "slots_in_use" not in stored(operator)


def test_a_change_of_another_holder_does_not_refuse_the_repair(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.processes.set_limit("sample", 5)
    broken, other = operator.hold("a"), operator.hold("b")
    edit(operator, f"holders/{broken}/since", {"S": "then"})
    monkeypatch.setattr(
        CommandContext, "confirm", lambda *_: edit(operator, f"holders/{other}/quiet_since", {"N": "5"})
    )

    ended = operator.run("process", "repair", "sample")

    assert ended.exit_code == 0, ended.stderr
    assert stored(operator)["holders"]["M"][other]["M"]["quiet_since"] == {"N": "5"}


def test_more_attributes_than_one_write_replaces_take_two(operator: Operator) -> None:
    operator.processes.set_limit("sample", 2 * MAX_REPLACED)
    names = [operator.lease(f"lease-{number}", 1_790_000_600) for number in range(MAX_REPLACED + 5)]
    for name in names:
        edit(operator, f"holders/{name}/until", {"S": "1790000600"})

    first = operator.run(*REPAIR)

    assert first.exit_code == 1
    assert "is still malformed" in first.stdout
    assert "must be of DynamoDB type N: run slotkeeper process repair sample again" in first.stderr
    assert len(_repair(operator)["holders"]["M"]) == len(names)


# ------------------------------------------------------------------------------------------------- holders are kept


@pytest.mark.parametrize("attribute", ["state", "since", "weight", "job", "quiet_since", "redriven"])
@pytest.mark.parametrize("value", [{"L": []}, {"S": "odd"}, {"N": "1.5"}], ids=str)
def test_a_holder_is_never_removed(operator: Operator, attribute: str, value: dict[str, Any]) -> None:
    operator.processes.set_limit("sample", 5)
    name = operator.hold("a", weight=3)
    edit(operator, f"holders/{name}/{attribute}", value)

    if find_faults(stored(operator)):
        _confirmed_in_history(operator, name)
        _repair(operator)

    process = operator.process()
    holder = process.holders[name]
    assert (holder.state, holder.weight, process.slots_in_use) == ("RUNNING", 3, 3)


def _confirmed_in_history(operator: Operator, name: str) -> None:
    """The history of an execution that has confirmed sample-job."""
    output = f'{{"Attributes": {{"holders": {{"M": {{"{name}": {{"M": {{"job": {{"S": "sample-job"}}}}}}}}}}}}}}'
    exited = {"type": "TaskStateExited", "stateExitedEventDetails": {"name": "ConfirmSlot", "output": output}}
    operator.histories[name] = [{"type": "ExecutionStarted"}, exited]


def test_the_target_of_a_holder_is_asked_for_if_its_history_does_not_state_it(operator: Operator) -> None:
    """The process's own may have changed since, and the janitor would not find the run that is alive."""
    name = operator.hold("a")
    edit(operator, f"holders/{name}/job", {"N": "1"})

    assert f"--set holders.{name}.job=VALUE" in operator.refuses(*REPAIR)

    assert _repair(operator, "--set", f"holders.{name}.job=sample-job")["holders"]["M"][name]["M"]["job"] == {
        "S": "sample-job"
    }


@pytest.mark.parametrize("since", [{"S": "1790000000"}, {"L": []}], ids=str)
def test_a_holder_keeps_the_start_of_its_execution(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, since: dict[str, Any]
) -> None:
    """A later time would hide a Glue run that is alive from the janitor."""
    set_clock(monkeypatch, time.time() + 3600)
    name = operator.hold("a")
    edit(operator, f"holders/{name}/since", since)
    described = operator.workflow.describe(name)
    assert described is not None
    assert described.started_at is not None

    assert _repair(operator)["holders"]["M"][name]["M"]["since"] == {"N": str(int(described.started_at))}


@pytest.mark.parametrize(("given", "weight"), [((), "9"), (("--set", "holders.lease-1.weight=6"), "6")])
def test_a_weight_that_no_request_states_is_the_whole_limit_or_the_operators(
    operator: Operator, given: tuple[str, ...], weight: str
) -> None:
    """No request starts then until the holder has ended."""
    operator.processes.set_limit("sample", 9)
    operator.hold("a", weight=2)
    operator.lease("lease-1", 1_790_000_600, weight=5)
    edit(operator, "holders/lease-1/weight", {"S": "heavy"})

    item = _repair(operator, *given)
    assert item["holders"]["M"]["lease-1"]["M"]["weight"] == {"N": weight}
    assert item["slots_in_use"] == {"N": str(2 + int(weight))}


@pytest.mark.parametrize("value", [{"S": "broken"}, {"L": []}], ids=str)
def test_a_holder_that_is_no_map_and_has_no_execution_is_kept(operator: Operator, value: dict[str, Any]) -> None:
    operator.processes.set_limit("sample", 9)
    operator.lease("lease-1", 1_790_000_600, weight=5)
    edit(operator, "holders/lease-1", value)
    _repair(operator)

    holder = operator.process().holders["lease-1"]
    assert (holder.state, holder.weight) == ("RUNNING", 9)


@pytest.mark.parametrize(("attribute", "value"), [("state", None), ("state", {"S": "HELD"}), ("code", {"N": "1"})])
def test_a_lease_stays_one(operator: Operator, attribute: str, value: dict[str, Any] | None) -> None:
    operator.lease("lease-1", 1_790_000_600)
    edit(operator, f"holders/lease-1/{attribute}", value)
    _repair(operator)

    holder = operator.process().holders["lease-1"]
    assert (holder.is_lease, holder.until) == (True, 1_790_000_600)


def test_without_holders_the_process_stays_paused_until_reconcile_has_adopted(operator: Operator) -> None:
    name = operator.hold("a")
    edit(operator, "holders", {"S": "gone"})
    _repair(operator)

    assert operator.process().paused
    operator.refuses("process", "resume", "sample")
    assert operator.run("stack", "reconcile", "--check", "--json").json["adopted"] == [name]


@pytest.mark.parametrize(
    ("process", "value", "codes", "limit"),
    [("sample", {"S": "5"}, [0, 0, 0, 2], 5), ("other", {"S": "five"}, [0, 3, 3, 0], 4)],
)
def test_the_commands_of_the_runbook_repair_a_limit(
    operator: Operator, process: str, value: dict[str, Any], codes: list[int], limit: int
) -> None:
    (section,) = re.findall(r"^## MalformedProcessAlarm\n(.*?)^## ", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL)
    commands = re.findall(r"slotkeeper (process [^`#\n]*)", section)
    operator.processes.create("other", 1, "sample-job")
    edit(operator, "slot_limit", value, process)

    named = (command.replace("<process>", process).replace("<limit>", "4") for command in commands)
    ended = [operator.run(*shlex.split(command), "--yes") for command in named]

    assert [one.exit_code for one in ended] == codes
    assert f"slotkeeper process repair {process}" in ended[0].stdout
    assert "malformed" not in ended[-1].stdout
    assert operator.process(process).slot_limit == limit
    assert operator.run("doctor", "--only", "processes").exit_code == 0
