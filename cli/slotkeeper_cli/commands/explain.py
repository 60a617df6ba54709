"""`slotkeeper explain`, which is also `slotkeeper request show`: where a request is, and why."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.next_step import next_step
from slotkeeper.retry.downstream.downstreams import DEFAULT, MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper_cli.account import Account
from slotkeeper_cli.completion import process_names, request_ids
from slotkeeper_cli.conditions import Condition
from slotkeeper_cli.context import current_context
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName, read_dead_letters
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.expected_start import slot_seconds
from slotkeeper_cli.explanation import StackFacts, explain_lease, explain_new, explain_request, lease_reasons
from slotkeeper_cli.formatting import duration, local_time, seconds
from slotkeeper_cli.holders import holders_as_dicts, lease_text, weight_text
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.process_queue import read_queue
from slotkeeper_cli.request_finder import (
    ID_HELP,
    FoundRequest,
    RequestFinder,
    Run,
    attempt_as_dict,
    fact_text,
    read_run,
)
from slotkeeper_cli.requests import ALL_STATES, RequestState
from slotkeeper_cli.retries import DownstreamControl, details, line, not_closed, read_downstreams
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, message_counts, queue_attributes
from slotkeeper_cli.unread import UnreadSource, print_not_read
from slotkeeper_cli.work_requests import FoundWork, downstream_conditions, explain_work, find_work, is_deployed

HELP = f"""Show where a request is, and why.

It shows the position of a queued request, what it waits for and when it is expected to start, or how it ended, and what
to do next. With --process alone: what keeps a new request or lease of that process from starting.

