"""`slotkeeper holder`: free one slot, once it is known that nothing uses it."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from slotkeeper.slots.executions import Execution
from slotkeeper.slots.glue import NoSuchJob
from slotkeeper.slots.janitor import judge
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queues import wake_next
from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import Failed, NotFound, Refused
from slotkeeper_cli.words import count, duration

app = typer.Typer(help="The executions that hold slots.", no_args_is_help=True)


@app.command("release", cls=StackCommand)
def release(
    execution: Annotated[str, typer.Argument(help="The holder: the execution's name, as status shows it.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also while it is alive: more may then run than the limit allows.")
    ] = False,
) -> None:
    """Free the slot of a holder that is dead; refused while it is alive, with what was seen.

    Dead is: its execution is over, for GraceSeconds, or was never started, and two looks, a while apart, find no Glue
    run of it alive. The janitor does the same by itself within minutes.
    """
    here = cli()
    control = Control(here.stack)
    process = _process_of(control, execution)
    holder = process.holders[execution]
    checked: list[str] = []
    alive = _alive(here, control, process, execution, holder, checked)
    for line in checked:
        here.out.note(f"- {line}")
    if alive and not force:
        raise Refused(
            f"{execution} is alive: {alive}. Its slot was not freed. To end it: slotkeeper request cancel. "
            "With --force the slot is freed all the same, and one more runs beside it."
        )
    if force and alive:
        here.confirm(f"Free the slot of {execution} although it is alive ({alive})?")
    audit("holder release", process=process.name, execution=execution, checked=checked, alive=alive, forced=bool(alive))
    # As it was seen, or not at all. The janitor's note of a look is a change too, and no reason to give up.
    fresh = control.process(process.name).holders.get(execution)
    if fresh is None:
        raise Failed(f"{execution} has given its slot back meanwhile")
    if (fresh.state, fresh.since) != (holder.state, holder.since):
        raise Failed(
            f"{execution} has changed meanwhile ({holder.state} -> {fresh.state}): its slot was left; look again"
        )
    freed = control.slots.release(process.name, execution, fresh.raw)
    if not freed:
        raise Failed(f"{execution} has changed this very moment: its slot was left; look again")
    woken = wake_next(control.slots, control.queue, process.name)

    def render(console: Console) -> None:
        console.print(
            f"{execution}: its slot of {process.name} is free"
            + (", and whoever waited first was woken." * woken or ".")
        )

    here.out.result(
        {"released": execution, "process": process.name, "checked": checked, "forced": bool(alive), "woken": woken},
        render,
    )


def _process_of(control: Control, execution: str) -> Process:
    for process in control.processes.all():
        if isinstance(process, Process) and execution in process.holders:
            return process
    raise NotFound(f"nobody of the name {execution!r} holds a slot: slotkeeper status shows who does")


def _alive(here: Cli, control: Control, process: Process, name: str, holder: Holder, checked: list[str]) -> str:
    """Why the holder must be taken for alive; empty if it is dead. Each look is added to `checked`."""
    execution = control.workflow.describe(name)
    if execution is None:
        checked.append("Step Functions knows no execution of this name")
    else:
        checked.append(f"its execution is {execution.status}")
    grace, now = int(here.stack.parameters.get("GraceSeconds", 120)), time.time()
    if holder.state == "RESERVED":
        checked.append(f"it reserved the slot {duration(now - holder.since)} ago and has not begun")
    match judge(holder, execution, now, grace):
        case "cancel":
            return ""
        case "look at Glue":
            return _glue_alive(here, control, process, name, holder, checked)
        case "alive":
            return _why_alive(holder, execution, now, grace)


def _why_alive(holder: Holder, execution: Execution | None, now: float, grace: int) -> str:
    if execution is not None and not execution.is_closed:
        return f"its execution is {execution.status}"
    if holder.state == "RESERVED":
        return f"its starter may be about to start it ({duration(holder.since + grace - now)} to wait)"
    if execution is None or execution.stopped_at is None:
        return "it began less than a day ago, and Step Functions may just not show its execution"
    left = duration(execution.stopped_at + grace - now)
    return f"a Glue run that it was about to start may not show yet ({left} to wait)"


def _glue_alive(here: Cli, control: Control, process: Process, name: str, holder: Holder, checked: list[str]) -> str:
    gap = int(here.stack.parameters.get("LookGapSeconds", 30))
    job = holder.job or process.job_name
    # A StartJobRun that was under way when the workflow ended may show only after a while.
    for look in (1, 2):
        try:
            runs = control.glue.alive(job, name, holder.since)
        except NoSuchJob:
            checked.append(f"Glue job {job} does not exist any more")
            return ""
        if runs:
            checked.append(f"{count(len(runs), 'Glue run')} of it alive: {', '.join(runs)}")
            return f"Glue run {', '.join(runs)} of job {job} is alive"
        checked.append(f"no Glue run of it is alive (look {look} of 2, job {job})")
        if look == 1:
            here.out.note(f"No Glue run of it is alive; the second look is in {gap} s.")
            time.sleep(gap)
    return ""
