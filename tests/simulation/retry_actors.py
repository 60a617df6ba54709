"""The code of the worker and of operators' commands as actors."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
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
from tests.simulation.frozen import Record
from tests.simulation.transcript import Outside, Program, Question

WORK, DEAD_LETTERS, SCHEDULES_DEAD, LEDGER, BUCKET = "work", "work-dead", "schedules-dead", "ledger", "bucket"
VISIBILITY, INVOCATION, LARGEST = 720, 120, 1_047_552  # as in template.yaml
WORK_SECONDS = 50
DOWNSTREAMS = "downstreams"
DOWN = "ServiceUnavailable"  # the downstream's error while it is down

RETRY_QUEUE = ScheduleTarget("retries", "arn:role", WORK, SCHEDULES_DEAD)


class Watching(NamedTuple):
    """The settings of a worker that watches its downstream.

    Attributes:
        most: the event source's maximum concurrency.
        sent_at: when the message was sent, seconds since the epoch.
        handle: the message's receipt handle. Without it the claim token is in its place.
        carried: the outcomes that its container could not report before.
    """

    most: int
    sent_at: float
    handle: str
    carried: tuple[Any, ...] = ()


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
    """Run one invocation of the worker; whether the message may be deleted, the last log message, and what is carried.

    Args:
        started: start of the invocation, seconds since the epoch.
        policy: the retry policy's parameter; None if the worker calls SSM for it, which may fail.
        max_delay: seconds above which EventBridge Scheduler delivers a retry.
        token: the delivery's own claim token.
        attributes: the message's attributes, as they were sent.
    """
    time = _Time(outside, started)
    sqs = _Client(outside, "sqs", time)
    watched = watching and Downstreams(
        DownstreamTable(_Client(outside, "dynamodb", time), DOWNSTREAMS),  # type: ignore[arg-type]
        most=watching.most,
        clock=time.now,
    )
    if watched and watching:
        watched._carried = list(watching.carried)
    consumer_ = Consumer(
        Ledger(_Client(outside, "dynamodb", time), LEDGER),  # type: ignore[arg-type]
        RetryQueue(
            sqs, _Client(outside, "scheduler", time), WORK, RETRY_QUEUE, max_delay=max_delay, max_message_bytes=LARGEST
        ),  # type: ignore[arg-type]
        DeadLetterQueue(sqs, DEAD_LETTERS, LARGEST),  # type: ignore[arg-type]
        PolicyParameter(
            _Client(outside, "ssm", time) if policy is None else _Parameter(policy),  # type: ignore[arg-type]
            "policy",
            on_invalid=_refuse_invalid_policy if policy is not None else lambda _reason: None,
            clock=lambda: 0.0,
        ),
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
    _install_doubles()
    before = _running.set(invocation)
    try:
        answer = RetryingWorker(consumer_, _work(outside, time)).handle({"Records": [record]}, time)  # type: ignore[arg-type]
    finally:
        _running.reset(before)
    return not answer["batchItemFailures"], invocation.last, tuple(watched._carried) if watched else ()


def operate(outside: Outside, now: float, step: str, token: str, request_id: str) -> str:
    """Run an operator's command, `cancel` or `run_now`; its outcome.

    Args:
        token: the command's own claim token.
    """
    time = _Time(outside, now)
    retries = RetryOperations(
        Ledger(_Client(outside, "dynamodb", time), LEDGER),  # type: ignore[arg-type]
        RetryQueue(_Client(outside, "sqs", time), _Client(outside, "scheduler", time), WORK, RETRY_QUEUE),  # type: ignore[arg-type]
        time.now,
    )
    _install_doubles()
    before = _running.set(_Invocation(token))
    try:
        outcome = retries.cancel(request_id, "operator") if step == "cancel" else retries.run_now(request_id)
    finally:
        _running.reset(before)
    return type(outcome).__name__


def operate_breaker(outside: Outside, now: float, step: str, token: str) -> str:
    """Run an operator's command on the breaker, `open` or `close`; the state after it."""
    time = _Time(outside, now)
    table = DownstreamTable(_Client(outside, "dynamodb", time), DOWNSTREAMS)  # type: ignore[arg-type]
    force = rules.force_open if step == "open" else rules.force_closed
    _install_doubles()
    before = _running.set(_Invocation(token))
    try:
        _, after, _ = table.change(DEFAULT, lambda health: (force(health, time.now(), "a test", "operator"), None))
    finally:
        _running.reset(before)
    return after.state


