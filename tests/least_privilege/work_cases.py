"""Cases of the worker with the work of tests, and of the retry report: one for each branch with different calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from slotkeeper.retry.message import parse_message
from tests.least_privilege.cases import Case, message, put
from tests.least_privilege.recording import Recorded
from tests.support.in_process_tables import DOWNSTREAMS, LEDGER


def worker() -> Iterator[Case]:
    request: dict[str, Any] = {"request_id": "r", "payload": {}}
    failing: dict[str, Any] = {"request_id": "r", "payload": {"fails": "not now"}}
    sent = message(request, "work")
    poison = message({"request_id": "r", "payload": {"poison": "bad"}}, "work")
    fails = message(failing, "work")

    def later(account: Recorded) -> None:
        rule = {"base_seconds": 7200, "cap_seconds": 7200, "jitter": "none"}
        account.parameter = json.dumps({"default": rule})

    def died(account: Recorded) -> None:
        row = {
            "request_id": {"S": "r"},
            "status": {"S": "RUNNING"},
            "attempts": {"N": "1"},
            "claim": {"S": "another"},
            "lease_until": {"N": "1700000000"},
            "last_attempt_at": {"S": "2027-01-15T07:59:00.000Z"},
            "payload_hash": {"S": parse_message(json.dumps(failing)).payload_hash},
        }
        account.tables.put(LEDGER, row)

    def scheduled_and_died(account: Recorded) -> None:
        later(account)
        died(account)
        account.refuse["CreateSchedule"] = "ConflictException"

    def opened(account: Recorded) -> None:
        health = {"state": "OPEN", "forced": True, "changes": [], "permits": {}}
        item = {"downstream": {"S": "default"}, "version": {"N": "1"}, "writer": {"S": "w"}}
        account.tables.put(DOWNSTREAMS, item | {"health": {"S": json.dumps(health)}})

    not_before = {"not_before": {"dataType": "Number", "stringValue": str(int(time.time()) + 5000)}}
    for name, event, arrange in (
        ("success", sent, put(LEDGER)),
        ("poison", poison, put(LEDGER)),
        ("a retry by the queue's delay", fails, put(LEDGER)),
        ("a died attempt", fails, died),
        ("a retry by a schedule", fails, later),
        ("a died attempt whose retry is scheduled", fails, scheduled_and_died),
        ("not a message", message("{", "work"), put(LEDGER)),
        ("not due yet", message(request, "work", **not_before), put(LEDGER)),
        ("held back", sent, opened),
    ):
        yield Case("WorkerFunction", name, event, arrange)


def retry_report() -> Iterator[Case]:
    yield Case("RetryReportFunction", "the schedule", {}, put(LEDGER))
