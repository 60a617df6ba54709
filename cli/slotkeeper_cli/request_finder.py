"""Find a request in every place where it can be.

A request's attempts each have an execution of their own name. An attempt holds a slot, is known to Step Functions,
is in a dead-letter queue, is cancelled, or is still on RequestQueue, which must not be read: receiving a message there
invalidates the receipt handle by which it would be woken. So a request that is found nowhere else may be queued.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from slotkeeper.slots.glue import MARKER
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.dead_letter_queues import DeadLetterMessage, DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.slot_control import SlotControl
from slotkeeper_cli.stack_connection import StackConnection

# Attempts follow each other; one that was dead-lettered had no execution, so a gap is no end yet.
_GAP = 3
_THREADS = 8
# A dead-letter message behind so many others is not found.
_MAX_DEAD_LETTERS = 1000
_EXECUTION = re.compile(r"(?P<process>[A-Za-z0-9_-]{1,47})-[0-9a-f]{32}")


@dataclass(frozen=True)
class RequestAttempt:
    """One attempt of a request, and all that is known of it.

    `state`: `starting` or `running` with a slot; `finishing`, `succeeded` or `failed` when it has ended;
    `dead-lettered`; `cancelled`; or `waiting`, if it is the first in the queue of its process.
    """

    process: str
    number: int
    execution: str
    state: str
    details: dict[str, Any] = field(default_factory=dict)
    dlq_message: DeadLetterMessage | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        data = {"attempt": self.number, "execution": self.execution, "state": self.state, **self.details}
        if self.dlq_message is not None:
            data["dead_letter"] = {"queue": self.dlq_message.queue.full_name, **self.dlq_message.summary()}
        return data


@dataclass(frozen=True)
class RequestAttempts:
    """A request in one process. `attempts` are those of which something is known, in their order."""

    process: Process
    request_id: str
    attempts: list[RequestAttempt]

    @property
    def next_number(self) -> int:
        """The attempt that may be queued, if one is: the one after the last that is known."""
        return self.attempts[-1].number + 1 if self.attempts else 1

    def name_of(self, number: int) -> str:
        """The name of an attempt's execution."""
        return execution_name(self.process.name, self.request_id, number)


class RequestFinder:
    """Finds requests on a stack. The dead-letter messages are read once, for all searches."""

    def __init__(self, stack: StackConnection, control: SlotControl) -> None:
        self._stack = stack
        self._control = control
        with ThreadPoolExecutor(2) as pool:
            readers = (
                DeadLetterQueueReader(stack, queue)
                for queue in (DeadLetterQueueName.REQUEST, DeadLetterQueueName.FAILED)
            )
            self._dead_letters: list[DeadLetterMessage] = [
                dead_letter
                for result in pool.map(lambda reader: reader.peek(_MAX_DEAD_LETTERS), readers)
                for dead_letter in result
            ]

    def find(self, request_id: str, processes: Iterable[Process]) -> list[RequestAttempts]:
        """The request in each of these processes; without attempts where nothing is known of it.

        Args:
            request_id: the caller's own, the id of the message that brought it, or the name of an execution.
        """
        known = list(processes)
        if named := _EXECUTION.fullmatch(request_id):
            real = self._request_id_of(request_id)
            if real is None:
                raise NotFound(f"nothing is known of an execution {request_id}: give the request's id instead")
            request_id, known = real, [one for one in known if one.name == named["process"]]
        with ThreadPoolExecutor(_THREADS) as pool:
            attempts = pool.map(lambda process: self._attempts(process, request_id), known)
            return [
                RequestAttempts(process, request_id, result) for process, result in zip(known, attempts, strict=True)
            ]

    def _request_id_of(self, execution: str) -> str | None:
        if dead_letter := next((one for one in self._dead_letters if one.execution == execution), None):
            return dead_letter.request_id
        known = self._control.workflow.describe(execution)
        try:
            fields = json.loads(known.input) if known else {}
        except ValueError:
            return None  # started manually, with an input that is not JSON
        given = fields.get("request_id") if isinstance(fields, dict) else None
        return str(given) if given else None

    def _attempts(self, process: Process, request_id: str) -> list[RequestAttempt]:
        dead_letters = {
            dead_letter.execution: dead_letter
            for dead_letter in self._dead_letters
            if dead_letter.process == process.name
        }
        last = max((one.attempt for one in dead_letters.values() if one.request_id == request_id), default=0)
        result: list[RequestAttempt] = []
        number, nothing = 1, 0
        while nothing < _GAP or number <= last:
            attempt = self._attempt(process, request_id, number, dead_letters)
            nothing = 0 if attempt else nothing + 1
            result += [attempt] if attempt else []
            number += 1
        return result

    def _attempt(
        self, process: Process, request_id: str, number: int, dead_letters: dict[str, DeadLetterMessage]
    ) -> RequestAttempt | None:
        name = execution_name(process.name, request_id, number)
        dead_letter = dead_letters.get(name)
        execution = self._execution(name)
        holder = process.holders.get(name)
        details: dict[str, Any] = {"link": self._stack.execution_link(name)} if execution else {}
        if holder is not None:
            run = self._run(holder.job or process.job_name, name) if execution else None
            details |= {"since": iso(holder.since), "slot": holder.state, "glue_run": run}
            state = "running" if execution and holder.state == "RUNNING" else "starting"
        elif execution is not None:
            details |= _ending(execution)
            state = {"RUNNING": "finishing", "PENDING_REDRIVE": "finishing", "SUCCEEDED": "succeeded"}.get(
                execution["status"], "failed"
            )
        elif dead_letter is not None:
            # Of one that failed, Step Functions may have forgotten the execution.
            state = "failed" if dead_letter.queue is DeadLetterQueueName.FAILED else "dead-lettered"
        elif note := process.cancelled.get(name):
            details |= {"since": iso(note.since), "by": note.by}
            state = "cancelled"
        elif process.waiting_execution == name and process.waiting_since is not None:
            details |= {"since": iso(process.waiting_since)}
            state = "waiting"
        else:
            return None
        return RequestAttempt(process.name, number, name, state, details, dead_letter)

    def _execution(self, name: str) -> dict[str, Any] | None:
        try:
            result: dict[str, Any] = self._stack.client("stepfunctions").describe_execution(
                executionArn=self._stack.execution_arn(name)
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        return result

    def _run(self, job: str, name: str) -> dict[str, str] | None:
        """The newest of the first thousand Glue runs of a job that is this execution's."""
        try:
            pages = self._stack.client("glue").get_paginator("get_job_runs")
            for page in pages.paginate(JobName=job, PaginationConfig={"MaxItems": 1000}):
                for run in page["JobRuns"]:
                    if run.get("Arguments", {}).get(MARKER) == name:
                        return {"id": run["Id"], "state": run["JobRunState"]}
        except ClientError as error:
            if error.response["Error"]["Code"] != "EntityNotFoundException":
                raise
        return None


def _ending(execution: dict[str, Any]) -> dict[str, Any]:
    started, stopped = execution["startDate"], execution.get("stopDate")
    data = {"status": execution["status"], "started": iso(started.timestamp())}
    if isinstance(stopped, datetime):
        data["ended"] = iso(stopped.timestamp())
    return data | {name: execution[name] for name in ("error", "cause") if execution.get(name)}
