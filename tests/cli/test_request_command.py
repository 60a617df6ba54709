"""`slotkeeper request`: what became of one, and keeping it from running."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotkeeper.slots.admission import DeadLettered, Starter, Waiting
from slotkeeper.slots.cancellation import MAX_CANCELLATIONS
from slotkeeper.slots.request import Delivery, execution_name, parse_request
from slotkeeper_cli.commands import request
from tests.cli.operator_account import Operator
from tests.cli.queue_contents import fail, send_dead_letter, waiting

NOW = 1_790_000_000.0


def _show(operator: Operator, request_id: str = "a", *options: str) -> Any:
    (shown,) = operator.run("request", "show", request_id, *options, "--json").json["found"]
    return shown


def _attempt(operator: Operator, request_id: str = "a", *options: str) -> Any:
    (attempt,) = _show(operator, request_id, *options)["attempts"]
    return attempt


def _ended(operator: Operator) -> None:
    """A request that has run, and failed."""
    name = operator.hold("a")
    operator.slots.release("sample", name, operator.process().holders[name].raw)
    operator.stop(name)


def _starter(operator: Operator) -> Starter:
    return Starter(operator.slots, operator.queue, operator.workflow, 180, 1_209_600, 1000)


def _receive(operator: Operator) -> Delivery:
    """As the event source mapping does it."""
    (received,) = operator.sqs.receive_message(
        QueueUrl=operator.outputs["RequestQueueUrl"], VisibilityTimeout=180, AttributeNames=["All"]
    )["Messages"]
    return Delivery(
        received["MessageId"],
        received["Body"],
        received["Attributes"]["MessageGroupId"],
        received["ReceiptHandle"],
        received["Attributes"]["SequenceNumber"],
        int(received["Attributes"]["ApproximateReceiveCount"]),
        NOW,
    )


def _wait_first(operator: Operator, request_id: str = "a") -> str:
    """A request that is registered as the first that waits."""
    operator.processes.set_limit("sample", 0)
    operator.send(request_id)
    assert isinstance(_starter(operator).admit(_receive(operator), NOW), Waiting)
    return execution_name("sample", request_id, 1)


# Showing -----------------------------------------------------------------------------------------------------------


def test_one_that_runs_is_shown_with_its_slot_its_glue_run_and_its_link(operator: Operator) -> None:
    name = operator.hold("a")
    run = operator.run_glue(name)
    attempt = _attempt(operator)
    assert (attempt["state"], attempt["attempt"], attempt["execution"]) == ("running", 1, name)
    assert attempt["since"] == "2026-09-21T14:13:20Z"
    assert attempt["glue_run"] == {"id": run, "state": "RUNNING"}
    assert attempt["link"].endswith(name)


@pytest.mark.parametrize(("started", "confirmed"), [(False, False), (True, False)])
def test_one_that_has_reserved_its_slot_is_starting(operator: Operator, started: bool, confirmed: bool) -> None:
    operator.hold("a", started=started, confirmed=confirmed)
    assert _attempt(operator)["state"] == "starting"


def test_one_that_waits_first_is_shown_as_that(operator: Operator) -> None:
    name = _wait_first(operator)
    attempt = _attempt(operator)
    assert (attempt["state"], attempt["execution"], attempt["since"]) == ("waiting", name, "2026-09-21T14:13:20Z")


def test_one_that_is_over_says_how_and_where_its_request_is(operator: Operator) -> None:
    name = operator.hold("a")
    operator.slots.release("sample", name, operator.process().holders[name].raw)
    assert _attempt(operator)["state"] == "finishing"
    operator.stop(name)
    fail(operator)
    attempt = _attempt(operator)
    assert (attempt["state"], attempt["status"]) == ("failed", "ABORTED")
    assert attempt["dead_letter"]["queue"] == "FailedRequestQueue"
    assert "next_attempt" not in _show(operator)


def test_a_failed_one_whose_dead_letter_is_gone_may_be_queued_again(operator: Operator) -> None:
    _ended(operator)
    again = _show(operator)["next_attempt"]
    assert again == {"attempt": 2, "execution": execution_name("sample", "a", 2), "state": "perhaps queued"}


def test_a_dead_lettered_one_says_why_and_its_later_attempts_are_found_too(operator: Operator) -> None:
    send_dead_letter(operator)
    body = json.dumps({"process": "sample", "request_id": "a", "attempt": 2})
    operator.workflow.start(parse_request(Delivery("m", body, "sample", "", "0", 1, NOW)))
    shown = _show(operator)
    assert [(one["attempt"], one["state"]) for one in shown["attempts"]] == [(1, "dead-lettered"), (2, "finishing")]
    assert shown["attempts"][0]["dead_letter"]["reason"] == "because of Expired"


def test_it_is_found_by_its_execution_and_by_its_message_too(operator: Operator) -> None:
    name = operator.hold("a")
    assert _show(operator, name)["request_id"] == "a"
    send_dead_letter(operator, '{"process": "sample"}', message_id="m-9")
    assert _attempt(operator, "m-9")["state"] == "dead-lettered"
    assert _attempt(operator, execution_name("sample", "m-9", 1))["dead_letter"]["request_id"] == "m-9"
    assert operator.run("request", "show", "sample-" + "0" * 32).exit_code == 4


def test_the_same_id_in_two_processes_is_two_requests(operator: Operator) -> None:
    operator.processes.create("other", 1, "sample-job")
    operator.hold("a")
    operator.hold("a", "other")
    shown = operator.run("request", "show", "a", "--json").json["found"]
    assert {one["process"] for one in shown} == {"sample", "other"}
    assert _show(operator, "a", "--process", "other")["process"] == "other"
    assert operator.run("request", "show", "a", "--process", "nobody").exit_code == 4


def test_of_an_unknown_request_the_possibilities_are_shown(operator: Operator) -> None:
    _wait_first(operator, "other")
    ended = operator.run("request", "show", "a", "--json")
    assert (ended.exit_code, ended.json["found"], ended.json["queued_messages"]) == (0, [], 1)
    assert execution_name("sample", "other", 1) in ended.json["may_be"][0]
    assert "it was never sent" in operator.run("request", "show", "a").stdout


def test_with_an_empty_queue_it_is_not_found(operator: Operator) -> None:
    ended = operator.run("request", "show", "a", "--json")
    assert ended.exit_code == 4
    assert len(ended.json["may_be"]) == 3


def test_the_text_output_shows_the_same(operator: Operator) -> None:
    name = operator.hold("a")
    operator.run_glue(name)
    send_dead_letter(operator, '{"process": "sample", "request_id": "a", "attempt": 2}')
    shown = operator.run("request", "show", "a").stdout
    for text in ("a in sample: dead-lettered", f"attempt 1: running  {name}", "glue run: RUNNING jr_0", "because of"):
        assert text in shown


# Cancelling --------------------------------------------------------------------------------------------------------


def test_a_queued_request_is_cancelled_and_dead_lettered_by_the_starter(operator: Operator) -> None:
    operator.send("a")
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes", "--json")
    assert ended.exit_code == 0
    assert (ended.json["cancelled"], ended.json["attempt"]) == (execution_name("sample", "a", 1), 1)
    assert _attempt(operator)["state"] == "cancelled"
    outcome = _starter(operator).admit(_receive(operator), NOW)
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason.startswith("cancelled by ")
    attempt = _attempt(operator)
    assert (attempt["state"], attempt["dead_letter"]["code"]) == ("dead-lettered", "Cancelled")
    (line,) = operator.audited()
    assert (line["action"], line["execution"]) == ("request cancel", execution_name("sample", "a", 1))


def test_the_first_waiting_request_is_woken_immediately(operator: Operator) -> None:
    _wait_first(operator)
    assert waiting(operator, "RequestQueue") == []
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes", "--json")
    assert ended.json["was_first"] is True
    assert len(waiting(operator, "RequestQueue")) == 1


def test_without_a_yes_nothing_is_cancelled(operator: Operator) -> None:
    ended = operator.run("request", "cancel", "a", "--process", "sample")
    assert ended.exit_code == 3
    assert "It has not been received yet" in ended.stderr
    assert operator.process().cancelled == {}


def test_without_an_audit_line_nothing_is_cancelled(operator: Operator) -> None:
    operator.logs.delete_log_group(logGroupName=operator.outputs["AuditLogGroupName"])
    assert operator.run("request", "cancel", "a", "--process", "sample", "--yes").exit_code == 3
    assert operator.process().cancelled == {}


def test_one_that_runs_is_stopped_only_with_stop(operator: Operator) -> None:
    name = operator.hold("a")
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "Give --stop" in ended.stderr
    assert operator.workflow.describe(name).status == "RUNNING"  # type: ignore[union-attr]
    assert operator.run("request", "cancel", "a", "--process", "sample", "--stop").exit_code == 3, "nobody confirmed"
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--stop", "--yes", "--json")
    assert ended.json["stopped"] == name
    stopped = operator.workflow.describe(name)
    assert stopped is not None
    assert stopped.status == "ABORTED"
    assert operator.process().cancelled == {}
    assert [(line["action"], line["stop"]) for line in operator.audited()] == [("request cancel", True)]


def test_one_that_is_starting_is_left_alone(operator: Operator) -> None:
    operator.hold("a", confirmed=False)
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--stop", "--yes")
    assert ended.exit_code == 3
    assert "is being started" in ended.stderr


def test_one_that_takes_its_slot_meanwhile_is_not_cancelled(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.send("a")
    monkeypatch.setattr(request, "audit", lambda *_, **__: _starter(operator).admit(_receive(operator), NOW))
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "has reserved a slot meanwhile" in ended.stderr
    assert operator.process().cancelled == {}


def test_one_that_runs_and_ends_while_the_command_looks_is_not_called_cancelled(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note would call a late redelivery cancelled, of a request that has run."""
    monkeypatch.setattr(request, "audit", lambda *_, **__: _ended(operator))
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "has run meanwhile (ABORTED)" in ended.stderr
    assert operator.process().cancelled == {}


