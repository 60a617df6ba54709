"""`slotkeeper stack`: SlotTable matches the running executions, and no request is admitted above the limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper_cli import slot_control, stack_connection
from slotkeeper_cli.stack_connection import StackConnection
from tests.command.account_contents import add_malformed, edit
from tests.command.operator_account import NOW, ROOT, TEMPLATE, Operator, client, entered
from tests.command.situations import set_clock
from tests.simulation.account.tables import create_table


@pytest.fixture(autouse=True)
def janitor_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The invocations of the janitor."""
    asked: list[str] = []

    def invoke(FunctionName: str, Payload: bytes) -> dict[str, Any]:
        asked.append(FunctionName)
        assert json.loads(Payload) == {}
        return {"Payload": BytesIO(b'{"SlotsReclaimed": 1}')}

    monkeypatch.setattr(client("lambda"), "invoke", invoke)
    return asked


def _reconciled(operator: Operator, *options: str) -> Any:
    return operator.run("stack", "reconcile", "--json", *options).json


def _holders(operator: Operator, process: str = "sample") -> dict[str, tuple[int, str, str]]:
    holders = operator.process(process).holders
    return {name: (holder.weight, holder.state, holder.target) for name, holder in holders.items()}


def test_reconcile_adopts_with_the_job_that_the_execution_runs(operator: Operator) -> None:
    """With another job, the janitor would find no runs of the holder, and free a slot that is in use."""
    name = operator.hold("a")
    operator.release(name)
    holders = {"M": {name: {"M": {"state": {"S": "RUNNING"}, "job": {"S": "earlier-job"}}}}}
    output = json.dumps({"Attributes": {"holders": holders}})
    confirmed = {"type": "TaskStateExited", "stateExitedEventDetails": {"name": "ConfirmSlot", "output": output}}
    operator.histories[name] = [entered("RunGlueJob"), confirmed, entered("ConfirmSlot")]
    _reconciled(operator)
    assert _holders(operator) == {name: (1, "RUNNING", "earlier-job")}


def test_reconcile_adopts_above_the_limit_with_the_weight_of_the_request_or_the_process(operator: Operator) -> None:
    operator.processes.create("weighted", 9, "sample-job", default_weight=2)
    stated, default = operator.hold("a", "weighted", weight=5, key="acme"), operator.hold("b", "weighted")
    for name in (stated, default):
        operator.release(name, "weighted")
    operator.processes.set_limit("weighted", 1)
    assert sorted(_reconciled(operator)["adopted"]) == sorted((stated, default))
    assert _holders(operator, "weighted") == {
        stated: (5, "RUNNING", "sample-job"),
        default: (2, "RUNNING", "sample-job"),
    }
    process = operator.process("weighted")
    assert (process.slots_in_use, process.room, process.held_by_key) == (7, -6, {"acme": 5, "": 2})


def _after_its_release(operator: Operator) -> None:
    """A workflow runs for a moment after its release, to ring and publish its event."""
    name = operator.hold("a")
    operator.release(name)
    operator.histories[name] = [entered("ReleaseSlot"), entered("RunGlueJob")]


def _without_its_reservation(operator: Operator) -> None:
    """The janitor cancelled its reservation. Adopted, it would be confirmed, although another request has the slot."""
    name = operator.hold("a", confirmed=False)
    operator.release(name)
    operator.histories[name] = [entered("ConfirmSlot"), {"type": "ExecutionStarted"}]


def _without_a_process(operator: Operator) -> None:
    operator.stepfunctions.start_execution(stateMachineArn=operator.outputs["WorkflowArn"], name="manual", input="{}")


@pytest.mark.parametrize("state", [_after_its_release, _without_its_reservation, _without_a_process])
def test_reconcile_does_not_adopt_an_execution_that_needs_no_slot(
    operator: Operator, state: Callable[[Operator], None]
) -> None:
    state(operator)
    assert _reconciled(operator)["adopted"] == []
    assert _holders(operator) == {}


