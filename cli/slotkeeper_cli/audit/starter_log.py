"""The starter's log: when the request of an execution was sent, by SQS's SentTimestamp of its message.

Step Functions lists starts and ends of executions, but not that time. Execution inputs do not have it either, because
StartExecution of a redelivered request must have the same input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.requests import fields_in
from slotkeeper_cli.stack_connection import StackConnection

# The starter's line of a request that it has started (functions/starter/app.py).
STARTED_LINE = "Started the workflow"
# A page has at most 10,000 lines or 1 MB (CloudWatch Logs API Reference, FilterLogEvents).
MAX_LOG_PAGES = 500


def read_starts(
    stack: StackConnection, since: float, executions: Collection[str], on_read: Callable[[str, int], None]
) -> dict[str, Mapping[str, Any]]:
    """Read the starter's lines of executions, by their names: `sent_at`, `priority`, `weight`, if they are stated.

    A second message of a request that runs has a line too. The first line counts.

    Args:
        since: from when on lines are read. Seconds since the epoch.

    Raises:
        CommandFailed: the log has more than MAX_LOG_PAGES pages, or the stack does not name it.
        ClientError: the log may not be read, or does not exist.
    """
    group, pages = stack.outputs["StarterLogGroupName"], stack.client("logs").get_paginator("filter_log_events")
    asked = pages.paginate(logGroupName=group, startTime=int(since * 1000), filterPattern=f'"{STARTED_LINE}"')
    sought, found = set(executions), dict[str, Mapping[str, Any]]()
    for number, page in enumerate(asked if sought else (), 1):
        lines = [fields_in(event["message"]) for event in page["events"]]
        on_read("lines of the starter", len(lines))
        found = {name: line for line in reversed(lines) if (name := str(line.get("execution"))) in sought} | found
        if len(found) == len(sought):
            break
        if number == MAX_LOG_PAGES and "nextToken" in page:
            raise CommandFailed(f"the log of the starter has more than {MAX_LOG_PAGES} pages: give a later --since")
    return found


def sent_at(line: Mapping[str, Any], started: float) -> float | None:
    """When the request of an execution was sent; None if its line does not state it."""
    sent = line.get("sent_at")
    # Clocks differ: by the record of another service a request can have started before it was sent.
    return min(sent, started) if isinstance(sent, int | float) else None
