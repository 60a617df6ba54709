"""Cancel, redrive and discard: their writes, messages and audit lines, their number of calls, and left requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from slotkeeper.slots import ending_queue
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import RequestTable
from slotkeeper.slots.returns import Requeues
from slotkeeper_cli import failures, requeueing
from slotkeeper_cli.commands.cancel_request import Cancelling
from slotkeeper_cli.requests import alike
from slotkeeper_cli.requeueing import READS, RowChange
from tests.command.account_contents import fail, set_in_row
from tests.command.operator_account import Operator, StubbedCalls
from tests.module_time import replace_time
from tests.simulation.account.boundary import refuse

CANCEL = ("request", "cancel", "--process", "sample", "--all", "--yes")
REDRIVE = ("failed", "redrive", "--process", "sample", "--yes")
# Requests, which take three transactions of EACH (moto takes a second for one of 50), and of a redrive two audit lines.
MANY, EACH = 12, 5
# Executions of a message to EndingQueue.
SENT = 10
STARTS = "it has a slot, and starts: to stop it, give --stop in some seconds"
THROTTLE = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cancelling, "batch_size", EACH)
    monkeypatch.setattr(RowChange, "batch_size", EACH)
    monkeypatch.setattr(RowChange, "parts", 2)
    monkeypatch.setattr(ending_queue, "MAX_EXECUTIONS", SENT)


def _queued(operator: Operator) -> list[str]:
    """The executions of queued requests, in their order."""
    return [operator.wait(f"r{number:02}") for number in range(MANY)]


def _failed(operator: Operator) -> list[str]:
    """The executions of failures, in the order in which they were sent."""
    return [fail(operator, f"r{number:02}") for number in range(MANY)]


@pytest.fixture
def calls(operator: Operator) -> Iterator[list[tuple[str, int]]]:
    """The calls of DynamoDB that change rows, or list them, each with the number of its writes."""
    made: list[tuple[str, int]] = []

    def note(model: Any, params: dict[str, Any], **_: Any) -> None:
        if model.name in ("TransactWriteItems", "UpdateItem", "Scan", "Query", "BatchGetItem"):
            made.append((model.name, len(params.get("TransactItems", ()))))

    operator.dynamodb.meta.events.register("provide-client-params.dynamodb", note)
    yield made
    operator.dynamodb.meta.events.unregister("provide-client-params.dynamodb", note)


def _after(number: int, answer: Any) -> StubbedCalls:
    """After some transactions, each is refused."""
    calls = count()
    return StubbedCalls("dynamodb", {"TransactWriteItems": lambda _: answer if next(calls) >= number else None})


def test_a_queued_request_that_could_not_be_read_is_not_taken_for_cancelled(operator: Operator) -> None:
    set_in_row(operator, operator.wait("odd"), weight={"S": "heavy"})
    none = operator.run(*CANCEL)
    assert (none.exit_code, "no such request of sample is queued in what could be read" in none.stderr) == (4, True)
    operator.wait("a")
    some = operator.run(*CANCEL)
    assert "1 request cancelled, 0 left." in some.stdout
    assert "Not read: RequestTable: 1 row is malformed: request sample-" in some.stdout


def test_a_cancelled_request_never_starts_and_its_end_is_to_be_published(operator: Operator) -> None:
    name = operator.wait("a")
    before = operator.process().grants

    ended = operator.run("request", "cancel", "a", "--yes", "--json")

    row = operator.row(name)
    assert ended.json["cancelled"] == [{"process": "sample", "request_id": "a", "execution": name}]
    assert (row.state, row.code, row.queued) == ("CANCELLED", "Cancelled", None)
    assert row.reason.startswith("cancelled by arn:aws:")
    assert (operator.process().grants, row.is_unpublished) == (before + 1, True)
    assert operator.received("EndingQueue") == [{"process": "sample", "executions": [name]}]
    assert operator.rings() == [{"process": "sample"}]
    (line,) = operator.audited()
    assert (line["action"], line["process"], line["requests"]) == ("request cancel", "sample", ended.json["cancelled"])


def test_many_are_cancelled_in_few_transactions_and_few_messages(
    operator: Operator, calls: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole queue is read: a part of it that is cancelled as if it was all would be a wrong answer."""
    pages: list[int] = []
    queue = type(operator.rows).queue
    monkeypatch.setattr(type(operator.rows), "queue", lambda *asked: (pages.append(asked[2]), queue(*asked))[1])
    names = _queued(operator)
    calls.clear()
    ended = operator.run(*CANCEL, "--json")

    assert [each for each in calls if each[1]] == [("TransactWriteItems", number + 1) for number in (EACH, EACH, 2)]
    assert min(pages) > 1000
    assert [each["execution"] for each in ended.json["cancelled"]] == names
    assert operator.states() == {f"r{number:02}-1": "CANCELLED" for number in range(MANY)}
    sent = [each["executions"] for each in operator.received("EndingQueue")]
    assert ([len(each) for each in sent], {*sent[0], *sent[1]}) == ([SENT, MANY - SENT], set(names))
    assert operator.rings() == [{"process": "sample"}]
    assert operator.run(*CANCEL).exit_code == 4, "it is safe to repeat"