def test_the_workflow_has_the_states_that_reconcile_searches_for() -> None:
    definition = json.loads((ROOT / "statemachines" / "slot_workflow.asl.json").read_text())
    searched = {*slot_control._RUNS, slot_control._CONFIRM, slot_control._RELEASE}
    assert searched <= set(definition["States"])


def test_reconcile_repairs_the_counter_before_it_adopts(operator: Operator) -> None:
    operator.processes.set_limit("sample", 9)
    operator.hold("a", weight=3)
    operator.release(operator.hold("b"))
    edit(operator, "slots_in_use", {"N": "7"})
    assert _reconciled(operator)["drifted"] == ["sample"]
    process = operator.process()
    assert (process.slots_in_use, len(process.holders)) == (4, 2)


def test_reconcile_reports_dead_holders_and_leaves_them_to_the_janitor(
    operator: Operator, janitor_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.processes.set_limit("sample", 3)
    names = sorted((operator.hold("a"), operator.hold("b")))
    for name in names:
        operator.stop(name)
    operator.hold("runs")
    report = _reconciled(operator)
    assert (report["dead"], report["janitor"], janitor_runs) == (
        names,
        {"SlotsReclaimed": 1},
        [operator.outputs["JanitorFunctionName"]],
    )
    assert operator.process().slots_in_use == 3
    monkeypatch.setattr("slotkeeper_cli.account.MAX_DESCRIBED", 0)
    ended = operator.run("stack", "reconcile")
    assert "2 holders not checked, since many do not run" in ended.stderr
    assert "SlotTable matches the running executions, of those that were checked." in ended.stdout


def test_reconcile_fails_with_the_end_of_the_janitors_error(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = json.dumps({"errorMessage": f"{'x' * 999} boom", "stackTrace": ["y"]}).encode()
    response = {"FunctionError": "Unhandled", "Payload": BytesIO(error)}
    monkeypatch.setattr(client("lambda"), "invoke", lambda **_: response)
    ended = operator.run("stack", "reconcile")
    assert (ended.exit_code, ended.stderr.endswith("x boom\n")) == (1, True)


def test_reconcile_invokes_the_janitor_without_retries_and_waits(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry of the call would run a second janitor at the same time."""
    asked: list[Any] = []

    def make(service: str, config: Any, **_: Any) -> Any:
        asked.extend([config] * (service == "lambda"))
        return client(service)

    monkeypatch.setattr(stack_connection.boto3, "Session", lambda **_: SimpleNamespace(client=make))
    assert operator.run("stack", "reconcile").exit_code == 0
    (config,) = asked
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout > TEMPLATE["Resources"]["JanitorFunction"]["Properties"]["Timeout"]


def test_reconcile_check_exits_with_5_and_changes_nothing(operator: Operator, janitor_runs: list[str]) -> None:
    name = operator.hold("a")
    operator.release(name)
    before = operator.contents()
    ended = operator.run("stack", "reconcile", "--check", "--json")
    assert (ended.exit_code, ended.json["adopted"]) == (5, [name])
    assert (operator.contents(), janitor_runs, operator.audited()) == (before, [], [])


def test_reconcile_repairs_the_readable_processes_and_names_the_malformed_one(
    operator: Operator, janitor_runs: list[str]
) -> None:
    add_malformed(operator)
    edit(operator, "slots_in_use", {"N": "1"})
    ended = operator.run("stack", "reconcile", "--json")
    assert (ended.exit_code, operator.process().slots_in_use, len(janitor_runs)) == (5, 0, 1)
    assert "process odd" in ended.json["malformed"][0]
    assert "slotkeeper process repair odd" in ended.stderr


def test_restore_copies_missing_processes_paused_and_without_holders(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restored holders are outdated: only running executions may hold a slot."""
    machine = operator.machine()
    create_table(operator.dynamodb, "restored", "process_name")
    old = {
        "process_name": {"S": "lost"},
        "slot_limit": {"N": "7"},
        "slots_in_use": {"N": "1"},
        "holders": {"M": {"lost-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
        "grants": {"N": "1"},
        "target": {"S": machine},
        "default_weight": {"N": "2"},
        "key_limit": {"N": "3"},
        "key_limits": {"M": {"acme": {"N": "4"}}},
        "run_settings": {"M": {"timeout_minutes": {"N": "9"}, "settle_seconds": {"N": "8"}}},
    }
    # The code of a lease in the backup may still run.
    lease = {"state": {"S": "LEASED"}, "since": {"N": "1"}, "until": {"N": str(int(NOW) + 600)}, "code": {"S": "c"}}
    leased = old | {"process_name": {"S": "leased"}, "holders": {"M": {"lease-1": {"M": lease}}}}
    ended_lease = {"M": lease | {"until": {"N": str(int(NOW) - 60)}}}
    before = leased | {"process_name": {"S": "before"}, "holders": {"M": {"lease-1": ended_lease}}}
    for item in (old, leased, before, old | {"process_name": {"S": "sample"}}, {"process_name": {"S": "odd"}}):
        operator.dynamodb.put_item(TableName="restored", Item=item)
    monkeypatch.setenv("TZ", "UTC")
    set_clock(monkeypatch, NOW)
    ended = operator.run("stack", "restore", "--from", "restored", "--json")
    assert (sorted(ended.json["taken"]), ended.json["left"]) == (["before", "leased", "lost"], ["sample"])
    assert ended.json["leased_until"] == {"leased": "2026-09-21T14:23:25Z"}
    assert "odd" in ended.json["malformed"][0]
    taken = operator.process("lost")
    assert (taken.slot_limit, taken.slots_in_use, dict(taken.holders), taken.paused) == (7, 0, {}, True)
    assert (taken.target, taken.default_weight, taken.timeout_minutes, taken.settle_seconds) == (machine, 2, 9, 8)
    assert (taken.key_limit, taken.key_limits) == (3, {"acme": 4})
    assert taken.grants > 1, "a value comes never again"
    assert operator.process().slot_limit == 1
    assert (operator.process("leased").paused, dict(operator.process("leased").holders)) == (True, {})
    assert operator.run("stack", "restore", "--from", "nowhere").exit_code == 4
    for name in ("leased", "before"):
        operator.processes.remove(name)
    shown = operator.run("stack", "restore", "--from", "restored").stdout
    assert "leased: copied, paused. The backup has leases: do not resume it before 2026-09-21 14:23:25" in shown
    assert "before: copied, paused.\n" in shown
    assert "wait for the longest lease that your code takes" in shown


@pytest.fixture
def admitted(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> str:
    """An execution that is admitted after the first read of the table, and before the executions are listed."""
    operator.processes.set_limit("sample", 2)
    name = operator.hold("a")
    holder = operator.process().holders[name]
    operator.release(name)
    listed = slot_control._running

    def admit(on: StackConnection) -> Iterator[slot_control.SlotlessExecution]:
        operator.slots.adopt("sample", name, holder.since, holder.target)
        return listed(on)

    monkeypatch.setattr(slot_control, "_running", admit)
    return name


def test_reconcile_ignores_an_execution_admitted_after_the_first_read(operator: Operator, admitted: str) -> None:
    ended = operator.run("stack", "reconcile", "--check", "--json")
    assert (ended.exit_code, ended.json["adopted"]) == (0, [])
    assert admitted in operator.process().holders


def test_reconcile_reads_the_table_before_the_histories(operator: Operator, admitted: str) -> None:
    """Its history was read before the release, so the table must be read before the histories."""

    class Releasing(dict[str, Any]):
        def get(self, asked: str, _: Any = None) -> Any:
            if asked in operator.process().holders:
                operator.release(asked)
            return [entered("RunGlueJob")]

    operator.histories = Releasing()
    assert _reconciled(operator, "--check")["adopted"] == []
    assert admitted in operator.process().holders, "its history need not be read"
