"""Print what is known of a request as text."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper_cli.downstream_text import line
from slotkeeper_cli.formatting import count, duration, local_time, seconds
from slotkeeper_cli.lease_text import lease_text
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.request_finder import RequestAttempts
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.slot_release import release_of
from slotkeeper_cli.waiting_requests import label, waited
from slotkeeper_cli.weight_text import weight_text
from slotkeeper_cli.work_finder import FoundWork

# Holders that the text names.
MAX_HOLDERS_SHOWN = 10
# Facts of an attempt that the text shows in another way, or that repeat another fact.
_NOT_LISTED = (
    *("attempt", "state", "execution", "dead_letter", "behind", "holders", "cause", "request_id", "waited_seconds"),
    *("blocked", "ahead"),
)
_USUAL = (("priority", DEFAULT_PRIORITY), ("weight", 1))
_RELEASE = ("slot_free_by", "slot_usually_free_after_seconds")
_TIMES = ("since", "started", "ended")


@dataclass
class FoundRequest:
    """The result of a search, and where it searched.

    Args:
        queues: the processes in which the request may be queued.
        open_breakers: the downstreams that may hold its message back.
    """

    request_id: str
    attempts: list[RequestAttempts]
    queued: int
    searched: list[str]
    work: FoundWork | None = None
    malformed: str = ""
    queues: list[dict[str, Any]] = field(default_factory=list)
    open_breakers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_known(self) -> bool:
        return bool(self.attempts or self.work or self.malformed)


def render(console: Console, found: FoundRequest, data: dict[str, Any]) -> None:
    """Print a request. `data` is the same as JSON shows it."""
    for one in data["found"]:
        _render_attempts(console, one)
    if found.malformed:
        console.print(f"{found.request_id} in the worker: {found.malformed}")
    elif found.work:
        _render_work(console, data["work"])
        for one in found.open_breakers:
            console.print(f"  its message may be held back: {line(one, time.time())}")
    if not found.is_known and not found.queued:
        console.print(f"No request {found.request_id} found. Possible reasons:")
    elif not found.is_known:
        messages = f"RequestQueue has about {count(found.queued, 'message')} of all processes"
        console.print(f"{found.request_id}: perhaps queued. {messages}, and cannot be searched.", style="bold")
    _render_queues(console, found)
    if not found.is_known:
        if found.queued:
            console.print("If it is not queued:")
        for text in data["may_be"][1 if found.queued else 0 :]:
            console.print(f"- {text}")
    console.print(f"Searched: {', '.join(found.searched)}.", style="dim")


def _render_queues(console: Console, found: FoundRequest) -> None:
    for queue in found.queues:
        console.print(f"  {'Probably' if len(found.queues) == 1 else 'Perhaps'} {queue_text(queue)}")
        _render_holders(console, queue["holders"])
    if not found.queues and not found.is_known and found.queued:
        console.print("  A slot is free in every process, so it starts within seconds: run this again")


def _render_attempts(console: Console, data: dict[str, Any]) -> None:
    console.print(f"{data['request_id']} in {data['process']}: {data['state']}", style="bold")
    for attempt in data["attempts"]:
        number = attempt["attempt"] or "unknown"
        console.print(f"  attempt {number}: {attempt['state']}  {attempt['execution']}")
        if attempt["state"] is RequestState.STOPPED:
            console.print(f"    its slot will be free {release_of(attempt).text(time.time())}")
        for name, value in attempt.items():
            if value and name not in (*_NOT_LISTED, *_RELEASE) and (name, value) not in _USUAL:
                print_lines(console, f"    {name.replace('_', ' ')}: {_shown(name, value)}", "      ")
        for ahead in attempt.get("ahead", []):
            console.print(f"      {waited(ahead)}: {ahead['because']}")
        if attempt.get("blocked"):
            console.print(f"    -> slotkeeper process set-limit {data['process']} {attempt['weight']}")
        _render_holders(console, attempt.get("holders", []))
        if dead_letter := attempt.get("dead_letter"):
            _render_dead_letter(console, dead_letter, attempt.get("reason", ""))
    if next_attempt := data.get("next_attempt"):
        console.print(f"  attempt {next_attempt['attempt']}: {next_attempt['state']}  {next_attempt['execution']}")


def _render_holders(console: Console, holders: list[dict[str, Any]]) -> None:
    for holder in holders[:MAX_HOLDERS_SHOWN]:
        state = f"{holder['state']} for {duration(holder['age_seconds'])}{weight_text(holder['weight'])}"
        if holder["state"] == "LEASED":
            console.print(f"      {holder['execution']}  {state}, {lease_text(holder)}")
            continue
        console.print(f"      {holder['request_id'] or 'request id unknown'}  {state}  {holder['execution']}")
    if (more := len(holders) - MAX_HOLDERS_SHOWN) > 0:
        console.print(f"      and {more:,} more: slotkeeper status")


def _render_work(console: Console, data: dict[str, Any]) -> None:
    console.print(f"{data['request_id']} in the worker: {data['state']}", style="bold")
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
        _render_dead_letter(console, dead_letter)


def _render_dead_letter(console: Console, message: dict[str, Any], shown_reason: str = "") -> None:
    """Print a dead-letter message, without its reason if the attempt's own is the same."""
    reason = f": {message['reason']}" if message["reason"] != shown_reason else ""
    named = f"    dead-letter message: {message['message_id']} in {message['queue']}, {message['code']}"
    print_lines(console, named + reason, "      ")


def _shown(name: str, value: Any) -> str:
    if name in _TIMES:
        return local_time(seconds(value))
    return f"{value['state']} {value['id']}" if isinstance(value, dict) else str(value)


def queue_text(queue: dict[str, Any]) -> str:
    """The requests ahead of a queued request of a process: `in sample behind 2 holders and request b, ...`."""
    ahead = [count(len(queue["holders"]), "holder")] if queue["holders"] else []
    for waiting in queue["waiting"]:
        ahead.append(f"request {label(waiting)}, which has waited for {duration(waiting['waited_seconds'])}")
    behind_these = f" behind {' and '.join(ahead)}" if ahead else ""
    return f"in {queue['process']}{behind_these} ({queue['because']})"
