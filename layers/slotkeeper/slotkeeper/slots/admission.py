"""What the starter does with one message: set it aside, make it wait, or start its workflow.

The order of the steps is the protocol's. In particular:

- register as waiting, *then* hide. The other way round, a slot that frees between the two finds nobody to wake, and the
  message sleeps on beside a free slot.
- look once more after hiding. A wake that came between the registration and the hide made the message visible, and a
  hide that SQS still accepts would undo it. So would a cancellation be that came between: its operator wakes too.
- a crash anywhere leaves the message to the queue's default visibility, and a reservation to "already mine". After an
  error the message comes back sooner: nothing wakes it, its whole group waits behind it, and the janitor frees an
  unused reservation after its grace time.
- cancel a reservation only if nothing can confirm it any more, or if this very call made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from slotkeeper.slots.executions import AlreadyRan, NameTaken, Started, StartRejected, StartUnavailable, Workflow
from slotkeeper.slots.protocol import (
    AlreadyHeld,
    Cancelled,
    Full,
    Granted,
    Misconfigured,
    Paused,
    Registration,
    Slots,
    UnknownProcess,
)
from slotkeeper.slots.queues import MAX_HIDE_SECONDS, RequestQueue, backoff_seconds, hide_seconds, wake_next
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request

# Each further round needs somebody else to take the room that the round before has seen: one waiter a group, so rare.
_MAX_RESERVES = 5
# For receives that end before they get here: a crash, a time-out.
_SPARE_RECEIVES = 20
# Seconds before the end of the queue's retention at which a waiting request expires. Those behind it may be of the same
# burst: SQS deletes them at the end, and each must be received and dead-lettered by itself before that. For 120,000 of
# them a day is 0.7 s each. A queue should hold fewer: SQS looks for groups among the first 120,000 messages (SQS guide,
# "Avoid large message backlogs with the same message group ID"), and RequestBacklogAlarm rings at half of that.
EXPIRES_BEFORE = 86_400
# After an error, which may pass, and may have started the workflow: two of the longest waits.
_ERROR_EXPIRES_BEFORE = 2 * MAX_HIDE_SECONDS


@dataclass(frozen=True)
class Admitted:
    """The workflow runs; the message is done with."""

    execution: str
    process: str


@dataclass(frozen=True)
class Repeated:
    """The request has run before: a very late redelivery, or a request id used again within 90 days."""

    execution: str
    process: str


@dataclass(frozen=True)
class DeadLettered:
    """The message is in the dead-letter queue with `code` and `reason`. `request`: what it asked for, if it was one."""

    code: str
    reason: str
    request: Request | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Waiting:
    """No slot; the message is hidden and will be woken."""

    process: str
    because: str
    waited: float


@dataclass(frozen=True)
class Deferred:
    """Something that is not the message's fault; it comes back by itself after a backoff. An operator should check."""

    process: str
    reason: str


Admission = Admitted | Repeated | DeadLettered | Waiting | Deferred


