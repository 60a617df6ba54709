"""Reads the operators' audit log (`audit_log.py` writes it)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slotkeeper_cli.formatting import iso
from slotkeeper_cli.requests import fields_in
from slotkeeper_cli.stack_connection import StackConnection

# Bounds of one read. A page has up to 10,000 lines (CloudWatch Logs API Reference, FilterLogEvents).
MAX_LINES = 100_000
MAX_SECONDS = 30.0
MAX_PAGES = 300  # as many as the quota of ten calls a second allows in this time
_DAY = 86400


@dataclass(frozen=True)
class Audited:
    """Audit lines, oldest first. `is_complete`: they are all lines with the value."""

    lines: list[Mapping[str, Any]]
    is_complete: bool = True


def read_audit(stack: StackConnection, field: str = "", value: str = "", since: float = 0.0) -> Audited:
    """Read the audit lines whose `action`, `process` or other field has a value.

    It ends after MAX_LINES lines or MAX_SECONDS, not after a number of pages: a page may be empty, with a token for
    the next one (CloudWatch Logs API Reference, FilterLogEvents).

    Args:
        field: empty for all lines.
        since: seconds since the epoch.

    Raises:
        ClientError: the log group may not be read, or does not exist.
    """
    until = time.time() + _DAY  # an operator's clock may be ahead
    months = {iso(since)[:7], iso(until)[:7]}
    # A stream has the lines of a day: others need not be searched.
    prefix = {"logStreamNamePrefix": months.pop()} if len(months) == 1 else {}
    # CloudWatch Logs guide, "Filter pattern syntax for metric filters": JSON.
    wanted = {"filterPattern": f"{{ $.{field} = {json.dumps(value)} }}"} if field else {}
    asked = {"logGroupName": stack.outputs["AuditLogGroupName"], "startTime": int(since * 1000), **prefix, **wanted}
    pages = stack.client("logs").get_paginator("filter_log_events").paginate(**asked)
    events: list[Mapping[str, Any]] = []
    ends = time.monotonic() + MAX_SECONDS
    for number, page in enumerate(pages, 1):
        events += page["events"]
        if "nextToken" in page and (len(events) >= MAX_LINES or number == MAX_PAGES or time.monotonic() > ends):
            return Audited(_lines(events, field, value), is_complete=False)
    return Audited(_lines(events, field, value))


def _lines(events: list[Mapping[str, Any]], field: str, value: str) -> list[Mapping[str, Any]]:
    # The events of several streams come in no order that is documented.
    lines = [fields_in(event["message"]) for event in sorted(events, key=lambda event: float(event["timestamp"]))]
    return [line for line in lines if not field or line.get(field) == value]
