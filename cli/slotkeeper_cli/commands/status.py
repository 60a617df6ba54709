"""`slotkeeper status`: processes, holders, waiting requests and queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slotkeeper.slots.process import Process
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.glue_runs import runs_by_execution
from slotkeeper_cli.output import table
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.queue_attributes import DEAD_LETTER_QUEUES, all_queue_attributes, message_counts
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import FLOWS, StackConnection


def status(
    process: Annotated[str | None, typer.Argument(help="Name of one process.")] = None,
    watch: Annotated[
        float, typer.Option(help="Seconds between two refreshes, until Ctrl-C; 0 shows the status once.", min=0)
    ] = 0,
) -> None:
    """Show holders with their age and Glue run, the first waiting request, and the number of messages in each queue."""
    context = current_context()
    if watch and context.out.as_json:
        raise typer.BadParameter("--watch cannot be combined with --json: run the command repeatedly instead")
    if not watch:
        data = read_status(context.stack, process)
        context.out.result(data, lambda console: _render(console, data))
        return
    console = context.out.console
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            data = read_status(context.stack, process)
            with console.capture() as capture:
                _render(console, data)
            live.update(Text.from_ansi(capture.get()), refresh=True)
            time.sleep(watch)


def read_status(stack: StackConnection, only: str | None = None) -> dict[str, Any]:
    """The state of a stack, as `status --json` prints it.

    Raises:
        NotFound: there is no process of the name `only`.
    """
    control, now = SlotControl(stack), time.time()
    processes, malformed = ([control.process(only)], []) if only else control.read_all()
    executions = _executions(control, processes)
    runs = _runs(stack, processes)
    return {
        "stack": stack.name,
        "region": stack.region,
        "at": iso(now),
        "processes": [_process(stack, one, executions, runs, now) for one in processes],
        "malformed": malformed,
        "queues": {queue: message_counts(attributes) for queue, attributes in all_queue_attributes(stack).items()},
        "not_deployed": [flow.name for flow in stack.not_deployed],
    }


def _process(
    stack: StackConnection,
    process: Process,
    executions: Mapping[str, str],
    runs: Mapping[str, dict[str, str]],
    now: float,
) -> dict[str, Any]:
    holders = [
        {
            "execution": name,
            "state": holder.state,
            "since": iso(holder.since),
            "age_seconds": int(now - holder.since),
            "execution_status": executions.get(name, "UNKNOWN"),
            "job": holder.job or process.job_name,
            "glue_run": runs.get(name),
            "link": stack.execution_link(name),
        }
        for name, holder in sorted(process.holders.items(), key=lambda entry: entry[1].since)
    ]
    keys = ("name", "slot_limit", "slots_in_use", "paused", "has_drifted", "job_name")
    data = {key: getattr(process, key) for key in keys}
    return data | {"holders": holders, "waiting": _waiting(process, executions, now)}


def _waiting(process: Process, executions: Mapping[str, str], now: float) -> dict[str, Any] | None:
    """The first waiting request. A registration stays in the item: if its request has started, no request waits."""
    first = process.waiting_execution
    if process.waiting_since is None or first in process.holders or (first and first in executions):
        return None
    behind = "nothing"  # a slot is free, and the request is being woken
    if process.paused or not process.has_free_slot:
        behind = "a pause" if process.paused else "other requests"
    return {
        "execution": first,
        "since": iso(process.waiting_since),
        "waited_seconds": int(now - process.waiting_since),
        "behind": behind,
    }


def _executions(control: SlotControl, processes: list[Process]) -> dict[str, str]:
    """The status of each holder's execution, and of the first waiting request's if it has started."""
    names = {name for process in processes for name in process.holders}
    names |= {process.waiting_execution for process in processes if process.waiting_execution}
    if not names:
        return {}
    # One list contains the running executions; the others are described one by one.
    running = set(control.workflow.running())
    rest = sorted(names - running)
    described = zip(rest, in_parallel(control.workflow.describe, rest), strict=True)
    known = {name: execution.status for name, execution in described if execution is not None}
    return dict.fromkeys(names & running, "RUNNING") | known


def _runs(stack: StackConnection, processes: list[Process]) -> dict[str, dict[str, str]]:
    """The newest Glue run of each holder."""
    oldest: dict[str, int] = {}
    for process in processes:
        for holder in process.holders.values():
            job = holder.job or process.job_name
            oldest[job] = min(holder.since, oldest.get(job, holder.since))
    return {name: run for job, since in oldest.items() for name, run in runs_by_execution(stack, job, since).items()}


def _render(console: Console, data: dict[str, Any]) -> None:
    console.print(Text.assemble((data["stack"], "bold"), f" in {data['region']}, {local_time(time.time())}\n"))
    for process in data["processes"]:
        _render_process(console, process)
    for text in data["malformed"]:
        console.print(Text.assemble(("malformed: ", "red"), text))
    if not data["processes"] and not data["malformed"]:
        console.print("There are no processes. Add one with: slotkeeper process add")
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
    line.append(f"  {process['slots_in_use']} of {process['slot_limit']} slots in use", style="not bold")
    line.append(f"  job {process['job_name']}", style="dim not bold")
    if process["paused"]:
        line.append("  PAUSED", style="yellow")
    if process["has_drifted"]:
        line.append(f"  DRIFTED: {count(len(process['holders']), 'holder')}", style="red")
    console.print(line)
    for holder in process["holders"]:
        console.print(_holder(holder))
    if len(process["holders"]) == 1:
        console.print(f"  {process['holders'][0]['link']}", style="dim")
    if waiting := process["waiting"]:
        waited = f"{waiting['execution'] or 'a request'}, waiting for {duration(waiting['waited_seconds'])}"
        behind = {"a pause": "the process is paused", "other requests": "all slots are in use"}
        console.print(f"  first in the queue: {waited}: {behind.get(waiting['behind'], 'it is being woken')}")
    console.print()


def _holder(holder: dict[str, Any]) -> Text:
    """Two lines, so that the name can be copied in a narrow window too."""
    run, status = holder["glue_run"], holder["execution_status"]
    line = Text(f"  {holder['execution']}  {holder['state']} for {duration(holder['age_seconds'])}, execution ")
    line.append(status, style="" if status in ("RUNNING", "PENDING_REDRIVE", "UNKNOWN") else "red")
    line.append(f"\n    Glue run {run['state']} {run['id']}" if run else "\n    no Glue run found", style="dim")
    return line