def test_failures_are_queued_in_their_order_by_few_transactions_with_one_ring(
    operator: Operator, calls: list[tuple[str, int]]
) -> None:
    names = _failed(operator)
    calls.clear()
    ended = operator.run(*REDRIVE, "--json")

    made = Counter(name for name, _ in calls)
    assert made == {"TransactWriteItems": 3, "BatchGetItem": 3, "Query": 1, "Scan": 1}
    assert [row.request_id for row in operator.rows.queue("sample").rows] == [f"r{number:02}" for number in range(MANY)]
    assert [one["execution"] for one in ended.json["redriven"]] == names
    assert {operator.row(name).state for name in names} == {"REDRIVEN"}
    assert ended.json["redriven"][0]["next"] == execution_name("sample", "r00", 2)
    assert operator.rings() == [{"process": "sample"}]
    audited = [(line["action"], len(line["requests"])) for line in operator.audited()]
    assert audited == [("failed redrive", 10), ("failed redrive", 2)]
    assert operator.run("failed", "list").stdout == "No failures.\n"


def test_a_discarded_failure_loses_its_content_and_leaves_the_list(operator: Operator) -> None:
    names = _failed(operator)
    ended = operator.run("failed", "discard", *names[:7], "--yes", "--json")

    rows = [operator.row(name) for name in names]
    assert [one["execution"] for one in ended.json["discarded"]] == names[:7]
    shown = [(row.state, bool(row.body), row.failed is None) for row in rows]
    assert shown == [*[("FAILED", False, True)] * 7, *[("FAILED", True, False)] * 5]
    assert operator.run("failed", "list", "--json").json["failures"] == MANY - 7
    assert operator.rings() == []
    assert "It was discarded." in operator.run("explain", "r00").stdout


# What another one changes meanwhile -----------------------------------------------------------------------------------


