"""Print dead-letter messages as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, Read
from slotkeeper_cli.formatting import local_time, one_line
from slotkeeper_cli.output import print_lines, styled
from slotkeeper_cli.task_tokens import FIELD, HIDDEN

# Characters of a reason, enough for a whole error message of Glue.
MAX_REASON_SHOWN = 4000


def render_queues(console: Console, queues: list[tuple[dict[str, Any], Read]], limit: int) -> None:
    """Print the number of messages of each queue and code, two lines for each message, and what was not read."""
    for queue, read in queues:
        codes = ", ".join(f"{number:,} {code}" for code, number in sorted(queue["codes"].items()))
        line = f" ({queue['queue']}): {queue['messages']:,}" + f"  ({codes})" * bool(codes)
        console.print(Text.assemble((queue["name"], "bold"), styled(line)))
        for message in read.messages[:limit]:
            # Not a table, in which a folded id could not be copied.
            console.print(f"  {message.label}  {message.code}: {one_line(message.reason)}")
            console.print(f"    {local_time(message.sent_at)}  {_names(message)}", style="dim")
        if len(read.messages) > limit:
            console.print(f"  {len(read.messages) - limit:,} more not shown: above --limit {limit}")
        if read.unread:
            console.print(f"  {read.unread.text}")


def render_message(console: Console, message: DeadLetterMessage) -> None:
    """Print a message in full."""
    console.print(message.label, style="bold")
    console.print(f"  {_names(message)}")
    console.print(f"  since: {local_time(message.sent_at)}")
    console.print(f"  code: {message.code}")
    reason = message.reason[:MAX_REASON_SHOWN]
    more = "... (the whole text: --json)" if len(message.reason) > MAX_REASON_SHOWN else ""
    print_lines(console, f"  reason: {reason}{more}", "    ")
    for name, value in message.details.items():
        console.print(f"  {name.replace('_', ' ')}: {_readable(name, value)}")
    if message.had_token:
        console.print(f"  {FIELD}: {HIDDEN}")
    print_lines(console, f"  {message.shown_body}")
    console.print()


def _names(message: DeadLetterMessage) -> str:
    return f"execution {message.shown_execution}  " * bool(message.shown_execution) + f"message {message.message_id}"


def _readable(name: str, value: str) -> str:
    """An attribute; a time, in seconds since the epoch or ISO 8601, in the local time zone."""
    try:
        if name.endswith("_at"):
            return local_time(float(value) if value.isdecimal() else datetime.fromisoformat(value).timestamp())
    except (ValueError, OverflowError, OSError):
        pass  # not a time: an attribute of another sender
    return value
