"""`slotkeeper stack`: make the slot table agree with what runs, also after a restore."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.console import Console

from slotkeeper.slots.process import Process, Processes
from slotkeeper_cli.adopting import unslotted
from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import Cli, StackCommand, cli
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import Failed, NotFound, ProblemsFound
from slotkeeper_cli.words import count

app = typer.Typer(help="The slot table as a whole: reconcile it, take over a restored one.", no_args_is_help=True)


@app.command("reconcile", cls=StackCommand)
def reconcile(
    process: Annotated[list[str] | None, typer.Argument(help="Only these processes.", show_default=False)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 5 if something would be changed.")
    ] = False,
) -> None:
    """Make the slot table agree with what runs: adopt, repair, and let the janitor free the dead.

    An execution that runs and holds no slot gets the slot that it takes. A counter that is not the number of its
    holders is set to that. Then the janitor goes round at once: it frees whoever is provably dead, after its grace time
    and two looks, so a second call some minutes later may find more to free.
    """
    here = cli()
    control = Control(here.stack)
    chosen = [control.process(name) for name in process or control.names()]
    found: dict[str, Any] = {
        "adopted": [one.execution for one in unslotted(here.stack, control, chosen)],
        "drifted": [one.name for one in chosen if one.has_drifted],
        "dead": _dead(control, chosen),
    }
    if not check:
        _mend(here, control, chosen, found)
    here.out.result(found, lambda console: _render(console, found, check))
    if check and any(found.values()):
        raise ProblemsFound("the slot table does not agree with what runs: slotkeeper stack reconcile mends it")


def _dead(control: Control, chosen: list[Process]) -> list[str]:
    """Holders whose execution is over. The janitor frees them; who is over since seconds only is on the way there."""
    running = set(control.workflow.running())
    dead = []
    for process in chosen:
        for name in sorted(set(process.holders) - running):
            execution = control.workflow.describe(name)
            if process.holders[name].state == "RUNNING" and (execution is None or execution.is_closed):
                dead.append(name)
    return dead


def _mend(here: Cli, control: Control, chosen: list[Process], found: dict[str, Any]) -> None:
    jobs = {one.name: one.job_name for one in chosen}
    astray = unslotted(here.stack, control, chosen)
    audit("stack reconcile", adopt=[one.execution for one in astray], repair=found["drifted"])
    # The counter first: an adoption adds one to it.
    for one in chosen:
        if one.has_drifted and not control.processes.repair_counter(one):
            here.out.note(f"{one.name} has changed meanwhile: run this again.")
    found["adopted"] = [
        one.execution
        for one in astray
        if control.slots.adopt(one.process, one.execution, one.since, one.job or jobs[one.process])
    ]
    found["janitor"] = _janitor(here)


def _janitor(here: Cli) -> dict[str, int]:
    """One round of the janitor, now: what it did, by metric."""
    here.out.note("The janitor goes round.")
    answer = here.stack.invoke(here.stack.outputs["JanitorFunctionName"])
    told = answer["Payload"].read()
    if answer.get("FunctionError"):
        raise Failed(f"the janitor's round failed: {told.decode(errors='replace')[:500]}")
    counts: dict[str, int] = json.loads(told)
    return counts


def _render(console: Console, found: dict[str, Any], check: bool) -> None:
    lines = [
        ("adopted", "execution runs without a slot", "executions run without a slot", "given the slot that it takes"),
        ("drifted", "counter is wrong", "counters are wrong", "repaired"),
        ("dead", "holder's execution is over", "holders' executions are over", "left to the janitor"),
    ]
    for key, one, many, done in lines:
        if found[key]:
            console.print(f"{count(len(found[key]), one, many)}" + ("." if check else f": {done}."))
            for name in found[key]:
                console.print(f"  {name}")
    if not any(found[key] for key, *_ in lines):
        console.print("The slot table agrees with what runs.")
    for name, number in found.get("janitor", {}).items():
        console.print(f"janitor: {name} {number}")


@app.command("restore", cls=StackCommand)
def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="TABLE", help="The table that was restored beside SlotTable.")
    ],
) -> None:
    """Take over the processes of a restored table that are missing here: paused, with nobody in their slots.

    The restored holders are of another time. Reconcile adopts those who run, then resume.
    """
    here = cli()
    control = Control(here.stack)
    taken, left, unread = [], [], []
    audit("stack restore", source=source)
    try:
        for one in Processes(here.stack.client("dynamodb"), source).all():
            if not isinstance(one, Process):
                unread.append(str(one))
            elif control.processes.create(one.name, one.slot_limit, one.job_name, paused=True):
                taken.append(one.name)
            else:
                left.append(one.name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        raise NotFound(f"there is no table {source!r} in {here.stack.region}") from error

    def render(console: Console) -> None:
        for name in taken:
            console.print(f"{name}: taken over, paused.")
        for name in left:
            console.print(f"{name}: is here already, left as it is.")
        for text in unread:
            console.print(f"malformed, left out: {text}")
        if taken:
            console.print("Next: slotkeeper stack reconcile, then slotkeeper process resume.")

    here.out.result({"taken": taken, "left": left, "malformed": unread}, render)
