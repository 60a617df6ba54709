"""What the janitor does: free the slots of holders that are provably dead, keep the requests of those, wake who waits.

Never by age alone. A reservation goes back if Step Functions knows no such execution, or a closed one; should its
starter be alive after all, the workflow's confirm step finds the slot gone and gives the request back. A running
holder's slot goes back if its execution is closed and two looks, a while apart, find no Glue run of it alive: a run
outlives an aborted execution, and a StartJobRun that was under way may show only at the second look.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from slotkeeper.glue_runs import GlueRuns, NoSuchJob
from slotkeeper.observability import logger
from slotkeeper.processes import PROCESS_NAME, Holder, MalformedProcess, Process, Processes
from slotkeeper.request_queue import FailedRequestQueue, RequestQueue
from slotkeeper.settled import HORIZON, Settled
from slotkeeper.slots import Slots
from slotkeeper.workflow import ACCOUNTED_FOR, Execution, Workflow

# DescribeExecution may lag behind StartExecution (it is eventually consistent), but not for a day.
_FORGOTTEN_AFTER = 86400
# Seconds for which a container believes that a handle is spent. Nothing makes one good again; should it be wrong about
# that, then for no longer.
_SPENT_FOR = 900
# A fortnight's failed executions are many pages of a list, and the last hour's one. Seconds by which a round looks back
# behind where all was settled: the list is late by seconds (Step Functions API Reference, ListExecutions).
_LISTED_LATE = 3600

Verdict = Literal["alive", "cancel", "look at Glue"]


def judge(holder: Holder, execution: Execution | None, now: float, grace: int) -> Verdict:
    """What may be done about a holder, given what Step Functions says of its execution.

    Args:
        execution: None if Step Functions knows none of this name.
        grace: seconds that a reservation, or the end of an execution, must lie in the past.
    """
    age = now - holder.since
    if holder.state == "RESERVED":
        dead = execution is None or execution.is_closed
        return "cancel" if dead and age >= grace else "alive"
    if execution is None:
        return "look at Glue" if age >= _FORGOTTEN_AFTER else "alive"
    if execution.is_closed and execution.stopped_at is not None and now - execution.stopped_at >= grace:
        return "look at Glue"
    return "alive"


@dataclass
class Findings:
    """What a round found and did: the names are those of the metrics."""

    counts: Counter[str] = field(default_factory=Counter)
    processes: list[Process] = field(default_factory=list)  # as the round found them

    def note(self, metric: str, message: str, **details: object) -> None:
        self.counts[metric] += 1
        logger.warning(message, extra=details)

    @contextmanager
    def guard(self, message: str, **details: object) -> Iterator[None]:
        """A failure inside is reported, and what comes after it goes on: one sick holder must not cost the others."""
        try:
            yield
        except Exception as error:
            self.note("JanitorErrors", message, error=f"{type(error).__name__}: {error}", **details)


@dataclass
class _Memory:
    """What a container knows from its rounds before: it saves calls, and nothing else leans on it."""

    spent: dict[str, tuple[str, float]] = field(default_factory=dict)  # process -> handle, and when it was found so
    settled_by: float = -math.inf  # every execution that had ended by then was accounted for


@dataclass(frozen=True)
class Janitor:
    """Rounds over all processes, and visits to one execution that has just closed.

    Args:
        grace: seconds before a reservation without execution, or a closed execution's slot, is touched.
        look_gap: seconds that must lie between the two looks at Glue.
        on_kept: told of each request that was kept, with error and cause, before that is noted: where the janitor dies
            in between, it is kept and told of again.
        clock: seconds since the epoch. Not one moment for a whole round: rounds are long, and overlap.
    """

    slots: Slots
    processes: Processes
    queue: RequestQueue
    workflow: Workflow
    glue: GlueRuns
    failed_requests: FailedRequestQueue
    settled: Settled
    grace: int
    look_gap: int
    clock: Callable[[], float] = time.time
    on_kept: Callable[[Execution, str, str], object] = lambda *_: None
    _memory: _Memory = field(default_factory=_Memory, init=False)

    def visit(self, execution_name: str) -> Findings:
        """Attends to an execution whose status event says that it closed without success.

        Keeps its request at once and stops a Glue run that outlives it. The slot is left to the rounds.
        """
        findings = Findings()
        execution = self.workflow.describe(execution_name)
        if execution is None or not execution.is_closed or execution.status == "SUCCEEDED":
            return findings
        self._settle(execution, findings)
        # Its request is kept: whatever fails from here on is for the rounds to try again, not for the event.
        with findings.guard("Could not look for a Glue run of a workflow that is over", execution=execution_name):
            self._stop_run_of(execution_name, findings)
        return findings

    def _stop_run_of(self, execution_name: str, findings: Findings) -> None:
        process_name = execution_name.rpartition("-")[0]
        if not PROCESS_NAME.fullmatch(process_name):
            return  # started by hand, under a name that no request has
        process = self.slots.read(process_name)
        holder = process.holders.get(execution_name) if process else None
        if process is not None and holder is not None and holder.state == "RUNNING":
            self._alive_in_glue(process, execution_name, holder, findings)

    def round(self) -> Findings:
        """Goes over every process, and then over every execution that closed without success.

        Processes first, since requests that are still to be kept can be many. Whatever fails is reported as
        JanitorErrors and is tried again in the next round; the rest goes on.
        """
        findings = Findings()
        self._attend_all(findings)
        with findings.guard("Could not list the executions that closed without success"):
            self._settle_all(findings)
        return findings

    def _attend_all(self, findings: Findings) -> None:
        running: set[str] = set()
        with findings.guard("Could not list the executions that run; each of the others is asked for"):
            for name in self.workflow.running():
                running.add(name)
        with findings.guard("Could not read the slot table to its end"):
            for process in self.processes.all():
                if isinstance(process, MalformedProcess):
                    findings.note("MalformedProcesses", "An item of the slot table is malformed", reason=str(process))
                else:
                    findings.processes.append(process)
                    self._attend(process, running, findings)

    def _attend(self, process: Process, running: set[str], findings: Findings) -> None:
        if process.has_drifted:
            with findings.guard("Could not repair a counter", process_name=process.name):
                self._repair(process, findings)
        now = self.clock()
        doubtful = {
            name: holder
            for name, holder in process.holders.items()
            if name not in running and now - holder.since >= self.grace
        }
        for name, holder in doubtful.items():
            with findings.guard("Could not examine a holder", execution=name):
                self._examine(process, name, holder, findings)
        with findings.guard("Could not drop old cancellations", process_name=process.name):
            self.processes.cancellations.drop_what_is_over(process.name, process.cancelled, self.clock())
        # Every round, and not only after freeing something: a wake may have been lost since. Where a round has seen no
        # room and made none, whoever makes some wakes.
        if doubtful or process.has_drifted or self._waits_beside_room(process):
            with findings.guard("Could not wake who waits", process_name=process.name):
                self._wake(process.name, findings)

    def _waits_beside_room(self, process: Process) -> bool:
        """Whether it looks so. Most registrations are of messages that are long gone, since nothing removes one."""
        handle, since = self._memory.spent.get(process.name, ("", 0.0))
        is_spent = process.waiting_handle == handle and self.clock() - since < _SPENT_FOR
        return process.has_room and process.waiting_handle is not None and not is_spent

    def _wake(self, process_name: str, findings: Findings) -> None:
        # Looked at anew: since the table was read somebody may have taken the room, or registered.
        waiter = self.slots.waiter_with_room(process_name)
        if waiter is None:
            return
        if self.queue.make_visible(waiter.receipt_handle):
            findings.note("WaitingWoken", "Woke a request that waited beside a free slot", process_name=process_name)
        else:
            self._memory.spent[process_name] = (waiter.receipt_handle, self.clock())

    def _repair(self, process: Process, findings: Findings) -> None:
        if self.processes.repair_counter(process):
            findings.note(
                "CounterDrift",
                "Set slots_in_use to the number of holders",
                process_name=process.name,
                was=process.slots_in_use,
                holders=len(process.holders),
            )

    def _examine(self, process: Process, name: str, holder: Holder, findings: Findings) -> None:
        execution = self.workflow.describe(name)
        match judge(holder, execution, self.clock(), self.grace):
            case "cancel":
                if self.slots.cancel(process.name, name):
                    findings.note("SlotsReclaimed", "Took back a reservation without a workflow", execution=name)
            case "look at Glue":
                if execution is None:
                    findings.note("ExecutionsForgotten", "Step Functions does not know a holder", execution=name)
                self._look(process, name, holder, findings)

    def _look(self, process: Process, name: str, holder: Holder, findings: Findings) -> None:
        # The gap lies between the end of the first look and the beginning of the second.
        begun = self.clock()
        if self._alive_in_glue(process, name, holder, findings):
            if holder.quiet_since is not None:
                self.slots.mark_quiet(process.name, name, holder.raw, None)
        elif holder.quiet_since is None:
            self.slots.mark_quiet(process.name, name, holder.raw, self.clock())
        elif begun - holder.quiet_since >= self.look_gap and self.slots.release(process.name, name, holder.raw):
            findings.note("SlotsReclaimed", "Took back the slot of a workflow that is over", execution=name)

    def _alive_in_glue(self, process: Process, name: str, holder: Holder, findings: Findings) -> bool:
        job_name = holder.job or process.job_name
        try:
            alive = self.glue.alive(job_name, name, holder.since)
        except NoSuchJob:
            findings.note("GlueJobsMissing", "The Glue job of a holder does not exist", job=job_name, execution=name)
            return False
        if alive:
            self.glue.stop(job_name, alive)
            findings.note("GlueRunsStopped", "Stopped a Glue run whose workflow is over", runs=alive, execution=name)
        return bool(alive)

    def _settle_all(self, findings: Findings) -> None:
        now = self.clock()
        closed: set[str] = set()
        for execution in self.workflow.unsuccessful(max(now - HORIZON, self._memory.settled_by - _LISTED_LATE)):
            # The status event of what has just closed is on its way, and would keep the request a second time.
            if now - (execution.stopped_at or now) >= self.grace:
                closed.add(execution.name)
        for name in sorted(self.settled.missing(closed)):
            with findings.guard("Could not settle an execution", execution=name):
                known = self.workflow.describe(name)
                if known is not None and known.is_closed and known.status != "SUCCEEDED":
                    self._settle(known, findings)
        if not self.settled.missing(closed):
            self._memory.settled_by = now - self.grace

    def _settle(self, execution: Execution, findings: Findings) -> None:
        """Keeps the request of an execution that did not keep it itself. Twice at worst, never not at all."""
        if self.settled.has(execution.name):
            return
        by = "workflow"
        # Only the workflow's own Fail states are believed: whoever stops an execution may name any error.
        if execution.status != "FAILED" or execution.error not in ACCOUNTED_FOR:
            by = "janitor"
            error = execution.error or execution.status
            cause = execution.cause or f"The workflow ended as {execution.status}"
            self.failed_requests.keep(_request_of(execution), execution.name, error, cause)
            self.on_kept(execution, error, cause)
            findings.note("RequestsKept", "Kept the request of a workflow that is over", execution=execution.name)
        self.settled.add(execution.name, by, self.clock())


def _request_of(execution: Execution) -> str:
    # An execution started by hand may have any input; whatever it is, whoever reads the queue should see it.
    try:
        json.loads(execution.input)
    except ValueError:
        return json.dumps({"input": execution.input})
    except RecursionError:
        pass  # JSON, as Step Functions says; only too deep to be read here
    # The two characters that JSON allows as they are, and SQS does not (SQS API Reference, SendMessage).
    return execution.input.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
