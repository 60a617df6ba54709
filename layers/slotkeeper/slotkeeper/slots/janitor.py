"""A run of the janitor: remove expired leases, repair counters, wake waiting requests, settle requests, free the slots
of dead holders, then find requests that have lost their messages.

Each part needs more services than the part before: a wake needs DynamoDB and SQS, a settlement also Step Functions, and
freeing a slot also Glue or the state machines that run in slots. So a failing or slow service does not affect the parts
before it. Each part stops when the run's time has ended. Threads would not help: the quotas bind first. dead_holders.py
has the proof that a holder is dead, and the order of the checks. RunLease allows one run at a time.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Table, Write, number
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.dead_holders import ChildChecks, DeadHolders, GlueChecks, Held, Verdict, judge
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.lost_requests import LostVerdict, judge_lost, send_again
from slotkeeper.slots.process import MalformedProcess, Process, WaitingRequest
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next
from slotkeeper.slots.run_report import MALFORMED_ITEM, RunReport, in_turns, is_outage
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Seconds after which a run starts no further work: less than the time between two runs, and less than half of the
# function's timeout, so that calls in flight can still time out (functions/janitor/app.py).
RUN_SECONDS = 50
# The part of these for settling before holders are checked. The time left after the checks is used to settle more.
SETTLE_SECONDS = 15
# The part of these at the end for waking the requests that wait for the freed slots.
_WAKE_SECONDS = 5
# Seconds for clearing registrations with an outdated receipt handle, so that many of them do not delay the other work.
_CLEAR_SECONDS = 10
_WAKE_BATCH = 10  # SQS API Reference, ChangeMessageVisibilityBatch: at most ten entries
# The number of holders from which their executions are listed instead of described one by one. DescribeExecution has a
# quota of 15 per second; a page of ListExecutions has 1,000 executions (Step Functions guide, "Service quotas").
_LIST_FROM_HOLDERS = 20
# Notes of lost requests that a run checks, each by a DescribeExecution, so that a purge leaves its quota to others.
_LOST_CHECKS = 50

Shuffle = Callable[[list[Any]], None]


@dataclass
class Janitor:
    """Repairs, wakes, settles and frees slots for all processes.

    Args:
        grace: minimum age, in seconds, of a reservation without execution, or of an execution's end, before its slot
            may be freed.
        check_gap: minimum seconds between the two checks that find no work.
        clock: seconds since the epoch. It is called for each step, because a run is long.
        shuffle: puts work into random order, so that no process is always the last when the time has ended.
    """

    slots: Slots
    processes: Processes
    queue: RequestQueue
    workflow: Workflow
    glue: GlueRuns
    children: Children
    settlement: Settlement
    grace: int
    check_gap: int
    clock: Callable[[], float] = time.time
    shuffle: Shuffle = random.shuffle

    def __post_init__(self) -> None:
        self._dead = DeadHolders(self.slots, self.glue, self.children, self.check_gap, self.clock)
        self._glue_checks = GlueChecks(self._dead, self.shuffle, self.settlement.settle_dead)
        self._child_checks = ChildChecks(self._dead, self.workflow, self.settlement.settle_dead)

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
        expired = self._remove_leases(processes, report, min(until, self.clock() + _CLEAR_SECONDS))
        self._wake(expired, report, until)
        self._wake_all(processes, report, until)
        holders = {name: holder for process in processes for name, holder in process.holders.items()}
        settle_until = min(self.clock() + SETTLE_SECONDS, until)
        # Without the holder, a request would be kept although its child has succeeded, and a caller's token be lost.
        if is_read:
            with report.guard("Could not list the executions that closed without success"):
                self.settlement.find(settle_until - SETTLE_SECONDS / 2)
                self.settlement.settle_found(report, settle_until, holders, malformed)
        freed = self._free(processes, report, until - _WAKE_SECONDS, knows_all=is_read and not malformed)
        self._wake([held.process for held in freed], report)
        # A list may be long. Half of the time that is left is for settling more.
        self._child_checks.adopt_redriven(processes, report, (self.clock() + until) / 2)
        if is_read:
            self.settlement.settle_found(report, until, holders, malformed)
            with report.guard("Could not record up to which time all requests are settled"):
                self.settlement.note_settled(started_at)
        self._drop_cancellations(processes, report, until)
        self._note_lost(processes, report, until)
        self._report_lost(processes, report, until)
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

        The processes include those whose lease another caller removed, in case it died before its wake.
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
                if self.slots.release(process.name, name, holder.raw):
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

    def _wake_all(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Wake each process's request whose turn it is, if it fits.

        Every run does this, because a wake may have been lost. With a rate only if a start has been due for some
        seconds: a message comes back when it is due, and then is no late one.

        It uses the table as it was read. If a slot was taken since, the woken request is refused again. A request that
        registered since has found no free slot. A registration with an outdated receipt handle is cleared, because it
        keeps lower priorities out.
        """
        before = self.clock() - CLOCK_SKEW_SECONDS
        waiting = [
            (process, first)
            for process in processes
            if (first := process.to_wake) and (process.is_due(before) or first.execution in process.cancelled)
        ]
        self.shuffle(waiting)
        spent: list[tuple[Process, WaitingRequest]] = []
        for start in range(0, len(waiting), _WAKE_BATCH):
            some, now = waiting[start : start + _WAKE_BATCH], self.clock()
            try:
                woken = self.queue.make_all_visible(
                    [(first.receipt_handle, process.wake_delay(first.priority, now)) for process, first in some]
                )
            except Exception as error:
                report.failed("Could not wake waiting requests", error, processes=[each.name for each, _ in some])
                if is_outage(error):
                    break
                continue
            for (process, first), was_woken in zip(some, woken, strict=True):
                if was_woken:
                    report.note("WaitingWoken", "Woke a request that waited at a free slot", process_name=process.name)
                elif was_woken is None:
                    report.note("JanitorErrors", "SQS could not wake a request", process_name=process.name)
                else:
                    spent.append((process, first))
        clear_until = min(until, self.clock() + _CLEAR_SECONDS)
        for process, first in spent:
            if self.clock() >= clear_until:
                break
            with report.guard("Could not clear a registration", process_name=process.name):
                self.slots.clear(process.name, first, self.clock())
            self._wake([process], report)

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
                        if self._is_settled(held, report) and self._dead.cancel(held, report):
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

    def _is_settled(self, held: Held, report: RunReport) -> bool:
        """Settle the request of a reservation whose caller waits: only the holder is sure to have the token."""
        return not held.holder.task_token or self.settlement.settle_dead(held.name, held.holder, None, report)

    def _closed(self, doubtful: Sequence[Held], until: float) -> dict[str, Execution]:
        """Return the closed executions that this run has listed, by name."""
        closed = self.settlement.closed
        unknown = {held.name for held in doubtful} - set(closed)
        if len(unknown) <= _LIST_FROM_HOLDERS:
            return closed
        closed = dict(closed)
        since = min(held.holder.since for held in doubtful if held.name in unknown)
        for listed, execution in enumerate(self.workflow.unsuccessful(since), start=1):
            closed[execution.name] = execution
            unknown.discard(execution.name)
            if not unknown or (listed % 1000 == 0 and self.clock() >= until):
                break
        return closed

    def _wake(self, processes: Iterable[Process], report: RunReport, until: float = math.inf) -> None:
        for name in {process.name: None for process in processes}:
            if self.clock() >= until:
                break
            try:
                if wake_next(self.slots, self.queue, name, self.clock()):
                    report.note("WaitingWoken", "Woke a request that waited at a free slot", process_name=name)
            except Exception as error:
                report.failed("Could not wake a waiting request", error, process_name=name)
                if is_outage(error):
                    break

    def _drop_cancellations(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        with report.guard("Could not remove expired cancellations"):
            for process in processes:
                if process.cancelled and self.clock() < until:
                    self.processes.cancellations.drop_expired(process.name, process.cancelled, self.clock())

    def _note_lost(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Note the waiting requests that have lost their messages, because RequestQueue is empty.

        A message's own end removes its name from the item before the message leaves the queue. So a name that was read
        before the count, and is unchanged after it, is that of a message that nothing has handled.
        """
        overdue = [(process, each) for process in processes for each in process.overdue(self.clock())]
        if not overdue or self.clock() >= until:
            return
        with report.guard("Could not check if the messages of waiting requests still exist", requests=len(overdue)):
            if self.queue.is_empty():
                for process, gone in overdue:
                    if self.clock() < until:
                        self.slots.lost.lose(process, gone, self.clock())

    def _report_lost(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Report the lost requests that have no execution, and drop the notes of those that were sent again."""
        noted = [(process, name) for process in processes for name in process.lost]
        self.shuffle(noted)
        noted.sort(key=lambda each: each[0].lost[each[1]].reported is not None)
        for process, name in noted[:_LOST_CHECKS]:
            if self.clock() >= until:
                break
            with report.guard("Could not check a lost request", process_name=process.name, execution=name):
                self._report_one(process, name, report)

    def _report_one(self, process: Process, name: str, report: RunReport) -> None:
        lost = process.lost[name]
        waits = any(each.execution == name for each in process.named.values())
        known = waits or name in process.holders or name in process.cancelled
        match judge_lost(lost, known or self.workflow.describe(name) is not None, self.clock()):
            case LostVerdict.DROP:
                self.slots.lost.drop(process.name, name)
            case LostVerdict.REPORT:
                if self.slots.lost.mark_reported(process.name, name, self.clock()):
                    report.note(
                        "RequestsLost",
                        "RequestQueue no longer has the message of a waiting request, which was not started; unless "
                        "SQS has moved it to RequestDeadLetterQueue, send it again with its arguments",
                        process_name=process.name,
                        request_id=lost.request_id,
                        execution=name,
                        priority=lost.priority,
                        sent_at=lost.since,
                        send_again=send_again(process.name, name, lost) or "its caller must repeat it",
                    )


_KEY = {"execution_name": {"S": "#run"}}
TAKE_CONDITION = "attribute_not_exists(execution_name) OR held_until < :now"
RETURN_CONDITION = "code = :code"


class RunLease:
    """A lease that allows one run of the janitor at a time. Errors of DynamoDB pass through.

    The lease is the item "#run" of SettledTable, with a code and an end. A run takes it by one conditional write and
    returns it when it ends. If a run is killed, its lease ends when Lambda would have stopped it: at the invocation's
    deadline plus CLOCK_SKEW_SECONDS.

    Overlapping runs would be safe, because each step is conditional. But they would do the same work twice and use the
    same quotas. Reserved concurrency of 1 has the same effect, but an account with a concurrency limit of 10 cannot
    reserve any (Lambda API Reference, PutFunctionConcurrency).

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        clock: Callable[[], float] = time.time,
        new_code: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._table = Table(dynamodb, table_name, "execution_name")
        self._clock = clock
        self._new_code = new_code
        self._code = ""

    def take(self, seconds_left: float) -> bool:
        """Take the lease; False if another run holds it.

        Args:
            seconds_left: seconds until Lambda stops this invocation.
        """
        now = self._clock()
        self._code = self._new_code()
        write = self._put(now + seconds_left + CLOCK_SKEW_SECONDS, TAKE_CONDITION, {":now": number(int(now))})
        # After a lost answer botocore retries the call, and the item that it wrote itself refuses the retry.
        return write.held or write.item.get("code") == {"S": self._code}

    def release(self) -> None:
        """Return the lease, if this run still holds it."""
        self._put(0, RETURN_CONDITION, {":code": {"S": self._code}})

    def _put(self, until: float, condition: str, values: dict[str, Any]) -> Write:
        return self._table.put({**_KEY, "code": {"S": self._code}, "held_until": number(int(until))}, condition, values)
