"""`slotkeeper status`: processes, holders, queued requests and queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper.retry.downstream.downstreams import MalformedHealth
from slotkeeper.retry.downstream.health import State
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.process import Process
from slotkeeper.slots.rows import Listed, QueuedRow
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.conditions import Condition
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import duration, iso, local_time, seconds
from slotkeeper_cli.holders import (
    executions_of,
    holder_as_dict,
    holders_text,
    in_use_text,
    lease_text,
    target_of,
    weight_text,
    work_of_holders,
)
from slotkeeper_cli.output import styled, table
from slotkeeper_cli.process_queue import ProcessQueue, read_queue, waited
from slotkeeper_cli.refreshes import show_refreshes
from slotkeeper_cli.retries import line, noteworthy, read_downstreams
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import (
    DEAD_LETTER_QUEUES,
    FLOWS,
    StackConnection,
    in_parallel,
    message_counts,
)
from slotkeeper_cli.target_checks import ShownWork, target_text
from slotkeeper_cli.unread import Search, print_not_read

# Requests above the limit that are named.
MAX_BLOCKED = 10


def status(
    process: Annotated[str | None, typer.Argument(help="Name of one process.", autocompletion=process_names)] = None,
    watch: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds between two refreshes, until Ctrl-C; 0 shows the status once.", min=0
        ),
    ] = 0,
) -> None:
    """Show processes, holders, queued requests and queues.

    It shows each holder's age and work, how many requests are queued, and why the next one has not started. Without a
    process, it also shows the downstreams whose breaker is not closed, or whose limit an operator has set.
    """
    context = current_context()
    if watch and context.out.as_json:
        raise typer.BadParameter("--watch cannot be combined with --json: run the command repeatedly instead")

    def read() -> dict[str, Any]:
        return read_status(context.stack, process)

    if watch:
        show_refreshes(context, read, _render, watch)
    data = read()
    context.out.result(data, lambda console: _render(console, data))


def read_status(stack: StackConnection, only: str | None = None) -> dict[str, Any]:
    """The state of a stack, as `status --json` prints it.

    Raises:
        NotFound: there is no process of the name `only`.
    """
    control, now = SlotControl(stack), time.time()
    processes, malformed = ([control.process(only)], []) if only else control.read_all()
    downstreams = {} if only else read_downstreams(stack)
    errors = [*malformed, *(each for each in downstreams.values() if isinstance(each, MalformedHealth))]
    account, search = Account(stack), Search()
    queues = account.queues()
    event_source: list[Condition] = []
    for queue in ("RequestQueue", "DispatchQueue"):
        event_source += account.stopped_event_source(search, queue)
    executions = _executions(control, processes)
    work = work_of_holders(stack, processes)
    oldest = sorted((holder.since, one.name, name) for one in processes for name, holder in executions_of(one).items())
    ids = control.row_search.request_ids([(process, name) for _, process, name in oldest])
    queued = in_parallel(lambda one: _queue(control, search, one, now), processes)
    return {
        "stack": stack.name,
        "region": stack.region,
        "at": iso(now),
        "processes": [
            _process(stack, one, executions, ids, work, queue) for one, queue in zip(processes, queued, strict=True)
        ],
        "malformed": [str(each) for each in errors],
        "event_source": [each.as_dict() for each in event_source],
        "downstreams": noteworthy(downstreams),
        "queues": {queue: message_counts(attributes) for queue, attributes in queues.items()},
        "not_read": [each.as_dict() for each in search.not_read],
        "not_deployed": [flow.name for flow in stack.not_deployed],
    }


def _process(
    stack: StackConnection,
    process: Process,
    executions: Mapping[str, str],
    request_ids: Mapping[str, str],
    work: Mapping[str, ShownWork],
    queue: ProcessQueue,
) -> dict[str, Any]:
    holders = []
    for name, holder in sorted(process.holders.items(), key=lambda entry: entry[1].since):
        shown = holder_as_dict(name, holder, request_ids.get(name), queue.now)
        if not holder.is_lease:
            target = target_of(process, holder)
            shown |= {"execution_status": executions.get(name, "UNKNOWN"), "target": target}
            shown |= {"glue_run": None, "child": None, kind_of(target).work_key: work.get(name)}
            shown |= {"link": stack.execution_link(name)}
        holders.append(shown)
    keys = ("name", "slot_limit", "slots_in_use", "default_weight", "paused", "has_drifted", "target")
    data = {key: getattr(process, key) for key in keys} | {"rate": process.rate and str(process.rate)}
    return data | {"holders": holders, "queue": queue_as_dict(queue)}


def _queue(control: SlotControl, search: Search, process: Process, now: float) -> ProcessQueue:
    nothing = ProcessQueue(process, Listed[QueuedRow](), now)
    queue = search.try_read("RequestTable", lambda: read_queue(control.rows, process, now), nothing)
    for why in queue.malformed:
        search.note_unread("RequestTable", why)
    return queue


def queue_as_dict(queue: ProcessQueue) -> dict[str, Any]:
    """The queue of a process as JSON shows it: numbers, the next request, and those that no free slot could start."""
    requests = queue.requests
    blocked = [each for each in requests if any(reason.name == "limit" for reason in each.reasons)]
    first = next((each for each in requests if each.position == 1), None)
    return {
        "queued": len(requests),
        "is_cut": queue.is_cut,
        "oldest_seconds": int(queue.now - min(each.sent for each in requests)) if requests else None,
        "first": first and first.as_dict(queue.now),
        "blocked": [each.as_dict(queue.now) for each in blocked if each.position is None][:MAX_BLOCKED],
    }


def _executions(control: SlotControl, processes: list[Process]) -> dict[str, str]:
    """The status of each holder's execution."""
    names = {name for process in processes for name in executions_of(process)}
    if not names:
        return {}
    # One list contains the running executions; the others are described one by one.
    running = set(control.workflow.running())
    described = in_parallel(control.workflow.describe, sorted(names - running))
    return dict.fromkeys(names & running, "RUNNING") | {one.name: one.status for one in described if one is not None}


