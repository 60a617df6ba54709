"""`slotkeeper explain`, which is also `slotkeeper request show`: where a request is, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.retry.downstream.downstreams import DEFAULT, MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import MalformedRow
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import DEFAULT_PRIORITY
from slotkeeper_cli.audit_log import Audited, read_audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.conditions import (
    Condition,
    as_dict,
    holders_as_dicts,
    waited,
    waiting_requests,
)
from slotkeeper_cli.context import current_context
from slotkeeper_cli.errors import CommandFailed, NotFound
from slotkeeper_cli.explanation import StackFacts, explain_attempts, explain_lease, explain_queue, lease_conditions
from slotkeeper_cli.formatting import count, duration, local_time, seconds
from slotkeeper_cli.holders import grace_seconds, lease_text, weight_text
from slotkeeper_cli.output import print_lines
from slotkeeper_cli.request_finder import RequestAttempts, RequestFinder
from slotkeeper_cli.request_ids import ID_HELP
from slotkeeper_cli.requests import ALL_STATES, RequestState
from slotkeeper_cli.retries import DownstreamControl, details, line, not_closed, read_downstreams
from slotkeeper_cli.search import print_not_read, read_event_source
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, message_counts, queue_attributes
from slotkeeper_cli.target_checks import slot_seconds
from slotkeeper_cli.work_requests import FoundWork, downstream_conditions, explain_work, find_work, is_deployed

HELP = f"""Show where a request is, and why.

It shows what the request waits for and when it is expected to start, or why it ended so, and what to do next. With
--process alone: what keeps a new request or lease of that process from starting.

Each attempt is {ALL_STATES}.

