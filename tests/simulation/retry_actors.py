"""The code of the worker and of operators' commands as actors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from slotkeeper.retry import (
    Poison,
    Retryable,
    WorkRequest,
    consumer,
    operations,
)
from slotkeeper.retry import worker as worker_module
from slotkeeper.retry.consumer import Consumer
from slotkeeper.retry.delivery import DeadLetterQueue, RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream import downstreams, rules
from slotkeeper.retry.downstream.downstreams import DEFAULT, Downstreams, DownstreamTable
from slotkeeper.retry.ledger import Ledger
from slotkeeper.retry.operations import RetryOperations
from slotkeeper.retry.policy import PolicyParameter
from slotkeeper.retry.worker import RetryingWorker
from tests.simulation.frozen import Record, remembered
from tests.simulation.transcript import Outside, Program, Question, replacing

WORK, DEAD_LETTERS, SCHEDULES_DEAD, LEDGER, BUCKET = "work", "work-dead", "schedules-dead", "ledger", "bucket"
VISIBILITY, INVOCATION, LARGEST = 720, 120, 1_047_552  # as in template.yaml
WORK_SECONDS = 50
DOWNSTREAMS = "downstreams"
DOWN = "ServiceUnavailable"  # the downstream's error while it is down

RETRY_QUEUE = ScheduleTarget("retries", "arn:role", WORK, SCHEDULES_DEAD)


class Watching(NamedTuple):
    """The settings of a worker that watches its downstream."""

    most: int  # the event source's maximum concurrency
    sent_at: float  # when the message was sent, seconds since the epoch
    handle: str  # the message's receipt handle. Without it the claim token is in its place.
    carried: tuple[Any, ...] = ()  # the outcomes that its container could not report before


def deliver(
    outside: Outside,
    started: float,
    policy: str | None,
    max_delay: int,
    token: str,
    body: str,
    attributes: Record,
    receives: int,
    watching: Watching | None = None,
) -> tuple[bool, str, tuple[Any, ...]]:
    """Run one invocation of the worker; whether its message is done, the last log message, and carried outcomes.

    Args:
        started: start of the invocation, seconds since the epoch.
        policy: the retry policy's parameter; None if the worker calls SSM for it, which may fail.
        max_delay: seconds above which EventBridge Scheduler delivers a retry.
        token: the delivery's own claim token.
        attributes: the message's attributes, as they were sent.
    """
    time = _Time(outside, started)
    sqs = outside.client("sqs")
    watched = watching and Downstreams(
        DownstreamTable(outside.client("dynamodb"), DOWNSTREAMS),
        most=watching.most,
        clock=time.now,
    )
    if watched and watching:
        watched._carried = list(watching.carried)
    consumer_ = Consumer(
        Ledger(outside.client("dynamodb"), LEDGER),
        RetryQueue(sqs, outside.client("scheduler"), WORK, RETRY_QUEUE, max_delay=max_delay, max_message_bytes=LARGEST),
        DeadLetterQueue(sqs, DEAD_LETTERS, LARGEST),
        _read(outside) if policy is None else _given(policy),
        downstreams=watched,
        downstream=lambda request: request.payload.get("to", DEFAULT),
        work_seconds=WORK_SECONDS,
        clock=time.now,
        timer=lambda: 0.0,
    )
    message_attributes = {
        name: {"dataType": a["DataType"], "stringValue": a["StringValue"]} for name, a in attributes.fields.items()
    }
    record = {
        "messageId": "message",
        "receiptHandle": watching.handle if watching else token,
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(receives),
            "SentTimestamp": str(int(1000 * (watching.sent_at if watching else started))),
        },
        "messageAttributes": message_attributes,
        "eventSource": "aws:sqs",
    }
    invocation = _Invocation(token)
    with _replacing(invocation):
        answer = RetryingWorker(consumer_, _work(outside)).handle({"Records": [record]}, time)
    return not answer["batchItemFailures"], invocation.last, tuple(watched._carried) if watched else ()


def operate(outside: Outside, now: float, step: str, token: str, request_id: str) -> str:
    """Run an operator's command, `cancel` or `run_now`; its outcome.

    Args:
        token: the command's own claim token.
    """
    time = _Time(outside, now)
    retries = RetryOperations(
        Ledger(outside.client("dynamodb"), LEDGER),
        RetryQueue(outside.client("sqs"), outside.client("scheduler"), WORK, RETRY_QUEUE),
        time.now,
    )
    with _replacing(_Invocation(token)):
        outcome = retries.cancel(request_id, "operator") if step == "cancel" else retries.run_now(request_id)
    return type(outcome).__name__


def operate_breaker(outside: Outside, now: float, step: str, token: str) -> str:
    """Run an operator's command on the breaker, `open` or `close`; the state after it."""
    time = _Time(outside, now)
    table = DownstreamTable(outside.client("dynamodb"), DOWNSTREAMS)
    force = rules.force_open if step == "open" else rules.force_closed
    with _replacing(_Invocation(token)):
        _, after, _ = table.change(DEFAULT, lambda health: (force(health, time.now(), "a test", "operator"), None))
    return after.state


