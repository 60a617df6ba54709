"""`slotkeeper holder`: release the slot of a dead holder."""

from __future__ import annotations

import time
from typing import Annotated

import typer

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
        bool, typer.Option("--force", help="Release it although the holder is alive: more than the limit may then run.")
    ] = False,
) -> None:
    """Release the slot of a dead holder. Refused, with the reason, while the holder is alive.

    A holder is dead if its execution ended at least GraceSeconds ago, or was never started, and two checks,
    LookGapSeconds apart, find no live Glue run of it. The janitor itself releases dead holders within minutes.
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
            f"{execution} is alive: {alive}. To end it, run slotkeeper request cancel --stop. With --force its slot "
            "is released, and one request more than the limit allows may run. Nothing was changed."
        )
    if force and alive:
        context.confirm(f"Release the slot of {execution} although it is alive ({alive})?")
    audit("holder release", process=process.name, execution=execution, checked=checked, alive=alive, forced=bool(alive))
    # Released only in the state that was checked. A change of the janitor's quiet_since is no reason to stop.
    current = control.process(process.name).holders.get(execution)
    if current is None:
        raise CommandFailed(f"{execution} has released its slot meanwhile: there is nothing left to do")
    is_unchanged = (current.state, current.since) == (holder.state, holder.since)
    if not is_unchanged or not control.slots.release(process.name, execution, current.raw):
        raise CommandFailed(f"{execution} changed meanwhile, so its slot was not released: run this again")
    woken = wake_next(control.slots, control.queue, process.name)
    wake = " The first waiting request was woken." * woken
    context.out.result(
        {"released": execution, "process": process.name, "checked": checked, "forced": bool(alive), "woken": woken},
        f"{execution}: its slot of {process.name} is released.{wake}",
    )


def _process_of(control: SlotControl, execution: str) -> Process:
    for process in control.read_all()[0]:
        if execution in process.holders:
            return process
    raise NotFound(f"no holder named {execution!r}. List the holders with: slotkeeper status")


def _alive(
    context: CommandContext, control: SlotControl, process: Process, name: str, holder: Holder, checked: list[str]
) -> str:
    """Why the holder counts as alive; empty if it is dead. The result of each check is added to `checked`."""
    execution = control.workflow.describe(name)
    checked.append(f"its execution is {execution.status}" if execution else "there is no execution of this name")
    grace, now = int(context.stack.parameters.get("GraceSeconds", 120)), time.time()
    if holder.state == "RESERVED":
        checked.append(f"it reserved the slot {duration(now - holder.since)} ago and has not confirmed it")
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
        return f"its starter may still start it; wait {duration(holder.since + grace - now)}"
    if execution is None or execution.stopped_at is None:
        return "it began less than a day ago, and DescribeExecution may not show its execution yet"
    left = duration(execution.stopped_at + grace - now)
    return f"a Glue run that it started last may not show yet; wait {left}"


def _glue_alive(
    context: CommandContext, control: SlotControl, process: Process, name: str, holder: Holder, checked: list[str]
) -> str:
    gap = int(context.stack.parameters.get("LookGapSeconds", 30))
    job = holder.job or process.job_name
    # A run that was being started when the workflow ended may show only at the second check.
    for check in (1, 2):
        try:
            runs = control.glue.alive(job, name, holder.since)
        except NoSuchJob:
            checked.append(f"Glue job {job} does not exist")
            return ""
        if runs:
            checked.append(f"{count(len(runs), 'live Glue run')} of it: {', '.join(runs)}")
            return f"Glue run {', '.join(runs)} of job {job} is alive"
        checked.append(f"no live Glue run of it (check {check} of 2, job {job})")
        if check == 1:
            context.out.note(f"No live Glue run of it. The second check follows in {gap} s.")
            time.sleep(gap)
    return ""
