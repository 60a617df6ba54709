"""What `slotkeeper explain` answers: where a request is and why, each attempt, and what to do next.

The calls of an answer do not grow with the number of processes. A request is found by two, of its index and its rows.
The holders that a request waits for, or its work, are read for the first MAX_EXPLAINED requests with its id.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from slotkeeper.next_step import next_step
from slotkeeper.retry.downstream.downstreams import DEFAULT, MalformedHealth
from slotkeeper.retry.downstream.health import Health
from slotkeeper.retry.ledger import Ledger, MalformedRow, Row
from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.conditions import Condition
from slotkeeper_cli.dead_letters import DeadLetterQueueName
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.holders import holder_as_dict
from slotkeeper_cli.process_queue import ProcessQueue, read_queue
from slotkeeper_cli.request_finder import Attempts, RequestFinder, Run, read_run
from slotkeeper_cli.request_text import (
    downstream_conditions,
    explain_ended,
    explain_homeless,
    explain_lease,
    explain_new,
    explain_queued,
    explain_reserved,
    explain_started,
    explain_work,
    timeline,
    work_state,
)
from slotkeeper_cli.requests import RequestState, attempt_as_dict
from slotkeeper_cli.retries import DownstreamControl, details, line, not_closed
from slotkeeper_cli.stack_connection import DEAD_LETTER_QUEUES, message_counts
from slotkeeper_cli.unread import Search, UnreadSource

# Requests with one id that are explained: of further ones, as of 400 processes, only the number is stated.
MAX_EXPLAINED = 10
_SECONDS = "the starter accepts them within seconds: run this again"
_OPEN = ("QUEUED", "STARTED")
_OF_HOLDERS = ("slots", "key slots", "holders")  # the conditions that end when a holder frees its slot


def explain(account: Account, given: str, only: str | None = None) -> dict[str, Any]:
    """Where a request is and why; what `explain ID --json` shows.

    `found` has an answer for each request with the id, each lease of the name, and work of the worker; `kind` is
    `request`, `lease` or `work`. `state`, `position`, `ahead`, `key`, `ahead_of_key`, `reasons` and `next` are those of
    the first one.

    Args:
        given: the id of a request, the name of an execution, or of a lease.
        only: the process to search; None: all, and the worker.

    Raises:
        NotFound: there is no such process, and no request of it.
    """
    reader = _Reader(account)
    finder = RequestFinder(account.control)
    requests = sorted(finder.find(given, only), key=lambda one: one[-1].state not in _OPEN)
    reader.search.not_read += finder.search.not_read
    if more := requests[MAX_EXPLAINED:]:
        why = f"{len(more):,} more requests have the id, of {more[0][-1].process} and others: give --process"
        reader.search.note_unread("RequestTable", why)
    found = [reader.request(one) for one in requests[:MAX_EXPLAINED]]
    if only and not found and reader.process(only) is None:
        raise account.control.not_found(only)
    found += [] if found else reader.leases(given, only)
    found += [] if only else reader.work(given)
    if not found:
        reader.note_messages(only)
    first: dict[str, Any] = found[0] if found else {}
    return {
        "request_id": requests[0][-1].request_id if requests else given,
        **{name: first.get(name) for name in ("state", "position", "ahead", "key", "ahead_of_key")},
        **{name: first.get(name, []) for name in ("reasons", "next")},
        "found": found,
        "not_read": reader.not_read,
    }


def explain_process(account: Account, name: str, key: str = "") -> dict[str, Any]:
    """Why a new request or lease of a process would not start now; what `explain --process P --json` shows.

    Args:
        key: of the new request.

    Raises:
        NotFound: there is no such process.
    """
    reader = _Reader(account)
    queue = reader.queue_of(name)
    stopped = [each for one in ("RequestQueue", "DispatchQueue") for each in reader.stopped(one)]
    with_new, unaccepted = queue.with_request(key), reader.note("RequestQueue", _SECONDS)
    lease = queue.with_lease().find()
    is_known = isinstance(queue.process, Process)
    reasons = [each for each in lease["reasons"] if each["condition"] != "next"] if lease and is_known else []
    return {
        "process": name,
        "key": key or None,
        **explain_new(with_new, reader.expected_starts(with_new), stopped, unaccepted),
        "queued": len(queue.requests),
        "is_cut": queue.is_cut,
        "holders": reader.holders(queue.process),
        "lease_reasons": reasons,
        "not_read": reader.not_read,
    }


class _Reader:
    """The reads of one answer, and the sources that it could not read."""

    def __init__(self, account: Account) -> None:
        self._account, self.search, self.now = account, Search(), time.time()

    @property
    def not_read(self) -> list[dict[str, Any]]:
        """What could not be read, each once."""
        return [each.as_dict() for each in dict.fromkeys(self.search.not_read)]

    def process(self, name: str) -> Process | MalformedProcess | None:
        """A process; None if it does not exist. A malformed item is noted."""
        found = self._account.item(name)
        if isinstance(found, MalformedProcess):
            self.search.note_malformed(found)
        return found

    def queue_of(self, name: str) -> ProcessQueue:
        """The queue of a process. Raises NotFound."""
        process = self.process(name)
        if process is None:
            raise self._account.control.not_found(name)
        return read_queue(self._account, self.search, process, self.now)

    def expected_starts(self, queue: ProcessQueue) -> dict[str, dict[str, Any]]:
        """The expected starts of a queue, by execution; empty if the history could not be read."""
        ended = self.search.try_read("history", lambda: self._account.newest_ends(queue.name), None)
        return queue.expected_starts(ended.rows) if ended else {}

    def stopped(self, queue: str) -> list[Condition]:
        """The condition that a function receives the messages of a queue, if it fails."""
        return self._account.stopped_event_source(self.search, queue)

    def request(self, one: Attempts) -> dict[str, Any]:
        """A request of one process."""
        last, process = one[-1], self.process(one[-1].process)
        holder = process.holders.get(last.execution) if isinstance(process, Process) else None
        is_queued, is_reserved = last.state == "QUEUED", holder is not None and holder.state == "RESERVED"
        run, holders = None, list[dict[str, Any]]()
        if last.state in ("STARTED", "SUCCEEDED") or (holder and not is_reserved):
            control = self._account.control
            read = lambda: read_run(self._account.stack, control, process, last)  # noqa: E731
            run = self.search.try_read("what it runs", read, None)
        if process is None and is_queued:
            explained = explain_homeless(last, self.now)
        elif process and is_queued and holder is None:
            doorbell = self.stopped("DispatchQueue")
            read_it = lambda: read_queue(self._account, self.search, process, self.now)  # noqa: E731
            queue = self.search.try_read("the queue", read_it, None)
            starts = self.expected_starts(queue) if queue and not doorbell else {}
            explained = explain_queued(last, queue, starts, doorbell, self.now)
            waits_for = {each["condition"] for each in explained["reasons"]} & set(_OF_HOLDERS)
            holders = self.holders(process, last.key if waits_for == {"key slots"} else None) if waits_for else []
        elif is_queued and holder and is_reserved:
            explained = explain_reserved(last, holder, self.stopped("DispatchQueue"), self.now)
        elif last.state in _OPEN:
            explained = explain_started(last, run, self.now)
        else:
            explained = explain_ended(last, run, has_process=process is not None)
        waits = "; ".join(each["text"] for each in explained["reasons"])
        named = {"kind": "request", "process": last.process, "request_id": last.request_id, "key": last.key or None}
        return {**named, **explained, "holders": holders, "attempts": self._attempts(one, run, waits)}

    def _attempts(self, one: Attempts, run: Run | None, waits: str) -> list[dict[str, Any]]:
        """The attempts, each with its timeline; the last one with its work."""
        runs = f"{kind_of(run.target).work_noun} {run.work['id']} {run.work['state']}" if run and run.work else ""
        shown = []
        for row in one:
            is_last = row is one[-1]
            events = timeline(row, self.now, waits * is_last, runs * is_last)
            shown.append(attempt_as_dict(row) | {"timeline": events})
        if run and run.execution:
            shown[-1]["link"] = self._account.stack.execution_link(one[-1].execution)
        if run:
            shown[-1] |= {name: value for name, value in run.as_dict().items() if value is not None}
        return shown

    def holders(self, process: Process | MalformedProcess | None, key: str | None = None) -> list[dict[str, Any]]:
        """The holders of a process, or of one key: those whose execution has ended first, then the oldest.

        Each but a lease has `execution_status`: None if it was not read, empty if there is no such execution.
        """
        if not isinstance(process, Process):
            return []
        every = process.holders.items()
        of_key = [each for each in every if key is None or (each[1].key == key and not each[1].is_lease)]
        oldest = sorted(of_key, key=lambda entry: entry[1].since)
        names = [name for name, holder in oldest if not holder.is_lease]
        statuses: Mapping[str, str] = self.search.try_read("executions", lambda: self._account.statuses(names), {})
        # The ids of those that come first are read.
        in_order = sorted(oldest, key=lambda entry: statuses.get(entry[0]) not in CLOSED_STATUSES)
        ids = self._account.request_ids([(process.name, name) for name, holder in in_order if not holder.is_lease])
        shown = []
        for name, holder in in_order:
            status = {} if holder.is_lease else {"execution_status": statuses.get(name)}
            shown.append(holder_as_dict(name, holder, ids.get(name), self.now) | status)
        return shown

    def leases(self, given: str, only: str | None) -> list[dict[str, Any]]:
        """The leases of a name, in one process or in all."""
        if only:
            process = self.process(only)
            processes = [process] if isinstance(process, Process) else []
        else:
            nothing: tuple[list[Process], list[MalformedProcess]] = ([], [])
            processes, malformed = self.search.try_read("SlotTable", self._account.processes, nothing)
            for each in malformed:
                self.search.note_malformed(each)
        return [
            {"kind": "lease", "process": each.name, "request_id": given}
            | explain_lease(given, each.name, holder, self.now)
            for each in processes
            if (holder := each.holders.get(given)) and holder.is_lease
        ]

    def note(self, queue: str, why: str) -> int:
        """Note the messages of a queue, whose requests have no row, and return how many there are, approximately."""
        queues: Mapping[str, Mapping[str, str]] = self.search.try_read("queues", self._account.queues, {})
        number = sum(message_counts(queues.get(queue, {})).values())
        if number:
            stopped = [] if queue in DEAD_LETTER_QUEUES else self.stopped(queue)
            why = "; ".join(f"{each['text']}: {each.get('ends_by', '')}" for each in stopped) or why
            self.search.not_read.append(UnreadSource(queue, why, number))
        return number

    def note_messages(self, only: str | None) -> None:
        """Note the messages that may be the request: those that were not accepted yet, or never."""
        self.note("RequestQueue", _SECONDS)
        self.note("RequestDeadLetterQueue", f"they were not accepted: {next_step('dlq show', 'request')}")
        if only:
            return
        held = [line(one, self.now) for one in not_closed(self._account.downstreams())]
        self.note("WorkQueue", "; ".join(["a request without an attempt has no row, and may be one of them", *held]))
        for queue in (DeadLetterQueueName.WORK, DeadLetterQueueName.SCHEDULE):
            self.note(queue.full_name, f"their rows may be deleted: {next_step('dlq show', queue)}")

    def work(self, request_id: str) -> list[dict[str, Any]]:
        """The request of the worker with an id, if there is one."""
        stack = self._account.stack
        if "RequestLedgerTableName" not in stack.outputs:
            return []
        named = {"kind": "work", "request_id": request_id}
        ledger = Ledger(stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"])
        try:
            row = self.search.try_read("RequestLedgerTable", lambda: ledger.read(request_id), None)
        except MalformedRow as error:
            return [{**named, "state": None, "answer": str(error)}]
        if row is None:
            return []
        conditions = list[Condition]()
        if work_state(row) is RequestState.WAITING:
            conditions = [*self.stopped("WorkQueue"), *self._downstream(row)]
        facts = {
            "attempts_made": row.attempts,
            "last_attempt_at": iso(row.last_attempt_at),
            "next_attempt_at": None if row.next_attempt_at is None else iso(row.next_attempt_at),
            "last_error": row.last_error,
            "history": [dict(entry) for entry in row.history],
        }
        return [{**named, **explain_work(request_id, row, conditions, self.now), **facts}]

    def _downstream(self, row: Row) -> list[Condition]:
        """The conditions of the downstream of a work request that fail."""
        name = row.downstream or DEFAULT

        def read() -> list[Condition]:
            control = DownstreamControl(self._account.stack)
            health = control.healths.get(name, Health())
            if isinstance(health, MalformedHealth):
                self.search.note_unread("DownstreamTable", str(health))
                return []
            return downstream_conditions(details(name, health, control.settings(name), self.now), self.now)

        return self.search.try_read("DownstreamTable", read, [])
