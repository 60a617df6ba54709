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
from slotkeeper_cli.formatting import count, duration, local_time
from slotkeeper_cli.glue_runs import runs_by_execution
from slotkeeper_cli.request_ids import holders_of, request_id_of
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.slot_release import estimate

app = typer.Typer(help="Release the slots of dead holders.", no_args_is_help=True)


@app.command("release", cls=StackCommand)
def release(
    request_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the holder's request, or name of its execution.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Release it although it may be in use: more than the limit may then run.")
    ] = False,
) -> None:
    """Release the slot of a dead holder. Refused, with the reason, while the holder may use its slot.

    A holder is dead if its execution ended at least GraceSeconds ago, or was never started, and two checks,
    LookGapSeconds apart, find no live Glue run of it. The janitor itself releases dead holders, in the second of its
    runs after GraceSeconds, or in the third if it stops a Glue run first.
    """
    context = current_context()
    control = SlotControl(context.stack)
    process, execution = _holder(control, request_id)
    holder = process.holders[execution]
    checked: list[str] = []
    weight = f", weight {holder.weight}," * (holder.weight != 1)
    described = control.workflow.describe(execution)
    known_id = request_id_of(described.input) if described else None
    label = f"{known_id} ({execution})" if known_id else execution
    alive = _in_use(context, control, process, execution, described, checked)
    for line in checked:
        context.out.note(f"- {line}")
    if alive and not force:
        instead = _instead(context, holder, holder.target or process.target, described, known_id or execution)
        raise CommandRefused(
            f"{label} may still use its slot: {alive}. {instead} With --force its slot{weight} is released now, and "
            "more than the limit allows may run. Nothing was changed."
        )
    if force and alive:
        context.confirm(f"Release the slot of {label} although it may still use it ({alive})?")
    names = {"process": process.name, "request_id": known_id, "execution": execution, "weight": holder.weight}
    audit("holder release", **names, checked=checked, alive=alive, forced=bool(alive))
    # Released only in the state that was checked. A change of the janitor's quiet_since is no reason to stop.
    current = control.process(process.name).holders.get(execution)
    if current is None:
        raise CommandFailed(f"{label} has released its slot meanwhile: there is nothing left to do")
    is_unchanged = (current.state, current.since) == (holder.state, holder.since)
    if not is_unchanged or not control.slots.release(process.name, execution, current.raw):
        raise CommandFailed(f"{label} changed meanwhile, so its slot was not released: run this again")
    woken = wake_next(control.slots, control.queue, process.name)
    wake = " The first waiting request was woken." * woken
    context.out.result(
        {"released": execution, **names, "checked": checked, "forced": bool(alive), "woken": woken},
        f"{label}: its slot of {process.name}{weight} is released.{wake}",
    )


def _holder(control: SlotControl, given: str) -> tuple[Process, str]:
    """The process and the execution of the holder with a request id or an execution name."""
    found = holders_of(control.read_all()[0], given)
    if not found:
        raise NotFound(f"no request {given!r} holds a slot. List the holders with: slotkeeper status")
    if len(found) > 1:
        names = ", ".join(name for _, name in found)
        raise CommandRefused(
            f"{given} holds {len(found)} slots: give the name of one execution, {names}. Nothing was changed."
        )
    return found[0]


def _instead(context: CommandContext, holder: Holder, job: str, execution: Execution | None, label: str) -> str:
    """What to do instead of releasing the slot, or by when the janitor releases it."""
    if execution is not None and not execution.is_closed:
        return f"To end it, run slotkeeper request cancel --stop {label}."
    if execution is None and holder.state == "RUNNING":
        return f"The janitor decides a day after the slot was reserved, at {local_time(holder.since + 86_400)}."
    now, grace = time.time(), int(context.stack.parameters.get("GraceSeconds") or 120)
    if execution is None or execution.stopped_at is None:
        ended, run = float(holder.since), None
    else:
        ended = max(execution.stopped_at, holder.since)
        run = runs_by_execution(context.stack, job, holder.since).get(execution.name)
    # Its grace time may have passed: then the next run is the first that checks it.
    release = estimate(context.stack.parameters, max(ended, now - grace), run)
    return f"The janitor releases the slot {release.text(now)}."


def _in_use(
    context: CommandContext,
    control: SlotControl,
    process: Process,
    name: str,
    execution: Execution | None,
    checked: list[str],
) -> str:
    """Why the slot may be in use; empty if its holder is dead. The result of each check is added to `checked`."""
    holder = process.holders[name]
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
    return f"its execution is {execution.status}, but a Glue run that it started last may not show yet; wait {left}"


def _glue_alive(
    context: CommandContext, control: SlotControl, process: Process, name: str, holder: Holder, checked: list[str]
) -> str:
    gap = int(context.stack.parameters.get("LookGapSeconds", 30))
    job = holder.target or process.target
    # A run that was being started when the workflow ended may show only at the second check.
    for check in (1, 2):
        try:
            runs = control.glue.alive(job, name, holder.since)
        except NoSuchJob:
            checked.append(f"Glue job {job} does not exist")
            return ""
        if runs:
            checked.append(f"{count(len(runs), 'live Glue run')} of it: {', '.join(runs)}")
            return f"Glue run {', '.join(runs)} of job {job} has not ended"
        checked.append(f"no live Glue run of it (check {check} of 2, job {job})")
        if check == 1:
            context.out.note(f"No live Glue run of it. The second check follows in {gap} s.")
            time.sleep(gap)
    return ""
