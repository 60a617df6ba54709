"""Find the attempts of a request: in SlotTable, Step Functions, the dead-letter queues, SettledTable and the audit log.

Each attempt has an execution name. RequestQueue is not searched: receiving a message there would invalidate the receipt
handle with which the message is woken. A request that is found nowhere else may therefore be queued. The audit log
shows which attempts a redrive has sent there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.slots.executions import Execution, failed_run, failure_reason
from slotkeeper.slots.process import RETENTION_SECONDS, Holder, MalformedProcess, Process
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.skipped_requests import SkippedRequest
from slotkeeper.slots.targets import NO_TARGET, kind_of
from slotkeeper_cli.audit_log import Audited, read_audit
from slotkeeper_cli.conditions import ahead_of, as_dict, waiting_requests
from slotkeeper_cli.dead_letters import DeadLetterMessage, DeadLetterQueueName
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.holders import estimate, target_of
from slotkeeper_cli.request_ids import RequestIds, callers_of, request_id_of
from slotkeeper_cli.requests import RETURNED, RequestState, fields_in, hide_tokens, priority_in, weight_in
from slotkeeper_cli.search import Search, read_dead_letters
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection, in_parallel
from slotkeeper_cli.target_checks import target_in

# The search ends after this many unknown attempts in a row. A single one may have been dead-lettered without an
# execution, and its message deleted.
_GAP = 3
_OPEN = ("RUNNING", "PENDING_REDRIVE")
_AFTER_RELEASE = dict.fromkeys(_OPEN, RequestState.FINISHING) | {"SUCCEEDED": RequestState.SUCCEEDED}
_EXECUTION = re.compile(r"(?P<process>[A-Za-z0-9_-]{1,47})-[0-9a-f]{32}")


@dataclass(frozen=True)
class RequestAttempt:
    """One attempt of a request. `details` are the facts of its state as JSON shows them.

    `number` is 0 if it is not known: that of a waiting request with a caller is only in its message.
    """

    process: str
    number: int
    execution: str
    state: RequestState
    details: dict[str, Any] = field(default_factory=dict)
    dlq_message: DeadLetterMessage | None = None

    def as_dict(self) -> dict[str, Any]:
        """The attempt as JSON shows it."""
        message = self.dlq_message
        is_dead_letter = message is not None and self.state is RequestState.DEAD_LETTERED
        execution = message.shown_execution if message and is_dead_letter else self.execution
        data = {"attempt": self.number or None, "execution": execution, "state": self.state, **self.details}
        if message is not None:
            data["dead_letter"] = {"queue": message.queue.full_name, **message.summary()}
        return data


@dataclass(frozen=True)
class RequestAttempts:
    """A request of one process, with its known attempts in order.

    Requests with the same id but different callers, or without one, are different requests.

    Args:
        caller: what identifies the caller that waits for it; empty if none does, or if it is not known.
    """

    process: Process
    request_id: str
    attempts: list[RequestAttempt]
    caller: str = ""

    @property
    def next_number(self) -> int:
        """The number after the last known attempt: the attempt that may be queued."""
        return self.attempts[-1].number + 1 if self.attempts else 1

    def name_of(self, number: int) -> str:
        """The name of the execution of an attempt."""
        known = (one.execution for one in self.attempts if one.number == number)
        return next(known, execution_name(self.process.name, self.request_id, number, self.caller))


class RequestFinder:
    """Finds requests on a stack. The dead-letter messages are read once for all searches."""

    def __init__(self, stack: StackConnection, control: SlotControl) -> None:
        self._stack = stack
        self._control = control
        self._now = time.time()
        self.request_ids = RequestIds(control.workflow)
        # Processes whose items are malformed: their executions and dead-letter messages can be found.
        self.malformed: dict[str, MalformedProcess] = {}
        self.search = Search(["SlotTable", "executions"])
        queues = (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED)
        self._dead_letters = read_dead_letters(stack, self.search, queues)
        since = self._now - RETENTION_SECONDS
        read = self.search.try_read(
            "AuditLogGroup", lambda: read_audit(stack, "action", "dlq redrive", since), Audited([])
        )
        if not read.is_complete:
            self.search.note_unread("AuditLogGroup", "it has too many redrives: only the oldest were read")
        self._redrives = {name: sent for line in read.lines for name, sent in _redrives(line)}
        none: list[SkippedRequest] = []
        skipped = self.search.try_read("SettledTable", lambda: list(control.skipped.all_notes()), none)
        self._skipped = {each.execution: each for each in skipped}

    @property
    def stand_ins(self) -> list[Process]:
        """A process without holders and target for each malformed one."""
        return [Process(name, 0, 0, {}, False, "") for name in self.malformed]

    def find(self, request_id: str, processes: Iterable[Process]) -> list[RequestAttempts]:
        """The request in each of these processes, also if it has no known attempts there, and for each known caller.

        Args:
            request_id: the id of the request, of its message if it was sent without one, of its dead-letter message, or
                the name of an execution.

        Raises:
            NotFound: there is no execution of the given name.
        """
        known, given = [*processes, *self.stand_ins], request_id
        if named := _EXECUTION.fullmatch(request_id):
            real = self._request_id_of(request_id, known)
            if real is None:
                raise NotFound(f"there is no execution {request_id}: give the id of the request instead")
            request_id, known = real, [one for one in known if one.name == named["process"]]
        elif all(one.request_id != request_id for one in self._dead_letters):
            ended: list[DeadLetterMessage | SkippedRequest] = [*self._dead_letters, *self._skipped.values()]
            of_message = (one.request_id for one in ended if one.message_id == request_id)
            request_id = next(of_message, request_id)
        found = [each for of in in_parallel(lambda one: self._find(one, request_id, given), known) for each in of]
        if named:
            found = [one for one in found if any(each.execution == given for each in one.attempts)] or found
        return found

    def find_without_process(self, request_id: str, known: Collection[str]) -> list[RequestAttempts]:
        """The request's dead-letter messages of processes that are not among the known."""
        found: dict[tuple[str, str], list[RequestAttempt]] = {}
        for one in sorted(self._dead_letters, key=lambda message: message.attempt):
            if one.process not in known and one.is_named(request_id):
                attempt = RequestAttempt(one.process, one.attempt, one.execution, _state_of(one), {}, one)
                found.setdefault((one.process, one.request_id), []).append(attempt)
        return [
            RequestAttempts(Process(name, 0, 0, {}, False, ""), real, attempts)
            for (name, real), attempts in found.items()
        ]

    def _request_id_of(self, execution: str, processes: Iterable[Process]) -> str | None:
        if dead_letter := next((one for one in self._dead_letters if one.execution == execution), None):
            return dead_letter.request_id
        if skipped := self._skipped.get(execution):
            return skipped.request_id
        for process in processes:
            for named in process.named.values():
                if named.execution == execution:
                    return named.request_id
            if lost := process.lost.get(execution):
                return lost.request_id
        known = self._control.workflow.describe(execution)
        return request_id_of(known.input) if known else None

    def _find(self, process: Process, request_id: str, given: str) -> list[RequestAttempts]:
        """The request in a process: without a caller, even if it is not known, and once for each caller."""
        callers = callers_of(process, request_id) | self._callers_of_ended(process, request_id, given)
        found = [
            RequestAttempts(process, request_id, attempts, caller)
            for caller in ("", *sorted(callers))
            if (attempts := self._attempts(process, request_id, caller)) or not caller
        ]
        names = {attempt.execution for one in found for attempt in one.attempts}
        lost = [(name, note.request_id) for name, note in process.lost.items()]
        for name, id_ in [*((each.execution, each.request_id) for each in process.named.values()), *lost]:
            # A head whose name is of a caller: its token, and so its attempt, are only in its message.
            if id_ == request_id and name not in names:
                attempt = self._attempt(process, 0, name, {})
                found += [RequestAttempts(process, request_id, [attempt])] if attempt else []
        return found

    def _callers_of_ended(self, process: Process, request_id: str, given: str) -> set[str]:
        """The callers of dead-letter messages, and of executions that are known by name."""
        of_request = [one for one in self._dead_letters if (one.process, one.request_id) == (process.name, request_id)]
        plain = {execution_name(process.name, request_id, one.attempt) for one in of_request}
        kept = {one.execution for one in of_request if one.queue is DeadLetterQueueName.FAILED and not one.caller}
        named = {given} if _EXECUTION.fullmatch(given) and given not in process.holders else set[str]()
        described = map(self._control.workflow.describe, sorted((kept | named) - plain))
        stated = (fields_in(execution.input).get("caller") for execution in described if execution)
        skipped = {one.caller for one in self._skipped_of(process, request_id) if one.caller}
        return {one.caller for one in of_request if one.caller} | {str(caller) for caller in stated if caller} | skipped

    def _skipped_of(self, process: Process, request_id: str) -> list[SkippedRequest]:
        notes = self._skipped.values()
        return [each for each in notes if (each.process, each.request_id) == (process.name, request_id)]

    def _attempts(self, process: Process, request_id: str, caller: str) -> list[RequestAttempt]:
        dead_letters = {
            dead_letter.execution: dead_letter
            for dead_letter in self._dead_letters
            if dead_letter.process == process.name
        }
        last = max((one.attempt for one in dead_letters.values() if one.request_id == request_id), default=0)
        redrives = self._redrives.values()
        redriven = (each.attempt for each in redrives if (each.process, each.request_id) == (process.name, request_id))
        skipped = (each.attempt for each in self._skipped_of(process, request_id))
        last = max(last, *redriven, *skipped, 0)
        result: list[RequestAttempt] = []
        number, nothing = 1, 0
        while nothing < _GAP or number <= last:
            name = execution_name(process.name, request_id, number, caller)
            attempt = self._attempt(process, number, name, dead_letters) or _after_return(process, name, result)
            nothing = 0 if attempt else nothing + 1
            result += [attempt] if attempt else []
            number += 1
        return result

    def _attempt(
        self, process: Process, number: int, name: str, dead_letters: dict[str, DeadLetterMessage]
    ) -> RequestAttempt | None:
        dead_letter = dead_letters.get(name)
        execution = self._control.workflow.describe(name)
        holder = process.holders.get(name)
        details: dict[str, Any] = {"link": self._stack.execution_link(name)} if execution else {}
        if stated := fields_in(execution.input) if execution else dead_letter and dead_letter.fields:
            details |= {"priority": priority_in(stated), "weight": weight_in(stated)}
        if holder is not None and execution and execution.status not in _OPEN:
            # It may have released its slot between the two reads.
            holder = self._control.process(process.name).holders.get(name)
        if holder is not None:
            state, more = self._with_slot(process, name, holder, execution)
            details |= more
        elif execution is not None:
            details |= _ending(execution)
            state = _AFTER_RELEASE.get(execution.status, RequestState.FAILED)
            if state is RequestState.FINISHING and process.name in self.malformed:
                state = RequestState.RUNNING  # its holder, if it has one, could not be read
            if execution.error == RETURNED:
                state = RequestState.RETURNED
            elif state is RequestState.SUCCEEDED:
                details |= self._done(process, execution)
        elif dead_letter is not None:
            state = _state_of(dead_letter)
        elif in_item := self._in_item(process, name):
            state, more = in_item
            details |= more
        elif skipped := self._skipped.get(name):
            details |= {"since": iso(skipped.since), "reason": skipped.reason}
            state = RequestState.SKIPPED
        elif redrive := self._redrives.get(name):
            details |= {"since": redrive.at, "by": redrive.by}
            state = RequestState.QUEUED
        else:
            return None
        return RequestAttempt(process.name, number, name, state, details, dead_letter)

    def _in_item(self, process: Process, name: str) -> tuple[RequestState, dict[str, Any]] | None:
        """The state and the details of an attempt without slot, execution and dead-letter message."""
        if note := process.cancelled.get(name):
            return RequestState.CANCELLED, {"since": iso(note.since), "by": note.by}
        for waiting in waiting_requests(process, self._now):
            if waiting.execution == name:
                ahead = [as_dict(process, each, self._now) for each in ahead_of(process, waiting)]
                return RequestState.WAITING, as_dict(process, waiting, self._now) | {"ahead": ahead}
        if lost := process.lost.get(name):
            return RequestState.LOST, {"since": iso(lost.since), "noted": iso(lost.noted)}
        for cleared in process.cleared.values():
            if cleared.execution == name:
                return RequestState.QUEUED, {"since": iso(cleared.since), "cleared": iso(cleared.cleared)}
        return None

    def _with_slot(
        self, process: Process, name: str, holder: Holder, execution: Execution | None
    ) -> tuple[RequestState, dict[str, Any]]:
        """The state and the details of an attempt that holds a slot."""
        target = target_of(process, holder)
        work = target_in(self._stack, target).work(name, holder.since) if execution else None
        details = {"since": iso(holder.since), "slot": holder.state, "weight": holder.weight, "target": target}
        details |= {"glue_run": None, kind_of(target).work_key: work}
        if execution is None or execution.status in _OPEN:
            is_running = execution is not None and holder.state == "RUNNING"
            return (RequestState.RUNNING if is_running else RequestState.STARTING), details
        ended = max(execution.stopped_at or 0.0, holder.since)
        release = estimate(self._stack.parameters, ended, target, work, process.settle_seconds)
        return RequestState.STOPPED, details | _ending(execution) | release.as_dict()

    def _done(self, process: Process, execution: Execution) -> dict[str, Any]:
        """What an execution that has succeeded ran: its Glue run, or its child execution with the output."""
        target, name = process.target, execution.name
        if target in (NO_TARGET, ""):  # "": of a process whose item is malformed
            return {}
        found = target_in(self._stack, target)
        work = found.work(name, execution.started_at or 0.0)
        return {kind_of(target).work_key: work} | (found.output(name) if work else {})