@pytest.mark.parametrize("where", ["dead letter", "failed", "finishing"])
def test_one_that_is_not_queued_any_more_is_refused(operator: Operator, where: str) -> None:
    if where == "dead letter":
        send_dead_letter(operator)
    else:
        name = operator.hold("a")
        operator.slots.release("sample", name, operator.process().holders[name].raw)
        if where == "failed":
            operator.stop(name)
            fail(operator)
    assert operator.run("request", "cancel", "a", "--process", "sample", "--yes").exit_code == 3
    assert operator.process().cancelled == {}


@pytest.mark.parametrize(
    ("options", "attempt"), [((), 2), (("--attempt", "2"), 2), (("--attempt", "5"), 5)], ids=["", "2", "5"]
)
def test_the_attempt_that_may_be_queued_is_the_one_after_the_last_that_ran(
    operator: Operator, options: tuple[str, ...], attempt: int
) -> None:
    _ended(operator)
    operator.run("request", "cancel", "a", "--process", "sample", *options, "--yes")
    assert set(operator.process().cancelled) == {execution_name("sample", "a", attempt)}


def test_an_attempt_that_has_failed_cannot_be_cancelled(operator: Operator) -> None:
    _ended(operator)
    assert operator.run("request", "cancel", "a", "--process", "sample", "--attempt", "1", "--yes").exit_code == 3


