"""`slotkeeper explain`, which is also `slotkeeper request show`: where a request is, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper_cli.account import Account
from slotkeeper_cli.completion import process_names, request_ids
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.explanation import explain as explanation
from slotkeeper_cli.explanation import explain_process
from slotkeeper_cli.formatting import duration, local_time, seconds
from slotkeeper_cli.holders import is_dead, lease_text, weight_text
from slotkeeper_cli.keys import checked_key
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.request_finder import ID_HELP
from slotkeeper_cli.requests import ALL_STATES, fact_text
from slotkeeper_cli.unread import print_not_read

HELP = f"""Show where a request is, and why.

It shows the position of a queued request, what it waits for and when it is expected to start, or how it ended, and what
to do next. With --process alone: what keeps a new request or lease of that process from starting.

A request, and each of its attempts, is {ALL_STATES}. The last three are states of the worker's requests.
"""

# Holders and attempts of one request in the text; JSON has all.
MAX_HOLDERS_SHOWN = 3
MAX_ATTEMPTS_SHOWN = 5
# Facts of an attempt that the text shows in another way, or that repeat another fact.
_NOT_LISTED = (
    *("attempt", "state", "execution", "cause", "published", "slot_free_by", "slot_usually_free_after_seconds"),
    *("timeline", "slot", "held_since"),
)
_USUAL = (("priority", DEFAULT_PRIORITY), ("weight", 1))
_OWN_LINES = ("reason", "output", "link")  # facts that may be long


def explain(
    request_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help=f"{ID_HELP} Or the name of a lease.", autocompletion=request_ids),
    ] = None,
    process: Annotated[
        str | None, typer.Option(help="Search only this process; without ID: explain it.", autocompletion=process_names)
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --process alone: the key of the new request.")
    ] = None,
) -> None:
    """Show where a request is and why. `HELP` is the text of --help."""
    context = current_context()
    account = Account(context.stack)
    if request_id is None:
        if process is None:
            raise typer.BadParameter("give the id of a request or the name of a lease, or --process alone")
        of_process = explain_process(account, process, checked_key(key))
        context.out.result(of_process, lambda console: render_process(console, of_process))
        return
    if key is not None:
        raise typer.BadParameter("--key needs --process alone: a request that was sent has its own")
    data = explanation(account, request_id, process)
    context.out.result(data, lambda console: render(console, data))
    if data["found"]:
        return
    if data["not_read"]:
        raise CommandFailed(f"no request {request_id} found in what could be read: see what could not be read above")
    days = context.stack.outputs["RequestRetentionDays"]
    late = "" if process else ", and one that was accepted in the last second is found only with --process"
    raise NotFound(f"no request {request_id} found: check the id. Rows are kept for {days} days after the end{late}")


def render(console: Console, data: dict[str, Any]) -> None:
    """Print a request. `data` is the same as JSON shows it."""
    is_only = len(data["found"]) == 1
    for one in data["found"]:
        state = "a lease" if one["kind"] == "lease" else one["state"] or "malformed"
        attempts = one.get("attempts", [])
        execution = attempts[-1]["execution"] if attempts and not is_only else ""
        named = f"  {execution}" if execution else ""
        console.print(f"{one['request_id']} in {one.get('process', 'the worker')}: {state}{named}", style="bold")
        _render_explanation(console, one, holders=is_only)
        if is_only:
            _render_attempts(console, attempts, one["answer"])
            _render_history(console, one)
    if len(data["found"]) > 1:
        console.print("For attempts and holders, give --process or the name of an execution.", style="dim")
    print_not_read(console, data["not_read"])


def render_process(console: Console, data: dict[str, Any]) -> None:
    """Print why a new request or lease of a process would not start now, from the data that JSON shows."""
    console.print(f"a new request of {data['process']}:", style="bold")
    if data["reasons"] and data["ahead"] is not None:
        more = "more than " * data["is_cut"]
        place = f"number {more}{data['position']:,} in the queue"
        if data["key"]:
            place += f", and number {data['ahead_of_key'] + 1:,} of {of_key(data['key'])}"
        console.print(f"  it would be {place}")
    _render_explanation(console, data)
    if data["lease_reasons"]:
        console.print(f"a lease of {data['process']}:", style="bold")
        for reason in data["lease_reasons"]:
            console.print(f"  - {reason['text']}")
    print_not_read(console, data["not_read"])


def _render_explanation(console: Console, data: dict[str, Any], *, holders: bool = True) -> None:
    """Print an answer with the holders of the slots, the expected start, and next steps."""
    console.print(f"  {data['answer']}")
    if holders:
        _render_holders(console, data)
    if expected := data.get("expected_start"):
        console.print(f"  expected start: {expected['text']}")
    for step in data.get("next", []):
        console.print(f"  -> {step}", style="yellow")


def _render_holders(console: Console, data: dict[str, Any]) -> None:
    holders = data.get("holders", [])
    for holder in holders[:MAX_HOLDERS_SHOWN]:
        state = f"{holder['state']} for {duration(holder['age_seconds'])}{weight_text(holder['weight'])}"
        if holder["state"] == "LEASED":
            console.print(f"  held by {holder['execution']}  {state}, {lease_text(holder)}")
            continue
        named = holder["request_id"] or "request id unknown"
        console.print(f"  held by {named}  {state}{_execution_text(holder)}  {holder['execution']}")
    if (more := len(holders) - MAX_HOLDERS_SHOWN) > 0:
        console.print(f"  and {more:,} more: {next_step('status', data['process'])}")


def _execution_text(holder: dict[str, Any]) -> str:
    """Why a holder's execution is unusual; empty for one that runs, or is being started."""
    status = holder["execution_status"]
    if status is None:
        return ", its execution was not read"
    found = f"is {status}: its slot will be freed" if status else "could not be found"
    return f", its execution {found}" * is_dead(holder)


def _render_history(console: Console, work: dict[str, Any]) -> None:
    """Print the attempts of a request of the worker; nothing of any other."""
    for entry in work.get("history", []):
        console.print(f"  attempt {entry['attempt']}: failed  {local_time(seconds(entry['at']))}  {entry['error']}")
    if due := work.get("next_attempt_at"):
        console.print(f"  attempt {work['attempts_made'] + 1}: due {local_time(seconds(due))}")


def _render_attempts(console: Console, attempts: list[dict[str, Any]], answer: str) -> None:
    """Print the last attempts, without a reason that the answer has."""
    if (earlier := len(attempts) - MAX_ATTEMPTS_SHOWN) > 0:
        console.print(f"  {earlier:,} earlier attempts: --json")
    for attempt in attempts[-MAX_ATTEMPTS_SHOWN:]:
        named = f"  {attempt['execution']}" if attempt["execution"] else ""
        console.print(f"  attempt {attempt['attempt']}: {attempt['state']}{named}")
        facts = {
            name: f"{name.replace('_', ' ')}: {fact_text(name, value)}"
            for name, value in attempt.items()
            if value and name not in _NOT_LISTED and (name, value) not in _USUAL
        }
        console.print(f"    {'; '.join(text for name, text in facts.items() if name not in _OWN_LINES)}")
        for name in _OWN_LINES:
            if name in facts and attempt[name] not in answer:
                print_lines(console, f"    {facts[name]}", "      ")
