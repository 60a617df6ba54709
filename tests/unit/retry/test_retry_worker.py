"""The worker's handler: batches, metrics and logs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import boto3
import pytest

from slotkeeper import observability, retry
from slotkeeper.aws.sqs import size
from slotkeeper.retry import WorkRequest
from slotkeeper.retry import worker as retrying_worker
from slotkeeper.retry.consumer import TimeoutTooShort
from slotkeeper.settings import MEANINGS, MissingSetting, RetrySettings, load_settings
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import Killed, refuse
from tests.simulation.account.function_environment import CurrentStdout
from tests.unit.conftest import NOW, Load
from tests.unit.function_lines import Lines, written
from tests.unit.work_messages import invocation, record
from tests.unit.worker_function import WorkerFunction, work


class Worker(WorkerFunction):
    """The function, with its output."""

    def __init__(self, module: ModuleType, output: pytest.CaptureFixture[str]) -> None:
        super().__init__(module)
        self._output = output

    def output(self) -> Lines:
        """The lines written since the last call."""
        return written(self._output)

    def logged(self) -> Lines:
        return [line for line in self.output() if "message" in line]

    def metrics(self) -> dict[str, list[float]]:
        (emitted,) = [line for line in self.output() if "_aws" in line and "ColdStart" not in line]
        return {name: value for name, value in emitted.items() if name.startswith(("Work", "Retry"))}


@pytest.fixture
def start(
    work_account: AwsAccount,
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Worker]:
    """Start a container whose environment has these variables too."""

    def started(**environment: str) -> Worker:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return Worker(load("worker"), capsys)

    return started


@pytest.fixture
def worker(start: Callable[..., Worker]) -> Worker:
    return start()


def test_only_messages_that_must_return_are_reported(worker: Worker) -> None:
    refuse(worker.consumer.ledger._table.dynamodb, "UpdateItem", "Throttling")
    stays = worker.handle(
        work("throttled", message_id="m1"),
        work("done", message_id="m2"),
        work("poison", poison="bad", message_id="m3"),
        record("junk", "m4"),
        work("again", fails="not now", message_id="m5"),
    )
    assert stays == ["m1"]


def test_a_message_for_which_the_batch_has_left_no_time_stays(worker: Worker) -> None:
    left = iter([120.0, 10.0])
    context = invocation()
    context.get_remaining_time_in_millis = lambda: int(next(left) * 1000)
    answer = worker.module.handler({"Records": [work()]}, context)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert worker.metrics() == {"WorkHops": [1.0]}


def test_a_timeout_that_is_too_short_for_an_attempt_is_refused_with_what_is_needed(
    worker: Worker, work_account: AwsAccount
) -> None:
    expected = r"leaves 15\.9 s .* an attempt needs 16: .* Set Timeout to .* no attempt was made"
    with pytest.raises(TimeoutTooShort, match=expected):
        worker.handle(work(), left=15.9)
    assert boto3.client("dynamodb").scan(TableName="ledger")["Items"] == work_account.sent_to("work-dead") == []
    assert worker.handle(work(), left=16.1) == []


def test_a_fifo_queue_is_refused_when_the_handlers_module_is_loaded(
    work_account: AwsAccount, start: Callable[..., Worker]
) -> None:
    with pytest.raises(ValueError, match=r"work\.fifo is a FIFO queue, .* Expected a standard queue\. No message was"):
        start(WORK_QUEUE_URL="https://sqs/work.fifo")


def test_an_invocation_outside_the_template_writes_its_metrics_and_publishes_no_event(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler has no decorator, and the environment only what is required."""
    optional = ("EVENT_BUS_NAME", "RETRY_POLICY_PARAMETER", "SCHEDULER_BEYOND_SECONDS", "WORK_SECONDS")
    for name in (*optional, "POWERTOOLS_METRICS_NAMESPACE", "POWERTOOLS_SERVICE_NAME"):
        monkeypatch.delenv(name)
    for module in (observability, retrying_worker, retry):
        importlib.reload(module)
    observability.logger.handlers[0].setStream(CurrentStdout())
    observability.logger.setLevel("INFO")  # the simulation silences the logger without a service name
    worker = start()
    assert worker.handle(work(fails="not now")) == []
    lines = worker.output()
    (emitted,) = [line for line in lines if "_aws" in line and "ColdStart" not in line]
    assert emitted["WorkRetried"] == [1.0]
    assert emitted["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Slotkeeper"
    (logged,) = [line for line in lines if "message" in line]
    assert (logged["function_request_id"], logged["by"], worker.seconds) == ("1", "delay", 105.0)
    assert worker.worker._events is None


def test_the_key_of_a_request_is_ascii_and_its_own() -> None:
    ids = ["2026-11-21/eu", "注文-1", "a b", "a%20b", "a\r\nb", "ö" * 128]
    keys = [WorkRequest(each, {}).key for each in ids]
    assert all(key.isascii() and key.isprintable() and " " not in key for key in keys)
    assert [unquote(key) for key in keys] == ids


@pytest.mark.parametrize(
    ("received", "counted"),
    [
        (work(), {"WorkSucceeded": [1.0], "WorkHops": [1.0]}),
        (work(fails="not now"), {"WorkRetried": [1.0], "WorkHops": [1.0]}),
        (work(poison="bad"), {"WorkDeadLettered": [1.0], "WorkHops": [1.0]}),
        (record("junk"), {"WorkDeadLettered": [1.0]}),
        (
            record({"request_id": "r", "payload": {}, "retries": ["2027-01-15T08:00:00Z"] * 4}),
            {"WorkSucceeded": [1.0], "WorkHops": [5.0]},
        ),
    ],
    ids=["done", "retried", "poison", "no message", "attempt 5"],
)
def test_each_outcome_is_counted(worker: Worker, received: Any, counted: dict[str, list[float]]) -> None:
    assert worker.handle(received) == []
    assert worker.metrics() == counted


def _dead(worker: Worker) -> None:
    with pytest.raises(Killed):
        worker.handle(work(dies=True))


def _dead_and_expired(worker: Worker) -> None:
    _dead(worker)
    worker.at(NOW + 126)


@pytest.mark.parametrize(
    ("prepare", "payload", "stays", "counted"),
    [
        (lambda worker: worker.handle(work()), {}, [], {"WorkRepeated": [1.0]}),
        (_dead, {"dies": True}, ["m1"], {}),
        (_dead_and_expired, {"dies": True}, [], {"WorkRetried": [1.0], "WorkDied": [1.0]}),
        (
            lambda worker: refuse(worker.consumer.queue.sqs, "SendMessage", "Throttling"),
            {"fails": "not now"},
            ["m1"],
            {"WorkLeft": [1.0]},
        ),
        (
            lambda worker: refuse(worker.consumer.queue.scheduler, "CreateSchedule", "AccessDeniedException"),
            {"fails": "not now", "retry_after": 5000},
            [],
            {"RetryScheduleRefused": [1.0], "WorkRetried": [1.0]},
        ),
        (
            lambda worker: refuse(worker.consumer.policy.ssm, "GetParameter", "ParameterNotFound"),
            {"fails": "not now"},
            ["m1"],
            {"RetryPolicyInvalid": [1.0], "WorkLeft": [1.0]},
        ),
    ],
    ids=["a repeat", "a concurrent delivery", "a death", "an error of AWS", "a refused schedule", "no policy"],
)
def test_each_trouble_is_counted(
    worker: Worker,
    prepare: Callable[[Worker], Any],
    payload: dict[str, Any],
    stays: list[str],
    counted: dict[str, list[float]],
) -> None:
    prepare(worker)
    worker.output()
    assert worker.handle(work(**payload)) == stays
    assert worker.metrics() == {"WorkHops": [1.0], **counted}


def test_each_log_line_has_the_keys_of_its_own_message(worker: Worker) -> None:
    worker.handle(work("first", message_id="m1"), record("junk", "m2"), work("third", fails="not now", message_id="m3"))
    named = [(line["message_id"], line.get("request_id"), line.get("attempt")) for line in worker.logged()]
    assert named == [("m1", "first", 1), ("m2", None, None), ("m3", "third", 1)]


def test_a_retry_is_logged_with_its_reason_delivery_and_time(worker: Worker) -> None:
    worker.handle(work(fails="S3 is slow", retry_after=60))
    (line,) = worker.logged()
    assert (line["level"], line["reason"], line["by"], line["counted"]) == ("WARNING", "S3 is slow", "delay", True)
    assert line["due"] == "2027-01-15T08:01:00.000Z"
    assert "exception" not in line


def test_only_unexpected_errors_have_a_traceback(worker: Worker) -> None:
    worker.handle(work("a", breaks="field", message_id="m1"), work("b", poison="bad", message_id="m2"))
    broken, poison = worker.logged()
    assert "_perform" in broken["exception"]
    assert "exception" not in poison
    assert (poison["level"], poison["code"], poison["reason"]) == ("ERROR", "Poison", "bad")


SETTINGS: dict[str, tuple[str, dict[str, Any], Callable[[Worker], bool]]] = {
    "WORK_SECONDS": ("7", {}, lambda worker: worker.seconds == 7),
    "SCHEDULER_BEYOND_SECONDS": ("0", {"fails": "x"}, lambda worker: worker.logged()[0]["by"] == "schedule"),
    "WORK_QUEUE_LARGEST_MESSAGE": (
        "1024",
        {"fails": "x" * 1024, "retry_after": 9},
        lambda worker: worker.logged()[0]["code"] == "TooLarge",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_environment_is_used(start: Callable[..., Worker], name: str) -> None:
    value, payload, kept = SETTINGS[name]
    worker = start(**{name: value})
    worker.handle(work(**payload))
    assert kept(worker)


def test_a_dead_letter_message_fits_the_queue_of_its_redrive(
    work_account: AwsAccount, start: Callable[..., Worker]
) -> None:
    worker = start(WORK_QUEUE_LARGEST_MESSAGE="4096")
    worker.handle(work(poison="x" * 3020))
    (dead_letter,) = work_account.sent_to("work-dead")
    assert size(dead_letter["MessageBody"], dead_letter["MessageAttributes"]) <= 4096
    assert dead_letter["MessageAttributes"]["code"]["StringValue"] == "Poison"


def test_every_missing_setting_is_named(work_account: AwsAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    required = [name.upper() for name, kind in RetrySettings.__annotations__.items() if kind in (str, int)]
    assert set(required) <= MEANINGS.keys()
    for name in required:
        with monkeypatch.context() as environment:
            environment.delenv(name)
            with pytest.raises(MissingSetting, match=f"lacks {name}: {re.escape(MEANINGS[name])}. Set it"):
                load_settings(RetrySettings)
    for name in required:
        monkeypatch.delenv(name)
    with pytest.raises(MissingSetting, match=r"WORK_QUEUE_URL: .*; WORK_QUEUE_ARN: .*; REQUEST_LEDGER_TABLE_NAME: "):
        load_settings(RetrySettings)
