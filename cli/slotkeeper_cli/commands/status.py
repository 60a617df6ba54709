"""`slotkeeper status`: processes, holders, waiting requests and queues."""

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
from slotkeeper_cli.context import current_context
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.output import table
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import FLOWS, StackConnection

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
_THREADS = 8


def status(
    process: Annotated[str | None, typer.Argument(help="Name of one process.", show_default=False)] = None,
    watch: Annotated[
        float, typer.Option(help="Refresh every so many seconds, until Ctrl-C; 0 shows it once.", min=0)
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
    with Live(console=context.out.console, screen=context.out.console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(
                Text.from_ansi(_rendered(context.out.console, read_status(context.stack, process))), refresh=True
            )
            time.sleep(watch)


def read_status(stack: StackConnection, only: str | None = None) -> dict[str, Any]:
    """The state of a stack, as `status --json` prints it.

    Raises:
        NotFound: there is no process of the name `only`.
    """
    control, now = SlotControl(stack), time.time()
    known: list[Process | MalformedProcess] = [control.process(only)] if only else list(control.processes.all())
    processes = sorted((one for one in known if isinstance(one, Process)), key=lambda one: one.name)
    executions = _executions(control, processes)
    runs = _runs(stack, processes)
    return {
        "stack": stack.name,
        "region": stack.region,
        "at": iso(now),
        "processes": [_process(stack, one, executions, runs, now) for one in processes],
        "malformed": [str(one) for one in known if isinstance(one, MalformedProcess)],
        "queues": _queues(stack),
        "not_deployed": [flow.name for flow in stack.not_deployed],
    }


def _process(
    stack: StackConnection,
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
    """The first waiting request. Registrations are not removed: a request that has started since is not waiting."""
    first = process.waiting_execution
    if process.waiting_since is None or first in process.holders or (first and first in executions):
        return None
    return {
        "execution": first,
        "since": iso(process.waiting_since),
        "waited_seconds": int(now - process.waiting_since),
        # If a slot is free, the registered request is being woken.
        "behind": "a pause" if process.paused else "other requests" if not process.has_free_slot else "nobody",
    }


def _executions(control: SlotControl, processes: list[Process]) -> dict[str, str]:
    """The status of every holder's execution, and of the waiting one's if it has been started since."""
    names = {name for process in processes for name in process.holders}
    names |= {process.waiting_execution for process in processes if process.waiting_execution}
    if not names:
        return {}
    # One list covers what runs; the others, ended or new, are described by name.
    running = set(control.workflow.running())
    known = dict.fromkeys(names & running, "RUNNING")
    with ThreadPoolExecutor(_THREADS) as pool:
        for name, execution in zip(
            rest := sorted(names - running), pool.map(control.workflow.describe, rest), strict=True
        ):
            if execution is not None:
                known[name] = execution.status
    return known


def _runs(stack: StackConnection, processes: list[Process]) -> dict[str, tuple[str, str]]:
    """The newest Glue run of each holder: its id and state."""
    oldest: dict[str, int] = {}
    for process in processes:
        for holder in process.holders.values():
            job = holder.job or process.job_name
            oldest[job] = min(holder.since, oldest.get(job, holder.since))
    known: dict[str, tuple[str, str]] = {}
    for job, since in oldest.items():
        for run in _runs_of(stack, job, since):
            known.setdefault(run.get("Arguments", {}).get(MARKER, ""), (run["Id"], run["JobRunState"]))
    return known


def _runs_of(stack: StackConnection, job: str, since: float) -> Iterator[dict[str, Any]]:
    try:
        for page in stack.client("glue").get_paginator("get_job_runs").paginate(JobName=job):
            yield from page["JobRuns"]
            started = [run["StartedOn"].timestamp() for run in page["JobRuns"] if "StartedOn" in run]
            if started and max(started) < since - _CLOCKS_APART:
                return
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityNotFoundException":
            raise


def _queues(stack: StackConnection) -> dict[str, dict[str, int]]:
    sqs = stack.client("sqs")

    def counts(output: str) -> dict[str, int]:
        response = sqs.get_queue_attributes(QueueUrl=stack.outputs[output], AttributeNames=list(_COUNTS.values()))
        return {name: int(response["Attributes"].get(attribute, 0)) for name, attribute in _COUNTS.items()}

    outputs = [output for output in QUEUES if output in stack.outputs]
    with ThreadPoolExecutor(_THREADS) as pool:
        return {QUEUES[output]: known for output, known in zip(outputs, pool.map(counts, outputs), strict=True)}


def _rendered(console: Console, data: dict[str, Any]) -> str:
    with console.capture() as capture:
        _render(console, data)
    return capture.get()


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
        style = "yellow" if name in END_QUEUES and any(counts.values()) else ""
        queues.add_row(name, *(f"{counts[kind]:,}" for kind in _COUNTS), style=style)
    console.print(queues)
    print_not_deployed(console, data["not_deployed"])


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
    line.append(f"\n    Glue run {run['state']} {run['id']}" if run else "\n    no Glue run found", style="dim")
    return line
