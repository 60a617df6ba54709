"""The logs and metrics of the real handlers, for each outcome that they can have."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from aws_lambda_powertools.metrics.provider.cold_start import reset_cold_start_flag
from botocore.exceptions import EndpointConnectionError

from slotkeeper import events, observability, token
from slotkeeper.chatbot import token as chat_token
from slotkeeper.chatbot.service import Answered, Refused
from slotkeeper.retry import attempt, ledger
from slotkeeper.retry import worker as retrying_worker
from slotkeeper.retry.deferral import WaitsForDownstream
from slotkeeper.retry.delivery import PlannedDelivery
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.downstream.rules import force_open
from slotkeeper.retry.message import Message
from slotkeeper.slots import endings, leases, run_report, starter
from slotkeeper.slots.callers import AnswerOutcome
from slotkeeper.slots.dispatch import Report
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.intake import Accepted, Rejected, SameAgain
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Request
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, QueuedBody
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.run_report import QueueLength, RunReport
from tests.template.metrics import details_in_source, findings_in_source
from tests.unit.conftest import CONTEXT, Load, delivery, request_record

PROCESS = Process("p", 3, 1, {}, paused=False, target="job")


class Surprise(Exception):
    """An unexpected error."""


def by_function(load: Load) -> dict[str, str]:
    """Function -> its log and metrics."""
    reset_cold_start_flag()  # this test process has loaded functions before
    return {
        "starter": _output_of(_starter(load("starter"))),
        "janitor": _output_of(_janitor(load("janitor"))),
        "ending": _output_of(_ending(load("ending"))),
        "chatbot": _output_of(_chatbot(load("chatbot"))),
        "token_refresher": _output_of(_token_refresher(load("token_refresher"))),
        "retry_report": _output_of(_retry_report(load)),
        "worker": _output_of(_worker(load("worker"))),
        "a function with a lease": _output_of(_lease()),
    }


def _output_of(invocations: Iterator[None]) -> str:
    with redirect_stdout(io.StringIO()) as output:
        for _ in invocations:
            pass
    return output.getvalue()


def _lease() -> Iterator[None]:
    with patch.dict(os.environ, AWS_LAMBDA_FUNCTION_NAME="f"):
        yield leases._count_skipped_ring("p")


def _starter(module: ModuleType) -> Iterator[None]:
    request = Request("p", {}, "order-1", 1, "high", 4, key="acme")
    name, observer = request.execution_name, module._starter.observer

    def receive(*_: Any) -> list[str]:
        for acceptance in (Accepted(name), SameAgain(name), Rejected(name, "TooLarge", "why")):
            observer.accepted(request, acceptance, 1.0)
        observer.dead_lettered(delivery("{}"), "InvalidRequest", "why")
        started = {name: QueuedBody("QUEUED", "{}", 1.0, "high", 1.0, "acme")}
        observer.dispatched("p", Report(started, put_back=["p-1"]))
        observer.failed("Left messages on the queue after an error", Surprise("why"), messages=1)
        observer.failed("A dispatch has failed; it is repeated", Surprise("why"), process="p")
        observer.rang(Bell("p", count=2))
        return []

    with patch.object(starter.Starter, "receive", receive):
        yield module.handler({"Records": [request_record("{}")]}, CONTEXT)


def _janitor(module: ModuleType) -> Iterator[None]:
    def run(_: float) -> RunReport:
        report = RunReport(processes=[PROCESS], queues={"p": QueueLength(2, 30.0)})
        details = dict.fromkeys(details_in_source(), "a detail") | {"request_id": "order-1"}
        for name in sorted(findings_in_source()):
            report.note(name, "A finding", **details)
        return report

    module._janitor = SimpleNamespace(run=run)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_report, "logger", observability.logger)  # the one that this test has reloaded
        yield module.handler({}, CONTEXT)


def _ending(module: ModuleType) -> Iterator[None]:
    name = Request("p", {}, "order-1").execution_name

    def handle(*_: Any) -> None:
        for state in ("SUCCEEDED", "FAILED", *ENDED_WITHOUT_START):
            row = RequestRow("p", name, state, "order-1", 1, "high", 1.0, code="CallerGone", reason="why")
            module._endings._on_published(row)
        for answered in (AnswerOutcome.SPENT, AnswerOutcome.FAILED):
            module._endings._answered(answered)
        module._endings._notices = SimpleNamespace(publish=publish)
        module._endings._notify(row, "why", "arn")

    def publish(*_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="the service")

    module._closed = SimpleNamespace(handle=handle, clock=lambda: 0.0)
    body = {"detail": {"name": name, "status": "ABORTED"}}
    with patch.object(endings, "logger", observability.logger):
        yield module.handler({"Records": [request_record(body)]}, CONTEXT)


def _chatbot(module: ModuleType) -> Iterator[None]:
    answers = [Answered("m", "Yes"), Refused(401, "WrongSignature", "why"), Refused(502, "ChatApiFailed", "why")]
    for answer in answers:

        def reply(*_: Any, answer: Any = answer) -> Any:
            chat_token.report(token.Waited(1.25))
            return answer

        module._chatbot = SimpleNamespace(reply=reply)
        event = {
            "httpMethod": "POST",
            "path": "/messages",
            "headers": {},
            "body": "{}",
            "requestContext": {"requestId": "r"},
        }
        yield module.handler(event, CONTEXT)


def _retry_report(load: Load) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:  # not in `load`: with this variable the worker watches its downstream
        patch.setenv("DOWNSTREAM_TABLE_NAME", "downstreams")
        module: Any = load("retry_report")
    module._ledger = SimpleNamespace(failed_rows=lambda *_: iter(()))
    module._downstreams = SimpleNamespace(read_all=dict)
    module._sns = SimpleNamespace(publish=lambda **_: None)
    yield module.handler({}, CONTEXT)


def _token_refresher(module: ModuleType) -> Iterator[None]:
    def refresh(*_: Any, **__: Any) -> int:
        for event in (
            token.Refreshed(7, 0.5),
            token.Waited(0.5),
            token.TookOver(),
            token.AuthenticationFailed("why"),
            token.StoredTooLate(),
        ):
            chat_token.report(event)
        return 7

    module._token = SimpleNamespace(refresh=refresh)
    yield module.handler({}, CONTEXT)


def _worker(module: ModuleType) -> Iterator[None]:
    outcomes = [
        attempt.WorkSucceeded(None),
        attempt.WorkRetried(PlannedDelivery("delay", 0.0), "why", died=True),
        attempt.WorkDeadLettered("AttemptsExhausted", "why"),
        ledger.AlreadySettled("SUCCEEDED", 1),
        attempt.WorkDeferred(0.0),
        WaitsForDownstream("why"),
        None,
    ]
    for outcome in outcomes:

        def consume(*_: Any, outcome: Any = outcome) -> Any:
            retrying_worker._start_log(Message("order-1", {}))
            retrying_worker._schedule_refused("why")
            retrying_worker._policy_invalid("why")
            events._not_sent("why")
            retrying_worker._health_unreported("why")
            retrying_worker._health_seen(None, "default", Health(), force_open(Health(), 0.0, "why"), 25)
            if isinstance(outcome, WaitsForDownstream):
                raise outcome
            if outcome is None:
                raise Surprise
            return outcome

        module._worker._consumer = SimpleNamespace(consume=consume)
        with suppress(Surprise):
            yield module.handler({"Records": [request_record("{}")]}, CONTEXT)
