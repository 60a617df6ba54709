"""`slotkeeper request cancel`: what is written, sent and audited, and what a refused write leaves."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from slotkeeper.slots import ending_queue
from slotkeeper.slots.request_table import RequestTable
from slotkeeper_cli import bulk, cancellation
from slotkeeper_cli.bulk import WAITS
from tests.cli.operator_account import Operator, StubbedCalls
from tests.support.boundary import refuse
from tests.support.module_time import replace_time

ALL = ("request", "cancel", "--process", "sample", "--all", "--yes")
# Requests of a transaction, and of a message to EndingQueue; moto takes a second for a transaction of 50.
EACH, SENT = 5, 10
MANY = 3 * EACH - 1


@pytest.fixture
def many(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The executions of queued requests that take three transactions, in the order of their queue."""
    monkeypatch.setattr(cancellation, "MAX_LEAVES", EACH)
    monkeypatch.setattr(ending_queue, "MAX_EXECUTIONS", SENT)
    return [operator.wait(f"r{number:03}") for number in range(MANY)]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the command has waited before it repeated a write."""
    seconds: list[float] = []
    replace_time(monkeypatch, bulk, sleep=seconds.append)
    return seconds


def test_a_cancelled_request_never_starts_and_its_end_is_to_be_published(operator: Operator) -> None:
    name = operator.wait("a")
    before = operator.process().grants

    ended = operator.run("request", "cancel", "a", "--yes", "--json")

    row = operator.row(name)
    assert ended.json["cancelled"] == [{"process": "sample", "request_id": "a", "execution": name}]
    assert (row.state, row.code, row.queued) == ("CANCELLED", "Cancelled", None)
    assert row.reason.startswith("cancelled by arn:aws:")
    assert operator.process().grants == before + 1
    assert row.is_unpublished
    assert operator.received("EndingQueue") == [{"process": "sample", "executions": [name]}]
    assert operator.rings() == [{"process": "sample"}]
    (line,) = operator.audited()
    assert (line["action"], line["process"], line["requests"]) == ("request cancel", "sample", ended.json["cancelled"])


def test_many_are_cancelled_in_few_transactions_and_few_messages(operator: Operator, many: list[str]) -> None:
    asked: list[int] = []
    event = "provide-client-params.dynamodb.TransactWriteItems"
    note = lambda params, **_: asked.append(len(params["TransactItems"]))  # noqa: E731
    operator.dynamodb.meta.events.register(event, note)
    ended = operator.run(*ALL, "--json")
    operator.dynamodb.meta.events.unregister(event, note)

    assert asked == [EACH + 1, EACH + 1, EACH]
    assert len(ended.json["cancelled"]) == MANY
    assert operator.rows.queue("sample").rows == []
    sent = [each["executions"] for each in operator.received("EndingQueue")]
    assert ([len(each) for each in sent], {*sent[0], *sent[1]}) == ([SENT, MANY - SENT], set(many))
    assert operator.rings() == [{"process": "sample"}]
    assert operator.run(*ALL).exit_code == 4, "it is safe to repeat"


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
    assert [(one["request_id"], one["why"]) for one in ended.json["left"]] == [
        ("b", "it has a slot, and starts: to stop it, give --stop in some seconds")
    ]
    assert operator.states() == {"a-1": "CANCELLED", "b-1": "QUEUED", "c-1": "CANCELLED"}


CONFLICT = {
    "Error": {"Code": "TransactionCanceledException", "Message": "conflict"},
    "CancellationReasons": [{"Code": "None"}, {"Code": "TransactionConflict"}],
}
THROTTLE = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}


@pytest.mark.parametrize("refused", [CONFLICT, THROTTLE], ids=["conflict", "throttle"])
def test_a_conflict_or_a_throttle_is_repeated(
    operator: Operator, waits: list[float], monkeypatch: pytest.MonkeyPatch, refused: dict[str, Any]
) -> None:
    operator.wait("a")
    monkeypatch.setattr("slotkeeper.aws.dynamodb.CONFLICT_WAITS", ())
    number = count()
    with StubbedCalls("dynamodb", {"TransactWriteItems": lambda _: refused if next(number) < 2 else None}):
        assert operator.run("request", "cancel", "a", "--yes").exit_code == 0
    assert (waits, operator.states()) == ([0.2, 0.4], {"a-1": "CANCELLED"})


def test_a_transaction_that_is_refused_again_and_again_leaves_the_rest(
    operator: Operator, many: list[str], waits: list[float]
) -> None:
    number = count()
    with StubbedCalls("dynamodb", {"TransactWriteItems": lambda _: THROTTLE if next(number) else None}):
        ended = operator.run(*ALL, "--json")

    assert (ended.exit_code, len(waits)) == (1, len(WAITS))
    assert len(ended.json["cancelled"]) == EACH
    assert (
        f"{EACH} of {MANY} requests cancelled, then TransactWriteItems failed with ThrottlingException" in ended.stderr
    )
    assert [len(each["executions"]) for each in operator.received("EndingQueue")] == [EACH]
    assert operator.run(*ALL).exit_code == 0
    assert {operator.row(name).state for name in many} == {"CANCELLED"}


def test_a_cancellation_whose_answer_was_lost_counts(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    operator.wait("a")
    leave, number = RequestTable.leave, count()

    def lose_the_first_answer(self: RequestTable, *arguments: Any) -> Any:
        left = leave(self, *arguments)
        if next(number) == 0:
            raise operator.dynamodb.exceptions.TransactionInProgressException(
                {"Error": {"Code": "TransactionInProgressException"}}, "TransactWriteItems"
            )
        return left

    monkeypatch.setattr(RequestTable, "leave", lose_the_first_answer)
    ended = operator.run("request", "cancel", "a", "--yes", "--json")

    assert (ended.exit_code, len(waits)) == (0, 1)
    assert [one["request_id"] for one in ended.json["cancelled"]] == ["a"]


@pytest.mark.usefixtures("many")
def test_an_interrupted_run_says_what_was_done_and_lets_it_be_published(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, number = RequestTable.leave, count()

    def interrupt(self: RequestTable, *arguments: Any) -> Any:
        if next(number):
            raise KeyboardInterrupt
        return leave(self, *arguments)

    monkeypatch.setattr(RequestTable, "leave", interrupt)
    ended = operator.run(*ALL)

    assert ended.exit_code == 130
    assert f"{EACH} of {MANY} requests cancelled: run this again for the rest." in ended.stderr
    assert [len(each["executions"]) for each in operator.received("EndingQueue")] == [EACH]


def test_a_message_that_cannot_be_sent_is_left_to_the_janitor(operator: Operator) -> None:
    operator.wait("a")
    refuse(operator.sqs, "SendMessage", "ServiceUnavailable")

    ended = operator.run("request", "cancel", "a", "--yes")

    assert (ended.exit_code, operator.states()) == (0, {"a-1": "CANCELLED"})
    assert "No message could be sent for sample: the janitor does the rest in its next run." in ended.stderr


def test_stop_aborts_the_execution_and_is_audited(operator: Operator) -> None:
    name = operator.hold("a")
    queued = operator.wait("b")

    ended = operator.run("request", "cancel", "a", "b", "--stop", "--yes", "--json")

    assert ([one["execution"] for one in ended.json["stopped"]], ended.exit_code) == ([name], 0)
    stopped = operator.workflow.describe(name)
    assert stopped is not None
    assert stopped.status == "ABORTED"
    assert operator.row(queued).state == "CANCELLED"
    first, second = operator.audited()
    assert first["requests"][0]["request_id"] == "b"
    assert (second["action"], second["stop"], second["request_id"]) == ("request cancel", True, "a")


def test_a_stop_that_fails_leaves_what_was_cancelled_in_the_report(operator: Operator) -> None:
    operator.hold("a")
    operator.wait("b")
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    with StubbedCalls("stepfunctions", {"StopExecution": lambda _: denied}):
        ended = operator.run("request", "cancel", "a", "b", "--stop", "--yes")
    assert (ended.exit_code, operator.states()) == (1, {"a-1": "STARTED", "b-1": "CANCELLED"})
    assert "1 request cancelled, 0 left." in ended.stdout
    assert "1 of 1 request cancelled, then StopExecution failed with AccessDeniedException" in ended.stderr


def test_the_filter_reads_the_whole_queue(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it that is cancelled as if it was all would be a wrong answer."""
    asked: list[int] = []
    queue = type(operator.rows).queue

    def note(self: Any, process: str, max_pages: int = 10) -> Any:
        asked.append(max_pages)
        return queue(self, process, max_pages)

    monkeypatch.setattr(type(operator.rows), "queue", note)
    operator.wait("a")
    operator.run(*ALL)
    assert min(asked) > 1000
