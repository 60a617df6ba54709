"""`slotkeeper request cancel`: cancel queued requests, or stop running ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import typer
from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Priority
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.bulk import BulkReport, Chosen, Outcome, names_of, reasons
from slotkeeper_cli.cancellation import Cancelling
from slotkeeper_cli.completion import process_names, request_ids
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import CommandRefused, NotFound, failure_text
from slotkeeper_cli.formatting import count, iso, local_time, period_seconds
from slotkeeper_cli.holders import estimate
from slotkeeper_cli.request_finder import ID_HELP, FoundRequest, RequestFinder, Run, read_run
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.slot_control import SlotControl, repair_texts

# Of a repeated command, which has succeeded.
BEFORE = "it was cancelled before"


def cancel(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help=ID_HELP, autocompletion=request_ids)
    ] = None,
    process: Annotated[
        str | None,
        typer.Option(
            help="Process of the requests; needed with --all, or if several processes have an id.",
            autocompletion=process_names,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All queued requests of the process.")] = False,
    priority: Annotated[Priority | None, typer.Option(help="With --all: only those of this priority.")] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="With --all: only those sent before 30m, 2h or 7d.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop those that run, and what they run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be cancelled; cancel nothing.")] = False,
) -> None:
    """Cancel queued requests, so that they never start.

    Their callers are answered, and events are published. A request that has a slot is no longer queued; --stop ends its
    execution. Its Glue run or child execution is then stopped, its slot released, and the request has failed. You can
    interrupt the command and run it again. If all requests are left, the exit code is 3.
    """
    context = current_context()
    _check_options(ids, process, every, priority, older_than, stop)
    control = SlotControl(context.stack)
    if every and process:
        period = period_seconds(older_than) if older_than else None
        plan = ToCancel(queued=_filtered(control, process, priority, period))
        if not plan.queued:
            raise NotFound(f"no such request of {process} is queued. Nothing was changed.")
    else:
        plan = _named(context, control, ids or [], process, stop)
    if not (plan.queued or plan.running) and any(why != BEFORE for _, why in plan.left):
        raise CommandRefused("nothing was cancelled:", *reasons(plan.left))
    if not dry_run and plan.question:
        context.confirm(plan.question)
    report = BulkReport() if dry_run else Cancelling(context, control).bulk.run(plan.queued)
    report.left = [*plan.left, *report.left]
    stopped = list[dict[str, Any]]()
    try:
        stopped += [_stop(context, each) for each in ([] if dry_run or report.failure else plan.running)]
    except (ClientError, BotoCoreError) as error:
        report.failure = failure_text(error)
    if dry_run:
        report.done = plan.queued
    data = report.as_dict("cancelled", dry_run=dry_run) | {"stopped": stopped}
    lines = report.lines("would be cancelled" if dry_run else "cancelled")
    context.out.result(data, [*map(_stopped_text, stopped), *lines])
    report.raise_for_outcome(len(plan.queued), "cancelled", BEFORE, is_done=bool(stopped or dry_run))


class RunningRequest(NamedTuple):
    """A request that runs."""

    chosen: Chosen
    process: Process
    run: Run
    since: int


@dataclass
class ToCancel:
    """What the command does after the question: to cancel, to stop, and what is left, with the reason."""

    queued: list[Chosen] = field(default_factory=list)
    running: list[RunningRequest] = field(default_factory=list)
    left: list[Outcome] = field(default_factory=list)

    @property
    def question(self) -> str:
        """The one question for all."""
        cancels = f"Cancel {count(len(self.queued), 'queued request')} ({names_of(self.queued)})?"
        stops = (
            f"Stop {one.request_id}, running since {local_time(since)}, and its {kind_of(run.target).work_noun}?"
            for one, _, run, since in self.running
        )
        return " ".join([*[cancels] * bool(self.queued), *stops])


def _check_options(
    ids: Sequence[str] | None, process: str | None, every: bool, priority: str | None, older: str | None, stop: bool
) -> None:
    if bool(ids) == every:
        raise typer.BadParameter("give either the ids of requests, or --process and --all")
    if every and not process:
        raise typer.BadParameter("--all needs --process")
    if every and stop:
        raise typer.BadParameter("--stop needs the ids of requests")
    if (priority or older) and not every:
        raise typer.BadParameter("--priority and --older-than need --all")
    if older and period_seconds(older) is None:
        raise typer.BadParameter(f"--older-than must be a period such as 30m, 2h or 7d, got {older!r}")


def _filtered(control: SlotControl, process: str, priority: str | None, period: float | None) -> list[Chosen]:
    control.process(process)
    before = time.time() - (period or 0.0)
    # All pages: a part of a queue, cancelled as if it was all of it, would be a wrong answer.
    listed = control.rows.queue(process, max_pages=1_000_000)
    return [
        Chosen(process, row.queued.execution, row.request_id)
        for row in listed.rows
        if (priority is None or row.priority == priority) and (period is None or row.sent <= before)
    ]


def _named(context: CommandContext, control: SlotControl, ids: Sequence[str], only: str | None, stop: bool) -> ToCancel:
    """Find the requests with these ids. Raises NotFound and CommandRefused, before anything is changed."""
    known, malformed = control.read_all()
    for text in repair_texts(malformed):
        context.out.note(f"Warning: whether its requests have slots is not known: {text}")
    processes = {one.name: one for one in known}
    if only and only not in (*processes, *(error.process for error in malformed)):
        raise control.not_found(only)
    finder, plan = RequestFinder(control), ToCancel()
    for given in dict.fromkeys(ids):
        one = finder.only(given, only, lambda row: row.state in ("QUEUED", "STARTED"))
        if one is None:
            unread = " in what could be read" if finder.search.not_read else ""
            raise NotFound(f"no request {given} found{unread}: slotkeeper explain shows why. Nothing was changed.")
        row = one.last
        chosen = Chosen(one.process, row.execution, one.request_id)
        process = processes.get(one.process)
        has_slot = process is not None and row.execution in process.holders
        if row.state == "QUEUED" and not has_slot:
            plan.queued.append(chosen)
        elif row.state == "CANCELLED":
            plan.left.append((chosen, BEFORE))
        elif row.state not in ("QUEUED", "STARTED"):
            plan.left.append((chosen, f"it has ended: {state_of(row.state)}"))
        else:
            _plan_stop(context, control, plan, chosen, process, one, stop)
    return plan


def _plan_stop(
    context: CommandContext,
    control: SlotControl,
    plan: ToCancel,
    chosen: Chosen,
    process: Process | None,
    one: FoundRequest,
    stop: bool,
) -> None:
    if process is None:
        plan.left.append((chosen, "the item of its process could not be read"))
        return
    run = read_run(context.stack, control, process, one.last)
    if run.holder is None or run.holder.state == "RESERVED" or run.execution is None:
        why = "it has a slot, and starts: to stop it, give --stop in some seconds" if run.holder else "it is ending"
        plan.left.append((chosen, why))
    elif run.execution.is_closed:
        free = run.release.text(time.time()) if run.release else "soon"
        plan.left.append((chosen, f"its execution has ended, and its slot will be free {free}"))
    elif not stop:
        plan.left.append((chosen, f"it has run since {iso(run.holder.since)}: give --stop to stop it"))
    else:
        plan.running.append(RunningRequest(chosen, process, run, run.holder.since))


def _stop(context: CommandContext, each: RunningRequest) -> dict[str, Any]:
    """Stop an execution; return it as JSON shows it."""
    target, work = each.run.target, each.run.work
    names = each.chosen.as_dict()
    audit("request cancel", stop=True, **names, **{kind_of(target).work_key: work})
    stopped = context.stack.client("stepfunctions").stop_execution(
        executionArn=context.stack.execution_arn(each.chosen.execution),
        error="Cancelled",
        cause=f"slotkeeper request cancel, by {context.stack.caller}",
    )
    ended = stopped["stopDate"].timestamp()
    release = estimate(context.stack.parameters, ended, target, work, each.process.settle_seconds)
    return {**names, "target": target, **release.as_dict(), "text": release.text(time.time())}


def _stopped_text(one: dict[str, Any]) -> str:
    ended = f"Its {kind_of(one['target']).work_noun} is stopped, then the request has failed"
    return f"stopped: {one['request_id']}  {one['execution']}. {ended}. Its slot is free {one['text']}."