def test_cancelled_twice_is_cancelled_once(operator: Operator) -> None:
    for _ in range(2):
        assert operator.run("request", "cancel", "a", "--process", "sample", "--yes").exit_code == 0
    assert set(operator.process().cancelled) == {execution_name("sample", "a", 1)}


def test_of_one_that_may_have_been_redriven_it_says_how_to_cancel_the_attempt_that_waits(operator: Operator) -> None:
    """Its letter is gone, so nothing tells whether the attempt after the cancelled one is on the queue."""
    cancel = ("request", "cancel", "a", "--process", "sample", "--yes")
    assert "--attempt 2" in operator.run(*cancel).stderr
    assert "--attempt 2" in operator.run(*cancel).stderr
    ended = operator.run(*cancel, "--attempt", "2", "--json")
    assert ended.json["attempt"] == 2
    assert "--attempt" not in ended.stderr


def test_there_is_an_end_to_how_many_are_cancelled(operator: Operator) -> None:
    operator.dynamodb.update_item(
        TableName=operator.outputs["SlotTableName"],
        Key={"process_name": {"S": "sample"}},
        UpdateExpression="SET cancelled = :noted",
        ExpressionAttributeValues={
            ":noted": {"M": {f"x-{n}": {"M": {"since": {"N": "1"}}} for n in range(MAX_CANCELLATIONS)}}
        },
    )
    ended = operator.run("request", "cancel", "a", "--process", "sample", "--yes")
    assert ended.exit_code == 3
    assert "100 cancelled requests" in ended.stderr


def test_of_a_process_that_is_not_there_nothing_is_cancelled(operator: Operator) -> None:
    assert operator.run("request", "cancel", "a", "--process", "nobody", "--yes").exit_code == 4
    operator.processes.create("other", 1, "sample-job")
    name = operator.hold("a")
    assert operator.run("request", "cancel", name, "--process", "other", "--yes").exit_code == 4
