"""`slotkeeper stack`: afterwards the table agrees with what runs, and no request is admitted above the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper_cli import slotless_executions, stack_connection
from slotkeeper_cli.stack_connection import StackConnection
from tests.cli.operator_account import ROOT, TEMPLATE, Operator, client, entered


@pytest.fixture(autouse=True)
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The janitor's rounds that were asked for: moto runs no functions."""
    asked: list[str] = []

    def invoke(FunctionName: str, Payload: bytes) -> dict[str, Any]:
        asked.append(FunctionName)
        assert json.loads(Payload) == {}
        return {"Payload": BytesIO(b'{"SlotsReclaimed": 1}')}

    monkeypatch.setattr(client("lambda"), "invoke", invoke)
    return asked


def _forget(operator: Operator, execution: str) -> None:
    """As a table that was restored to before this holder."""
    operator.slots.release("sample", execution, operator.process().holders[execution].raw)


def test_an_execution_that_runs_without_a_slot_gets_it_above_the_limit_too(operator: Operator) -> None:
    operator.processes.set_limit("sample", 2)
    names = [operator.hold("a"), operator.hold("b")]
    for name in names:
        _forget(operator, name)
    operator.processes.set_limit("sample", 1)

    ended = operator.run("stack", "reconcile", "--json")

    assert sorted(ended.json["adopted"]) == sorted(names)
    process = operator.process()
    assert process.slots_in_use == len(process.holders) == 2
    assert {holder.state for holder in process.holders.values()} == {"RUNNING"}
    assert {holder.job for holder in process.holders.values()} == {"sample-job"}
    assert not process.has_free_slot


def test_an_adopted_execution_has_the_job_that_it_runs_though_the_process_has_another_by_now(
    operator: Operator,
) -> None:
    """Else the janitor would look for its runs at the wrong job, find none, and free a slot that is in use."""
    name = operator.hold("a")
    _forget(operator, name)
    event = entered("RunGlueJob")
    event["stateEnteredEventDetails"]["input"] = json.dumps({"job_name": "earlier-job"})
    operator.histories[name] = [event]

    operator.run("stack", "reconcile")

    assert operator.process().holders[name].job == "earlier-job"


def test_twice_is_once(operator: Operator) -> None:
    _forget(operator, operator.hold("a"))

    operator.run("stack", "reconcile")

    assert operator.run("stack", "reconcile", "--json").json["adopted"] == []
    assert operator.process().slots_in_use == 1