def _render(console: Console, data: dict[str, Any]) -> None:
    console.print(Text.assemble((data["stack"], "bold"), f" in {data['region']}, {local_time(seconds(data['at']))}"))
    console.print()
    for process in data["processes"]:
        _render_process(console, process)
    for text in data["malformed"]:
        console.print(Text.assemble(("malformed: ", "red"), styled(text)))
    for one in data["event_source"]:
        console.print(styled(one["text"], "red"))
        if "ends_by" in one:
            console.print(f"  -> {one['ends_by']}", style="yellow")
    print_not_read(console, data["not_read"])
    if not data["processes"] and not data["malformed"]:
        console.print("There are no processes. Add one with: slotkeeper process add")
    for one in data["downstreams"]:
        console.print(line(one, time.time()), style="" if one["state"] == State.CLOSED else "yellow")
    queues = table("queue", ">visible", ">in flight", ">delayed")
    for name, counts in data["queues"].items():
        style = "yellow" if name in DEAD_LETTER_QUEUES and any(counts.values()) else ""
        queues.add_row(name, *(f"{number:,}" for number in counts.values()), style=style)
    console.print(queues)
    print_not_deployed(console, data["not_deployed"])


def print_not_deployed(console: Console, flows: list[str]) -> None:
    """Print the flows without which the stack was deployed on one line; nothing if it has all flows."""
    parameters = {flow.name: flow.parameter for flow in FLOWS}
    named = ", ".join(f"{name} (deploy with {parameters[name]})" for name in flows)
    if named:
        console.print(f"Not deployed: {named}.", style="dim")


def _render_process(console: Console, process: dict[str, Any]) -> None:
    line = Text(process["name"], style="bold")
    line.append(f"  {in_use_text(process)}", style="not bold")
    line.append(f"  {target_text(process['target'])}", style="dim not bold")
    if process["rate"]:
        line.append(f"  at most {process['rate']}", style="not bold")
    if process["paused"]:
        line.append("  PAUSED", style="yellow")
    if process["has_drifted"]:
        line.append(f"  DRIFTED: {holders_text([each['weight'] for each in process['holders']])}", style="red")
    console.print(line)
    for holder in process["holders"]:
        console.print(_holder(holder))
    if len(process["holders"]) == 1 and (link := process["holders"][0].get("link")):
        console.print(f"  {link}", style="dim")
    _render_queue(console, process["queue"])
    console.print()


def _render_queue(console: Console, queue: dict[str, Any]) -> None:
    if not queue["queued"]:
        return
    more = "more than " * queue["is_cut"]
    console.print(f"  {more}{queue['queued']:,} queued, the oldest for {duration(queue['oldest_seconds'])}")
    first = [queue["first"]] if queue["first"] else []
    for title, request in [("next", each) for each in first] + [("blocked", each) for each in queue["blocked"]]:
        console.print(f"  {title}: {waited(request)}: {request['because']}")
        for reason in request["reasons"]:
            if "ends_by" in reason:
                console.print(f"    -> {reason['ends_by']}", style="yellow")


def _holder(holder: dict[str, Any]) -> Text:
    """Three lines, so that both ids can be copied in a narrow window too; one for a lease."""
    state = f"{holder['state']} for {duration(holder['age_seconds'])}{weight_text(holder['weight'])}"
    if holder["state"] == "LEASED":
        style = "red" if holder["seconds_left"] < -CLOCK_SKEW_SECONDS else ""
        return Text.assemble(f"  {holder['execution']}  {state}, ", (lease_text(holder), style))
    status, noun = holder["execution_status"], kind_of(holder["target"]).work_noun
    work = holder["glue_run"] or holder["child"]
    line = styled(f"  {holder['request_id'] or 'request id unknown'}  {state}, execution ")
    line.append(status, style="" if status in ("RUNNING", "PENDING_REDRIVE", "UNKNOWN") else "red")
    line.append(f"\n    {holder['execution']}", style="dim")
    line.append(f"\n    {noun} {work['state']} {work['id']}" if work else f"\n    no {noun} found", style="dim")
    return line