A request, and each of its attempts, is {ALL_STATES}. The last three are states of the worker's requests.
"""

# What is known of a request that was found nowhere.
_MAY_BE = (
    "it was never sent, or SQS refused it",
    "it ended long ago, and its row was deleted after the time that the stack keeps it",
    "its dead-letter message was deleted, or expired after 14 days",
)
# Holders that the text names.
MAX_HOLDERS_SHOWN = 10
# Facts of an attempt that the text shows in another way, or that repeat another fact.
_NOT_LISTED = ("attempt", "state", "execution", "cause", "published", "slot_free_by", "slot_usually_free_after_seconds")
_USUAL = (("priority", DEFAULT_PRIORITY), ("weight", 1))


def explain(
    request_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help=f"{ID_HELP} Or the name of a lease.", autocompletion=request_ids),
    ] = None,
    process: Annotated[
        str | None, typer.Option(help="Search only this process; without ID: explain it.", autocompletion=process_names)
    ] = None,
) -> None:
    """Show where a request is and why. `HELP` is the text of --help."""
    context = current_context()
    if request_id is None:
        if process is None:
            raise typer.BadParameter("give the id of a request or the name of a lease, or --process alone")
        of_process = Explained(context.stack, "").explain_process(process)
        context.out.result(of_process, lambda console: render_process(console, of_process))
        return
    data = Explained(context.stack, request_id).collect(process)
    context.out.result(data, lambda console: render(console, data))
    if data["state"] is None and not (data["work"] or data["dead_letters"]):
        if data["not_read"]:
            raise CommandFailed(
                f"no request {request_id} found in what could be read: see what could not be read above"
            )
        raise NotFound(f"no request {request_id} found, and no message of it is queued: check the id")


class Explained:
    """One search for a request, and its explanations as JSON shows them."""

    def __init__(self, stack: StackConnection, given: str) -> None:
        self._stack = stack
        self._given = given
        self._control = SlotControl(stack)
        self._finder = RequestFinder(self._control)
        self._search = self._finder.search
        self._search.searched.append("SlotTable")
        self._now = time.time()

    def collect(self, only: str | None) -> dict[str, Any]:
        """Search, in one process or in all and in the worker.

        Raises:
            NotFound: there is no such process, and no request of it.
        """
        processes = self._processes(only)
        found = self._finder.find(self._given, only)
        if only and not found and not processes:
            raise self._control.not_found(only)
        facts = self._facts(processes, {one.process for one in found if one.last.state == "QUEUED"})
        shown = [self._found(one, processes.get(one.process), facts) for one in found]
        leases = [lease for each in processes.values() for lease in self._leases(each, facts)]
        is_request = bool(found)
        work = self._work(is_request) if only is None and is_deployed(self._stack) else None
        messages = [] if is_request or work else self._dead_letters(only)
        if not (is_request or leases or work or messages):
            self._note_queued()
        every = [*shown, *leases, *([work] if work else []), *messages]
        first: dict[str, Any] = every[0] if every else {}
        return {
            "request_id": found[0].request_id if found else self._given,
            **{name: first.get(name) for name in ("state", "position", "ahead")},
            **{name: first.get(name, []) for name in ("reasons", "next")},
            "found": shown,
            "leases": leases,
            "work": work,
            "dead_letters": messages,
            "may_be": [] if every else list(_MAY_BE),
            "not_read": [each.as_dict() for each in self._search.not_read],
            "searched": self._search.searched,
        }

    def explain_process(self, name: str) -> dict[str, Any]:
        """Why a new request or lease of a process would not start now. Raises NotFound."""
        processes = self._processes(name)
        if not processes:
            raise self._control.not_found(name)
        queue = read_queue(self._control.rows, processes[name], self._now)
        facts = self._facts(processes, [name])
        is_known = isinstance(queue.process, Process)
        return {
            "process": name,
            **explain_new(queue, facts).as_dict(self._now),
            "queued": len(queue.requests),
            "is_cut": queue.is_cut,
            "holders": self._holders(processes[name]),
            "lease_reasons": [each.as_dict() for each in lease_reasons(queue)] if is_known else [],
            "not_read": [each.as_dict() for each in self._search.not_read],
        }

    def _processes(self, only: str | None) -> dict[str, Process | MalformedProcess]:
        """The processes by name, or the one of a name. Malformed ones are noted in the search."""
        known, malformed = self._control.read_all()
        every: dict[str, Process | MalformedProcess] = {one.name: one for one in known}
        every |= {error.process: error for error in malformed}
        chosen = {name: each for name, each in every.items() if only in (None, name)}
        for each in chosen.values():
            if isinstance(each, MalformedProcess):
                self._search.note_malformed(each)
        return chosen

    def _facts(self, processes: Iterable[str], queued: Collection[str]) -> StackFacts:
        """The facts of the stack; those that only queued requests need are read only for them."""
        if not queued:
            return StackFacts(self._now, processes=frozenset(processes))
        return StackFacts(
            now=self._now,
            doorbell=tuple(Account(self._stack).stopped_event_source(self._search, "DispatchQueue")),
            slot_seconds=slot_seconds(self._control.rows, queued, self._now),
            processes=frozenset(processes),
        )

    def _found(
        self, one: FoundRequest, process: Process | MalformedProcess | None, facts: StackFacts
    ) -> dict[str, Any]:
        readable = process if isinstance(process, Process) else None
        run, queue, last = Run(), None, one.last
        has_run = last.state in ("STARTED", "SUCCEEDED") or (readable and last.execution in readable.holders)
        if has_run:
            run = read_run(self._stack, self._control, process, last)
        elif last.state == "QUEUED" and process is not None:
            queue = read_queue(self._control.rows, process, self._now)
        link = self._stack.execution_link(last.execution) if run.execution else ""
        attempts = [attempt_as_dict(row) for row in one.rows]
        attempts[-1] |= ({"link": link} if link else {}) | {k: v for k, v in run.as_dict().items() if v is not None}
        data = {"process": one.process, "request_id": one.request_id}
        data |= explain_request(one, queue, run, facts).as_dict(self._now)
        return data | {"holders": self._holders(readable) if queue else [], "attempts": attempts}

    def _holders(self, process: Process | MalformedProcess | None) -> list[dict[str, Any]]:
        return holders_as_dicts(self._control, process, self._now) if isinstance(process, Process) else []

    def _leases(self, process: Process | MalformedProcess, facts: StackFacts) -> list[dict[str, Any]]:
        holder = process.holders.get(self._given) if isinstance(process, Process) else None
        if holder is None or not holder.is_lease or not isinstance(process, Process):
            return []
        explained = explain_lease(process, self._given, holder, facts).as_dict(self._now)
        return [{"process": process.name, "lease": self._given, **explained}]

    def _dead_letters(self, only: str | None) -> list[dict[str, Any]]:
        """The messages with the id that could not be parsed, or that SQS itself has moved."""
        queue = DeadLetterQueueName.REQUEST
        messages = read_dead_letters(self._stack, self._search, [queue])
        named = [one for one in messages if one.is_named(self._given) and only in (None, one.process)]
        return [_dead_letter(one) for one in named]

    def _note_queued(self) -> None:
        """Note the messages whose requests have no row yet."""
        attributes = queue_attributes(self._stack, "RequestQueue")
        counts = message_counts(attributes)
        if queued := counts["visible"] + counts["in_flight"]:
            stopped = Account(self._stack).stopped_event_source(self._search, "RequestQueue")
            why = "; ".join(f"{each.text}: {each.ends_by}" for each in stopped)
            why = why or "the starter accepts them within seconds: run this again"
            self._search.not_read.append(UnreadSource("RequestQueue", why, queued))
        if not is_deployed(self._stack):
            return
        if queued := sum(message_counts(queue_attributes(self._stack, "WorkQueue")).values()):
            held = [line(one, self._now) for one in not_closed(read_downstreams(self._stack))]
            why = "; ".join(["a request without an attempt has no row, and may be one of them", *held])
            self._search.not_read.append(UnreadSource("WorkQueue", why, queued))

    def _work(self, is_request: bool) -> dict[str, Any] | None:
        """The request of the worker with the id; None if there is none."""
        stack, search = self._stack, self._search
        search.searched.append("RequestLedgerTable")
        try:
            work = find_work(stack, search, self._given, search_dead_letters=not is_request)
        except MalformedRow as error:
            return {"request_id": self._given, "state": None, "malformed": str(error)}
        if work is None:
            return None
        conditions = self._downstream(work) if work.state is RequestState.WAITING else []
        event_source = Account(stack).stopped_event_source(search, "WorkQueue")
        return work.as_dict() | explain_work(work, conditions, event_source, self._now).as_dict(self._now)

    def _downstream(self, work: FoundWork) -> list[Condition]:
        """The conditions of the downstream of a work request that fail."""
        control = DownstreamControl(self._stack)
        name = (work.row and work.row.downstream) or DEFAULT

        def fail() -> list[Condition]:
            health = control.healths.get(name, Health())
            if isinstance(health, MalformedHealth):
                self._search.note_unread("DownstreamTable", str(health))
                return []
            shown = details(name, health, control.settings(name), self._now)
            return downstream_conditions(shown, self._now)

        return self._search.try_read("DownstreamTable", fail, [])


def _dead_letter(message: DeadLetterMessage) -> dict[str, Any]:
    show = next_step("dlq show", message.queue)
    answer = f"its message was not accepted, and is kept in {message.queue.full_name} for 14 days: {message.reason}"
    shown = {**message.summary(), "queue": message.queue.full_name}
    return {"state": RequestState.DEAD_LETTERED, "answer": answer, "next": [show], "reasons": [], "dead_letter": shown}


def render(console: Console, data: dict[str, Any]) -> None:
    """Print a request. `data` is the same as JSON shows it."""
    for one in data["found"]:
        console.print(f"{one['request_id']} in {one['process']}: {one['state']}", style="bold")
        _render_explanation(console, one)
        for attempt in one["attempts"]:
            _render_attempt(console, attempt, one["answer"])
    for lease in data["leases"]:
        console.print(f"{lease['lease']} in {lease['process']}: a lease", style="bold")
        _render_explanation(console, lease)
    if work := data["work"]:
        _render_work(console, work)
    for one in data["dead_letters"]:
        shown = one["dead_letter"]
        console.print(f"{shown['request_id']} in {shown['process']}: {one['state']}", style="bold")
        _render_explanation(console, one)
        _render_dead_letter(console, shown, one["answer"])
    if data["may_be"]:
        console.print(f"No request {data['request_id']} found. Possible reasons:")
        for text in data["may_be"]:
            console.print(f"- {text}")
    print_not_read(console, data["not_read"])
    console.print(f"Searched: {', '.join(data['searched'])}.", style="dim")


def render_process(console: Console, data: dict[str, Any]) -> None:
    """Print why a new request or lease of a process would not start now, from the data that JSON shows."""
    console.print(f"a new request of {data['process']}:", style="bold")
    if not data["reasons"]:
        console.print("  nothing keeps it from starting")
    elif data["ahead"] is not None:
        more = "more than " * data["is_cut"]
        console.print(f"  it would be number {more}{data['position']:,} in the queue")
    _render_explanation(console, data)
    if data["lease_reasons"]:
        console.print(f"a lease of {data['process']}:", style="bold")
        for reason in data["lease_reasons"]:
            console.print(f"  - {reason['text']}")
    print_not_read(console, data["not_read"])


def _render_explanation(console: Console, data: dict[str, Any]) -> None:
    """Print an answer with its reasons, holders, expected start and next steps."""
    if data["answer"]:
        console.print(f"  {data['answer']}")
    for reason in data["reasons"] if len(data["reasons"]) > 1 else []:
        console.print(f"  - {reason['text']}")
    _render_holders(console, data.get("holders", []))
    if expected := data.get("expected_start"):
        console.print(f"  expected start: {expected['text']}")
    for step in data["next"]:
        console.print(f"  -> {step}", style="yellow")


def _render_attempt(console: Console, attempt: dict[str, Any], answer: str) -> None:
    """Print an attempt, without a reason that the answer has."""
    named = f"  {attempt['execution']}" if attempt["execution"] else ""
    console.print(f"  attempt {attempt['attempt']}: {attempt['state']}{named}")
    for name, value in attempt.items():
        is_new = name != "reason" or value not in answer
        if value and name not in _NOT_LISTED and (name, value) not in _USUAL and is_new:
            print_lines(console, f"    {name.replace('_', ' ')}: {fact_text(name, value)}", "      ")


def _render_holders(console: Console, holders: list[dict[str, Any]]) -> None:
    for holder in holders[:MAX_HOLDERS_SHOWN]:
        state = f"{holder['state']} for {duration(holder['age_seconds'])}{weight_text(holder['weight'])}"
        if holder["state"] == "LEASED":
            console.print(f"    {holder['execution']}  {state}, {lease_text(holder)}")
            continue
        console.print(f"    {holder['request_id'] or 'request id unknown'}  {state}  {holder['execution']}")
    if (more := len(holders) - MAX_HOLDERS_SHOWN) > 0:
        console.print(f"    and {more:,} more: slotkeeper status")


def _render_work(console: Console, data: dict[str, Any]) -> None:
    if "malformed" in data:
        console.print(f"{data['request_id']} in the worker: {data['malformed']}")
        return
    console.print(f"{data['request_id']} in the worker: {data['state']}", style="bold")
    _render_explanation(console, data)
    for entry in data.get("history", []):
        at = local_time(seconds(entry["at"]))
        console.print(f"  attempt {entry['attempt']}: failed  {at}  {entry['error']}")
    failed = {entry["attempt"] for entry in data.get("history", [])}
    last = data.get("attempts", 0)
    if last and last not in failed:
        at = local_time(seconds(data["last_attempt_at"]))
        console.print(f"  attempt {last}: {data['state']}  {at}")
    if due := data.get("next_attempt_at"):
        console.print(f"  attempt {last + 1}: due {local_time(seconds(due))}")
    if dead_letter := data.get("dead_letter"):
        _render_dead_letter(console, dead_letter, data["answer"])


def _render_dead_letter(console: Console, message: dict[str, Any], answer: str) -> None:
    """Print a dead-letter message, without a reason that the answer has."""
    reason = f": {message['reason']}" if message["reason"] not in answer else ""
    named = f"    dead-letter message: {message['message_id']} in {message['queue']}, {message['code']}"
    print_lines(console, named + reason, "      ")
