"""The one reader of a stack: answers at the same time share a reading, and the janitor keeps its quota."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import ClientError

from slotkeeper.slots.targets import execution_arn
from slotkeeper_cli import account, stack_connection
from slotkeeper_cli.account import Account
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import BUDGETS, CallBudget, StackConnection
from tests.command.operator_account import Operator
from tests.module_time import replace_time


class _Clock:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        replace_time(monkeypatch, stack_connection, monotonic=lambda: self.now, sleep=self._sleep)
        replace_time(monkeypatch, account, time=lambda: self.now)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


@pytest.mark.parametrize(("operation", "limits"), BUDGETS.items())
def test_a_command_takes_half_of_the_lowest_quota_and_leaves_the_rest(
    clock: _Clock, operation: str, limits: tuple[int, float]
) -> None:
    """Quotas of the Step Functions Developer Guide: a bucket of 100, 2 a second; of 250, 10 a second."""
    lowest = {"ListExecutions": (100, 2), "DescribeExecution": (250, 10)}[operation]
    budget = CallBudget(*limits)
    for _ in range(lowest[0] // 2):
        budget.take()
    assert clock.slept == []
    for _ in range(3):
        budget.take()
    assert clock.slept == pytest.approx([2 / lowest[1]] * 3)


@pytest.mark.parametrize(("is_local", "taken"), [(False, 2), (True, 0)])
def test_each_call_that_has_a_budget_takes_from_it_but_for_the_embedded_aws(
    monkeypatch: pytest.MonkeyPatch, operator: Operator, is_local: bool, taken: int
) -> None:
    """A new client, since the clients of tests are shared."""
    takes = list[str]()
    monkeypatch.setattr(stack_connection, "BUDGETS", BUDGETS)
    monkeypatch.setattr(CallBudget, "take", lambda _self, model, **_: takes.append(model.name))
    made = boto3.session.Session(region_name="us-east-1").client("stepfunctions")
    monkeypatch.setattr(stack_connection.boto3, "Session", lambda **_: SimpleNamespace(client=lambda *_, **__: made))
    stack = StackConnection("slotkeeper")
    stack._local = {"endpoint": "http://127.0.0.1:1"} if is_local else None
    client = stack.client("stepfunctions")
    client.list_executions(stateMachineArn=operator.outputs["WorkflowArn"])
    client.describe_state_machine(stateMachineArn=operator.outputs["WorkflowArn"])
    with pytest.raises(ClientError):
        client.describe_execution(executionArn=execution_arn(operator.outputs["WorkflowArn"], "none"))
    assert len(takes) == taken


def test_those_who_ask_meanwhile_share_one_reading_and_its_error(operator: Operator) -> None:
    reader, asked, go = Account(StackConnection("slotkeeper")), list[int](), threading.Event()

    def read() -> str:
        asked.append(1)
        go.wait()
        if len(asked) == 1:
            raise LookupError("the first call fails")
        return "read"

    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(reader.kept, ("key",), read) for _ in range(3)]
        go.set()
        outcomes = [each.exception() for each in waiting]
    assert any(isinstance(each, LookupError) for each in outcomes)
    assert reader.kept(("key",), read) == "read"
    assert reader.kept(("key",), lambda: "again") == "read"
    reader.forget()
    assert reader.kept(("key",), lambda: "again") == "again"


def test_a_reading_is_kept_for_its_seconds(clock: _Clock, operator: Operator) -> None:
    reader = Account(StackConnection("slotkeeper"), keeps=5.0)
    assert reader.kept(("key",), lambda: 1) == 1
    clock.now += 5
    assert reader.kept(("key",), lambda: 2) == 1
    clock.now += 1
    assert reader.kept(("key",), lambda: 3) == 3
    clock.now += 60
    reader.kept(("other",), lambda: 4)
    assert reader.kept(("key",), lambda: 5, math.inf) == 5  # the old one takes no memory any more


def test_a_reading_that_is_kept_for_longer_is_not_replaced_by_others(clock: _Clock, operator: Operator) -> None:
    read, made = Account(StackConnection("slotkeeper"), keeps=5), list[str]()
    for _ in range(3):
        read.kept(("slow",), lambda: made.append("slow"), keeps=60)
        read.kept(("fast",), lambda: made.append("fast"))
        clock.now += 20
    assert made == ["slow", "fast", "fast", "fast"]


def test_of_many_executions_the_running_ones_are_listed_and_some_others_described(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "MAX_DESCRIBED", 2)
    for name in ("runs", "ended"):
        operator.stepfunctions.start_execution(stateMachineArn=operator.outputs["WorkflowArn"], name=name)
    operator.stop("ended")
    statuses = Account(StackConnection("slotkeeper")).statuses(["runs", "ended", "missing", "not described"])
    assert statuses == {"runs": "RUNNING", "ended": "ABORTED", "missing": ""}


def test_threads_that_need_a_client_first_make_one_at_a_time(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, made = StackConnection("slotkeeper"), list[str]()

    def make(service: str, _: object) -> object:
        assert stack._making.locked()
        made.append(service)
        return object()

    monkeypatch.setattr(stack, "_make", make)
    assert len(set(in_parallel(stack.client, ["glue"] * 8 + ["sqs"] * 8))) == 2
    assert sorted(made) == ["glue", "sqs"]
