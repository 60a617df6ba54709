"""`slotkeeper holder`: free one slot, once it is known that nothing uses it."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from slotkeeper.slots.dead_holders import Verdict, judge
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.glue import NoSuchJob
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queues import wake_next
from slotkeeper_cli.audit import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import count, duration
from slotkeeper_cli.slot_control import SlotControl

app = typer.Typer(help="Release the slots of dead holders.", no_args_is_help=True)


@app.command("release", cls=StackCommand)
def release(
    execution: Annotated[str, typer.Argument(help="Name of the holder's execution, as in slotkeeper status.")],
    force: Annotated[
        bool, typer.Option("--force", help="Release it although it is alive: more may then run than the limit allows.")
    ] = False,
) -> None:
    """Release the slot of a dead holder; refused, with the reason, while it is alive.

    A holder is dead if its execution ended at least GraceSeconds ago, or was never started, and two checks,
    LookGapSeconds apart, find no live Glue run of it. The janitor releases it within minutes, without this command.
    """
    context = current_context()
    control = SlotControl(context.stack)
    process = _process_of(control, execution)
    holder = process.holders[execution]
    checked: list[str] = []
    alive = _alive(context, control, process, execution, holder, checked)
    for line in checked:
        context.out.note(f"- {line}")
    if alive and not force:
        raise CommandRefused(
            f"{execution} is alive: {alive}. Its slot was not released. To end it: slotkeeper request cancel --stop. "
            "With --force the slot is released anyway, and one more runs than the limit allows. Nothing was changed."
        )
    if force and alive:
        context.confirm(f"Free the slot of {execution} although it is alive ({alive})?")
    audit("holder release", process=process.name, execution=execution, checked=checked, alive=alive, forced=bool(alive))
    # Released only as it was checked. The janitor's note of a check changes the item too, and is no reason to stop.
    current = control.process(process.name).holders.get(execution)
    if current is None:
        raise CommandFailed(f"{execution} has released its slot meanwhile")
    if (current.state, current.since) != (holder.state, holder.since):
        raise CommandFailed(
            f"{execution} has changed meanwhile ({holder.state} -> {current.state}): its slot was not released; "
            "run this again"
        )
    freed = control.slots.release(process.name, execution, current.raw)
    if not freed:
        raise CommandFailed(f"{execution} has changed meanwhile: its slot was not released; run this again")
    woken = wake_next(control.slots, control.queue, process.name)

    def render(console: Console) -> None:
        console.print(
            f"{execution}: its slot of {process.name} is free"
            + (", and the first waiting request was woken." * woken or ".")
        )

    context.out.result(
        {"released": execution, "process": process.name, "checked": checked, "forced": bool(alive), "woken": woken},
        render,
    )


def _process_of(control: SlotControl, execution: str) -> Process:
    for process in control.processes.all():
        if isinstance(process, Process) and execution in process.holders:
            return process
    raise NotFound(f"no holder named {execution!r}. List the holders with: slotkeeper status")


def _alive(
    context: CommandContext, control: SlotControl, process: Process, name: str, holder: Holder, checked: list[str]
) -> str:
    """Why the holder counts as alive; empty if it is dead. Each check is added to `checked`."""
    execution = control.workflow.describe(name)
    if execution is None:
        checked.append("Step Functions knows no execution of this name")
    else:
        checked.append(f"its execution is {execution.status}")
    grace, now = int(context.stack.parameters.get("GraceSeconds", 120)), time.time()
    if holder.state == "RESERVED":
        checked.append(f"it reserved the slot {duration(now - holder.since)} ago and has not begun")
    match judge(holder, execution, now, grace):
        case Verdict.CANCEL:
            return ""
        case Verdict.CHECK_GLUE:
            return _glue_alive(context, control, process, name, holder, checked)
        case Verdict.ALIVE:
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


def _glue_alive(
    context: CommandContext, control: SlotControl, process: Process, name: str, holder: Holder, checked: list[str]
) -> str:
    gap = int(context.stack.parameters.get("LookGapSeconds", 30))
    job = holder.job or process.job_name
    # A StartJobRun that was under way when the workflow ended may show only after a while.
    for check in (1, 2):
        try:
            runs = control.glue.alive(job, name, holder.since)
        except NoSuchJob:
            checked.append(f"Glue job {job} does not exist any more")
            return ""
        if runs:
            checked.append(f"{count(len(runs), 'Glue run')} of it alive: {', '.join(runs)}")
            return f"Glue run {', '.join(runs)} of job {job} is alive"
        checked.append(f"no Glue run of it is alive (check {check} of 2, job {job})")
        if check == 1:
            context.out.note(f"No Glue run of it is alive; the second check is in {gap} s.")
            time.sleep(gap)
    return ""