def _work(outside: Outside) -> Callable[[WorkRequest, float], dict[str, Any]]:
    """Work with one effect, a conditional write. `poison`, `fails` and `breaks` in the payload make it fail."""

    def perform(request: WorkRequest, _seconds: float) -> dict[str, Any]:
        payload = request.payload
        outside.ask(Question("actor", "work", (request.request_id, request.attempt)))
        if payload.get("seconds"):
            outside.sleep(payload["seconds"])
        if "poison" in payload:
            raise Poison(payload["poison"])
        if request.attempt <= payload.get("fails", 0):
            raise Retryable("not now", retry_after=payload.get("retry_after"))
        if request.attempt <= payload.get("breaks", 0):
            raise ZeroDivisionError("a mistake in the work")
        try:
            outside.client("s3").put_object(
                Bucket=BUCKET, Key=request.request_id, Body=str(request.attempt), IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == DOWN:
                raise Retryable("the downstream is down") from error
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
        return {"done": True}

    return perform


class _Time:
    """The invocation's clock and Lambda context. Until its first call, the clock shows when it has started."""

    def __init__(self, outside: Outside, started: float) -> None:
        self._outside = outside
        self._began = started

    def now(self) -> float:
        return float(self._outside.clock()) if self._outside.asked else self._began

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(1000 * (INVOCATION - self.now() + self._began)))


@remembered
def _given(policy: str) -> PolicyParameter:
    """The policy, read without a question."""
    ssm: Any = SimpleNamespace(get_parameter=lambda **_: {"Parameter": {"Value": policy}})
    return PolicyParameter(ssm, "policy", on_invalid=_refuse_invalid_policy, clock=lambda: 0.0)


def _read(outside: Outside) -> PolicyParameter:
    """The policy, read by a call that may fail."""
    return PolicyParameter(outside.client("ssm"), "policy", on_invalid=lambda _reason: None, clock=lambda: 0.0)


class _Invocation:
    """The claim token, logger and metrics of one simulated invocation."""

    def __init__(self, token: str) -> None:
        self.hex = token
        self.last = ""  # the last log message, for histories
        self._codes = 0

    def uuid4(self) -> _Invocation:
        return self

    def code(self) -> Any:
        """A new code that is unique by its first 12 characters."""
        self._codes += 1
        return SimpleNamespace(hex=f"{code_of(self.hex)}.{self._codes}")

    def info(self, text: str, **_: Any) -> None:
        self.last = text

    warning = error = exception = info

    def append_keys(self, *_: Any, **__: Any) -> None:
        """Discard."""

    remove_keys = add_metric = append_keys

    def log_metrics(self, handler: Any, **_: Any) -> Any:
        return handler

    inject_lambda_context = log_metrics


def code_of(token: str) -> str:
    """The common part of the codes of a delivery or command."""
    return token.replace(" delivery ", ".").replace(" ", "")


def names_of(carried: tuple[Any, ...]) -> frozenset[str]:
    """The deliveries whose outcomes these are."""
    return frozenset(each.permit.code.rpartition(".")[0] for each in carried)


def _replacing(invocation: _Invocation) -> AbstractContextManager[None]:
    """Replace random values, logger and metrics while code runs."""
    return replacing(
        (consumer, "uuid", invocation),
        (operations, "uuid", invocation),
        (downstreams, "uuid", SimpleNamespace(uuid4=invocation.code)),
        (worker_module, "logger", invocation),
        (worker_module, "metrics", invocation),
    )


def _refuse_invalid_policy(reason: str) -> None:
    raise AssertionError(f"the world's policy is valid: {reason}")


worker = Program("worker", deliver)
operator = Program("operator", operate)
breaker_operator = Program("breaker operator", operate_breaker)
