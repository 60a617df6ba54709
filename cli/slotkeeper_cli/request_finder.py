"""Find the attempts of a request: in SlotTable, in Step Functions and in the dead-letter queues.

Each attempt has an execution name. RequestQueue is not searched: receiving a message there would invalidate the receipt
handle with which the message is woken. A request that is found nowhere else may therefore be queued.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from slotkeeper.slots.failure_reason import failed_run, failure_reason
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.holder_work import target_of, work_key, work_of
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.request_fields import fields_in, priority_in, weight_in
from slotkeeper_cli.request_ids import RequestIds, callers_of, request_id_of
from slotkeeper_cli.request_states import RequestState
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.slot_release import estimate
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.task_tokens import hide_tokens
from slotkeeper_cli.waiting_requests import ahead_of, as_dict, holders_as_dicts, waiting_requests

# The search ends after this many unknown attempts in a row. A single one may have been dead-lettered without an
# execution, and its message deleted.
_GAP = 3
# The number of messages that are read of each dead-letter queue.
_MAX_DEAD_LETTERS = 1000
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
        data = {"attempt": self.number or None, "execution": self.execution, "state": self.state, **self.details}
        if self.dlq_message is not None:
            data["dead_letter"] = {"queue": self.dlq_message.queue.full_name, **self.dlq_message.summary()}
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
        queues = (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED)
        of_queues = in_parallel(
            lambda queue: DeadLetterQueueReader(stack, queue).peek(_MAX_DEAD_LETTERS).messages, queues
        )
        self._dead_letters = [dead_letter for of_queue in of_queues for dead_letter in of_queue]

    def find(self, request_id: str, processes: Iterable[Process]) -> list[RequestAttempts]:
        """The request in each of these processes, also if it has no known attempts there, and for each known caller.

        Args:
            request_id: the id of the request, of its message if it was sent without one, of its dead-letter message, or
                the name of an execution.

        Raises:
            NotFound: there is no execution of the given name.
        """
        known, given = list(processes), request_id
        if named := _EXECUTION.fullmatch(request_id):
            real = self._request_id_of(request_id, known)
            if real is None:
                raise NotFound(f"there is no execution {request_id}: give the id of the request instead")
            request_id, known = real, [one for one in known if one.name == named["process"]]
        elif all(one.request_id != request_id for one in self._dead_letters):
            of_message = (one.request_id for one in self._dead_letters if one.message_id == request_id)
            request_id = next(of_message, request_id)
        found = [each for of in in_parallel(lambda one: self._find(one, request_id, given), known) for each in of]
        if named:
            found = [one for one in found if any(each.execution == given for each in one.attempts)] or found
        return found

    def find_without_process(self, request_id: str, processes: Iterable[Process]) -> list[RequestAttempts]:
        """The request's dead-letter messages of processes that SlotTable does not have, or not any more."""
        known = {one.name for one in processes}
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
        for waiting in (each for process in processes for each in process.waiting.values()):
            if waiting.execution == execution:
                return waiting.request_id
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
        for waiting in process.waiting.values():
            # A head whose name is of a caller: its token, and so its attempt, are only in its message.
            if waiting.request_id == request_id and waiting.execution not in names:
                attempt = self._attempt(process, 0, waiting.execution, {})
                found += [RequestAttempts(process, request_id, [attempt])] if attempt else []
        return found

    def _callers_of_ended(self, process: Process, request_id: str, given: str) -> set[str]:
        """The callers of dead-letter messages, and of executions that are known by name."""
        of_request = [one for one in self._dead_letters if (one.process, one.request_id) == (process.name, request_id)]
        plain = {execution_name(process.name, request_id, one.attempt) for one in of_request}
        kept = {one.execution for one in of_request if one.queue is DeadLetterQueueName.FAILED and not one.caller}
        named = {given} if _EXECUTION.fullmatch(given) and given not in process.holders else set[str]()
        described = [self._execution(name) for name in sorted((kept | named) - plain)]
        stated = (fields_in(execution.get("input", "")).get("caller") for execution in described if execution)
        return {one.caller for one in of_request if one.caller} | {str(caller) for caller in stated if caller}

    def _attempts(self, process: Process, request_id: str, caller: str) -> list[RequestAttempt]:
        dead_letters = {
            dead_letter.execution: dead_letter
            for dead_letter in self._dead_letters
            if dead_letter.process == process.name
        }
        last = max((one.attempt for one in dead_letters.values() if one.request_id == request_id), default=0)
        result: list[RequestAttempt] = []
        number, nothing = 1, 0
        while nothing < _GAP or number <= last:
            name = execution_name(process.name, request_id, number, caller)
            attempt = self._attempt(process, number, name, dead_letters)
            nothing = 0 if attempt else nothing + 1
            result += [attempt] if attempt else []
            number += 1
        return result

    def _attempt(
        self, process: Process, number: int, name: str, dead_letters: dict[str, DeadLetterMessage]
    ) -> RequestAttempt | None:
        dead_letter = dead_letters.get(name)
        execution = self._execution(name)
        holder = process.holders.get(name)
        details: dict[str, Any] = {"link": self._stack.execution_link(name)} if execution else {}
        if stated := fields_in(execution.get("input", "")) if execution else dead_letter and dead_letter.fields:
            details |= {"priority": priority_in(stated), "weight": weight_in(stated)}
        if holder is not None:
            state, more = self._with_slot(process, name, holder, execution)
            details |= more
        elif execution is not None:
            details |= _ending(execution)
            state = _AFTER_RELEASE.get(execution["status"], RequestState.FAILED)
        elif dead_letter is not None:
            state = _state_of(dead_letter)
        elif note := process.cancelled.get(name):
            details |= {"since": iso(note.since), "by": note.by}
            state = RequestState.CANCELLED
        elif waiting := next((one for one in waiting_requests(process, self._now) if one.execution == name), None):
            details |= as_dict(process, waiting, self._now)
            details["ahead"] = [as_dict(process, each, self._now) for each in ahead_of(process, waiting)]
            details["holders"] = holders_as_dicts(process, self.request_ids, self._now)
            state = RequestState.WAITING
        else:
            return None
        return RequestAttempt(process.name, number, name, state, details, dead_letter)

    def _with_slot(
        self, process: Process, name: str, holder: Holder, execution: dict[str, Any] | None
    ) -> tuple[RequestState, dict[str, Any]]:
        """The state and the details of an attempt that holds a slot."""
        target = target_of(process, holder)
        work = work_of(self._stack, target, name, holder.since) if execution else None
        details = {"since": iso(holder.since), "slot": holder.state, "weight": holder.weight, "target": target}
        details |= {"glue_run": None, work_key(target): work}
        if execution is None or execution["status"] in _OPEN:
            is_running = execution is not None and holder.state == "RUNNING"
            return (RequestState.RUNNING if is_running else RequestState.STARTING), details
        ended = max(execution["stopDate"].timestamp(), holder.since)
        release = estimate(self._stack.parameters, ended, target, work, process.settle_seconds)
        return RequestState.STOPPED, details | _ending(execution) | release.as_dict()

    def _execution(self, name: str) -> dict[str, Any] | None:
        stepfunctions, arn = self._stack.client("stepfunctions"), self._stack.execution_arn(name)
        try:
            result: dict[str, Any] = stepfunctions.describe_execution(executionArn=arn)
        except stepfunctions.exceptions.ExecutionDoesNotExist:
            return None
        return result


def _state_of(dead_letter: DeadLetterMessage) -> RequestState:
    """The state of an attempt without execution: Step Functions may have deleted the one of a failed request."""
    is_kept = dead_letter.queue is DeadLetterQueueName.FAILED
    return RequestState.FAILED if is_kept else RequestState.DEAD_LETTERED


def _ending(execution: dict[str, Any]) -> dict[str, Any]:
    started, stopped = execution["startDate"], execution.get("stopDate")
    data = {"status": execution["status"], "started": iso(started.timestamp())}
    if isinstance(stopped, datetime):
        data["ended"] = iso(stopped.timestamp())
    data |= {name: hide_tokens(execution[name]) for name in ("error", "cause") if execution.get(name)}
    if cause := data.get("cause"):
        data["reason"] = failure_reason(cause)
        if run := failed_run(cause):
            data["failed_glue_run"] = run
    return data
