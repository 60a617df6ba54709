"""What the janitor does: free the slots of holders that are provably dead, keep the requests of those, wake who waits.

Never by age alone. A reservation goes back if Step Functions knows no such execution, or a closed one; should its
starter be alive after all, the workflow's confirm step finds the slot gone and gives the request back. A running
holder's slot goes back if its execution is closed and two looks, a while apart, find no Glue run of it alive: a run
outlives an aborted execution, and a StartJobRun that was under way may show only at the second look.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.glue_runs import GlueRuns, NoSuchJob
from slotkeeper.observability import logger
from slotkeeper.processes import Holder, MalformedProcess, Process, Processes
from slotkeeper.request_queue import FailedRequestQueue, RequestQueue, wake_next
from slotkeeper.settled import HORIZON, Settled
from slotkeeper.slots import Slots
from slotkeeper.workflow import ACCOUNTED_FOR, Execution, Workflow

# The workflow's own TimeoutSeconds: no execution, and so no confirmed holder's, runs for longer.
LONGEST_EXECUTION = 8 * 86400
# DescribeExecution may lag behind StartExecution (it is eventually consistent), but not for a day.
_FORGOTTEN_AFTER = 86400

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

    counts: Counter[str]

    def note(self, metric: str, message: str, **details: object) -> None:
        self.counts[metric] += 1
        logger.warning(message, extra=details)


@dataclass(frozen=True)
class Janitor:
    """Rounds over all processes, and visits to one execution that has just closed.

    Args:
        grace: seconds before a reservation without execution, or a closed execution's slot, is touched.
        look_gap: seconds that must lie between the two looks at Glue.
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

    def visit(self, execution_name: str, now: float) -> Findings:
        """Attends to an execution whose status event says that it closed without success.

        Keeps its request at once and stops a Glue run that outlives it. The slot is left to the rounds.
        """
        findings = Findings(Counter())
        execution = self.workflow.describe(execution_name)
        if execution is None or not execution.is_closed or execution.status == "SUCCEEDED":
            return findings
        self._settle(execution, now, findings)
        process = self.slots.read(execution_name.rsplit("-", 1)[0])
        holder = process.holders.get(execution_name) if process else None
        if process is not None and holder is not None and holder.state == "RUNNING":
            self._alive_in_glue(process, execution_name, holder, findings)
        return findings

    def round(self, now: float) -> Findings:
        """Goes over every process and every execution that closed without success.

        A failure at one process or execution is reported and does not keep the others from their turn.
        """
        findings = Findings(Counter())
        self._settle_all(now, findings)
        running = self.workflow.running()
        for process in self.processes.all():
            if isinstance(process, MalformedProcess):
                findings.note("MalformedProcesses", "An item of the slot table is malformed", reason=str(process))
                continue
            try:
                self._attend(process, running, now, findings)
            except (ClientError, BotoCoreError) as error:
                findings.note(
                    "JanitorErrors", "Could not attend to a process", process_name=process.name, error=str(error)
                )
        return findings

    def _attend(self, process: Process, running: set[str], now: float, findings: Findings) -> None:
        if process.has_drifted and self.processes.repair_counter(process):
            findings.note(
                "CounterDrift",
                "Set slots_in_use to the number of holders",
                process_name=process.name,
                was=process.slots_in_use,
                holders=len(process.holders),
            )
        for name, holder in process.holders.items():
            if name in running or now - holder.since < self.grace:
                continue
            execution = self.workflow.describe(name)
            match judge(holder, execution, now, self.grace):
                case "cancel":
                    if self.slots.cancel(process.name, name):
                        findings.note("SlotsReclaimed", "Took back a reservation without a workflow", execution=name)
                case "look at Glue":
                    if execution is None:
                        findings.note("ExecutionsForgotten", "Step Functions does not know a holder", execution=name)
                    self._look(process, name, holder, now, findings)
        # Every round, and not only after freeing something: a wake may have been lost since.
        if wake_next(self.slots, self.queue, process.name):
            findings.counts["WaitingWoken"] += 1

    def _look(self, process: Process, name: str, holder: Holder, now: float, findings: Findings) -> None:
        if self._alive_in_glue(process, name, holder, findings):
            if holder.quiet_since is not None:
                self.slots.mark_quiet(process.name, name, holder.raw, None)
        elif holder.quiet_since is None:
            self.slots.mark_quiet(process.name, name, holder.raw, now)
        elif now - holder.quiet_since >= self.look_gap and self.slots.release(process.name, name, holder.raw):
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

    def _settle_all(self, now: float, findings: Findings) -> None:
        closed = {
            execution.name
            for execution in self.workflow.unsuccessful(now - HORIZON, LONGEST_EXECUTION)
            # The status event of what has just closed is on its way, and would keep the request a second time.
            if now - (execution.stopped_at or now) >= self.grace
        }
        for name in sorted(self.settled.missing(closed)):
            try:
                execution = self.workflow.describe(name)
                if execution is not None and execution.is_closed and execution.status != "SUCCEEDED":
                    self._settle(execution, now, findings)
            except (ClientError, BotoCoreError) as error:
                findings.note("JanitorErrors", "Could not settle an execution", execution=name, error=str(error))

    def _settle(self, execution: Execution, now: float, findings: Findings) -> None:
        """Keeps the request of an execution that did not keep it itself. Twice at worst, never not at all."""
        if self.settled.has(execution.name):
            return
        by = "workflow"
        if execution.error not in ACCOUNTED_FOR:
            by = "janitor"
            error = execution.error or execution.status
            cause = execution.cause or f"The workflow ended as {execution.status}"
            self.failed_requests.keep(_request_of(execution), execution.name, error, cause)
            findings.note("RequestsKept", "Kept the request of a workflow that is over", execution=execution.name)
        self.settled.add(execution.name, by, now)


def _request_of(execution: Execution) -> str:
    # An execution started by hand may have any input; whatever it is, whoever reads the queue should see it.
    try:
        json.loads(execution.input)
    except ValueError:
        return json.dumps({"input": execution.input})
    return execution.input