@dataclass(frozen=True)
class Starter:
    """Admits messages, one at a time.

    Args:
        queue_visibility: the queue's default visibility timeout, seconds.
        queue_retention: for how long the queue keeps a message, seconds.
        queue_max_receives: after how many receives the queue moves a message to its dead-letter queue by itself.
        on_request: told what was asked for, once a message could be read.
    """

    slots: Slots
    queue: RequestQueue
    workflow: Workflow
    queue_visibility: int
    queue_retention: int
    queue_max_receives: int
    on_request: Callable[[Request], None] = lambda _: None

    def admit(self, delivery: Delivery, now: float) -> Admission:
        """Does what the protocol says with one delivery. `now` is in seconds since the epoch.

        Raises:
            ClientError, BotoCoreError: a call failed or its answer was lost. Whatever was reserved stays reserved and
                is found by the next delivery. The caller calls `defer`, and reports the message as it answers.
        """
        try:
            request = parse_request(delivery)
        except InvalidRequest as error:
            return self._dead_letter(delivery, "InvalidRequest", str(error))
        self.on_request(request)

        for _ in range(_MAX_RESERVES):
            reservation = self.slots.reserve(request.process, request.execution_name, now)
            match reservation:
                case Granted() | AlreadyHeld():
                    return self._start(delivery, request, now, made_here=isinstance(reservation, Granted))
                case UnknownProcess():
                    reason = f"process {request.process!r} does not exist: there is no such item in the slot table"
                    return self._dead_letter(delivery, "UnknownProcess", reason, request)
                case Cancelled(since, by):
                    reason = f"cancelled{by and f' by {by}'} at {datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%SZ}"
                    return self._dead_letter(delivery, "Cancelled", reason, request)
                case Misconfigured(reason):
                    reason = f"the item of process {request.process!r} is malformed: {reason}"
                    return self._defer(delivery, now, request, reason)
                case Full() | Paused():
                    because = type(reservation).__name__.lower()
                    if overdue := self._overdue(delivery, now):
                        return self._dead_letter(delivery, "Expired", f"{overdue}: {because}", request)
                    if not self._wait(request, delivery, now):
                        return Waiting(request.process, because, now - delivery.sent_at)

        self.queue.make_visible(delivery.receipt_handle)
        return Waiting(request.process, "contended", now - delivery.sent_at)

    def _wait(self, request: Request, delivery: Delivery, now: float) -> bool:
        """Registers and hides the message; True if it need not wait any more, so that the caller reserves once more."""
        if self.slots.wait(request.process, request.execution_name, delivery) is Registration.RESERVE_AGAIN:
            return True
        self.queue.hide(delivery, hide_seconds(now - delivery.sent_at, self.queue_visibility))
        return self.slots.can_proceed(request.process, request.execution_name)

    def defer(self, delivery: Delivery, now: float, error: Exception) -> DeadLettered | Deferred:
        """After `admit` raised `error`: lets the message come back soon, or dead-letters it before SQS does so itself.

        What SQS moves after too many receives has no reason, and what it deletes at the end of the retention is lost.

        Raises:
            ClientError, BotoCoreError: that failed too. The message comes back after the queue's default visibility.
        """
        try:
            request = parse_request(delivery)
        except InvalidRequest:
            request = None
        reason = f"{type(error).__name__}: {error}; its workflow may have started: slotkeeper request show"
        return self._defer(delivery, now, request, reason, _ERROR_EXPIRES_BEFORE)

    def _start(self, delivery: Delivery, request: Request, now: float, *, made_here: bool) -> Admission:
        match self.workflow.start(request):
            case Started():
                return Admitted(request.execution_name, request.process)
            case AlreadyRan():
                # Whichever made the reservation: the execution of this name has closed, and there will be no other,
                # so nothing can confirm it. A message that came again between its workflow's release and end made it.
                self._release(delivery, request)
                return Repeated(request.execution_name, request.process)
            case NameTaken(is_open):
                # A reservation that was there before may be the open execution's, which has not confirmed it yet.
                if made_here or not is_open:
                    self._release(delivery, request)
                reason = (
                    f"request_id {request.request_id!r} belongs to another request, which "
                    f"{'runs' if is_open else 'ran'} with other arguments as {request.execution_name}: a request_id "
                    "and attempt are used once in 90 days. Send this request again with a request_id of its own"
                )
                return self._dead_letter(delivery, "RequestIdReused", reason, request)
            case StartRejected(reason):
                self._release(delivery, request)
                return self._dead_letter(delivery, "InvalidExecution", reason, request)
            case StartUnavailable(reason):
                self._release(delivery, request)
                return self._defer(delivery, now, request, f"the workflow cannot be started: {reason}")

    def _release(self, delivery: Delivery, request: Request) -> None:
        self.slots.cancel(request.process, request.execution_name)
        wake_next(self.slots, self.queue, request.process, but_not=delivery)

    def _defer(
        self, delivery: Delivery, now: float, request: Request | None, reason: str, margin: int = EXPIRES_BEFORE
    ) -> DeadLettered | Deferred:
        """Leaves a message for later that would run into the same trouble now.

        For the queue's default visibility at most: nothing wakes it when the trouble is over, and its whole group waits
        behind it.
        """
        if overdue := self._overdue(delivery, now, margin):
            return self._dead_letter(delivery, "Expired", f"{overdue}: {reason}", request)
        self.queue.hide(delivery, backoff_seconds(delivery.receives, self.queue_visibility))
        return Deferred(request.process if request else delivery.group_id, reason)

    def _overdue(self, delivery: Delivery, now: float, margin: int = EXPIRES_BEFORE) -> str:
        """Why the message must not wait on, or nothing: SQS would delete it, or set it aside without a reason."""
        waited = int(now - delivery.sent_at)
        if waited > self.queue_retention - margin:
            return f"waited {waited} s, to the end of the queue's retention"
        if delivery.receives >= self.queue_max_receives - _SPARE_RECEIVES:
            return f"received {delivery.receives} times, as often as the queue allows"
        return ""

    def _dead_letter(self, delivery: Delivery, code: str, reason: str, request: Request | None = None) -> DeadLettered:
        self.queue.dead_letter(delivery, code, reason)
        return DeadLettered(code, reason, request)