def test_what_starts_meanwhile_is_named_and_the_rest_cancelled(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [operator.wait(each) for each in "abc"]
    leave = RequestTable.leave

    def after_a_grant(self: RequestTable, *arguments: Any) -> Any:
        operator.start(names[1], started=False, confirmed=False)
        return leave(self, *arguments)

    monkeypatch.setattr(RequestTable, "leave", after_a_grant)
    ended = operator.run("request", "cancel", *"abc", "--yes", "--json")

    assert ended.exit_code == 1
    assert [one["request_id"] for one in ended.json["cancelled"]] == ["a", "c"]
    assert [(one["request_id"], one["why"]) for one in ended.json["left"]] == [("b", STARTS)]
    assert operator.states() == {"a-1": "CANCELLED", "b-1": "QUEUED", "c-1": "CANCELLED"}


def test_what_was_redriven_since_the_list_was_read_is_left_with_the_reason(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = _failed(operator)
    redrive, number = Requeues.redrive, count()

    def after_another(self: Requeues, process: str, executions: Any, now: float, deadline: Any) -> Any:
        if next(number) == 0:
            redrive(self, process, executions[:2], now, deadline)
        return redrive(self, process, executions, now, deadline)

    monkeypatch.setattr(Requeues, "redrive", after_another)
    ended = operator.run(*REDRIVE)

    assert ended.exit_code == 0
    assert f"left: r00, r01: it was redriven before\n{MANY - 2} requests redriven, 2 left." in ended.stdout
    assert len(operator.rows.queue("sample").rows) == MANY
    assert {operator.row(name).state for name in names} == {"REDRIVEN"}


@pytest.mark.parametrize(("published", "exit_code"), [(True, 0), (False, 3)])
def test_a_redrive_waits_some_seconds_for_an_end_that_is_not_published_yet(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, published: bool, exit_code: int
) -> None:
    """An operator cancels a request, and redrives it."""
    name, polls = operator.wait("a"), list[float]()
    assert operator.run("request", "cancel", "a", "--yes").exit_code == 0

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if published and len(polls) == 2:
            operator.publish(name)

    replace_time(monkeypatch, requeueing, sleep=sleep)
    ended = operator.run("failed", "redrive", "a", "--yes")

    assert (ended.exit_code, len(polls)) == (exit_code, 2 if published else READS)
    assert "Waiting up to 10 s until 1 end is published." in ended.stderr
    assert ("left: a: its end is not published yet: try again in a minute" in ended.stderr) != published
    assert operator.states().get("a-2") == ("QUEUED" if published else None)


def test_a_redrive_waits_for_no_end_that_it_cannot_redrive(operator: Operator) -> None:
    operator.succeed(operator.hold("a"))
    refused = operator.refuses("failed", "redrive", "a", "--yes")
    assert refused == "slotkeeper: nothing was redriven:\nleft: a: it is succeeded\n"


# What AWS refuses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "command", "verb", "state"),
    [(_queued, CANCEL, "cancelled", "CANCELLED"), (_failed, REDRIVE, "redriven", "REDRIVEN")],
    ids=["cancel", "redrive"],
)
def test_a_transaction_that_is_refused_again_and_again_leaves_the_rest(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, make: Any, command: tuple[str, ...], verb: str, state: str
) -> None:
    names = make(operator)
    monkeypatch.setattr(RowChange, "parts", 1)
    with _after(1, THROTTLE):
        ended = operator.run(*command, "--json")

    assert (ended.exit_code, len(ended.json[verb])) == (1, EACH)
    assert f"{EACH} of {MANY} requests {verb}, then TransactWriteItems failed with ThrottlingException" in ended.stderr
    assert [operator.row(name).state for name in names].count(state) == EACH
    assert operator.rings() == [{"process": "sample"}]
    assert operator.run(*command).exit_code == 0
    assert {operator.row(name).state for name in names} == {state}


def test_a_cancellation_whose_answer_was_lost_counts(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore repeats a call whose answer is lost: the transaction is then refused, since it was written."""
    operator.wait("a")
    leave = RequestTable.leave
    monkeypatch.setattr(RequestTable, "leave", lambda *asked: (leave(*asked), leave(*asked))[1])
    ended = operator.run("request", "cancel", "a", "--yes", "--json")
    assert (ended.exit_code, len(ended.json["cancelled"])) == (0, 1)


def test_an_interrupted_run_states_what_was_done_and_lets_it_be_published(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _queued(operator)
    leave, number = RequestTable.leave, count()

    def interrupt(self: RequestTable, *arguments: Any) -> Any:
        if next(number):
            raise KeyboardInterrupt
        return leave(self, *arguments)

    monkeypatch.setattr(RequestTable, "leave", interrupt)
    ended = operator.run(*CANCEL)

    assert ended.exit_code == 130
    assert f"{EACH} of {MANY} requests cancelled: run this again for the rest." in ended.stderr
    assert [len(each["executions"]) for each in operator.received("EndingQueue")] == [EACH]


def test_a_message_that_cannot_be_sent_is_left_to_the_janitor(operator: Operator) -> None:
    operator.wait("a")
    refuse(operator.sqs, "SendMessage", "ServiceUnavailable")
    ended = operator.run("request", "cancel", "a", "--yes")
    assert (ended.exit_code, operator.states()) == (0, {"a-1": "CANCELLED"})
    assert "No message could be sent for sample: the janitor does the rest in its next run." in ended.stderr


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_stop_aborts_the_execution_and_one_that_fails_leaves_the_report(operator: Operator, is_denied: bool) -> None:
    name = operator.hold("a")
    operator.wait("b")
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    with StubbedCalls("stepfunctions", {"StopExecution": lambda _: denied if is_denied else None}):
        ended = operator.run("request", "cancel", "a", "b", "--stop", "--yes", "--json")

    stopped, (first, second) = operator.workflow.describe(name), operator.audited()
    assert stopped is not None
    assert (first["requests"][0]["request_id"], second["stop"], second["request_id"]) == ("b", True, "a")
    assert [one["request_id"] for one in ended.json["cancelled"]] == ["b"]
    if is_denied:
        assert (ended.exit_code, ended.json["stopped"], stopped.status) == (1, [], "RUNNING")
        assert "1 of 1 request cancelled, then StopExecution failed with AccessDeniedException" in ended.stderr
    else:
        assert (ended.exit_code, stopped.status) == (0, "ABORTED")
        assert [one["execution"] for one in ended.json["stopped"]] == [name]


# Failures -------------------------------------------------------------------------------------------------------------


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
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failed(operator)
    monkeypatch.setattr(failures, "MAX_PAGES", 1)
    page: Any = {"IndexName": "failed", "Limit": 10}
    add = lambda params, **_: params.update(page) if params.get("IndexName") == "failed" else None  # noqa: E731
    operator.dynamodb.meta.events.register("provide-client-params.dynamodb.Query", add)
    ended = operator.run(*REDRIVE)
    operator.dynamodb.meta.events.unregister("provide-client-params.dynamodb.Query", add)
    assert ended.exit_code == 0
    assert "10 requests redriven, 0 left.\nNot read: RequestTable: there are more than 10 failures, and" in ended.stdout
    assert [*operator.states().values()].count("REDRIVEN") == 10


def test_a_content_or_a_history_that_must_not_be_read_is_named_and_the_rest_shown(operator: Operator) -> None:
    fail(operator)
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    asks = lambda asked: denied if asked.get("ProjectionExpression") == "body" else None  # noqa: E731
    with StubbedCalls("dynamodb", {"GetItem": asks}):
        ended = operator.run("failed", "show", "a")
    assert ended.exit_code == 0
    assert "reason: the job failed" in ended.stdout
    assert "body:" not in ended.stdout
    assert "Not read: content: GetItem failed with AccessDeniedException" in ended.stdout
    with StubbedCalls("dynamodb", {"Query": lambda asked: denied if asked.get("IndexName") == "ended" else None}):
        listed = operator.run("failed", "list")
    assert "Glue.Failed: the job failed\n1 failure in 1 group.\nNot read: RequestTable, index ended: " in listed.stdout


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
