"""A run of the janitor: repair counters, remove expired leases, publish ends, settle requests, dispatch every process
that has a queue, and free the slots of dead holders.

Each part needs more services than the part before: publishing needs DynamoDB and the receivers, a settlement and a
dispatch also Step Functions, and freeing a slot also Glue or the state machines that run in slots. So a failing or slow
service does not affect the parts before it. Each part stops when the run's time has ended. Threads would not help: the
quotas bind first. dead_holders.py has the proof that a holder is dead, and the order of the checks. Two runs at the
same time are safe, since each step is conditional: they do the same work twice.

While every sender of a doorbell works, its dispatches find nothing to start. Without doorbells they run the system.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slotkeeper.slots.dead_holders import ChildChecks, DeadHolders, GlueChecks, Held, Verdict, judge
from slotkeeper.slots.dispatch import RESERVE_SECONDS, DispatchFailed, Tools, dispatch
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.endings import Endings
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.plan import Blocked, KeyBlocked, orphans, plan
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queued import QUEUE_END, QueuePart, QueueParts
from slotkeeper.slots.request_table import State
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRows
from slotkeeper.slots.run_report import MALFORMED_ITEM, QueueLength, RunReport, in_turns, is_outage
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns, Work

# Seconds after which a run starts no further work: less than the time between two runs, and less than half of the
# function's timeout, so that calls in flight can still time out (functions/janitor/app.py).
RUN_SECONDS = 50
# The part of these for settling requests without a holder.
SETTLE_SECONDS = 15
# For removing expired leases, so that many of them do not delay the other work.
_LEASE_SECONDS = 10
# For publishing ends, of which each may take the timeouts of a call.
_PUBLISH_SECONDS = 10
# For which a request could start, and no dispatch has started it. A doorbell is heard within a second.
OVERDUE_SECONDS = 5
# The number of holders from which their executions are listed instead of described one by one. DescribeExecution has a
# quota of 15 per second; a page of ListExecutions has 1,000 executions (Step Functions guide, "Service quotas").
_LIST_FROM_HOLDERS = 20
Shuffle = Callable[[list[Any]], None]


@dataclass
class Janitor:
    """Repairs, publishes, settles, dispatches and frees slots for all processes.

    Args:
        tools: for dispatches.
        grace: minimum age, in seconds, of a reservation without execution, or of an execution's end, before its slot
            may be freed.
        check_gap: minimum seconds between the two checks that find no work.
        clock: seconds since the epoch. It is called for each step, because a run is long.
        shuffle: puts work into random order, so that no process is always the last when the time has ended.
    """

    slots: Slots
    processes: Processes
    tools: Tools
    rows: RequestRows
    endings: Endings
    workflow: Workflow
    glue: GlueRuns
    children: Children
    settlement: Settlement
    grace: int
    check_gap: int
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    shuffle: Shuffle = random.shuffle

    def __post_init__(self) -> None:
        self._dead = DeadHolders(self.slots, self.glue, self.children, self.check_gap, self.clock)
        self._glue_checks = GlueChecks(self._dead, self.shuffle, self._settle)
        self._child_checks = ChildChecks(self._dead, self.workflow, self._settle)

    def run(self, seconds_left: float = math.inf) -> RunReport:
        """Do one run. A failure is reported as JanitorErrors and retried by the next run; the other work continues.

        Args:
            seconds_left: seconds until Lambda stops the function. In their second half the run starts no further work.
        """
        report = RunReport()
        started_at = self.clock()
        until = started_at + min(RUN_SECONDS, seconds_left / 2)
        processes: list[Process] = []
        malformed: set[str] = set()
        is_read = False
        with report.guard("Could not read the whole slot table; processes that were not read are not handled"):
            self._read(processes, malformed, report)
            is_read = True
        self._repair(processes, report)
        expired = self._remove_leases(processes, report, min(until, self.clock() + _LEASE_SECONDS))
        self._ring(expired, report)
        self._publish_ends(processes, report, min(until, self.clock() + _PUBLISH_SECONDS))
        looked_at = self.clock()
        queued = self._look(processes, report, until)
        self._settle_unheld(processes, report, min(until, self.clock() + SETTLE_SECONDS))
        self._dispatch(queued, looked_at, report, until)
        freed = self._free(processes, report, until, knows_all=is_read and not malformed)
        self._ring([held.process for held in freed], report)
        self._publish(report.settled, report, until)
        # A list may be long.
        self._child_checks.adopt_redriven(processes, report, until)
        return report

    def _read(self, processes: list[Process], malformed: set[str], report: RunReport) -> None:
        for process in self.processes.all():
            if isinstance(process, MalformedProcess):
                malformed.add(process.process)
                report.note("MalformedProcesses", MALFORMED_ITEM, reason=str(process))
            else:
                processes.append(process)
                report.processes.append(process)

    def _repair(self, processes: Sequence[Process], report: RunReport) -> None:
        for process in [each for each in processes if each.has_drifted]:
            with report.guard("Could not repair a counter", process_name=process.name):
                fresh = self.slots.read(process.name)  # in a busy process the holders change all the time
                if fresh and fresh.has_drifted and self.processes.repair_counter(fresh):
                    report.note(
                        "CounterDrift",
                        "Set slots_in_use to the sum of the holders' weights",
                        process_name=process.name,
                        was=fresh.slots_in_use,
                        held=fresh.held_weight,
                    )

    def _remove_leases(self, processes: Sequence[Process], report: RunReport, until: float) -> list[Process]:
        """Free the slots of expired leases; return their processes. The end of a lease decides alone (leases.py).

        The processes include those whose lease another caller removed, in case it died before its ring.
        """
        expired = [
            (process, name, holder)
            for process in processes
            for name, holder in process.expired_leases(self.clock()).items()
        ]
        self.shuffle(expired)
        for process, name, holder in in_turns(expired, lambda each: each[0].name):
            if self.clock() >= until:
                break
            try:
                if self.tools.grants.expire(process, name):
                    report.note(
                        "LeasesExpired",
                        "Removed a lease whose holder died, or was still at work after its end",
                        process_name=process.name,
                        lease=name,
                        age=int(self.clock() - holder.since),
                    )
            except Exception as error:
                report.failed("Could not remove an expired lease", error, process_name=process.name, lease=name)
                if is_outage(error):
                    break
        return [process for process, _, _ in expired]

    def _publish_ends(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Publish the ends that a function has recorded which then died, or whose next call failed."""
        unpublished = 0
        for process in self._in_random_order(processes):
            if self.clock() >= until:
                break
            listed = Listed[tuple[str, State]]()
            with report.guard("Could not read which ends must be published", process_name=process.name):
                listed = self.rows.unpublished(process.name)
            for reason in listed.malformed:
                report.note("MalformedRequests", "The row of an ended request is malformed", reason=reason)
            ends = [(process.name, execution) for execution, _ in listed.rows]
            self.shuffle(ends)  # so that those that fail each time do not keep back the others
            unpublished += self._publish(ends, report, until)
        report.counts["RequestsUnpublished"] = unpublished  # also 0, which ends the alarm

    def _publish(self, ends: Iterable[tuple[str, str]], report: RunReport, until: float) -> int:
        """Publish the ends of these executions, each with its process, until `until`; how many were not published."""
        left = 0
        for process, execution in ends:
            is_published = False
            if self.clock() < until:
                with report.guard("Could not publish how a request has ended", execution=execution):
                    is_published = not self.endings.publish(process, [execution])
            left += not is_published
        return left

    def _settle_unheld(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Settle the requests that were started, and whose execution holds no slot any more, until `until`."""
        for process in self._in_random_order(processes):
            if self.clock() >= until:
                break
            with report.guard("Could not settle requests without a slot", process_name=process.name):
                listed = self.rows.open(process.name)
                for reason in listed.malformed:
                    report.note("MalformedRequests", "A request's row is malformed", reason=reason)
                started = [name for name, state in listed.rows if state == "STARTED"]
                if all(name in process.holders for name in started):
                    continue
                # After the rows: a grant or release of the meantime has changed one of the two.
                fresh = self.slots.read(process.name)
                held = fresh.holders if fresh else {}
                self._settle_rows([(process.name, name) for name in started if name not in held], report, until)

    def _settle_rows(self, rows: Iterable[tuple[str, str]], report: RunReport, until: float = math.inf) -> None:
        for process, execution in rows:
            if self.clock() >= until:
                return report.cut_short("The run's time has ended; the next run settles the other requests")
            with report.guard("Could not settle a request without a slot", execution=execution):
                row = self.rows.row(process, execution)
                if row is not None and row.state in ("QUEUED", "STARTED", "FAILED"):
                    self.settlement.settle_unheld(row, report)
        return None

    def _look(self, processes: Sequence[Process], report: RunReport, until: float) -> dict[str, set[str]]:
        """Return process -> the requests that could start now, for each process that must be dispatched."""
        found: dict[str, set[str]] = {}
        report.counts["BlockedRequests"] = 0  # which ends the alarm
        for process in self._in_random_order(processes):
            if self.clock() >= until:
                report.cut_short("The run's time has ended; the next run dispatches the other processes")
                break
            with report.guard("Could not read the queue of a process", process_name=process.name):
                queue = self.rows.queue(process.name)
                # A reservation whose starter has died may have lost its request, which no queue contains then.
                if not queue.rows and not queue.malformed and not orphans(process, self.clock(), self.tools.age):
                    continue
                found[process.name] = set()
                found[process.name] = self._startable(process.name, queue, report)
        return found

    def _startable(self, name: str, queue: Listed[QueuedRow], report: RunReport) -> set[str]:
        seen, now = self.slots.read(name), self.clock()
        for reason in queue.malformed:
            report.note("MalformedRequests", "A queued request's row is malformed; it waits", reason=reason)
        if seen is None or not queue.rows:
            return set()
        queued = [row.queued for row in queue.rows]
        # Of a queue that was cut, only the starts that do not depend on the part that was not read.
        parts = QueueParts([QueuePart(queued, "", queued[-1].place if queue.is_cut else QUEUE_END)])
        planned = plan(seen, queued, now, age=self.tools.age, parts=parts)
        report.queues[name] = QueueLength(len(queue.rows), now - min(row.sent for row in queue.rows))
        for row in queue.rows:
            wait = planned.waits.get(row.queued.execution)
            if wait and isinstance(wait.reason, Blocked | KeyBlocked):
                is_of_key = isinstance(wait.reason, KeyBlocked)
                of_key = {"key": row.queued.key, "key_limit": seen.limit_of(row.queued.key)} if is_of_key else {}
                report.note(
                    "BlockedRequests",
                    "A queued request is blocked: its weight is above the limit",
                    process_name=name,
                    request_id=row.request_id,
                    priority=row.priority,
                    weight=wait.reason.weight,
                    slot_limit=seen.slot_limit,
                    **of_key,
                )
        return {start.execution for start in planned.starts}

    def _dispatch(self, queued: Mapping[str, set[str]], looked_at: float, report: RunReport, until: float) -> None:
        """Dispatch each process that has a queue, and count what could start for some seconds and was not started."""
        left = looked_at + OVERDUE_SECONDS - self.clock()
        if any(queued.values()) and left > 0:
            self.sleep(left)
        report.counts["StartsOverdue"] = 0  # which ends the alarm
        for process, startable in queued.items():
            if self.clock() >= until:
                report.cut_short("The run's time has ended; the next run dispatches the other processes")
                break
            tools = replace(self.tools, seconds_left=lambda: until - self.clock() + RESERVE_SECONDS)
            try:
                done = dispatch(tools, Bell(process), leavers=True)
            except MalformedProcess as error:
                report.note("MalformedProcesses", MALFORMED_ITEM, reason=str(error), process_name=process)
                continue
            except DispatchFailed as error:
                report.failed("A dispatch has failed; the next run repeats it", error, process_name=process)
                done = error.report
                if startable - done.started.keys():
                    message = "Requests that fit could not be started"
                    report.note("StartsOverdue", message, process_name=process)
                if error.__cause__ and is_outage(error.__cause__):
                    break
            for execution in startable & done.started.keys():
                message = "Started a request for which no doorbell was heard"
                report.note("StartsOverdue", message, process_name=process, execution=execution)
            self._publish([(process, leaving.execution) for leaving in done.left], report, until)

    def _in_random_order(self, processes: Sequence[Process]) -> list[Process]:
        shuffled = list(processes)
        self.shuffle(shuffled)
        return shuffled

    def _free(self, processes: Sequence[Process], report: RunReport, until: float, *, knows_all: bool) -> list[Held]:
        """Free the slots of dead holders until `until` (epoch seconds); return the freed ones.

        Args:
            knows_all: whether `processes` are all processes.
        """
        running: set[str] = set()
        with report.guard("Could not list all running executions; the other holders are described one by one"):
            for name in self.workflow.running():
                running.add(name)
        now = self.clock()
        doubtful = [
            Held(process, name, holder, None)
            for process in processes
            for name, holder in process.holders.items()
            if not holder.is_lease and name not in running and now - holder.since >= self.grace
        ]
        self.shuffle(doubtful)
        doubtful = in_turns(doubtful, lambda held: held.process.name)
        freed: list[Held] = []
        try:
            dead = self._judge_all(doubtful, freed, report, until)
            everyone = {name for process in processes for name in process.holders} if knows_all else None
            by_child = [held for held in dead if held.has_child]
            by_runs = [held for held in dead if not held.has_child]
            # Both kinds get time in each run, however many holders of the other kind there are.
            half = (self.clock() + until) / 2 if by_runs else until
            freed += self._child_checks.check(by_child, report, half)
            freed += self._glue_checks.check(by_runs, everyone, report, until)
        except Exception as error:
            report.failed("Could not check the holders; they keep their slots", error)
        # One that had lost its slot is queued again: the next dispatch would grant it another.
        names = [(held.process.name, held.name) for held in freed]
        self._settle_rows([each for each in names if each not in report.settled], report)
        return freed

    def _judge_all(self, doubtful: list[Held], freed: list[Held], report: RunReport, until: float) -> list[Held]:
        """Return the holders whose work must be checked, and free reservations without a workflow."""
        closed = self._closed(doubtful, until) if doubtful else {}
        dead: list[Held] = []
        for held in doubtful:
            if self.clock() >= until:
                report.cut_short("The run's time has ended; the next run checks the other holders", left=len(doubtful))
                break
            try:
                execution = closed.get(held.name) or self.workflow.describe(held.name)
                match judge(held.holder, execution, self.clock(), self.grace):
                    case Verdict.CANCEL:
                        if self._settle(held, None, report) and self._dead.cancel(held, report):
                            freed.append(held)
                    case Verdict.CHECK_WORK:
                        if execution is None:
                            report.note(
                                "ExecutionsForgotten",
                                "Step Functions does not know a holder's execution; its work decides",
                                execution=held.name,
                            )
                        closed_at = execution.stopped_at if execution else None
                        dead.append(Held(held.process, held.name, held.holder, closed_at))
            except Exception as error:
                report.failed("Could not check a holder; it keeps its slot", error, execution=held.name)
                if is_outage(error):
                    break
        return dead

    def _settle(self, held: Held, work: Work | None, report: RunReport) -> bool:
        """Settle the request of a holder whose work has ended: before its slot is free."""
        return self.settlement.settle_held(held.process.name, held.name, work, held.target, report)

    def _closed(self, doubtful: Sequence[Held], until: float) -> dict[str, Execution]:
        """List the closed executions of many holders, by name: that takes fewer calls than one for each."""
        closed: dict[str, Execution] = {}
        unknown = {held.name for held in doubtful}
        if len(unknown) <= _LIST_FROM_HOLDERS:
            return closed
        since = min(held.holder.since for held in doubtful)
        for listed, execution in enumerate(self.workflow.unsuccessful(since), start=1):
            closed[execution.name] = execution
            unknown.discard(execution.name)
            if not unknown or (listed % 1000 == 0 and self.clock() >= until):
                break
        return closed

    def _ring(self, processes: Iterable[Process], report: RunReport) -> None:
        for name in {process.name: None for process in processes}:
            try:
                self.tools.doorbell.ring(Bell(name))
            except Exception as error:
                report.failed("Could not ring; the next run dispatches the process", error, process_name=name)
                if is_outage(error):
                    break
