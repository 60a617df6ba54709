"""`slotkeeper status`: who holds the slots, who waits, and what stands in the queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slotkeeper.slots.glue import MARKER
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper_cli.common import cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.output import table
from slotkeeper_cli.stack import FLOWS, Stack
from slotkeeper_cli.words import count, duration, iso, local_time

QUEUES = {
    "RequestQueueUrl": "RequestQueue",
    "RequestDeadLetterQueueUrl": "RequestDeadLetterQueue",
    "FailedRequestQueueUrl": "FailedRequestQueue",
    "WorkQueueUrl": "WorkQueue",
    "WorkDeadLetterQueueUrl": "WorkDeadLetterQueue",
    "RetryScheduleDeadLetterQueueUrl": "RetryScheduleDeadLetterQueue",
}
END_QUEUES = ("RequestDeadLetterQueue", "FailedRequestQueue", "WorkDeadLetterQueue", "RetryScheduleDeadLetterQueue")
_COUNTS = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
# Runs begin after their reservation; a minute allows for two services' clocks.
_CLOCKS_APART = 60
_LOOKERS = 8


def status(
    process: Annotated[str | None, typer.Argument(help="Only this process.", show_default=False)] = None,
    watch: Annotated[float, typer.Option(help="Look again every so many seconds, until Ctrl-C.", min=0)] = 0,
) -> None:
    """Who holds the slots, since when and with which Glue run; who waits; what stands in the queues."""
    here = cli()
    if watch and here.out.as_json:
        raise typer.BadParameter("--watch is for people; with --json, call the command again instead")
    if not watch:
        seen = look(here.stack, process)
        here.out.result(seen, lambda console: _render(console, seen))
        return
    with Live(console=here.out.console, screen=here.out.console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(Text.from_ansi(_rendered(here.out.console, look(here.stack, process))), refresh=True)
            time.sleep(watch)


def look(stack: Stack, only: str | None = None) -> dict[str, Any]:
    """The state of a stack, as `status --json` prints it.

    Raises:
        NotFound: there is no process of the name `only`.
    """
    control, now = Control(stack), time.time()
    found: list[Process | MalformedProcess] = [control.process(only)] if only else list(control.processes.all())
    processes = sorted((one for one in found if isinstance(one, Process)), key=lambda one: one.name)
    executions = _executions(control, processes)
    runs = _runs(stack, processes)
    return {
        "stack": stack.name,
        "region": stack.region,
        "at": iso(now),
        "processes": [_process(stack, one, executions, runs, now) for one in processes],
        "malformed": [str(one) for one in found if isinstance(one, MalformedProcess)],
        "queues": _queues(stack),
        "not_deployed": [flow.name for flow in stack.not_deployed],
    }


def _process(
    stack: Stack,
    process: Process,
    executions: Mapping[str, str],
    runs: Mapping[str, tuple[str, str]],
    now: float,
) -> dict[str, Any]:
    holders = []
    for name, holder in sorted(process.holders.items(), key=lambda entry: entry[1].since):
        run_id, run_state = runs.get(name, ("", ""))
        holders.append(
            {
                "execution": name,
                "state": holder.state,
                "since": iso(holder.since),
                "age_seconds": int(now - holder.since),
                "execution_status": executions.get(name, "UNKNOWN"),
                "job": holder.job or process.job_name,
                "glue_run": {"id": run_id, "state": run_state} if run_id else None,
                "link": stack.execution_link(name),
            }
        )
    return {
        "name": process.name,
        "slot_limit": process.slot_limit,
        "slots_in_use": process.slots_in_use,
        "paused": process.paused,
        "has_drifted": process.has_drifted,
        "job_name": process.job_name,
        "holders": holders,
        "waiting": _waiting(process, executions, now),
    }


def _waiting(process: Process, executions: Mapping[str, str], now: float) -> dict[str, Any] | None:
    """Who waits first. Nothing removes the registration, so whoever has started since waits no longer."""
    first = process.waiting_execution
    if process.waiting_since is None or first in process.holders or (first and first in executions):
        return None
    return {
        "execution": first,
        "since": iso(process.waiting_since),
        "waited_seconds": int(now - process.waiting_since),
        # With room, the one registered is being woken, or was admitted under an older version that kept no name.
        "behind": "a pause" if process.paused else "other requests" if not process.has_room else "nobody",
    }


def _executions(control: Control, processes: list[Process]) -> dict[str, str]:
    """The status of every holder's execution, and of the waiting one's if it has been started since."""
    names = {name for process in processes for name in process.holders}
    names |= {process.waiting_execution for process in processes if process.waiting_execution}
    if not names:
        return {}
    # One list tells of all that run; only who is not in it, being over or new, is asked for by name.
    running = set(control.workflow.running())
    known = dict.fromkeys(names & running, "RUNNING")
    with ThreadPoolExecutor(_LOOKERS) as pool:
        for name, execution in zip(
            rest := sorted(names - running), pool.map(control.workflow.describe, rest), strict=True
        ):
            if execution is not None:
                known[name] = execution.status
    return known


def _runs(stack: Stack, processes: list[Process]) -> dict[str, tuple[str, str]]:
    """The newest Glue run of each holder: its id and state."""
    oldest: dict[str, int] = {}
    for process in processes:
        for holder in process.holders.values():
            job = holder.job or process.job_name
            oldest[job] = min(holder.since, oldest.get(job, holder.since))
    found: dict[str, tuple[str, str]] = {}
    for job, since in oldest.items():
        for run in _runs_of(stack, job, since):
            found.setdefault(run.get("Arguments", {}).get(MARKER, ""), (run["Id"], run["JobRunState"]))
    return found


def _runs_of(stack: Stack, job: str, since: float) -> Iterator[dict[str, Any]]:
    try:
        for page in stack.client("glue").get_paginator("get_job_runs").paginate(JobName=job):
            yield from page["JobRuns"]
            begun = [run["StartedOn"].timestamp() for run in page["JobRuns"] if "StartedOn" in run]
            if begun and max(begun) < since - _CLOCKS_APART:
                return
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityNotFoundException":
            raise


def _queues(stack: Stack) -> dict[str, dict[str, int]]:
    sqs = stack.client("sqs")

    def counts(output: str) -> dict[str, int]:
        told = sqs.get_queue_attributes(QueueUrl=stack.outputs[output], AttributeNames=list(_COUNTS.values()))
        return {name: int(told["Attributes"].get(attribute, 0)) for name, attribute in _COUNTS.items()}

    there = [output for output in QUEUES if output in stack.outputs]
    with ThreadPoolExecutor(_LOOKERS) as pool:
        return {QUEUES[output]: found for output, found in zip(there, pool.map(counts, there), strict=True)}


def _rendered(console: Console, seen: dict[str, Any]) -> str:
    with console.capture() as capture:
        _render(console, seen)
    return capture.get()


def _render(console: Console, seen: dict[str, Any]) -> None:
    console.print(Text.assemble((seen["stack"], "bold"), f" in {seen['region']}, {local_time(time.time())}\n"))
    for process in seen["processes"]:
        _render_process(console, process)
    for text in seen["malformed"]:
        console.print(Text.assemble(("malformed: ", "red"), text))
    if not seen["processes"] and not seen["malformed"]:
        console.print("There are no processes yet: slotkeeper process add makes one.")
    queues = table("queue", ">to be received", ">in hand or hidden", ">delayed")
    for name, counts in seen["queues"].items():
        style = "yellow" if name in END_QUEUES and any(counts.values()) else ""
        queues.add_row(name, *(f"{counts[kind]:,}" for kind in _COUNTS), style=style)
    console.print(queues)
    print_not_deployed(console, seen["not_deployed"])


def print_not_deployed(console: Console, flows: list[str]) -> None:
    """One line that names the flows that the stack was deployed without; none if it has all."""
    parameters = {flow.name: flow.parameter for flow in FLOWS}
    named = ", ".join(f"{name} (deploy with {parameters[name]})" for name in flows)
    if named:
        console.print(f"Not deployed: {named}.", style="dim")


def _render_process(console: Console, process: dict[str, Any]) -> None:
    line = Text(process["name"], style="bold")
    line.append(f"  {process['slots_in_use']} of {process['slot_limit']} slots", style="not bold")
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
        who = waiting["execution"] or "a request"
        console.print(
            f"  first in the queue: {who}, for {duration(waiting['waited_seconds'])}, behind {waiting['behind']}"
        )
    console.print()


def _holder(holder: dict[str, Any]) -> Text:
    """Two lines, so that a name can be copied in a narrow window too."""
    run, status = holder["glue_run"], holder["execution_status"]
    line = Text(f"  {holder['execution']}  {holder['state']} for {duration(holder['age_seconds'])}, execution ")
    line.append(status, style="" if status in ("RUNNING", "PENDING_REDRIVE", "UNKNOWN") else "red")
    line.append(f"\n    Glue run {run['state']} {run['id']}" if run else "\n    no Glue run seen", style="dim")
    return line
