"""`slotkeeper request cancel`: cancel queued requests, or stop running ones.

Cancelled means never started. A transaction removes up to 50 requests from the queue; then their ends are published,
and a dispatch follows. A request that has a slot is stopped, or left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import Priority
from slotkeeper.slots.request_table import MAX_LEAVES, Leaving
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.bulk import Chosen, Outcome, RequestChange, names_of
from slotkeeper_cli.bulk_run import carry_out
from slotkeeper_cli.completion import process_names, request_ids
from slotkeeper_cli.context import CommandContext, current_context
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import count, local_time, period_seconds
from slotkeeper_cli.holders import estimate
from slotkeeper_cli.keys import KeyFilter
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.request_finder import ID_HELP, RequestFinder, Run, read_run
from slotkeeper_cli.requests import state_of
from slotkeeper_cli.slot_control import repair_texts
from slotkeeper_cli.unread import Search

_STARTS = "it has a slot, and starts: to stop it, give --stop in some seconds"


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
    key: KeyFilter = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="PERIOD", help="With --all: only those sent before 30m, 2h or 7d.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop those that run, with their Glue run or child.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be cancelled; cancel nothing.")] = False,
) -> None:
    """Cancel queued requests, so that they never start.

    Their callers are answered, and events are published. A request that has a slot is no longer queued; --stop ends its
    execution. Its Glue run or child execution is then stopped, its slot released, and the request has failed. You can
    interrupt the command and run it again. If all requests are left, the exit code is 3.
    """
    context = current_context()
    if bool(ids) == every:
        raise typer.BadParameter("give either the ids of requests, or --process and --all")
    if every and not process:
        raise typer.BadParameter("--all needs --process")
    if every and stop:
        raise typer.BadParameter("--stop needs the ids of requests")
    if (priority or older_than or key is not None) and not every:
        raise typer.BadParameter("--priority, --key and --older-than need --all")
    period = period_seconds(older_than) if older_than else None
    if older_than and period is None:
        raise typer.BadParameter(f"--older-than must be a period such as 30m, 2h or 7d, got {older_than!r}")
    change = Cancelling(context, Account(context.stack))
    if every and process:
        change.choose_queued(process, priority, key, period)
    else:
        change.choose(ids or [], process, stop=stop)
    carry_out(context, change, dry_run=dry_run, also="stopped", not_read=change.search.not_read)


class RunningRequest(NamedTuple):
    """A request that runs. `since`: seconds since the epoch."""

    chosen: Chosen
    process: Process
    run: Run
    since: int


class Cancelling(RequestChange):
    """Cancels requests that are queued, and stops those that run.

    Attributes:
        running: those to stop.
        search: what could not be read.
    """

    action, verb, unchanged = "request cancel", "cancelled", "it was cancelled before"
    batch_size = MAX_LEAVES

    def __init__(self, context: CommandContext, account: Account) -> None:
        super().__init__()
        self._context, self._account, self._control = context, account, account.control
        self.running, self.search = list[RunningRequest](), Search()
        self._of = ""

    def choose_queued(self, process: str, priority: str | None, key: str | None, older_than: float | None) -> None:
        """Choose the queued requests of a process.

        Args:
            priority, key: only those of it; None: all. A key of "" is that of requests without one.
            older_than: only those that were sent so many seconds ago.

        Raises:
            NotFound: there is no such process, or no such request is queued.
        """
        before = time.time() - (older_than or 0.0)
        # All pages: a part of a queue, cancelled as if it was all of it, would be a wrong answer.
        listed = self._account.queue(self._account.process(process), max_pages=1_000_000)
        queue = self.search.rows(listed, "queued requests")
        self.chosen = [
            Chosen(process, row.queued.execution, row.request_id)
            for row in queue
            if (priority is None or row.priority == priority)
            and key in (None, row.queued.key)
            and (older_than is None or row.sent <= before)
        ]
        if not self.chosen:
            raise NotFound(f"no such request of {process} is queued{self.search.limits}. Nothing was changed.")
        self._of = f"{len(self.chosen):,} of " * (len(self.chosen) < len(queue))
        self._of += f"{count(len(queue), 'queued request')} of {process}"

    def choose(self, ids: Sequence[str], only: str | None, *, stop: bool) -> None:
        """Choose requests by their ids.

        Args:
            only: the process of the requests; None: any.
            stop: choose also those that run.

        Raises:
            NotFound: there is no such request or process.
            CommandRefused: several requests have an id.
        """
        known = self._account.by_name()
        for text in repair_texts(one for one in known.values() if isinstance(one, MalformedProcess)):
            self._context.out.note(f"Warning: whether its requests have slots is not known: {text}")
        if only and only not in known:
            raise self._control.not_found(only)
        finder = RequestFinder(self._control)
        self.search = finder.search
        for given in dict.fromkeys(ids):
            one = finder.only(given, only, lambda row: row.state in ("QUEUED", "STARTED"))
            if one is None:
                why = "slotkeeper explain shows why"
                raise NotFound(f"no request {given} found{self.search.limits}: {why}. Nothing was changed.")
            self._choose(one[-1], known.get(one[-1].process), stop)

    def _choose(self, row: RequestRow, process: Process | MalformedProcess | None, stop: bool) -> None:
        chosen = Chosen(row.process, row.execution, row.request_id)
        has_slot = isinstance(process, Process) and row.execution in process.holders
        if row.state == "QUEUED" and not has_slot:
            self.chosen.append(chosen)
        elif row.state not in ("QUEUED", "STARTED"):
            self.left.append((chosen, self._ended(row.state)))
        elif not isinstance(process, Process):
            self.left.append((chosen, "the item of its process could not be read"))
        else:
            run = read_run(self._context.stack, self._control, process, row)
            if why := _kept(run, stop):
                self.left.append((chosen, why))
            elif run.holder:
                self.running.append(RunningRequest(chosen, process, run, run.holder.since))

    def _ended(self, state: Any) -> str:
        return self.unchanged if state == "CANCELLED" else f"it has ended: {state_of(state)}"

    def question(self) -> str:
        """One question for all; it states what ends."""
        of = self._of or count(len(self.chosen), "queued request")
        cancels = f"Cancel {of} ({names_of(self.chosen)}), so that they never start, and their callers get an error?"
        stops = (
            f"Stop {one.request_id}, running since {local_time(since)}, and its {kind_of(run.target).work_noun}, "
            "so that its work is lost, and it has failed?"
            for one, _, run, since in self.running
        )
        return " ".join([*[cancels] * bool(self.chosen), *stops])

    def act_on(self, process: str, part: Sequence[Chosen]) -> Iterator[Outcome]:
        """Cancel some requests, in one transaction."""
        why = f"cancelled by {self._context.stack.caller}"
        leavings = [Leaving(one.execution, "CANCELLED", "Cancelled", why) for one in part]
        left = self._control.requests.leave(process, leavings, time.time())
        ended = {each.execution for each in left}
        yield from ((one, "") for one in part if one.execution in ended)
        rest = [one for one in part if one.execution not in ended]
        yield from zip(rest, in_parallel(self._why, rest), strict=True)

    def _why(self, one: Chosen) -> str:
        """Why a request was not cancelled; empty if it is cancelled."""
        row = self._control.row_search.row(one.process, one.execution)
        if row is None:
            return "it has no row any more"
        if row.state == "STARTED":
            return "it runs: give --stop to stop it"
        if row.state != "QUEUED":
            return "" if row.state == "CANCELLED" else self._ended(row.state)
        try:
            process = self._control.slots.read(one.process)
        except MalformedProcess as error:
            return f"the item of its process is malformed: {error}"
        if process is None:
            return "its process does not exist: the next dispatch rejects it"
        return _STARTS if one.execution in process.holders else "it has changed"

    def follow_up(self, process: str, done: list[str], /) -> None:
        """Let the ends be published, and the next request be dispatched."""
        self._control.ending_queue.publish(process, done)
        self._control.doorbell.ring(Bell(process))

    def finish(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Stop the executions of those that run."""
        stack = self._context.stack
        for chosen, process, run, _ in self.running:
            kind, names = kind_of(run.target), chosen.as_dict()
            audit(self.action, stop=True, **names, **{kind.work_key: run.work})
            stopped = stack.client("stepfunctions").stop_execution(
                executionArn=stack.execution_arn(chosen.execution),
                error="Cancelled",
                cause=f"slotkeeper request cancel, by {stack.caller}",
            )
            ended = stopped["stopDate"].timestamp()
            release = estimate(stack.parameters, ended, run.target, run.work, process.settle_seconds)
            free = release.text(time.time())
            yield (
                {**names, "target": run.target, **release.as_dict(), "text": free},
                f"stopped: {chosen.request_id}  {chosen.execution}. Its {kind.work_noun} is stopped, then the request "
                f"has failed. Its slot is free {free}.",
            )


def _kept(run: Run, stop: bool) -> str:
    """Why a request that has a slot is not stopped; empty if it is."""
    if run.holder is None or run.holder.state == "RESERVED" or run.execution is None:
        return _STARTS if run.holder else "it is ending"
    if run.execution.is_closed:
        free = run.release.text(time.time()) if run.release else "soon"
        return f"its execution has ended, and its slot will be free {free}"
    return "" if stop else f"it has run since {local_time(run.holder.since)}: give --stop to stop it"
