"""`slotkeeper what-if`: what the waits of a process would have been at another limit."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.process import MAX_SLOT_LIMIT
from slotkeeper_cli.audit.history_reader import Window
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.formatting import count, duration, local_time, period_seconds
from slotkeeper_cli.output import table
from slotkeeper_cli.what_if import CannotReplay, ReplayResult, read_recording, replay
from slotkeeper_cli.what_if.recording import MAX_CALLS
from slotkeeper_cli.what_if.replay import MIN_SAMPLES

MAX_PERIOD = 90 * 86400

_ROWS = (  # the label, the figure, and how it is shown
    ("wait p50", "p50", "{:,.1f} s"),
    ("wait p90", "p90", "{:,.1f} s"),
    ("wait p99", "p99", "{:,.1f} s"),
    ("requests that waited 1 s or more", "waited", "{:,}"),
    ("longest queue", "longest_queue", "{:,}"),
    ("utilization", "utilization", "{:.0%}"),
    ("slot-hours offered", "slot_hours_offered", "{:,.2f} h"),
    ("slot-hours used", "slot_hours_used", "{:,.2f} h"),
    ("starter invocations, at most", "starter_invocations", "{:,}"),
    ("write units, at most", "write_units", "{:,}"),
)

HELP = f"""Replay recorded requests at another limit.

It replays the arrivals and durations of a process by the rule that starts requests, and prints waits, the longest
queue, utilization and cost as recorded and as replayed. The closer the column `check`, the replay at the recorded
limit, is to the records, the better the replay.

The rows of requests have their arrivals, starts and ends, and are kept for the stack's RequestRetentionDays. At least
{MIN_SAMPLES} requests are needed that started and ended. The command makes at most {MAX_CALLS:,} calls, a few for a
process with less than two thousand requests, and changes nothing.
"""


def what_if(
    process: ProcessName,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_SLOT_LIMIT, metavar="N", help="The limit to replay at, in its unit.")
    ],
    since: Annotated[
        str, typer.Option(metavar="PERIOD", help="The period up to now: 90m, 24h, 7d; at most 90d.")
    ] = "7d",
    duration_factor: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="F", help="0.5: each request takes half of its time.")
    ] = 1.0,
    arrival_factor: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="F", help="2: requests arrive at twice the rate.")
    ] = 1.0,
) -> None:
    """Replay recorded requests at another limit. `HELP` is the text of --help."""
    length = period_seconds(since) or 0
    if not 60 <= length <= MAX_PERIOD:
        raise typer.BadParameter(f"--since: expected 1m to 90d, such as 90m, 24h or 7d, got {since!r}")
    if math.isnan(duration_factor) or math.isnan(arrival_factor):
        raise typer.BadParameter("a factor must be a number from 0.01 to 100, got nan")
    context = current_context()
    now = time.time()
    with context.out.counting() as on_read:
        recording = read_recording(context.stack, Window(now - length, now), process, on_read)
    try:
        result = replay(recording, limit, duration_factor, arrival_factor)
    except CannotReplay as error:
        raise CommandRefused(str(error)) from error
    data = {"stack": context.stack.name, **result.as_dict()}
    context.out.result(data, lambda console: _render(console, data, result))


def _render(console: Console, data: dict[str, Any], result: ReplayResult) -> None:
    recording, counts = result.recording, data["requests"]
    length = duration(recording.until - recording.since)
    console.print(
        f"{local_time(recording.since)} to {local_time(recording.until)} ({length}): "
        f"{count(counts['samples'], 'request')} of process {data['process']} that started and ended. "
        f"{counts['waiting_at_begin']:,} waited and {counts['running_at_begin']:,} ran at the begin."
    )
    factors = {"durations": data["duration_factor"], "arrivals": data["arrival_factor"]}
    if scaled := ", ".join(f"{name} x {factor:g}" for name, factor in factors.items() if factor != 1):
        console.print(f"Replayed with {scaled}")
    console.print()
    columns = [each for each in (data["recorded"], data["check"], data["replayed"]) if each]
    made = table("", ">recorded", *([">check"] if data["check"] else []), f">limit {data['limit']}")
    for label, name, text in _ROWS:
        cells = (_cell({**each, **each["wait"]}[name], text, each["never_started"]) for each in columns)
        made.add_row(label, *cells)
    console.print(made)
    for note in data["notes"]:
        console.print(f"Note: {note}", style="yellow")


def _cell(value: float | None, text: str, never_started: int) -> str:
    return text.format(value) if value is not None else "never" if never_started else "unknown"
