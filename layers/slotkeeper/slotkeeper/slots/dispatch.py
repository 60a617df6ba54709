"""Dispatch: reads a process and its queue, plans who starts next, reserves their slots, and starts their workflows.

It is the only code that grants slots to requests. Each event that may allow a start is followed by a dispatch that
begins after it, so several may run at the same time, and one may die at each call:

1. It reads the process's item. If nothing can start or leave, it ends here.
2. After that, it reads the queue. What was released before the first read is then no longer queued.
3. `plan` decides (plan.py).
4. Requests that leave the queue without a start do so first, in one transaction. Then from 1 again.
5. One conditional write reserves a slot for each request that starts: all, or none (grants.py). After a refusal, from
   the returned item again.
6. It starts their workflows, and marks each start. A reservation without a start is put back, or ended. One whose start
   is uncertain stays, until a dispatch finds that it is older than any invocation can be, and starts it again by name.

A dispatch ends after a grant, because each change since its reads has a dispatch of its own. It only continues if
it changed something itself: a reservation was removed, a request left, a lease was removed, or more could start than
one write may add, or if it could not read all that it must know. What it leaves, a ring continues, from the place in
the queue up to which nothing can start: what changes in that part meanwhile has a dispatch of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots.doorbell import MAX_DELAY_SECONDS, Bell, Doorbell
from slotkeeper.slots.grants import GrantMade, GrantRefused, Grants
from slotkeeper.slots.plan import LOOK_AHEAD_SECONDS, MAX_STARTS, Leave, Plan, orphans, plan, plan_queue
from slotkeeper.slots.process import MAX_SLOT_LIMIT, MalformedProcess, Process
from slotkeeper.slots.queued import QueuePart
from slotkeeper.slots.request_table import MAX_LEAVES, Leaving, QueuedBody, RequestTable
from slotkeeper.slots.starts import AGE_SECONDS, ReservationStarter, Reserved, Settled

# Refused grants after which a dispatch rings and ends. A refused write is billed in full (DynamoDB guide, "Read and
# write operations"), and each refusal means that another dispatch has granted.
MAX_REFUSALS = 5
MAX_ROUNDS = 20
# Executions that one dispatch starts. StartExecution admits some hundred in a burst, and then 150 to 300 a second,
# which the account's other executions share (Step Functions guide, "Quotas related to API action throttling").
MAX_EXECUTIONS = 100
# Seconds that an invocation keeps for the calls of a round.
RESERVE_SECONDS = 15
FIRST_WAIT_SECONDS = 0.025
AFTER_REFUSALS_SECONDS = 1
AFTER_THROTTLE_SECONDS = 2


class DispatchFailed(RuntimeError):
    """A dispatch has ended early. Its writes stay, and the cause is this error's cause.

    Attributes:
        report: its work so far.
        again_after: seconds after which its message, or a ring, must come. If it leaves reservations that it has not
            settled, that is when each dispatch sees that they are old, although a holder's time is in whole seconds and
            clocks differ; otherwise 0.
    """

    def __init__(self, report: Report, unsettled: bool, age: float) -> None:
        super().__init__("a dispatch has failed" + (", and left reservations" if unsettled else ""))
        self.report = report
        self.again_after = age + 1 + CLOCK_SKEW_SECONDS if unsettled else 0


class StartsUncertain(RuntimeError):
    """Of some requests it is not known whether they were started. Their reservations stay."""


@dataclass
class Report:
    """The report of a dispatch.

    Attributes:
        started: execution -> the parts read of its row.
        is_homeless: whether the process does not exist.
    """

    started: dict[str, QueuedBody] = field(default_factory=dict)
    left: list[Leaving] = field(default_factory=list)
    put_back: list[str] = field(default_factory=list)
    refused_grants: int = 0
    is_homeless: bool = False


@dataclass(frozen=True)
class Tools:
    """What dispatches work with. They live as long as their container.

    Attributes:
        age: seconds after which no invocation can still be starting what it has granted.
        clock: seconds since the epoch.
        seconds_left: of the invocation.
    """

    grants: Grants
    requests: RequestTable
    starter: ReservationStarter
    doorbell: Doorbell
    age: float = AGE_SECONDS
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[float, float], float] = random.uniform
    seconds_left: Callable[[], float] = lambda: float("inf")


def dispatch(tools: Tools, bell: Bell, *, leavers: bool = False) -> Report:
    """Start what can start of a process, and end what must leave its queue.

    Args:
        leavers: whether a request of the batch may have to leave the queue: it skips, or states a time. A timed ring
            looks for such requests in any case.

    Raises:
        DispatchFailed: a call failed, or it is not known whether a request was started.
        MalformedProcess: the process's item is malformed. Its requests wait.
    """
    started = _Dispatch(tools, bell, leavers or bell.at is not None)
    try:
        return started.run()
    except MalformedProcess:
        raise
    except Exception as error:
        raise DispatchFailed(started.report, started.is_unsettled, tools.age) from error


class _Dispatch:
    """One dispatch of one process."""

    def __init__(self, tools: Tools, bell: Bell, leavers: bool) -> None:
        self.tools, self.bell, self.leavers = tools, bell, leavers
        self.report = Report()
        self.unsure: list[str] = []
        self.tried: set[str] = set()  # old reservations
        self.is_unsettled = False
        self.passed = bell.passed

    def run(self) -> Report:
        tools, at = self.tools, self.bell.at
        if at is not None:  # SQS delays by whole seconds
            tools.sleep(max(0.0, min(1.0, at - tools.clock())))
        seen = tools.grants.read(self.bell.process)
        for _ in range(MAX_ROUNDS):
            if tools.seconds_left() < RESERVE_SECONDS or len(self.report.started) >= MAX_EXECUTIONS:
                break
            again, seen = self._round(seen)
            if not again:
                return self._end()
        self._ring()
        return self._end()

    def _end(self) -> Report:
        if self.unsure:
            self.is_unsettled = True
            raise StartsUncertain(f"it is not known whether {', '.join(self.unsure)} was started")
        return self.report

    def _round(self, seen: Process | None) -> tuple[bool, Process | None]:
        """One round, from a process's item: whether another must follow, and from which item."""
        tools, now = self.tools, self.tools.clock()
        if seen is None or seen.target == NO_TARGET:
            return self._reject(seen, now), tools.grants.read(self.bell.process)
        if expired := next(iter(seen.expired_leases(now)), None):
            tools.grants.expire(seen, expired)
            return True, tools.grants.read(seen.name)
        if not self._may_change(seen, now):
            return False, seen
        most = min(MAX_STARTS, MAX_EXECUTIONS - len(self.report.started))
        planned = self._plan(seen, now, most)
        if planned.leaves:
            leavings = [_leaving(leave) for leave in planned.leaves]
            self.passed = None  # each may have kept back others of its key
            self.report.left += tools.requests.leave(seen.name, leavings, now)
            return True, tools.grants.read(seen.name)
        granted = GrantMade(seen.grants)
        if planned.starts:
            self.is_unsettled = True
            write = tools.grants.grant(seen, planned.starts, planned.next_start, now, planned.after_keys)
            self.is_unsettled = False
            if isinstance(write, GrantRefused):
                self.unsure += write.unsure
                return self._after_refusal(), write.seen
            granted = write
        again = [name for name in planned.again if name not in self.tried][:MAX_STARTS]
        settled = self._start(seen, planned, again, granted, now)
        # A reservation that was removed may have filled the limit of a key.
        self.passed = None if settled.removed or settled.not_started else planned.unread
        if settled.not_started:
            self._ring(delay=AFTER_THROTTLE_SECONDS)
            return False, seen
        if settled.unsure:  # Step Functions may be down: no more reservations than these
            return False, seen
        if planned.unread or settled.removed or len(planned.starts) == most or len(again) == MAX_STARTS:
            return True, tools.grants.read(seen.name)
        self._look_again(seen, planned.look_again, now)
        return False, seen

    def _may_change(self, seen: Process, now: float) -> bool:
        """Whether the queue can contain anything to do. A read of it costs more than that of the item."""
        if seen.room > 0 and not seen.paused:
            return True
        return (
            self.leavers
            or bool(orphans(seen, now, self.tools.age))
            or any(holder.is_lease for holder in seen.holders.values())
        )

    def _plan(self, seen: Process, now: float, most: int) -> Plan:
        """The plan of the queue, which is read as far as the first request that cannot start.

        If that is too far for one round, the next one continues behind what this one has passed.
        """
        requests, age = self.tools.requests, self.tools.age
        read = partial(requests.queue, seen.name, seen.slot_limit)
        planned, parts = plan_queue(read, seen, now, age=age, most=most, passed=self.passed)
        if not self.leavers:
            return planned
        # After the queue, so that none of these has left it. The query of the queue leaves out most that are blocked.
        parts.add(QueuePart(requests.due(seen.name, now + LOOK_AHEAD_SECONDS), "", ""))
        return plan(seen, parts.requests, now, age=age, most=most, parts=parts)

    def _start(self, seen: Process, planned: Plan, again: list[str], granted: GrantMade, now: float) -> Settled:
        fresh = {start.execution: start.weight for start in planned.starts}
        old = {name: seen.holders[name].weight for name in again}
        if not fresh and not old:
            return Settled()
        self.tried.update(again)
        self.is_unsettled = bool(fresh)
        settled = self.tools.starter.start(Reserved(seen.name, fresh, old, granted.grants, now))
        self.is_unsettled = False
        self.unsure += settled.unsure
        self.report.started |= settled.started
        self.report.put_back += settled.put_back
        self.report.left += settled.rejected
        return settled

    def _after_refusal(self) -> bool:
        """Whether to plan again after a refused grant. After some, a ring does."""
        self.report.refused_grants += 1
        if self.report.refused_grants >= MAX_REFUSALS:
            self._ring(delay=AFTER_REFUSALS_SECONDS)
            return False
        self.tools.sleep(self.tools.jitter(0, FIRST_WAIT_SECONDS * 2**self.report.refused_grants))
        return True

    def _reject(self, seen: Process | None, now: float) -> bool:
        """End the queued requests of a process that does not exist or runs none; whether there were any.

        If they have not ended, the process has changed: an operator has added it again, or given it a target.

        Those that have a holder end with their work.
        """
        process, requests = self.bell.process, self.tools.requests
        code, reason = ("UnknownProcess", _UNKNOWN) if seen is None else ("LeasesOnly", _LEASES_ONLY)
        held = seen.holders if seen else {}
        page = requests.queue(process, MAX_SLOT_LIMIT, most=len(held) + MAX_LEAVES).requests
        homeless = [each.execution for each in page if each.execution not in held]
        leavings = [Leaving(name, "REJECTED", code, reason.format(process)) for name in homeless]
        ended = requests.end_homeless(process, leavings, now, exists=seen is not None)
        self.report.left += ended
        self.report.is_homeless = seen is None
        return bool(leavings)

    def _look_again(self, seen: Process, at: float | None, now: float) -> None:
        """Ring at a time at which something changes without a write, unless such a ring is under way.

        First the ring, then the note: a note without a ring would suppress the rings of others. The ring that caused
        this dispatch is under way no more, although by this machine's clock it may be early.
        """
        if at is None or (now < seen.ring_at <= at and seen.ring_at != self.bell.at):
            return
        self.tools.doorbell.ring(Bell(seen.name, at=at), min(MAX_DELAY_SECONDS, at - now))
        self.tools.grants.note_ring(seen.name, at)

    def _ring(self, delay: float = 0) -> None:
        """Leave the rest to another dispatch, which looks for requests that may have to leave if this one does."""
        at = self.tools.clock() + delay if self.leavers else None
        self.tools.doorbell.ring(Bell(self.bell.process, at, self.bell.count + 1, self.passed), delay)


_UNKNOWN = "process {!r} does not exist. Add it with slotkeeper process add, then send the request again"
_LEASES_ONLY = "process {!r} is for leases only: it has no target, and runs no request"


def _leaving(leave: Leave) -> Leaving:
    if leave.end == "SKIPPED":
        return Leaving(leave.execution, leave.end, "Skipped", "it could not start when it was received")
    return Leaving(leave.execution, leave.end, "TooLate", "its start_before has passed")
