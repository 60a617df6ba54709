"""`slotkeeper process`: list the processes, and change what they are like while they work."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper.slots.process import MAX_SLOT_LIMIT, Process, check_settings
from slotkeeper_cli import jobs
from slotkeeper_cli.adopting import unslotted
from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import Failed, NotFound, Refused
from slotkeeper_cli.output import table
from slotkeeper_cli.words import count, duration
from slotkeeper_cli.write_units import large

app = typer.Typer(help="Processes: their slots, their Glue job, and whether they admit requests.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="PROCESS", help="The process.")]
Limit = Annotated[int, typer.Argument(min=0, max=MAX_SLOT_LIMIT, help="How many run at once.")]
Every = Annotated[bool, typer.Option("--all", help="Every process.")]
Some = Annotated[list[str] | None, typer.Argument(metavar="[PROCESS]...", help="The processes.", show_default=False)]


@app.command("list", cls=StackCommand)
def list_processes() -> None:
    """List the processes: their limit, the slots in use, their Glue job, and whether they are paused."""
    here = cli()
    everyone = list(Control(here.stack).processes.all())
    processes = sorted((one for one in everyone if isinstance(one, Process)), key=lambda one: one.name)
    malformed = [str(one) for one in everyone if not isinstance(one, Process)]
    data = {
        "processes": [
            {
                "name": one.name,
                "slot_limit": one.slot_limit,
                "slots_in_use": one.slots_in_use,
                "job_name": one.job_name,
                "paused": one.paused,
            }
            for one in processes
        ],
        "malformed": malformed,
    }

    def render(console: Console) -> None:
        rows = table("process", ">limit", ">in use", "Glue job", "state")
        for one in processes:
            state = Text("paused", style="yellow") if one.paused else Text("admitting")
            rows.add_row(one.name, f"{one.slot_limit:,}", f"{one.slots_in_use:,}", one.job_name, state)
        console.print(rows if processes else "There are no processes. Add one with: slotkeeper process add")
        for text in malformed:
            console.print(f"malformed: {text}", style="red")

    here.out.result(data, render)


@app.command("set-limit", cls=StackCommand)
def set_limit(process: Name, limit: Limit) -> None:
    """Change how many requests of a process run at once, from the next one on."""
    here = cli()
    control = Control(here.stack)
    before = control.process(process)
    audit("process set-limit", process=process, before=before.slot_limit, after=limit)
    woken = control.operations.set_limit(process, limit)
    _warn_of_limit(here, process, limit, before.job_name, control)
    done = {
        "process": process,
        "before": before.slot_limit,
        "after": limit,
        "holders": len(before.holders),
        "woken": woken,
    }

    def render(console: Console) -> None:
        console.print(f"{process}: {before.slot_limit} -> {limit} slots.")
        if len(before.holders) > limit:
            over = count(len(before.holders) - limit, "holder")
            console.print(f"{over} above it will finish; until then nobody is admitted.")
        if woken:
            console.print("Whoever waited first has been woken.")

    here.out.result(done, render)


def _warn_of_limit(here: Cli, process: str, limit: int, job_name: str, control: Control) -> None:
    job = jobs.get_job(here.stack, job_name)
    slots = sum(
        one.slot_limit for one in control.processes.all() if isinstance(one, Process) and one.job_name == job_name
    )
    for problem in [*(jobs.tight(job_name, job, slots) if job else []), *large(process, job_name, limit)]:
        here.out.note(f"Mind: {problem}.")


@app.command("pause", cls=StackCommand)
def pause(process: Some = None, every: Every = False) -> None:
    """Admit nobody to a process until it is resumed; those who run go on."""
    here = cli()
    control = Control(here.stack)
    chosen = _chosen(control, process, every)
    for one in chosen:
        audit("process pause", process=one.name)
        control.operations.pause(one.name)
    done = {"paused": [one.name for one in chosen], "running": {one.name: len(one.holders) for one in chosen}}

    def render(console: Console) -> None:
        for one in chosen:
            console.print(f"{one.name}: paused; {count(len(one.holders), 'holder goes', 'holders go')} on.")

    here.out.result(done, render)


@app.command("resume", cls=StackCommand)
def resume(
    process: Some = None,
    every: Every = False,
    force: Annotated[bool, typer.Option("--force", help="Also where executions run that hold no slot.")] = False,
) -> None:
    """Lift a pause. Refused where executions run that hold no slot, as after a restore: reconcile first."""
    here = cli()
    control = Control(here.stack)
    chosen = _chosen(control, process, every)
    if not force:
        astray = unslotted(here.stack, control, chosen)
        if astray:
            names = ", ".join(sorted({one.process for one in astray}))
            raise Refused(
                f"{count(len(astray), 'execution runs', 'executions run')} without a slot ({names}): resumed now, more "
                "would run than the limit allows. Run slotkeeper stack reconcile first, or give --force. "
                "Nothing was changed."
            )
    woken = []
    for one in chosen:
        audit("process resume", process=one.name, forced=force)
        if control.operations.resume(one.name):
            woken.append(one.name)
    done = {"resumed": [one.name for one in chosen], "woken": woken}

    def render(console: Console) -> None:
        for one in chosen:
            console.print(
                f"{one.name}: resumed" + ("; whoever waited first has been woken." if one.name in woken else ".")
            )

    here.out.result(done, render)


@app.command("add", cls=StackCommand)
def add(
    process: Name,
    limit: Annotated[int, typer.Option("--limit", min=0, max=MAX_SLOT_LIMIT, help="How many run at once.")],
    job: Annotated[str, typer.Option(help="The Glue job that its requests run.")],
    paused: Annotated[bool, typer.Option("--paused", help="Admit nobody yet.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also with a job that would not work.")] = False,
) -> None:
    """Make a process: its requests can be sent at once, without a deployment."""
    here = cli()
    control = Control(here.stack)
    try:
        check_settings(process, limit, job)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    described = jobs.get_job(here.stack, job)
    problems = jobs.unfit(job, described, jobs.allowed_jobs(here.stack))
    if problems and not force:
        raise Refused("; ".join(problems) + ". Give --force to make the process all the same. Nothing was changed.")
    audit("process add", process=process, limit=limit, job=job, paused=paused, forced=bool(problems))
    if not control.processes.create(process, limit, job, paused=paused):
        raise Refused(
            f"process {process!r} exists already: change it with slotkeeper process set-limit, pause and resume"
        )
    _warn_of_limit(here, process, limit, job, control)
    done = {"process": process, "slot_limit": limit, "job_name": job, "paused": paused, "problems": problems}
    how = " and is paused" if paused else ""
    here.out.result(done, lambda console: console.print(f"{process} has {count(limit, 'slot')} for job {job}{how}."))


@app.command("remove", cls=StackCommand)
def remove(
    process: Name,
    timeout: Annotated[float, typer.Option(help="Minutes to wait for those who run.", min=0)] = 60,
) -> None:
    """Remove a process, once those who run are done; what is still queued for it is dead-lettered.

    It is paused first, and stays so if you interrupt the waiting. `slotkeeper dlq redrive request` sends what was
    queued again, once there is a process of that name.
    """
    here = cli()
    control = Control(here.stack)
    seen = control.process(process)
    if seen.cancelled:
        # Their notes are in the item: what is set aside now is set aside as any other request of a missing process.
        here.out.note(
            f"{count(len(seen.cancelled), 'cancelled request')} of {process} may still be queued, and will stand in "
            f"the dead-letter queue as UnknownProcess: redriven later, they run ({', '.join(sorted(seen.cancelled))})."
        )
    here.confirm(
        f"Remove process {process}, which has {count(len(seen.holders), 'holder')}? "
        "Requests still queued for it go to the dead-letter queue."
    )
    audit("process remove", process=process, holders=sorted(seen.holders), cancelled=sorted(seen.cancelled))
    control.operations.pause(process)
    _drain(here, control, process, timeout * 60)
    if not control.operations.remove(process):
        raise Failed(f"process {process} was resumed meanwhile: it is still there. Run this again to remove it")
    here.out.result(
        {"removed": process},
        lambda console: console.print(f"{process} is removed. What was queued for it goes to RequestDeadLetterQueue."),
    )


def _drain(here: Cli, control: Control, process: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    total = 0
    with here.out.progress() as progress:
        task = progress.add_task(f"{process}: done", total=None)
        while True:
            holders = len(control.process(process).holders)
            total = max(total, holders)
            progress.update(task, total=total, completed=total - holders)
            if not holders:
                return
            if time.monotonic() >= until:
                raise Failed(
                    f"{count(holders, 'holder')} of {process} still ran after {duration(seconds)}. It stays paused and "
                    "was not removed: run this again, or slotkeeper process resume."
                )
            time.sleep(min(2.0, max(0.1, until - time.monotonic())))


def _chosen(control: Control, names: list[str] | None, every: bool) -> list[Process]:
    if bool(names) == every:
        raise typer.BadParameter("name one or more processes, or give --all")
    chosen = [control.process(name) for name in names or sorted(control.names())]
    if not chosen:
        raise NotFound("there are no processes")
    return chosen
