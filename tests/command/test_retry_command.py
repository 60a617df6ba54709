"""`slotkeeper retry`: list, cancel and run-now, as text and as JSON."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.message import Message
from slotkeeper.retry.operations import RetryOperations
from slotkeeper_cli.commands import retry
from tests.command.account_contents import retry_work, start_work
from tests.command.operator_account import Operator, client

HOUR = 3600.0


class Waiting:
    """Requests whose first attempt failed, and whose second attempt waits."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.ledger = Ledger(operator.dynamodb, operator.outputs["RequestLedgerTableName"])
        self.url = operator.outputs["WorkQueueUrl"]
        self.sqs = operator.sqs
        arn = operator.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        schedules = ScheduleTarget(
            operator.outputs["RetryScheduleGroupName"],
            "arn:aws:iam::123456789012:role/schedules",
            arn["Attributes"]["QueueArn"],
            "arn:aws:sqs:us-east-1:123456789012:schedules-dead",
        )
        self.queue = RetryQueue(operator.sqs, client("scheduler"), self.url, schedules)
        self.group = schedules.group

    def fail(self, request_id: str, due_in: float, booked: bool = True, error: str = "HTTP 503") -> Message:
        """Fail a request whose next attempt is due in some seconds; negative if it is overdue."""
        now = time.time()
        first = Message(request_id, {"city": "Oslo"})
        retry_work(self.operator, first, now - HOUR, now + due_in, error)
        second = first.after(now - HOUR)
        if booked:
            self.queue.schedule(second, now + due_in, now)
        return second

    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the visible messages of WorkQueue."""
        messages = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", [])
        return [json.loads(message["Body"]) for message in messages]

    def schedules(self) -> list[str]:
        listed = client("scheduler").list_schedules(GroupName=self.group)["Schedules"]
        return [one["Name"] for one in listed]

    def status(self, request_id: str) -> str:
        row = self.ledger.read(request_id)
        assert row is not None
        return row.status


@pytest.fixture
def waiting(operator: Operator) -> Waiting:
    return Waiting(operator)


def test_an_id_with_brackets_is_printed_unchanged(operator: Operator, waiting: Waiting) -> None:
    """With markup, rich would drop `[b]`, and fail on `[/b]` after the change was made."""
    for name in ("order[b]1", "order[/b]2", "order[/b]3"):
        waiting.fail(name, 2 * HOUR)

    assert "order[b]1" in operator.run("retry", "list").stdout
    assert "order[/b]2" in operator.run("retry", "cancel", "order[/b]2", "--yes").stdout
    assert "order[/b]3" in operator.run("retry", "run-now", "order[/b]3").stdout


# list --------------------------------------------------------------------------------------------------------------


def test_list_shows_waiting_requests_with_their_delivery_earliest_first(operator: Operator, waiting: Waiting) -> None:
    waiting.fail("by-scheduler", 2 * HOUR)
    waiting.fail("by-queue", 300)
    waiting.fail("late", -HOUR, booked=False, error="[bold]not markup")
    ended = operator.run("retry", "list", "--json")
    assert ended.exit_code == 0
    listed = [(one["request_id"], one["by"], one["attempt"], one["last_error"]) for one in ended.json["retries"]]
    assert listed == [
        ("late", "unknown", 2, "[bold]not markup"),
        ("by-queue", "queue", 2, "HTTP 503"),
        ("by-scheduler", "schedule", 2, "HTTP 503"),
    ]
    assert ended.json["retries"][0]["overdue_seconds"] == pytest.approx(HOUR, abs=60)
    assert ended.json["retries"][2]["overdue_seconds"] is None
    assert (ended.json["not_shown"], ended.json["unreadable"]) == (0, [])
    shown = operator.run("retry", "list").stdout
    assert all(text in shown for text in ("overdue by 1 h", "unknown", "the queue", "Scheduler", "[bold]not markup"))


def test_list_counts_retries_above_the_limit(operator: Operator, waiting: Waiting) -> None:
    for number in (1, 2, 3):
        waiting.fail(f"r{number}", number * HOUR)
    ended = operator.run("retry", "list", "--limit", "1", "--json")
    assert [one["request_id"] for one in ended.json["retries"]] == ["r1"]
    assert ended.json["not_shown"] == 2
    assert "2 more, due later" in operator.run("retry", "list", "--limit", "1").stdout


def test_list_overdue_leaves_out_retries_within_the_tolerance(operator: Operator, waiting: Waiting) -> None:
    waiting.fail("late", -HOUR, booked=False)
    waiting.fail("a-little-late", 10 - retry.OVERDUE_AFTER, booked=False)
    ended = operator.run("retry", "list", "--overdue", "--json")
    assert [one["request_id"] for one in ended.json["retries"]] == ["late"]


def test_the_advised_command_sends_a_request_that_is_named_as_an_option_alone(
    operator: Operator, waiting: Waiting
) -> None:
    waiting.fail("--overdue", HOUR)
    waiting.fail("victim", -HOUR, booked=False)
    step = operator.run("explain", "--json", "--", "--overdue").json["next"][0]
    assert operator.run(*shlex.split(step)[1:]).exit_code == 0
    assert [body["request_id"] for body in waiting.bodies()] == ["--overdue"]


def test_list_names_a_malformed_row(operator: Operator) -> None:
    item = {"request_id": {"S": "odd"}, "status": {"S": "WAITING"}}
    operator.dynamodb.put_item(TableName=operator.outputs["RequestLedgerTableName"], Item=item)
    ended = operator.run("retry", "list", "--json")
    assert "item 'odd'" in ended.json["unreadable"][0]


# cancel ------------------------------------------------------------------------------------------------------------


def test_cancel_records_the_plan_sends_the_message_and_deletes_the_schedule(
    operator: Operator, waiting: Waiting
) -> None:
    waiting.fail("r", HOUR)
    ended = operator.run("retry", "cancel", "r", "--why", "the customer left", "--yes", "--json")
    assert (ended.exit_code, ended.json) == (0, {"cancelled": "r", "attempt": 2, "sent": True})
    row = waiting.ledger.read("r")
    assert row is not None
    assert (row.status, row.plan) == (
        "FAILED",
        {"code": "Cancelled", "reason": "attempt 2 was cancelled before it started: the customer left"},
    )
    assert [body["request_id"] for body in waiting.bodies()] == ["r"]
    assert waiting.schedules() == []
    audited = operator.audited()[0]
    assert (audited["action"], audited["request_id"], audited["why"]) == ("retry cancel", "r", "the customer left")


def test_cancel_of_a_delayed_message_takes_effect_on_delivery(operator: Operator, waiting: Waiting) -> None:
    waiting.fail("r", 300)
    ended = operator.run("retry", "cancel", "r", "--yes")
    assert ended.exit_code == 0
    assert "when its message is delivered" in ended.stdout
    assert operator.run("retry", "list", "--json").json["retries"][0]["cancelled"] is True
    assert "cancelled" in operator.run("retry", "list").stdout


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", "no attempt waits: attempt 1 started at"),
        ("FAILED", "attempt 1 failed (bad), and the next delivery of its message carries out what was decided"),
        ("SUCCEEDED", "attempt 1 succeeded. Nothing was changed."),
        ("DEAD_LETTERED", "1 attempt made, then dead-lettered: bad. Its message is in WorkDeadLetterQueue"),
    ],
)
@pytest.mark.parametrize("step", ["cancel", "run-now"])
def test_cancel_and_run_now_are_refused_if_no_attempt_waits(
    operator: Operator, waiting: Waiting, step: str, state: str, expected: str
) -> None:
    message = Message("r", {})
    _, claim = start_work(operator, message, time.time())
    if state in ("FAILED", "DEAD_LETTERED"):
        waiting.ledger.record(message, claim, {"code": "Poison", "reason": "bad"}, "bad")
    if state == "DEAD_LETTERED":
        waiting.ledger.settle_dead_lettered(message, claim)
    if state == "SUCCEEDED":
        waiting.ledger.settle_succeeded(message, claim, "{}")
    assert expected in operator.refuses("retry", step, "r", "--yes")


@pytest.mark.parametrize("step", ["cancel", "run-now"])
def test_cancel_and_run_now_are_refused_if_the_attempt_starts_meanwhile(
    operator: Operator, waiting: Waiting, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = waiting.fail("r", HOUR)
    name = step.replace("-", "_")
    real = getattr(RetryOperations, name)

    def late(self: Any, *arguments: Any) -> Any:
        waiting.ledger.claim(second, "a worker's", time.time(), 125)
        return real(self, *arguments)

    monkeypatch.setattr(RetryOperations, name, late)
    ended = operator.run("retry", step, "r", "--yes")
    assert ended.exit_code == 3
    assert "attempt 2 started at" in ended.stderr


# run-now -----------------------------------------------------------------------------------------------------------


def test_run_now_sends_a_scheduled_attempt(operator: Operator, waiting: Waiting) -> None:
    second = waiting.fail("r", HOUR)
    ended = operator.run("retry", "run-now", "r", "--json")
    assert (ended.exit_code, ended.json) == (0, {"sent": "r", "attempt": 2})
    assert waiting.bodies() == [json.loads(second.to_json())]
    assert (waiting.schedules(), waiting.status("r")) == ([], "WAITING")
    assert operator.audited()[0]["action"] == "retry run-now"


def test_run_now_needs_the_payload_of_a_delayed_message(operator: Operator, waiting: Waiting, tmp_path: Path) -> None:
    second = waiting.fail("r", 300)
    refused = operator.run("retry", "run-now", "r")
    assert refused.exit_code == 3
    assert "is delivered in 4 min" in refused.stderr
    payload = tmp_path / "payload.json"
    payload.write_text('{"city": "Oslo"}')
    assert operator.run("retry", "run-now", "r", "--payload", str(payload)).exit_code == 0
    assert waiting.bodies() == [json.loads(second.to_json())]


@pytest.mark.parametrize("text", ["[1]", "not JSON"])
def test_run_now_rejects_an_invalid_payload_file(operator: Operator, waiting: Waiting, text: str) -> None:
    waiting.fail("r", HOUR)
    assert operator.run("retry", "run-now", "r", "--payload", "-", stdin=text).exit_code == 2
    assert operator.run("retry", "run-now", "r", "--payload", "/no/such/file").exit_code == 2


def test_run_now_overdue_sends_scheduled_attempts_and_names_the_others(operator: Operator, waiting: Waiting) -> None:
    second = waiting.fail("scheduled", -HOUR, booked=False)
    now = time.time()
    waiting.queue.schedule(second, now + HOUR, now)  # EventBridge Scheduler is late
    waiting.fail("lost", -HOUR, booked=False)
    waiting.fail("in-time", HOUR)
    ended = operator.run("retry", "run-now", "--overdue", "--yes", "--json")
    assert ended.exit_code == 5
    assert ended.json == {"sent": ["scheduled"], "out_of_reach": ["lost"], "unreadable": []}
    assert "lost: attempt 2 is 1 h" in ended.stderr
    assert [body["request_id"] for body in waiting.bodies()] == ["scheduled"]


def test_cancel_with_payload_dead_letters_a_request_whose_message_is_lost(operator: Operator, waiting: Waiting) -> None:
    waiting.fail("r", -HOUR, booked=False)
    first = operator.run("retry", "cancel", "r", "--yes")
    assert "if it is lost, run this again with --payload FILE" in first.stdout
    assert (
        "the attempt was cancelled, and its message was not delivered"
        in operator.run("retry", "run-now", "--overdue").stderr
    )
    other = operator.run("retry", "cancel", "r", "--yes", "--payload", "-", stdin='{"city": "Rome"}')
    assert (other.exit_code, waiting.bodies()) == (3, [])
    again = operator.run("retry", "cancel", "r", "--yes", "--json", "--payload", "-", stdin='{"city": "Oslo"}')
    assert again.json == {"cancelled": "r", "attempt": 2, "sent": True}
    assert [len(body["retries"]) for body in waiting.bodies()] == [1]


def test_list_and_run_now_without_retries(operator: Operator, waiting: Waiting) -> None:
    listed = operator.run("retry", "list")
    assert (listed.exit_code, listed.stdout) == (0, "No request waits for another attempt.\n")
    waiting.fail("in-time", HOUR)
    ended = operator.run("retry", "run-now", "--overdue")
    assert (ended.exit_code, ended.stdout, operator.audited()) == (0, "No attempt is overdue.\n", [])