def _after_return(process: Process, name: str, before: Sequence[RequestAttempt]) -> RequestAttempt | None:
    """The attempt that a workflow has sent to RequestQueue in place of its own, the last one."""
    if not before or before[-1].state is not RequestState.RETURNED:
        return None
    details = {"since": before[-1].details["ended"]}
    return RequestAttempt(process.name, before[-1].number + 1, name, RequestState.QUEUED, details)


@dataclass(frozen=True)
class SentAgain:
    """An attempt that a redrive sent, or was about to send.

    Args:
        at: ISO 8601.
        by: the ARN of the operator.
    """

    process: str
    request_id: str
    attempt: int
    at: str
    by: str


def _redrives(line: Mapping[str, Any]) -> Iterator[tuple[str, SentAgain]]:
    """The redriven requests of an audit line, by execution. A message of the worker has none."""
    for each in line.get("sent", []):
        if "execution" in each:
            sent = SentAgain(each["process"], each["request_id"], each["attempt"], str(line["at"]), str(line["by"]))
            yield each["execution"], sent


def _state_of(dead_letter: DeadLetterMessage) -> RequestState:
    """The state of an attempt without execution: Step Functions may have deleted the one of a failed request."""
    is_kept = dead_letter.queue is DeadLetterQueueName.FAILED
    return RequestState.FAILED if is_kept else RequestState.DEAD_LETTERED


def _ending(execution: Execution) -> dict[str, Any]:
    data: dict[str, Any] = {"status": execution.status, "started": iso(execution.started_at or 0.0)}
    if execution.stopped_at is not None:
        data["ended"] = iso(execution.stopped_at)
    if execution.error:
        data["error"] = hide_tokens(execution.error)
    if execution.cause:
        data["cause"] = cause = hide_tokens(execution.cause)
        data["reason"] = failure_reason(cause)
        if run := failed_run(cause):
            data["failed_glue_run"] = run
    return data
