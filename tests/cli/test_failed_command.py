"""`slotkeeper failed`: what is written, rung and audited, in how many calls, and what a refused write leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from slotkeeper.slots.returns import Requeues
from slotkeeper_cli import bulk, failures, requeueing
from slotkeeper_cli.failures import alike
from tests.cli.account_contents import fail
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.module_time import replace_time

ALL = ("failed", "redrive", "--process", "sample", "--yes")
# Failures, which take three transactions, and two audit lines.
MANY, EACH = 12, 5
THROTTLE = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}


@pytest.fixture
def many(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The executions of failures, in the order in which they were sent."""
    monkeypatch.setattr(requeueing, "MAX_REDRIVES", EACH)
    monkeypatch.setattr(requeueing, "PARTS", 2)
    replace_time(monkeypatch, bulk, sleep=lambda _: None)
    return [fail(operator, f"r{number:02}") for number in range(MANY)]


@pytest.fixture
def calls(operator: Operator) -> Any:
    """The calls of DynamoDB that change rows, or list them, by their names."""
    made: Counter[str] = Counter()
    noted = ("TransactWriteItems", "UpdateItem", "Scan", "Query", "BatchGetItem")
    events = [f"provide-client-params.dynamodb.{name}" for name in noted]
    note = lambda model, **_: made.update([model.name])  # noqa: E731
    for each in events:
        operator.dynamodb.meta.events.register(each, note)
    yield made
    for each in events:
        operator.dynamodb.meta.events.unregister(each, note)


def test_failures_are_queued_in_their_order_by_few_transactions_with_one_ring(
    operator: Operator, many: list[str], calls: Counter[str]
) -> None:
    ended = operator.run(*ALL, "--json")

    assert ended.exit_code == 0
    assert calls == {"TransactWriteItems": 3, "BatchGetItem": 3, "Query": 1, "Scan": 1}
    assert [row.request_id for row in operator.rows.queue("sample").rows] == [f"r{number:02}" for number in range(MANY)]
    assert [one["execution"] for one in ended.json["redriven"]] == many
    assert {operator.row(name).state for name in many} == {"REDRIVEN"}
    assert ended.json["redriven"][0]["next"] == execution_name("sample", "r00", 2)
    assert operator.rings() == [{"process": "sample"}]
    assert [(line["action"], len(line["requests"])) for line in operator.audited()] == [
        ("failed redrive", 10),
        ("failed redrive", 2),
    ]
    assert operator.run("failed", "list").stdout == "No failures.\n"


def test_a_discarded_failure_loses_its_content_and_leaves_the_list(operator: Operator, many: list[str]) -> None:
    ended = operator.run("failed", "discard", *many[:7], "--yes", "--json")

    rows = [operator.row(name) for name in many]
    assert [one["execution"] for one in ended.json["discarded"]] == many[:7]
    assert [(row.state, bool(row.body), row.failed is None) for row in rows] == [
        *[("FAILED", False, True)] * 7,
        *[("FAILED", True, False)] * 5,
    ]
    assert operator.run("failed", "list", "--json").json["failures"] == MANY - 7
    assert operator.rings() == []
    assert "It was discarded." in operator.run("explain", "r00").stdout


def _fail_after(number: int, answer: Any) -> Callable[[Any], Any]:
    calls = count(1)
    return lambda _: answer if next(calls) > number else None


def test_a_transaction_that_is_refused_again_and_again_leaves_the_rest_and_rings(
    operator: Operator, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requeueing, "PARTS", 1)
    with StubbedCalls("dynamodb", {"TransactWriteItems": _fail_after(1, THROTTLE)}):
        ended = operator.run(*ALL)

    assert ended.exit_code == 1
    assert (
        f"{EACH} of {MANY} requests redriven, then TransactWriteItems failed with ThrottlingException" in ended.stderr
    )
    assert operator.rings() == [{"process": "sample"}]
    assert [operator.row(name).state for name in many].count("REDRIVEN") == EACH
    assert operator.run(*ALL).exit_code == 0
    assert {operator.row(name).state for name in many} == {"REDRIVEN"}