def test_one_that_has_given_its_slot_back_is_left_without(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workflow runs on for a moment after its release: it wakes who waits, and tells."""
    name = operator.hold("a")
    _forget(operator, name)
    operator.histories[name] = [entered("ReleaseSlot"), entered("RunGlueJob")]

    assert operator.run("stack", "reconcile", "--json").json["adopted"] == []
    assert operator.process().slots_in_use == 0


def test_one_that_has_lost_its_reservation_gives_its_request_back_and_is_not_adopted(operator: Operator) -> None:
    """The janitor took the slot of its slow starter back, and another has it. Adopted, it would be confirmed."""
    name = operator.hold("a", confirmed=False)
    _forget(operator, name)
    other = operator.hold("b")
    operator.histories[name] = [entered("ConfirmSlot"), {"type": "ExecutionStarted"}]

    assert operator.run("stack", "reconcile", "--json").json["adopted"] == []
    assert list(operator.process().holders) == [other]


def test_the_states_by_which_that_is_told_are_the_workflows() -> None:
    definition = json.loads((ROOT / "statemachines" / "glue_workflow.asl.json").read_text())

    assert {slotless_executions._RUN, slotless_executions._RELEASE} <= set(definition["States"])


def test_an_execution_of_no_process_here_is_left_alone(operator: Operator) -> None:
    operator.stepfunctions.start_execution(stateMachineArn=operator.outputs["WorkflowArn"], name="by-hand", input="{}")

    assert operator.run("stack", "reconcile", "--json").json["adopted"] == []


def test_a_counter_that_is_wrong_is_repaired_and_adoption_counts_from_there(operator: Operator) -> None:
    operator.processes.set_limit("sample", 3)
    operator.hold("a")
    _forget(operator, operator.hold("b"))
    operator.dynamodb.update_item(
        TableName=operator.outputs["SlotTableName"],
        Key={"process_name": {"S": "sample"}},
        UpdateExpression="SET slots_in_use = :many",
        ExpressionAttributeValues={":many": {"N": "3"}},
    )

    ended = operator.run("stack", "reconcile", "--json")

    assert ended.json["drifted"] == ["sample"]
    assert operator.process().slots_in_use == len(operator.process().holders) == 2


def test_dead_holders_are_reported_and_left_to_the_janitor_which_runs_immediately(
    operator: Operator, rounds: list[str]
) -> None:
    name = operator.hold("a")
    operator.stop(name)

    ended = operator.run("stack", "reconcile", "--json")

    assert ended.json["dead"] == [name]
    assert ended.json["janitor"] == {"SlotsReclaimed": 1}
    assert rounds == [operator.outputs["JanitorFunctionName"]]
    assert operator.process().slots_in_use == 1


def test_a_round_that_failed_is_a_failure(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    response = {"FunctionError": "Unhandled", "Payload": BytesIO(b'{"errorMessage": "boom"}')}
    monkeypatch.setattr(client("lambda"), "invoke", lambda **_: response)

    ended = operator.run("stack", "reconcile")

    assert ended.exit_code == 1
    assert "boom" in ended.stderr


def test_a_round_is_asked_for_once_and_waited_for(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes longer than other calls must not be asked for again while it works."""
    asked: list[Any] = []

    def make(service: str, config: Any, **_: Any) -> Any:
        asked.extend([config] * (service == "lambda"))
        return client(service)

    monkeypatch.setattr(stack_connection.boto3, "Session", lambda **_: SimpleNamespace(client=make))

    assert operator.run("stack", "reconcile").exit_code == 0
    (config,) = asked
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout > TEMPLATE["Resources"]["JanitorFunction"]["Properties"]["Timeout"]


def test_check_changes_nothing_and_says_so_by_its_exit_code(operator: Operator, rounds: list[str]) -> None:
    name = operator.hold("a")
    _forget(operator, name)

    ended = operator.run("stack", "reconcile", "--check", "--json")

    assert ended.exit_code == 5
    assert ended.json["adopted"] == [name]
    assert operator.process().slots_in_use == 0
    assert rounds == []
    assert operator.audited() == []


def test_check_is_content_where_all_agree(operator: Operator) -> None:
    operator.hold("a")

    ended = operator.run("stack", "reconcile", "--check")

    assert ended.exit_code == 0
    assert "SlotTable matches" in ended.stdout


def test_restore_takes_over_what_is_missing_paused_and_empty(operator: Operator) -> None:
    """The restored holders are of another time: only what runs may hold a slot."""
    operator.dynamodb.create_table(
        TableName="restored",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "process_name", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "process_name", "KeyType": "HASH"}],
    )
    old = {
        "process_name": {"S": "lost"},
        "slot_limit": {"N": "7"},
        "slots_in_use": {"N": "1"},
        "holders": {"M": {"lost-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
        "job_name": {"S": "sample-job"},
    }
    operator.dynamodb.put_item(TableName="restored", Item=old)
    operator.dynamodb.put_item(TableName="restored", Item=old | {"process_name": {"S": "sample"}})
    operator.dynamodb.put_item(TableName="restored", Item={"process_name": {"S": "odd"}})

    ended = operator.run("stack", "restore", "--from", "restored", "--json")

    assert (ended.json["taken"], ended.json["left"]) == (["lost"], ["sample"])
    assert "odd" in ended.json["malformed"][0]
    taken = operator.process("lost")
    assert (taken.slot_limit, taken.slots_in_use, dict(taken.holders), taken.paused) == (7, 0, {}, True)
    assert operator.process().slot_limit == 1


def test_a_table_that_is_not_there_is_not_found(operator: Operator) -> None:
    assert operator.run("stack", "restore", "--from", "nowhere").exit_code == 4


@pytest.fixture
def admitted(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> str:
    """An execution that is admitted after the first look at the table, and before the executions are listed."""
    operator.processes.set_limit("sample", 2)
    name = operator.hold("a")
    holder = operator.process().holders[name]
    _forget(operator, name)
    listed = slotless_executions._running

    def admit(on: StackConnection) -> Iterator[slotless_executions.SlotlessExecution]:
        operator.slots.adopt("sample", name, holder.since, holder.job)
        return listed(on)

    monkeypatch.setattr(slotless_executions, "_running", admit)
    return name


def test_one_that_is_admitted_meanwhile_is_not_taken_for_slotless(operator: Operator, admitted: str) -> None:
    ended = operator.run("stack", "reconcile", "--check", "--json")

    assert ended.json["adopted"] == []
    assert ended.exit_code == 0
    assert admitted in operator.process().holders


def test_one_that_releases_its_slot_meanwhile_is_not_either(operator: Operator, admitted: str) -> None:
    """Its history was read before that, so the table must have been read before its history."""

    class Releasing(dict[str, Any]):
        def get(self, asked: str, _: Any = None) -> Any:
            if asked in operator.process().holders:
                _forget(operator, asked)
            return [entered("RunGlueJob")]

    operator.histories = Releasing()

    assert operator.run("stack", "reconcile", "--check", "--json").json["adopted"] == []
    assert admitted in operator.process().holders, "nobody had to ask"


def test_adopting_is_conditional(operator: Operator) -> None:
    name = operator.hold("a")

    assert not operator.slots.adopt("sample", name, 1.0, "sample-job")
    assert not operator.slots.adopt("nowhere", name, 1.0, "sample-job")
    assert operator.process().slots_in_use == 1


@pytest.mark.parametrize(("paused", "held"), [(False, False), (True, True)])
def test_removing_is_conditional(operator: Operator, paused: bool, held: bool) -> None:
    if held:
        operator.hold("a")
    if paused:
        operator.processes.pause("sample")

    assert operator.processes.remove("sample") is None
    assert operator.process()
