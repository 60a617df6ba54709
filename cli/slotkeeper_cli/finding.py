"""What became of a request: everywhere that it can be, asked at once.

A request's attempts each have an execution of their own name. An attempt holds a slot, is known to Step Functions,
stands in a dead-letter queue, is cancelled, or is still on RequestQueue, which nobody may look into: who receives a
message there by hand spends the handle by which it would be woken. So what is found nowhere else may be queued.
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
from slotkeeper.slots.names import execution_name
from slotkeeper.slots.process import Process
from slotkeeper_cli.control import Control
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.letters import Box, Letter, Queue
from slotkeeper_cli.stack import Stack
from slotkeeper_cli.words import iso

# Attempts follow each other; one that was dead-lettered had no execution, so a gap is no end yet.
_GAP = 3
_LOOKERS = 8
# A letter that stands behind so many others is not found.
_MOST_LETTERS = 1000
_EXECUTION = re.compile(r"(?P<process>[A-Za-z0-9_-]{1,47})-[0-9a-f]{32}")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a request, and all that is known of it.

    `state` is one of holding (`starting`, `running`), over (`finishing`, `succeeded`, `failed`), set aside
    (`dead-lettered`, `cancelled`), or queued (`waiting`, if it is the first of its process).
    """

    process: str
    number: int
    execution: str
    state: str
    details: dict[str, Any] = field(default_factory=dict)
    letter: Letter | None = None

    def told(self) -> dict[str, Any]:
        """As JSON shows it."""
        told = {"attempt": self.number, "execution": self.execution, "state": self.state, **self.details}
        if self.letter is not None:
            told["letter"] = {"queue": self.letter.queue.full_name, **self.letter.summary()}
        return told


@dataclass(frozen=True)
class Found:
    """A request in one process. `attempts` are those of which something is known, in their order."""

    process: Process
    request_id: str
    attempts: list[Attempt]

    @property
    def next_number(self) -> int:
        """The attempt that may be queued, if one is: the one after the last that is known."""
        return self.attempts[-1].number + 1 if self.attempts else 1

    def name_of(self, number: int) -> str:
        """The name of an attempt's execution."""
        return execution_name(self.process.name, self.request_id, number)


class Finder:
    """Looks for requests on a stack. The letters are read once, for all that is looked for."""

    def __init__(self, stack: Stack, control: Control) -> None:
        self._stack = stack
        self._control = control
        with ThreadPoolExecutor(2) as pool:
            boxes = (Box(stack, queue) for queue in (Queue.REQUEST, Queue.FAILED))
            self._letters: list[Letter] = [
                letter for found in pool.map(lambda box: box.peek(_MOST_LETTERS), boxes) for letter in found
            ]

    def find(self, request_id: str, processes: Iterable[Process]) -> list[Found]:
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
        with ThreadPoolExecutor(_LOOKERS) as pool:
            attempts = pool.map(lambda process: self._attempts(process, request_id), known)
            return [Found(process, request_id, found) for process, found in zip(known, attempts, strict=True)]

    def _request_id_of(self, execution: str) -> str | None:
        if letter := next((one for one in self._letters if one.execution == execution), None):
            return letter.request_id
        known = self._control.workflow.describe(execution)
        try:
            fields = json.loads(known.input) if known else {}
        except ValueError:
            return None  # started by hand, with an input that is not JSON
        given = fields.get("request_id") if isinstance(fields, dict) else None
        return str(given) if given else None

    def _attempts(self, process: Process, request_id: str) -> list[Attempt]:
        letters = {letter.execution: letter for letter in self._letters if letter.process == process.name}
        last = max((one.attempt for one in letters.values() if one.request_id == request_id), default=0)
        found: list[Attempt] = []
        number, nothing = 1, 0
        while nothing < _GAP or number <= last:
            attempt = self._attempt(process, request_id, number, letters)
            nothing = 0 if attempt else nothing + 1
            found += [attempt] if attempt else []
            number += 1
        return found

    def _attempt(self, process: Process, request_id: str, number: int, letters: dict[str, Letter]) -> Attempt | None:
        name = execution_name(process.name, request_id, number)
        letter = letters.get(name)
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
        elif letter is not None:
            # Of one that failed, Step Functions may have forgotten the execution.
            state = "failed" if letter.queue is Queue.FAILED else "dead-lettered"
        elif note := process.cancelled.get(name):
            details |= {"since": iso(note.since), "by": note.by}
            state = "cancelled"
        elif process.waiting_execution == name and process.waiting_since is not None:
            details |= {"since": iso(process.waiting_since)}
            state = "waiting"
        else:
            return None
        return Attempt(process.name, number, name, state, details, letter)

    def _execution(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._stack.client("stepfunctions").describe_execution(
                executionArn=self._stack.execution_arn(name)
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        return found

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
    told = {"status": execution["status"], "started": iso(started.timestamp())}
    if isinstance(stopped, datetime):
        told["ended"] = iso(stopped.timestamp())
    return told | {name: execution[name] for name in ("error", "cause") if execution.get(name)}
