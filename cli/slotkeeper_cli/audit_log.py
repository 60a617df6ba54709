"""The audit log: one line for each change by an operator, with the caller, the time, the change and its checks.

The line is written to the stack's log group before the change, so that no change is made without a line. So a line does
not prove that the change was made.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.requests import fields_in
from slotkeeper_cli.stack_connection import StackConnection

# Bounds of one read. A page has up to 10,000 lines (CloudWatch Logs API Reference, FilterLogEvents).
MAX_LINES = 100_000
MAX_SECONDS = 30.0
MAX_PAGES = 300  # as many as the quota of ten calls a second allows in this time
_DAY = 86400


def audit(action: str, **details: Any) -> None:
    """Write the audit line of the change that follows, with the caller as STS identifies it.

    Raises:
        CommandRefused: the line could not be written, so nothing may be changed.
        CommandFailed: the line could not be written, and the command has made a change before this one.
    """
    context = current_context()
    logs, group = context.stack.client("logs"), context.stack.outputs["AuditLogGroupName"]
    now = time.time()
    stream = iso(now)[:10]
    try:
        line = {"action": action, "at": iso(now), "by": context.stack.caller, "stack": context.stack.name, **details}
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": int(now * 1000), "message": json.dumps(line, ensure_ascii=False)}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    except (BotoCoreError, ClientError) as error:
        if context.has_audited:
            raise CommandFailed(
                f"the audit line of {action} could not be written: {error}. The command stopped there. The changes "
                f"before it are in the log group {group}; run the command again for the rest."
            ) from error
        raise CommandRefused(f"the audit line could not be written: {error}. Nothing was changed.") from error
    context.has_audited = True


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
    pages = (
        stack.client("logs")
        .get_paginator("filter_log_events")
        .paginate(
            logGroupName=stack.outputs["AuditLogGroupName"],
            startTime=int(since * 1000),
            **prefix,
            # CloudWatch Logs guide, "Filter pattern syntax for metric filters": JSON.
            **({"filterPattern": f"{{ $.{field} = {json.dumps(value)} }}"} if field else {}),
        )
    )
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
