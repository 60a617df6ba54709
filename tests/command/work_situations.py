"""What `slotkeeper explain` answers about requests of the worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Breaker, Budget, Concurrency, Health, State
from slotkeeper.retry.message import Message
from tests.command.account_contents import NOW, give_up, malform_downstream, retry_work, start_work
from tests.command.operator_account import Operator
from tests.command.situations import Situation

_MESSAGE = Message("w", {"city": "Oslo"})
_OPEN = Health(Breaker(state=State.OPEN, since=NOW, probe_at=NOW + 90))


def _runs(operator: Operator) -> None:
    start_work(operator, _MESSAGE, NOW)


def _retried(operator: Operator, health: Health | None = None) -> None:
    """The first attempt failed, and the next one is due a minute later."""
    retry_work(operator, _MESSAGE, NOW, NOW + 60)
    if health:
        _put(operator, health)


def _put(operator: Operator, health: Health) -> None:
    table = DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"])
    table.change("default", lambda _: (health, None))


def _succeeded(operator: Operator) -> None:
    ledger, claimed = start_work(operator, _MESSAGE, NOW)
    ledger.settle_succeeded(_MESSAGE, claimed, "{}")


def _dead_lettered(operator: Operator) -> None:
    ledger, claimed = start_work(operator, _MESSAGE, NOW)
    ledger.record(_MESSAGE, claimed, {"when": NOW + 60, "counted": True}, "HTTP 503")
    ledger.settle_dead_lettered(_MESSAGE, claimed)


def _malformed_row(operator: Operator) -> None:
    item = {"request_id": {"S": "w"}, "status": {"N": "1"}}
    operator.dynamodb.put_item(TableName=operator.outputs["RequestLedgerTableName"], Item=item)


def _malformed_downstream(operator: Operator) -> None:
    _retried(operator)
    malform_downstream(operator, "default")


def _held_back(operator: Operator) -> None:
    """A message that no worker has accepted, while the breaker is open."""
    _put(operator, _OPEN)
    body = json.dumps({"request_id": "w", "payload": {}})
    operator.sqs.send_message(QueueUrl=operator.outputs["WorkQueueUrl"], MessageBody=body)


def _disabled(operator: Operator) -> None:
    operator.event_source = "Disabled"
    _retried(operator)


def _row(state: Callable[[Operator], None], *says: str, **options: Any) -> Situation:
    return Situation(state, "explain w", says, **options)


SITUATIONS = {
    "the next attempt is due later": _row(
        _retried,
        "w in the worker: waiting",
        "attempt 1 failed (HTTP 503). Attempt 2 is due in 30 s, at ",
        *("-> slotkeeper retry run-now w", "-> slotkeeper retry cancel w"),
        *("attempt 1: failed", "HTTP 503", "attempt 2: due "),
        shows={
            "state": "waiting",
            "found.0.next_attempt_at": "2026-09-21T14:14:20Z",
            "found.0.history.0.error": "HTTP 503",
        },
        at=NOW + 30,
    ),
    "the next attempt is overdue": _row(
        _retried,
        *("Attempt 2 was due 30 s ago, at ", "its message is in WorkQueue or with EventBridge Scheduler"),
        at=NOW + 90,
    ),
    "the next attempt is overdue by more than a schedule may be late": _row(
        _retried,
        *("Attempt 2 was due 4 min ago, at ", "its message is in WorkQueue, or was dead-lettered: slotkeeper dlq list"),
        never=("Scheduler",),
        at=NOW + 300,
    ),
    "the breaker is open": _row(
        partial(_retried, health=_OPEN),
        *("Attempt 2 was due 1 s ago", "downstream default: the breaker is OPEN; the next message is the probe."),
        "-> slotkeeper retry breaker show default",
        never=("run-now",),
        shows={"found.0.reasons.0.condition": "breaker", "found.0.reasons.0.state": "OPEN"},
        at=NOW + 61,
    ),
    "an operator has opened the breaker": _row(
        partial(_retried, health=replace(_OPEN, breaker=replace(_OPEN.breaker, forced=True))),
        *("it stays open until", "-> slotkeeper retry breaker close default --why TEXT"),
        never=("run-now",),
    ),
    "all permitted callers are under way": _row(
        partial(_retried, health=Health(concurrency=Concurrency(limit_set=1), permits={"p": (NOW + 900, 0)})),
        "downstream default: 1 of 1 permitted caller under way",
        never=("run-now",),
        shows={"found.0.reasons.0.limit": 1},
    ),
    "the retry budget is used up": _row(
        partial(_retried, health=Health(budget=Budget(spent=1000.0, refilled=NOW + 61))),
        "downstream default: the retry budget is used up",
        never=("run-now",),
        at=NOW + 61,
    ),
    "the state of the downstream is malformed": _row(
        _malformed_downstream, "w in the worker: waiting", "Not read: DownstreamTable: "
    ),
    "the event source is disabled, and an attempt is overdue": _row(
        _disabled,
        *("Attempt 2 was due", "no function receives messages of WorkQueue: its event source mapping is Disabled"),
        never=("run-now",),
        at=NOW + 90,
    ),
    "an attempt runs": _row(
        _runs,
        "w in the worker: running",
        *("attempt 1 started at", "If its worker has died, it is made again after"),
    ),
    "work succeeded": _row(_succeeded, "w in the worker: succeeded", "attempt 1 succeeded."),
    "work was dead-lettered": _row(
        _dead_lettered,
        "1 attempt made, then dead-lettered: HTTP 503.",
        "Its message is in WorkDeadLetterQueue for 14 days, unless it was redriven or discarded.",
        "-> slotkeeper dlq redrive work --id w",
    ),
    "work was dead-lettered, and its row has expired": _row(
        give_up,
        "about 1 message of WorkDeadLetterQueue: their rows may be deleted: slotkeeper dlq show work",
        exit_code=1,
    ),
    "the row of the ledger is malformed": _row(_malformed_row, "w in the worker: ", "of the request ledger: status"),
    "the breaker holds a message back before its first attempt": _row(
        _held_back,
        "Not read: about 1 message of WorkQueue: a request without an attempt has no row, and may be one of them; "
        "downstream default: the breaker is OPEN",
        "no request w found in what could be read",
        exit_code=1,
    ),
}
