"""`slotkeeper what-if`: the waits of a process, predicted for another limit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.process import MAX_SLOT_LIMIT
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit.intervals import percentile, rounded
from slotkeeper_cli.completion import ProcessName
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.formatting import count, duration, iso, local_time, period_seconds, seconds
from slotkeeper_cli.key_use import key_limit_of
from slotkeeper_cli.output import table
from slotkeeper_cli.what_if import MAX_CALLS, read_recording
from slotkeeper_cli.what_if.prediction import MIN_SAMPLES, CannotKnow, Course, predict

MAX_PERIOD = 90 * 86400
MAX_KEYS = 3

_ROWS = (  # the label, the figure, and how it is shown
    ("wait p50", "p50", "{:,.1f} s"),
    ("wait p90", "p90", "{:,.1f} s"),
    ("wait p99", "p99", "{:,.1f} s"),
    ("requests that waited 1 s or more", "waited", "{:,}"),
    ("left the queue without a start", "left", "{:,}"),
    ("longest queue", "longest_queue", "{:,}"),
    ("utilization", "utilization", "{:.0%}"),
)

HELP = f"""Predict the waits of recorded requests at another limit.

It replays the arrivals and durations of a process by the rule that starts requests, with the present rate and the
pauses of then, and prints waits, the longest queue and utilization as recorded and as replayed. The column `check` is
a replay of the recorded time at its own settings. If the check does not have the recorded waits, or the records show
too little, the command states why the waits cannot be known, and what to do.

Without --limit it replays at the present limit. Limits of keys are the present ones; --key-limit replaces the one that
applies to each key without one of its own. If requests have keys, it also prints the waits of the keys that wait
longest.

The rows of requests have their arrivals, starts and ends, and are kept for the stack's RequestRetentionDays. At least
{MIN_SAMPLES} requests are needed that started and ended. The command makes at most {MAX_CALLS:,} calls, a few for a
process with less than two thousand requests, and changes nothing.
"""


def what_if(
    process: ProcessName,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MAX_SLOT_LIMIT, metavar="N", help="The limit to replay at, in its unit.")
    ] = None,
    key_limit: Annotated[
        str | None, typer.Option(metavar="N|none", help="The limit of each key that has none of its own.")
    ] = None,
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
    if limit is None and key_limit is None:
        raise typer.BadParameter("give --limit, --key-limit or both")
    settings = {} if key_limit is None else {"key_limit": key_limit_of(key_limit)}
    context = current_context()
    now = time.time()
    try:
        recording = read_recording(Account(context.stack), now - length, now, process)
        limit = recording.process.slot_limit if limit is None else limit
        found = predict(recording, limit, duration_factor, arrival_factor, settings=settings)
    except CannotKnow as error:
        raise CommandRefused(str(error)) from error
    data = {
        "stack": context.stack.name,
        "limit": limit,
        **settings,
        "duration_factor": duration_factor,
        "arrival_factor": arrival_factor,
        "process": process,
        "since": iso(recording.since),
        "until": iso(recording.until),
        "requests": recording.counts,
        **{name: course.figures() for name, course in found.items()},
        **_keys(found),
        "notes": list(recording.notes),
    }
    context.out.result(data, lambda console: _render(console, data))


def _keys(found: Mapping[str, Course]) -> dict[str, Any]:
    """`keys`: the p90 of the waits of those keys that wait longest in the replay, if requests have keys."""
    p90 = {name: {key: percentile(of, 0.9) for key, of in each.waits_by_key.items()} for name, each in found.items()}
    if not any(p90["replayed"]):
        return {}
    worst = sorted(p90["replayed"], key=lambda key: -(p90["replayed"][key] or 0.0))[:MAX_KEYS]
    return {"keys": [{"key": key or None, **{name: rounded(of.get(key)) for name, of in p90.items()}} for key in worst]}


def _render(console: Console, data: dict[str, Any]) -> None:
    since, until, counts = seconds(data["since"]), seconds(data["until"]), data["requests"]
    console.print(
        f"{local_time(since)} to {local_time(until)} ({duration(until - since)}): "
        f"{count(counts['samples'], 'request')} of process {data['process']} that started and ended. "
        f"{counts['waiting_at_begin']:,} waited and {counts['running_at_begin']:,} ran at the begin, "
        f"{counts['waiting_at_end']:,} wait and {counts['running_at_end']:,} run at the end."
    )
    factors = {"durations": data["duration_factor"], "arrivals": data["arrival_factor"]}
    if scaled := ", ".join(f"{name} x {factor:g}" for name, factor in factors.items() if factor != 1):
        console.print(f"Replayed with {scaled}")
    console.print()
    of_keys = f", of keys {data['key_limit'] or 'none'}" if "key_limit" in data else ""
    made = table("", ">recorded", ">check", f">limit {data['limit']}{of_keys}")
    columns = [{**data[name], **data[name]["wait"]} for name in ("recorded", "check", "replayed")]
    for label, name, text in _ROWS:
        made.add_row(label, *(text.format(each[name]) if each[name] is not None else "no start" for each in columns))
    for each in data.get("keys", []):
        p90 = (each[name] for name in ("recorded", "check", "replayed"))
        shown = ("no start" if wait is None else f"{wait:,.1f} s" for wait in p90)
        made.add_row(f"wait p90 of {of_key(each['key'] or '')}", *shown)
    console.print(made)
    for note in data["notes"]:
        console.print(f"Note: {note}", style="yellow")
