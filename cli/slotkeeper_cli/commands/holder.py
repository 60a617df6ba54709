"""`slotkeeper holder`: release the slot of a dead holder."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated

import typer
from botocore.exceptions import ClientError

from slotkeeper.next_step import next_step
from slotkeeper.slots.dead_holders import Verdict, judge
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.run_report import is_denied
from slotkeeper.slots.targets import STATE_MACHINE, kind_of
from slotkeeper.slots.work import NoSuchJob, WorkCheck
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import duration, local_time
from slotkeeper_cli.holders import check_gap_seconds, grace_seconds, lease_as_dict, lease_text, target_of, weight_text
from slotkeeper_cli.request_finder import RequestFinder
from slotkeeper_cli.slot_control import SlotControl, repair_texts
from slotkeeper_cli.target_checks import target_text

app = typer.Typer(help="Release the slots of dead holders.", no_args_is_help=True)


@app.command("release", cls=StackCommand)
def release(
    request_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the holder's request, or name of its execution or lease.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Release it although it may be in use: more than the limit may then run.")
    ] = False,
) -> None:
    """Release the slot of a dead holder.

    Refused, with the reason, while the holder may use its slot.

    A holder is dead if its execution was never started, or ended at least GraceSeconds ago and its work has ended: its
    child execution has closed, or two checks, CheckGapSeconds apart, find no live Glue run and no child execution. A
    lease is dead 5 seconds after its end. The janitor itself releases dead holders, in the second of its runs after
    GraceSeconds, or in the third if it stops a Glue run or child execution first.
    """
    context = current_context()
    control = SlotControl(context.stack)
    process, execution = _holder(control, request_id)
    holder = process.holders[execution]
    checked: list[str] = []
    known_id, label = None, f"lease {execution}"
    if holder.is_lease:
        alive = _lease_alive(holder, checked)
    else:
        described = control.workflow.describe(execution)
        known_id = control.row_search.request_ids([(process.name, execution)]).get(execution)
        label = f"{known_id} ({execution})" if known_id else execution
        alive = _in_use(context, control, process, execution, described, checked)
    for line in checked:
        context.out.note(f"- {line}")
    weight = f"{text}," if (text := weight_text(holder.weight)) else ""
    if alive and not force:
        raise CommandRefused(
            f"{label} may still use its slot: {alive}. What ends it, and when its slot will be free: "
            f"{next_step('explain', execution)}. With --force its slot{weight} is released now, and more than the "
            "limit allows may run. Nothing was changed."
        )
    if alive:
        context.confirm(f"Release the slot of {label} although it may still use it ({alive})?")
    names = {"process": process.name, "request_id": known_id, "execution": execution, "weight": holder.weight}
    audit("holder release", **names, checked=checked, alive=alive, forced=bool(alive))
    # Released only in the state that was checked. A change of the janitor's quiet_since is no reason to stop.
    current = control.process(process.name).holders.get(execution)
    if current is None:
        raise CommandFailed(f"{label} has released its slot meanwhile: there is nothing left to do")
    is_unchanged = (current.state, current.since, current.until) == (holder.state, holder.since, holder.until)
    if not is_unchanged or not control.slots.free(process.name, execution, current.raw):
        raise CommandFailed(f"{label} changed meanwhile, so its slot was not released: run this again")
    # So that the next request starts.
    control.doorbell.ring(Bell(process.name))
    context.out.result(
        {"released": execution, **names, "checked": checked, "forced": bool(alive)},
        f"{label}: its slot of {process.name}{weight} is released.",
    )


def _lease_alive(holder: Holder, checked: list[str]) -> str:
    """Why a lease may be in use; empty after its end, and the difference of clocks."""
    now = time.time()
    end = lease_text(lease_as_dict(int(holder.until or 0), now))
    checked.append(f"it is a lease, which {end}")
    return "" if holder.has_expired(now) else f"it {end}"


def _holder(control: SlotControl, given: str) -> tuple[Process, str]:
    """The process and the execution of the holder with a request id or an execution name."""
    processes, malformed = control.read_all()
    found = _holders_of(control, processes, given)
    if not found and malformed:
        raise CommandRefused(
            f"no request {given!r} holds a slot of the processes that could be read. Nothing was changed. Not read:",
            *repair_texts(malformed),
        )
    if not found:
        raise NotFound(f"no request {given!r} holds a slot. List the holders with: slotkeeper status")
    if len(found) > 1:
        names = ", ".join(name for _, name in found)
        raise CommandRefused(
            f"{given} holds {len(found)} slots: give the name of one execution, {names}. Nothing was changed."
        )
    return found[0]


def _holders_of(control: SlotControl, processes: list[Process], given: str) -> list[tuple[Process, str]]:
    """The holders with the name of an execution or lease, or else those of a request."""
    if named := [(each, given) for each in processes if given in each.holders]:
        return named
    known = {each.name: each for each in processes}
    rows = [row for one in RequestFinder(control).find(given) for row in one if row.process in known]
    return [(known[row.process], row.execution) for row in rows if row.execution in known[row.process].holders]


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
    grace, now = grace_seconds(context.stack.parameters), time.time()
    if holder.state == "RESERVED":
        checked.append(f"it reserved the slot {duration(now - holder.since)} ago and has not confirmed it")
    match judge(holder, execution, now, grace):
        case Verdict.CANCEL:
            return ""
        case Verdict.ALIVE:
            return _why_alive(holder, execution, kind_of(target_of(process, holder)).work_noun, now, grace)
        case _:
            return _work_alive(context, control, process, name, checked)


def _why_alive(holder: Holder, execution: Execution | None, noun: str, now: float, grace: int) -> str:
    if execution is not None and not execution.is_closed:
        return f"its execution is {execution.status}"
    if holder.state == "RESERVED":
        return "its starter, or the next dispatch, starts its workflow"
    if execution is None or execution.stopped_at is None:
        decides = local_time(holder.since + 86_400)
        return f"DescribeExecution may not show its execution yet; the janitor decides after a day, at {decides}"
    left = duration(execution.stopped_at + grace - now)
    return f"its execution is {execution.status}, but a {noun} that it started last may not show yet; wait {left}"


def _work_alive(context: CommandContext, control: SlotControl, process: Process, name: str, checked: list[str]) -> str:
    """Why the work of a dead workflow may be alive; empty if it is not. These are the janitor's two checks."""
    gap = check_gap_seconds(context.stack.parameters)
    target = target_of(process, process.holders[name])
    noun = kind_of(target).work_noun
    # Work that was being started when the workflow ended may show only at the second check.
    for number in (1, 2):
        try:
            found = _check(context, control, process, name)
        except ClientError as error:
            if not is_denied(error):
                raise
            checked.append(f"you may not read its {noun}: {error}")
            return f"you may not read whether its {noun} of {target_text(target)} has ended"
        if found.running:
            checked.append(f"its {noun} has not ended: {', '.join(found.running)}")
            return f"its {noun} {', '.join(found.running)} has not ended"
        if found.newest and found.is_final:
            checked.append(f"its {noun} is {found.newest.status}: {found.newest.id}")
            left = found.newest.settles_at(process.settle_seconds) - time.time()
            return f"its {noun} was {found.newest.status}; its settle time ends in {duration(left)}" if left > 0 else ""
        checked.append(f"no live {noun} of it (check {number} of 2, {target_text(target)})")
        if number == 1:
            context.out.note(f"No live {noun} of it. The second check follows in {gap} s.")
            time.sleep(gap)
    return ""


def _check(context: CommandContext, control: SlotControl, process: Process, name: str) -> WorkCheck:
    """The work of a holder now, of all pages of Glue runs since its slot was reserved."""
    now, holder = time.time(), process.holders[name]
    target = target_of(process, holder)
    if kind_of(target) is STATE_MACHINE:
        return WorkCheck.child(now, control.children.describe(target, name, context.stack.execution_arn(name)))
    search = control.glue.search_runs(target, now, [name])
    with suppress(NoSuchJob):
        while not search.covers(holder.since):
            search.read_page()
    return search.found(name)