def _work(outside: Outside, time: _Time) -> Callable[[WorkRequest, float], dict[str, Any]]:
    """Work with one effect, a conditional write. `poison`, `fails` and `breaks` in the payload make it fail."""

    def perform(request: WorkRequest, _seconds: float) -> dict[str, Any]:
        payload = request.payload
        outside.ask(Question("actor", "work", (request.request_id, request.attempt)))
        if payload.get("seconds"):
            outside.sleep(payload["seconds"])
            time.passes()
        if "poison" in payload:
            raise Poison(payload["poison"])
        if request.attempt <= payload.get("fails", 0):
            raise Retryable("not now", retry_after=payload.get("retry_after"))
        if request.attempt <= payload.get("breaks", 0):
            raise ZeroDivisionError("a mistake in the work")
        try:
            _Client(outside, "s3", time).put_object(
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
    """The invocation's clock and Lambda context. Only calls take time, so the clock is read only after a call."""

    def __init__(self, outside: Outside, started: float) -> None:
        self._outside = outside
        self._began = started
        self._now: float | None = started

    def passes(self) -> None:
        self._now = None

    def now(self) -> float:
        if self._now is None:
            self._now = self._outside.clock()
        return self._now

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(1000 * (INVOCATION - self.now() + self._began)))


class _Client:
    """A client whose calls take time."""

    def __init__(self, outside: Outside, service: str, time: _Time) -> None:
        self._client = outside.client(service)
        self._time = time

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        self._time.passes()
        return getattr(self._client, operation)  # type: ignore[no-any-return]


class _Parameter:
    """SSM with the policy's parameter."""

    def __init__(self, policy: str) -> None:
        self._policy = policy

    def get_parameter(self, **_: Any) -> Any:
        return {"Parameter": {"Value": self._policy}}


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


_running: ContextVar[_Invocation | None] = ContextVar("_running", default=None)  # each greenlet has its own


class _Double:
    """A double of a module's object: the running invocation's, or outside of invocations the real one.

    It replaces the object permanently, since one invocation continues while others are suspended.
    """

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(_running.get() or self._real, name)


class _Codes(_Double):
    """A double of `uuid` that returns a new code each time."""

    def __getattr__(self, name: str) -> Any:
        running = _running.get()
        return running.code if running and name == "uuid4" else getattr(self._real, name)


def code_of(token: str) -> str:
    """The common part of the codes of a delivery or command."""
    return token.replace(" delivery ", ".").replace(" ", "")


def names_of(carried: tuple[Any, ...]) -> frozenset[str]:
    """The deliveries whose outcomes these are."""
    return frozenset(each.permit.code.rpartition(".")[0] for each in carried)


def _install_doubles() -> None:
    """Replace the objects, again in each invocation: other tests reload the modules, as a cold start does."""
    for module, name, double in (
        (consumer, "uuid", _Double),
        (operations, "uuid", _Double),
        (downstreams, "uuid", _Codes),
        (worker_module, "logger", _Double),
        (worker_module, "metrics", _Double),
    ):
        if not isinstance(real := getattr(module, name), _Double):
            setattr(module, name, double(real))


def _refuse_invalid_policy(reason: str) -> None:
    raise AssertionError(f"the world's policy is valid: {reason}")


worker = Program("worker", deliver)
operator = Program("operator", operate)
breaker_operator = Program("breaker operator", operate_breaker)