def test_what_was_redriven_since_the_list_was_read_is_left_with_the_reason(
    operator: Operator, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive, number = Requeues.redrive, count()

    def after_another(self: Requeues, process: str, executions: Any, now: float, deadline: Any) -> Any:
        if next(number) == 0:
            redrive(self, process, executions[:2], now, deadline)
        return redrive(self, process, executions, now, deadline)

    monkeypatch.setattr(Requeues, "redrive", after_another)
    ended = operator.run(*ALL)

    assert ended.exit_code == 0
    assert f"left: r00, r01: it was redriven before\n{MANY - 2} requests redriven, 2 left." in ended.stdout
    assert len(operator.rows.queue("sample").rows) == MANY
    assert {operator.row(name).state for name in many} == {"REDRIVEN"}


def test_each_process_is_rung_once(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    for process in ("sample", "other", "sample"):
        fail(operator, f"a-{process}-{len(operator.states(process))}", process=process)
    assert operator.run("failed", "redrive", "--since", "90d", "--yes").exit_code == 0
    assert operator.rings() == [{"process": "other"}, {"process": "sample"}]


@pytest.mark.parametrize(
    ("start_before", "options", "expected"),
    [
        ("2099-01-01T00:00:00Z", (), "2099-01-01T00:00:00Z"),
        ("2099-01-01T00:00:00Z", ("--start-before", "2098-01-01T00:00:00Z"), "2098-01-01T00:00:00Z"),
        (None, ("--start-before", "2098-01-01T00:00:00Z"), None),
    ],
)
def test_a_request_keeps_a_deadline_that_has_not_passed(
    operator: Operator, start_before: str | None, options: tuple[str, ...], expected: str | None
) -> None:
    fail(operator, weight=1, **({"start_before": start_before} if start_before else {}))
    (redriven,) = operator.run("failed", "redrive", "a", *options, "--yes", "--json").json["redriven"]
    row = operator.row(redriven["next"])
    assert (json.loads(row.body).get("start_before"), row.weight) == (expected, 1)
    assert row.queued is not None
    assert row.queued.start_before == row.start_before


def test_a_list_that_is_cut_states_it_and_changes_what_was_read(
    operator: Operator, many: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_PAGES", 1)
    page: Any = {"IndexName": "failed", "Limit": 10}
    add = lambda params, **_: params.update(page) if params.get("IndexName") == "failed" else None  # noqa: E731
    operator.dynamodb.meta.events.register("provide-client-params.dynamodb.Query", add)
    ended = operator.run(*ALL)
    operator.dynamodb.meta.events.unregister("provide-client-params.dynamodb.Query", add)
    assert ended.exit_code == 0
    assert "10 requests redriven, 0 left.\nNot read: RequestTable: there are more than the 10 failures" in ended.stdout
    assert [operator.row(name).state for name in many].count("REDRIVEN") == 10


def test_a_content_that_must_not_be_read_is_named_and_the_rest_shown(operator: Operator) -> None:
    fail(operator)
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    asks = lambda asked: denied if asked.get("ProjectionExpression") == "body" else None  # noqa: E731
    with StubbedCalls("dynamodb", {"GetItem": asks}):
        ended = operator.run("failed", "show", "a")
    assert ended.exit_code == 0
    assert "reason: the job failed" in ended.stdout
    assert "body:" not in ended.stdout
    assert "Not read: content: GetItem failed with AccessDeniedException" in ended.stdout


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("no month 2026-13", "no month #"),
        ("order-7 has 12 rows, order-7.csv 11,204", "# has 12 rows, #.csv 11,204"),
        ("run jr_0a1b2c3d4e of s3://bucket/2026/part-00001.csv", "run # of s3://bucket/#/#"),
        ("HTTP 503 at line 12", "HTTP 503 at line 12"),
        ("", ""),
    ],
)
def test_equal_failures_differ_in_ids_times_and_large_numbers(reason: str, shown: str) -> None:
    assert alike(reason, "order-7") == shown
