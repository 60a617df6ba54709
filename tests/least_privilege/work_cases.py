"""Cases of the worker: one for each branch with different calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from slotkeeper.retry.message import parse_message
from tests.least_privilege.cases import Case, message, put
from tests.least_privilege.recording import Recorded
from tests.support.in_process_tables import LEDGER

INPUT = "work/input/orders.jsonl"


def worker() -> Iterator[Case]:
    request: dict[str, Any] = {"request_id": "r", "payload": {"input_key": INPUT, "split_by": "city"}}
    sent = message(request, "work")
    second = message(request | {"retries": ["2027-01-15T07:59:00.000Z"]}, "work")

    def input_exists(account: Recorded) -> None:
        account.objects[INPUT] = b'{"city": "Oslo"}\n{"city": "Rome"}\n'

    def published(account: Recorded) -> None:
        input_exists(account)
        account.objects["work/parts/r/1/old/Oslo.jsonl"] = b"{}"
        manifest = {
            "request_id": "r",
            "attempt": 1,
            "prefix": "work/parts/r/1/new/",
            "parts": [],
            "records": 0,
            "input": {"key": INPUT},
            "split_by": "city",
        }
        account.objects["work/published/r.json"] = json.dumps(manifest).encode()

    def later(account: Recorded) -> None:
        input_exists(account)
        rule = {"base_seconds": 7200, "cap_seconds": 7200, "jitter": "none"}
        account.parameter = json.dumps({"default": rule})

    def died(account: Recorded) -> None:
        input_exists(account)
        row = {
            "request_id": {"S": "r"},
            "status": {"S": "RUNNING"},
            "attempts": {"N": "1"},
            "claim": {"S": "another"},
            "lease_until": {"N": "1700000000"},
            "last_attempt_at": {"S": "2027-01-15T07:59:00.000Z"},
            "payload_hash": {"S": parse_message(json.dumps(request)).payload_hash},
        }
        account.tables.put(LEDGER, row)

    def scheduled_and_died(account: Recorded) -> None:
        later(account)
        died(account)
        account.refuse["CreateSchedule"] = "ConflictException"

    not_before = {"not_before": {"dataType": "Number", "stringValue": str(int(time.time()) + 5000)}}
    for name, event, arrange in (
        ("success", sent, input_exists),
        ("a second attempt", second, input_exists),
        ("another attempt has published", second, published),
        ("a missing input", sent, put(LEDGER)),
        ("a died attempt", sent, died),
        ("a retry by a schedule", sent, later),
        ("a died attempt whose retry is scheduled", sent, scheduled_and_died),
        ("not a message", message("{", "work"), put(LEDGER)),
        ("not due yet", message(request, "work", **not_before), input_exists),
    ):
        yield Case("WorkerFunction", name, event, arrange)