The command searches slots, executions, the dead-letter queues, skipped requests, the audit log and the worker's
ledger. RequestQueue cannot be searched, so a request that is not found may be queued. What could not be read is
counted.
"""

# Processes in which a request that was not found is explained. With more, the process must be given.
MAX_QUEUES = 10
_QUEUED = (RequestState.WAITING, RequestState.QUEUED)
# Holders that the text names.
MAX_HOLDERS_SHOWN = 10
# Facts of an attempt that the text shows in another way, or that repeat another fact.
_NOT_LISTED = (
    *("attempt", "state", "execution", "dead_letter", "because", "conditions", "cause", "request_id"),
    *("waited_seconds", "blocked", "ahead", "slot_free_by", "slot_usually_free_after_seconds"),
)
_USUAL = (("priority", DEFAULT_PRIORITY), ("weight", 1))
_TIMES = ("since", "started", "ended", "start_before")


def explain(
    request_id: Annotated[str | None, typer.Argument(metavar="[ID]", help=f"{ID_HELP} Or the name of a lease.")] = None,
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
    search = Explained(context.stack, request_id)
    data = search.collect(process)
    context.out.result(data, lambda console: render(console, data))
    if not search.is_known and data["state"] is None:
        if data["not_read"]:
            raise CommandFailed(
                f"no request {request_id} found in what could be read: see what could not be read above"
            )
        raise NotFound(f"no request {request_id} found, and no message of it can be queued: check the id")


class Explained:
    """One search for a request, and its explanations as JSON shows them."""

    def __init__(self, stack: StackConnection, given: str) -> None:
        self._stack = stack
        self._given = given
        self._control = SlotControl(stack)
        self._finder = RequestFinder(stack, self._control)
        self._search = self._finder.search
        self._now = time.time()
        self.is_known = False

    def collect(self, only: str | None) -> dict[str, Any]:
        """Search, in one process or in all and in the worker.

        Raises:
            NotFound: there is no such process, or no such execution.
        """
        known = self._processes(only)
        attempts = [one for one in self._finder.find(self._given, known) if one.attempts]
        names = frozenset({each.name for each in known} | self._finder.malformed.keys())
        if only is None:
            attempts += self._finder.find_without_process(self._given, names)
        facts = replace(self._facts(), processes=names)
        found = [self._found(one, facts) for one in attempts]
        leases = [lease for process in known for lease in self._leases(process, facts)]
        name = attempts[0].request_id if attempts else self._given
        work, work_queued = self._work(name, bool(attempts)) if only is None and is_deployed(self._stack) else (None, 0)
        self.is_known = bool(found or leases or work)
        states = [each["state"] for each in (*found, *leases, *([work] if work else []))]
        data: dict[str, Any] = {
            "request_id": name,
            "state": states[0] if states else None,
            "found": found,
            "leases": leases,
            "work": work,
            "queued_messages": facts.queued,
            "queues": [],
            "may_be": [],
        }
        if not self.is_known:
            processes = [*known, *self._finder.stand_ins]
            data |= self._unknown(processes if len(processes) <= MAX_QUEUES else [], len(processes), facts, work_queued)
        return data | {
            "not_read": [each.as_dict() for each in self._search.not_read],
            "searched": self._search.searched,
        }

    def explain_process(self, name: str) -> dict[str, Any]:
        """Why a new request or lease of a process would not start now. Raises NotFound."""
        (process,) = [*self._processes(name), *self._finder.stand_ins]
        facts = self._facts()
        is_malformed = name in self._finder.malformed
        lease = [] if is_malformed else lease_conditions(process, process.default_weight, facts.now)
        return {
            **self._queue(process, facts),
            "lease_conditions": [each.as_dict() for each in lease],
            "not_read": [each.as_dict() for each in self._search.not_read],
        }

    def _processes(self, only: str | None) -> list[Process]:
        """The processes, or the one of a name. Malformed ones are noted in the search. Raises NotFound."""
        known, malformed = self._control.read_all()
        if only is not None:
            known = [one for one in known if one.name == only]
            malformed = [one for one in malformed if one.process == only]
            if not (known or malformed):
                self._control.process(only)  # raises NotFound with the names of the processes
        for error in malformed:
            self._search.note_malformed(error)
        self._finder.malformed = {error.process: error for error in malformed}
        return known

    def _facts(self) -> StackFacts:
        stack, search = self._stack, self._search
        attributes = queue_attributes(stack, "RequestQueue")
        counts = message_counts(attributes)
        event_source = read_event_source(stack, search, "RequestQueue", attributes["QueueArn"])
        return StackFacts(
            now=self._now,
            event_source=tuple(event_source),
            queued=counts["visible"] + counts["in_flight"],
            slot_seconds=search.try_read("recent executions", lambda: slot_seconds(stack), {}),
            grace_seconds=grace_seconds(stack.parameters),
            malformed={name: str(error) for name, error in self._finder.malformed.items()},
            unread=frozenset(each.source for each in search.not_read),
        )

    def _found(self, one: RequestAttempts, facts: StackFacts) -> dict[str, Any]:
        explanation = explain_attempts(one, facts)
        data = {"process": one.process.name, "request_id": one.request_id, **explanation.as_dict(self._now)}
        if explanation.state in _QUEUED:
            data["holders"] = holders_as_dicts(one.process, self._finder.request_ids, self._now)
        return data | {"attempts": [attempt.as_dict() for attempt in one.attempts]}

    def _leases(self, process: Process, facts: StackFacts) -> list[dict[str, Any]]:
        holder = process.holders.get(self._given)
        if holder is None or not holder.is_lease:
            return []
        return [
            {
                "process": process.name,
                "lease": self._given,
                **explain_lease(process, self._given, holder, facts).as_dict(self._now),
            }
        ]

    def _unknown(self, known: Sequence[Process], number: int, facts: StackFacts, work_queued: int) -> dict[str, Any]:
        """What is known of a request that was found nowhere."""
        may_be = []
        if facts.queued:
            messages = count(facts.queued, "message")
            may_be.append(f"it is queued: RequestQueue has about {messages} of all processes, and cannot be searched")
            may_be += self._removed()
        if number > len(known) and facts.queued:
            may_be[-1] += f". To see why a request waits in one of {number:,} processes, give --process"
        for one in self._search.not_read:
            if one.messages is not None:
                messages = count(one.messages, "message")
                may_be.append(f"it is one of about {messages} of {one.source} that could not be read")
        if work_queued:
            messages = count(work_queued, "message")
            may_be.append(f"it is a request of the worker without an attempt: WorkQueue has about {messages}")
            may_be += [f"it is held back: {line(one, self._now)}" for one in not_closed(read_downstreams(self._stack))]
        may_be += [
            "it was never sent, or SQS refused it",
            "its message was deleted before it was received",
            "it ended more than 90 days ago, after which Step Functions deletes an execution",
            "its dead-letter message was deleted, or expired after 14 days",
        ]
        state = RequestState.PERHAPS_QUEUED if facts.queued or work_queued else None
        queues = [self._queue(one, facts) for one in known] if facts.queued else []
        return {"state": state, "queues": queues, "may_be": may_be}

    def _queue(self, process: Process, facts: StackFacts) -> dict[str, Any]:
        # A late redelivery registers a request that has run.
        waiting = [
            each
            for each in waiting_requests(process, self._now)
            if self._control.workflow.describe(each.execution) is None
        ]
        return {
            "process": process.name,
            **explain_queue(process, facts).as_dict(self._now),
            "holders": holders_as_dicts(process, self._finder.request_ids, self._now),
            "waiting": [as_dict(process, each, self._now) for each in waiting],
        }

    def _removed(self) -> list[str]:
        """The processes that were removed lately, whose queued requests are dead-lettered when they are received."""
        since = self._now - 86_400
        read = self._search.try_read(
            "AuditLogGroup", lambda: read_audit(self._stack, "action", "process remove", since), Audited([])
        )
        return [
            f"it is a request of process {each['process']}, which was removed at {local_time(seconds(each['at']))}: "
            "it is dead-lettered as UnknownProcess when it is received, within half an hour"
            for each in read.lines
        ]

    def _work(self, name: str, is_request: bool) -> tuple[dict[str, Any] | None, int]:
        """The request of the worker with an id, and how many messages WorkQueue has if there is none."""
        stack, search = self._stack, self._search
        search.searched.append("RequestLedgerTable")
        try:
            work = find_work(stack, search, name, search_dead_letters=not is_request)
        except MalformedRow as error:
            return {"request_id": name, "state": None, "malformed": str(error)}, 0
        attributes = queue_attributes(stack, "WorkQueue")
        if work is None:
            return None, sum(message_counts(attributes).values()) if not is_request else 0
        conditions = self._downstream(work) if work.state is RequestState.WAITING else []
        event_source = read_event_source(stack, search, "WorkQueue", attributes["QueueArn"])
        return work.as_dict() | explain_work(work, conditions, event_source, self._now).as_dict(self._now), 0

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
    if not (data["found"] or data["leases"] or work):
        _render_unknown(console, data)
    print_not_read(console, data["not_read"])
    console.print(f"Searched: {', '.join(data['searched'])}.", style="dim")


def render_process(console: Console, data: dict[str, Any]) -> None:
    """Print why a new request or lease of a process would not start now, from the data that JSON shows."""
    console.print(f"a new request of {data['process']}:", style="bold")
    if not data["conditions"]:
        console.print("  nothing keeps it from starting")
    _render_queue(console, data)
    if data["lease_conditions"]:
        console.print(f"a lease of {data['process']}:", style="bold")
        for condition in data["lease_conditions"]:
            console.print(f"  - {condition['text']}")
    print_not_read(console, data["not_read"])


def _render_explanation(console: Console, data: dict[str, Any]) -> None:
    """Print an answer with its conditions, holders, expected start and next steps."""
    if data["answer"]:
        console.print(f"  {data['answer']}")
    for condition in data["conditions"] if len(data["conditions"]) > 1 else []:
        console.print(f"  - {condition['text']}")
    _render_holders(console, data.get("holders", []))
    if expected := data["expected_start"]:
        console.print(f"  expected start: {expected['text']}")
    for step in data["next_steps"]:
        console.print(f"  -> {step}", style="yellow")


def _render_queue(console: Console, data: dict[str, Any]) -> None:
    _render_explanation(console, data)
    for waiting in data["waiting"]:
        console.print(f"  registered: {waited(waiting)}: {waiting['because']}")


def _render_unknown(console: Console, data: dict[str, Any]) -> None:
    if data["state"] is None:
        console.print(f"No request {data['request_id']} found. Possible reasons:")
    else:
        console.print(f"{data['request_id']}: {data['state']}. It was found nowhere. Possible reasons:", style="bold")
    for text in data["may_be"]:
        console.print(f"- {text}")
    for queue in data["queues"]:
        if queue["conditions"]:
            console.print(f"If it is queued in {queue['process']}:", style="bold")
            _render_queue(console, queue)


def _render_attempt(console: Console, attempt: dict[str, Any], answer: str) -> None:
    """Print an attempt, without a reason that the answer has."""
    console.print(f"  attempt {attempt['attempt'] or 'unknown'}: {attempt['state']}  {attempt['execution'] or ''}")
    for name, value in attempt.items():
        is_new = name != "reason" or value not in answer
        if value and name not in _NOT_LISTED and (name, value) not in _USUAL and is_new:
            print_lines(console, f"    {name.replace('_', ' ')}: {_shown(name, value)}", "      ")
    for ahead in attempt.get("ahead", []):
        console.print(f"      before it: {waited(ahead)}: {ahead['because']}")
    if dead_letter := attempt.get("dead_letter"):
        _render_dead_letter(console, dead_letter, answer)


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


def _shown(name: str, value: Any) -> str:
    if name in _TIMES:
        return local_time(seconds(value))
    return f"{value['state']} {value['id']}" if isinstance(value, dict) else str(value)
