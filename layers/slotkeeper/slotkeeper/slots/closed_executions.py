"""Handles the messages of EndingQueue, above all the status events of workflows that have closed.

After a success the workflow has recorded the outcome and released its slot: only its end must be published. For any
other end, an event is a message on EndingQueue that is delivered again until all steps are done:

1. Stop Glue runs that outlive their workflow. If nothing has run, settle the request and free its slot.
2. One gap after the close: the first check that finds no live run.
3. Another gap later: the second check. It settles the request, frees the slot and rings.
4. Publish the end.

If the target is a state machine, its child execution is stopped, and when it has closed, the request is settled by its
status and the slot freed. An absent child needs the same two checks as Glue runs.

The janitor's runs use the same proof (dead_holders.py). As in the workflow's own checks after a lost answer, the first
check comes one gap after the last moment at which a run can have been started. By then Glue lists a run whose
StartJobRun was in flight. GraceSeconds is not needed here: it covers the time in which DescribeExecution does not know
a new execution yet, and a status event proves that the execution exists and has closed.

The janitor's runs do the steps that are left when an event is given up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slotkeeper.observability import logger
from slotkeeper.slots.dead_holders import DeadHolders, Held, Verdict
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.endings import Endings
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.process import PROCESS_NAME, MalformedProcess, Process
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.request import process_of_execution
from slotkeeper.slots.rows import RequestRows
from slotkeeper.slots.run_report import MALFORMED_ITEM, RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Work, WorkCheck

# Seconds until a message is delivered again: while a run is stopping, after a failure, and after another writer.
WHILE_STOPPING_SECONDS = 10
AFTER_FAILURE_SECONDS = 30
AFTER_CHANGE_SECONDS = 1
# The most, and the age at which an event is given up: the janitor's runs then do the rest.
MAX_WAIT_SECONDS = 900
# Seconds that a message may take: a search of Glue runs. With fewer left, the messages that follow come again.
MESSAGE_SECONDS = 40

# Kind of a message -> the texts that it has.
_FIELDS = {
    "detail": ("name", "status"),
    "refused": ("message_id", "group_id", "code", "reason"),
    "process": ("process",),
}


@dataclass(frozen=True)
class ClosedExecutions:
    """Handles one event at a time.

    Args:
        clock: seconds since the epoch.
    """

    slots: Slots
    rows: RequestRows
    doorbell: Doorbell
    workflow: Workflow
    settlement: Settlement
    dead: DeadHolders
    endings: Endings
    clock: Callable[[], float]

    def handle(self, name: str, status: str, report: RunReport) -> int | None:
        """Do the due steps for a closed execution; return the seconds until the next step, None after the last.

        Args:
            status: of the execution when it closed. It may have been redriven since.

        Raises:
            ClientError, BotoCoreError: a call failed; the event must be handled again.
            MalformedRequestRow: the request's row is malformed.
        """
        process_name = process_of_execution(name)
        if not PROCESS_NAME.fullmatch(process_name):
            return None  # started manually, under a name that no request can have
        if status == "SUCCEEDED":
            return self._publish(process_name, name)
        try:
            process = self.slots.read(process_name)
        except MalformedProcess as error:
            # The holder decides whether the request has succeeded, if its workflow has recorded nothing.
            report.note("MalformedProcesses", MALFORMED_ITEM, reason=str(error), execution=name)
            # No run of the janitor visits it. An outcome that the workflow has recorded need not wait for the repair.
            self._publish(process_name, name)
            return AFTER_FAILURE_SECONDS
        holder = process.holders.get(name) if process else None
        if process and holder and not holder.is_lease:  # a lease may have the name of a manually started execution
            execution = self.workflow.describe(name)
            if execution is None or not execution.is_closed:
                return None  # it was redriven: its next end has its own event
            again = self._free(Held(process, name, holder, execution.stopped_at), execution, report)
            if again is not None:
                return again
            self.doorbell.ring(Bell(process_name))
            if not execution.has_lost_its_slot:
                return self._publish(process_name, name)
        return self._settle_unheld(process_name, name, process, report)

    def _settle_unheld(self, process_name: str, name: str, process: Process | None, report: RunReport) -> int | None:
        row = self.rows.row(process_name, name)
        # First: an end that is not published owes its caller an answer, and is not queued again.
        if row and row.is_unpublished and (again := self._publish(process_name, name)):
            return again
        is_settled = True
        # A redriven execution of a request that has failed may have lost its slot.
        if row and row.state in ("QUEUED", "STARTED", "FAILED"):
            is_settled = self.settlement.settle_unheld(row, report)
        if process:
            self.slots.note_end(process_name)
            self.doorbell.ring(Bell(process_name))
        return self._publish(process_name, name) if is_settled else AFTER_FAILURE_SECONDS

    def _publish(self, process: str, name: str) -> int | None:
        return AFTER_FAILURE_SECONDS if self.endings.publish(process, [name]) else None

    def _free(self, held: Held, execution: Execution, report: RunReport) -> int | None:
        """Settle the request of a holder when its work has ended, and free its slot; None if that is done."""
        if held.holder.state == "RESERVED":
            # No run can have been started. A confirm that is still in flight, or a redrive, fails without the slot.
            is_settled = self._settle(held, None, report)
            # Otherwise it was redriven, or the workflow confirmed first.
            return None if is_settled and self.dead.cancel(held, report) else AFTER_CHANGE_SECONDS
        found: WorkCheck | None = None
        with report.guard("Could not check the work of a workflow that has ended", execution=held.name):
            found = self.dead.find_work(held, execution.arn)
        if found is None or execution.stopped_at is None:
            return AFTER_FAILURE_SECONDS
        gap = self.dead.check_gap
        early = execution.stopped_at + gap - found.checked_at
        if early > 0 and not found.running and not found.is_final:  # a start may still be in flight
            return math.ceil(early) + 1
        due = (held.holder.quiet_since or found.checked_at) + gap
        if found.newest is not None and found.is_final:
            due = found.newest.settles_at(held.process.settle_seconds)
        run = found.newest
        match self.dead.conclude(held, found, report, lambda: self._settle(held, run, report)):
            case Verdict.ALIVE:
                return WHILE_STOPPING_SECONDS
            case Verdict.FREED:
                return None
            case Verdict.TOO_SOON:
                return min(MAX_WAIT_SECONDS, max(1, math.ceil(due - self.clock())) + 1)
            case Verdict.HOLDER_CHANGED | Verdict.NOT_SETTLED:
                return AFTER_CHANGE_SECONDS
            case _:  # it was checked once
                return gap + 1

    def _settle(self, held: Held, work: Work | None, report: RunReport) -> bool:
        return self.settlement.settle_held(held.process.name, held.name, work, held.target, report)


@dataclass(frozen=True)
class EndMessages:
    """Handles the messages of EndingQueue, one at a time. Their senders are in ending_queue.py.

    All but a status event come again until they are done, since the janitor's runs do not do all of them.

    Args:
        seconds_left: until the end of the invocation.
    """

    closed: ClosedExecutions
    seconds_left: Callable[[], float]

    def handle(self, body: str, first_received: float, report: RunReport) -> int | None:
        """Handle a message; return the seconds after which it must come again, None if it is done or given up.

        Args:
            first_received: seconds since the epoch.
            report: gets each error. None is raised.
        """
        kind, fields = _parsed(body)
        logger.append_keys(execution=fields.get("name"))  # replaces that of the message before
        seconds: int | None = AFTER_FAILURE_SECONDS
        with report.guard("Could not handle an end; its message is delivered again"):
            seconds = self._seconds(kind, fields, report)
            report.counts["EndingsHandled"] += int(seconds is None)
        is_given_up = kind == "detail" and self.closed.clock() - first_received >= MAX_WAIT_SECONDS
        return None if is_given_up else seconds

    def _seconds(self, kind: str, fields: dict[str, Any], report: RunReport) -> int | None:
        match kind:
            case "detail":  # a status event
                return self.closed.handle(fields["name"], fields["status"], report)
            case "refused":
                return None if self.closed.endings.refused(fields) else AFTER_FAILURE_SECONDS
            case "process":
                return self._publish(fields["process"], fields.get("executions"))
            case _:
                logger.error("Deleted a message that is no end")
                return None

    def _publish(self, process: str, executions: list[str] | None) -> int | None:
        """Publish these ends; with None all of the process, which the janitor does not visit if it was removed."""
        is_cut = False
        if executions is None:
            listed = self.closed.rows.unpublished(process)
            executions, is_cut = [execution for execution, _ in listed.rows], listed.is_cut
        left = []
        for execution in executions:
            if self.seconds_left() < MESSAGE_SECONDS / 2:
                return 0
            left += self.closed.endings.publish(process, [str(execution)])
        if left:
            return AFTER_FAILURE_SECONDS
        return 0 if is_cut else None


def _parsed(body: str) -> tuple[str, dict[str, Any]]:
    """The kind of a message, and its fields; an empty kind if it is of another sender."""
    try:
        message = json.loads(body)
        kind = next((each for each in _FIELDS if each in message), "")
        fields = message[kind] if kind in ("detail", "refused") else message
    except (ValueError, TypeError, RecursionError):
        return "", {}
    is_known = isinstance(fields, dict) and kind and all(isinstance(fields.get(each), str) for each in _FIELDS[kind])
    return (kind, fields) if is_known and isinstance(fields.get("executions", []), list) else ("", {})
