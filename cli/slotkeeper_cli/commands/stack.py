"""`slotkeeper stack`: make the slot table agree with what runs, also after a restore."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.console import Console

from slotkeeper.slots.process import Process, Processes
from slotkeeper_cli.audit import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandFailed, NotFound, ProblemsFound
from slotkeeper_cli.formatting import count
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.slotless_executions import find_slotless_executions

app = typer.Typer(help="Reconcile the slot table with what runs, or take over a restored table.", no_args_is_help=True)


@app.command("reconcile", cls=StackCommand)
def reconcile(
    process: Annotated[list[str] | None, typer.Argument(help="Only these processes.", show_default=False)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 5 if something would be changed.")
    ] = False,
) -> None:
    """Make the slot table agree with what runs: adopt executions, repair counters, invoke the janitor.

    An execution that runs without a slot gets one, above the limit if need be. A counter that differs from the number
    of holders is set to that number. Then the janitor runs: it releases the slots of dead holders, after its grace
    time and two checks, so a second call some minutes later may release more.
    """
    context = current_context()
    control = SlotControl(context.stack)
    chosen = [control.process(name) for name in process or control.names()]
    report: dict[str, Any] = {
        "adopted": [one.execution for one in find_slotless_executions(context.stack, control, chosen)],
        "drifted": [one.name for one in chosen if one.has_drifted],
        "dead": _dead(control, chosen),
    }
    if not check:
        _repair(context, control, chosen, report)
    context.out.result(report, lambda console: _render(console, report, check))
    if check and any(report.values()):
        raise ProblemsFound("the slot table does not agree with what runs: repair it with slotkeeper stack reconcile")


def _dead(control: SlotControl, chosen: list[Process]) -> list[str]:
    """Holders whose execution is over. The janitor frees them; who is over since seconds only is on the way there."""
    running = set(control.workflow.running())
    dead = []
    for process in chosen:
        for name in sorted(set(process.holders) - running):
            execution = control.workflow.describe(name)
            if process.holders[name].state == "RUNNING" and (execution is None or execution.is_closed):
                dead.append(name)
    return dead


def _repair(context: CommandContext, control: SlotControl, chosen: list[Process], report: dict[str, Any]) -> None:
    jobs = {one.name: one.job_name for one in chosen}
    slotless = find_slotless_executions(context.stack, control, chosen)
    audit("stack reconcile", adopt=[one.execution for one in slotless], repair=report["drifted"])
    # The counter first: an adoption adds one to it.
    for one in chosen:
        if one.has_drifted and not control.processes.repair_counter(one):
            context.out.note(f"{one.name} has changed meanwhile and was not repaired: run this again.")
    report["adopted"] = [
        one.execution
        for one in slotless
        if control.slots.adopt(one.process, one.execution, one.since, one.job or jobs[one.process])
    ]
    report["janitor"] = _janitor(context)


def _janitor(context: CommandContext) -> dict[str, int]:
    """One round of the janitor, now: what it did, by metric."""
    context.out.note("The janitor runs.")
    answer = context.stack.invoke(context.stack.outputs["JanitorFunctionName"])
    payload = answer["Payload"].read()
    if answer.get("FunctionError"):
        raise CommandFailed(f"the janitor failed: {payload.decode(errors='replace')[:500]}")
    counts: dict[str, int] = json.loads(payload)
    return counts


def _render(console: Console, report: dict[str, Any], check: bool) -> None:
    lines = [
        ("adopted", "execution runs without a slot", "executions run without a slot", "adopted"),
        ("drifted", "counter is wrong", "counters are wrong", "repaired"),
        ("dead", "holder's execution has ended", "holders' executions have ended", "left to the janitor"),
    ]
    for key, one, many, done in lines:
        if report[key]:
            console.print(f"{count(len(report[key]), one, many)}" + ("." if check else f": {done}."))
            for name in report[key]:
                console.print(f"  {name}")
    if not any(report[key] for key, *_ in lines):
        console.print("The slot table agrees with what runs.")
    for name, number in report.get("janitor", {}).items():
        console.print(f"janitor: {name} {number}")


@app.command("restore", cls=StackCommand)
def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="TABLE", help="Name of the table that was restored next to SlotTable.")
    ],
) -> None:
    """Take over the processes of a restored table that are missing here: paused, without holders.

    The restored holders are outdated: run slotkeeper stack reconcile to adopt what runs, then resume the processes.
    """
    context = current_context()
    control = SlotControl(context.stack)
    created, existing, malformed = [], [], []
    audit("stack restore", source=source)
    try:
        for one in Processes(context.stack.client("dynamodb"), source).all():
            if not isinstance(one, Process):
                malformed.append(str(one))
            elif control.processes.create(one.name, one.slot_limit, one.job_name, paused=True):
                created.append(one.name)
            else:
                existing.append(one.name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        raise NotFound(f"there is no table {source!r} in {context.stack.region}") from error

    def render(console: Console) -> None:
        for name in created:
            console.print(f"{name}: taken over, paused.")
        for name in existing:
            console.print(f"{name}: exists already, left as it is.")
        for text in malformed:
            console.print(f"malformed, left out: {text}")
        if created:
            console.print("Next: slotkeeper stack reconcile, then slotkeeper process resume.")

    context.out.result({"taken": created, "left": existing, "malformed": malformed}, render)
