"""Print what is known of a request as text, from the data that JSON shows."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper_cli.formatting import count, duration, local_time, seconds
from slotkeeper_cli.lease_text import lease_text
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.waiting_requests import waited
from slotkeeper_cli.weight_text import weight_text

# Holders that the text names.
MAX_HOLDERS_SHOWN = 10
# Facts of an attempt that the text shows in another way, or that repeat another fact.
_NOT_LISTED = (
    *("attempt", "state", "execution", "dead_letter", "because", "conditions", "cause", "request_id"),
    *("waited_seconds", "blocked", "ahead", "slot_free_by", "slot_usually_free_after_seconds"),
)
_USUAL = (("priority", DEFAULT_PRIORITY), ("weight", 1))
_TIMES = ("since", "started", "ended")


def render(console: Console, data: dict[str, Any]) -> None:
    """Print a request. `data` is the same as JSON shows it."""
    for one in data["found"]:
        console.print(f"{one['request_id']} in {one['process']}: {one['state']}", style="bold")
        _render_explanation(console, one)
        for attempt in one["attempts"]:
            _render_attempt(console, attempt, one["answer"])
    for lease in data["leases"]:
        console.print(f"{lease['lease']} in {lease['process']}: a lease", style="bold")
        _render_explanation(console, lease)
    if work := data["work"]:
        _render_work(console, work)
    if not (data["found"] or data["leases"] or work):
        _render_unknown(console, data)
    _render_not_read(console, data)
    console.print(f"Searched: {', '.join(data['searched'])}.", style="dim")


def render_process(console: Console, data: dict[str, Any]) -> None:
    """Print why a new request or lease of a process would not start now, from the data that JSON shows."""
    console.print(f"a new request of {data['process']}:", style="bold")
    if not data["conditions"]:
        console.print("  nothing keeps it from starting")
    _render_explanation(console, data)
    for waiting in data["waiting"]:
        console.print(f"  registered: {waited(waiting)}: {waiting['because']}")
    if data["lease_conditions"]:
        console.print(f"a lease of {data['process']}:", style="bold")
        for condition in data["lease_conditions"]:
            console.print(f"  - {condition['text']}")
    _render_not_read(console, data)


def _render_not_read(console: Console, data: dict[str, Any]) -> None:
    for one in data["not_read"]:
        messages = "" if one["messages"] is None else f"about {count(one['messages'], 'message')} of "
        console.print(f"Not read: {messages}{one['source']}: {one['why']}", style="yellow")


def _render_explanation(console: Console, data: dict[str, Any]) -> None:
    """Print an answer with its conditions, holders, expected start and next steps."""
    if data["answer"]:
        console.print(f"  {data['answer']}")
    for condition in data["conditions"] if len(data["conditions"]) > 1 else []:
        console.print(f"  - {condition['text']}")
    _render_holders(console, data.get("holders", []))
    if expected := data["expected_start"]:
        console.print(f"  expected start: {expected['text']}")
    for step in data["next_steps"]:
        console.print(f"  -> {step}", style="yellow")


def _render_unknown(console: Console, data: dict[str, Any]) -> None:
    if data["state"] is None:
        console.print(f"No request {data['request_id']} found. Possible reasons:")
    else:
        console.print(f"{data['request_id']}: {data['state']}. It was found nowhere. Possible reasons:", style="bold")
    for text in data["may_be"]:
        console.print(f"- {text}")
    for queue in data["queues"]:
        if queue["conditions"]:
            console.print(f"If it is queued in {queue['process']}:", style="bold")
            _render_explanation(console, queue)
            for waiting in queue["waiting"]:
                console.print(f"  registered: {waited(waiting)}: {waiting['because']}")


def _render_attempt(console: Console, attempt: dict[str, Any], answer: str) -> None:
    """Print an attempt, without a reason that the answer has."""
    console.print(f"  attempt {attempt['attempt'] or 'unknown'}: {attempt['state']}  {attempt['execution'] or ''}")
    for name, value in attempt.items():
        is_new = name != "reason" or value not in answer
        if value and name not in _NOT_LISTED and (name, value) not in _USUAL and is_new:
            print_lines(console, f"    {name.replace('_', ' ')}: {_shown(name, value)}", "      ")
    for ahead in attempt.get("ahead", []):
        console.print(f"      before it: {waited(ahead)}: {ahead['because']}")
    if dead_letter := attempt.get("dead_letter"):
        _render_dead_letter(console, dead_letter, answer)


def _render_holders(console: Console, holders: list[dict[str, Any]]) -> None:
    for holder in holders[:MAX_HOLDERS_SHOWN]:
        state = f"{holder['state']} for {duration(holder['age_seconds'])}{weight_text(holder['weight'])}"
        if holder["state"] == "LEASED":
            console.print(f"    {holder['execution']}  {state}, {lease_text(holder)}")
            continue
        console.print(f"    {holder['request_id'] or 'request id unknown'}  {state}  {holder['execution']}")
    if (more := len(holders) - MAX_HOLDERS_SHOWN) > 0:
        console.print(f"    and {more:,} more: slotkeeper status")


def _render_work(console: Console, data: dict[str, Any]) -> None:
    if "malformed" in data:
        console.print(f"{data['request_id']} in the worker: {data['malformed']}")
        return
    console.print(f"{data['request_id']} in the worker: {data['state']}", style="bold")
    _render_explanation(console, data)
    for entry in data.get("history", []):
        at = local_time(seconds(entry["at"]))
        console.print(f"  attempt {entry['attempt']}: failed  {at}  {entry['error']}")
    failed = {entry["attempt"] for entry in data.get("history", [])}
    last = data.get("attempts", 0)
    if last and last not in failed:
        at = local_time(seconds(data["last_attempt_at"]))
        console.print(f"  attempt {last}: {data['state']}  {at}")
    if due := data.get("next_attempt_at"):
        console.print(f"  attempt {last + 1}: due {local_time(seconds(due))}")
    if dead_letter := data.get("dead_letter"):
        _render_dead_letter(console, dead_letter, data["answer"])


def _render_dead_letter(console: Console, message: dict[str, Any], answer: str) -> None:
    """Print a dead-letter message, without a reason that the answer has."""
    reason = f": {message['reason']}" if message["reason"] not in answer else ""
    named = f"    dead-letter message: {message['message_id']} in {message['queue']}, {message['code']}"
    print_lines(console, named + reason, "      ")


def _shown(name: str, value: Any) -> str:
    if name in _TIMES:
        return local_time(seconds(value))
    return f"{value['state']} {value['id']}" if isinstance(value, dict) else str(value)
