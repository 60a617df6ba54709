"""Admission: the starter dead-letters or skips a message, lets it wait for a slot, or starts its workflow.

The order of the steps matters:

- Register the waiting message first, then hide it. In the other order a wake can be lost:
  1. The starter hides the message.
  2. A workflow releases a slot, finds no registration, and wakes no request.
  3. The starter registers the message, which stays hidden although a slot is free.
- Read the process again after hiding. Without this read a wake can be undone:
  1. The starter registers the message.
  2. A workflow releases a slot and makes the message visible. An operator who cancels a request does the same.
  3. The starter hides the message, which SQS still accepts.
- After a crash at any step, the message comes back after the queue's default visibility timeout, and the next delivery
  finds the reservation (AlreadyHeld). After an error the starter sets a shorter timeout: no wake comes for the message,
  its whole group waits behind it, and the janitor frees an unused reservation after its grace time.
- A request that only the rate refuses is hidden until a start is due, rounded down to a second. For the rest of that
  second the starter waits, after it has registered the message, and then reserves as of the time that was due: then no
  delay adds up from start to start. No wake is needed, and one that comes sets the same time.
- Cancel a reservation only if no workflow can confirm it, or if this call made it.

A registered message keeps lower priorities out. So each end of it also wakes the next request:

- A grant wakes, unless the message was never registered, at this or an earlier receive. Then no request can be hidden
  because of it. Without this wake:
  1. A release wakes the registered request of high priority, although two slots are free.
  2. The starter is granted one. The registered request of low priority stays hidden, and the other slot free.
- A dead-lettered message's registration ends, and the next request is woken, before the message is deleted.

A request that is refused next to an expired lease removes it, reserves again, and wakes the next request: the slot may
be for that one, or for both. A refused message is hidden no longer than until the first of the leases can expire.

A function that dies before such a wake leaves it to the redelivery, after the queue's default visibility timeout at
most.

A request with `when_busy: "skip"` is never registered, so it keeps no other request out. Its note precedes the event
and the answer: a message that comes back after a crash is skipped again, although a slot may be free by then. A request
whose `start_before` has passed reserves no slot. Before either end the starter reads the execution of the request's
name: what has started is neither skipped nor too late.

The caller of a dead-lettered or skipped request is answered last, and in one attempt: neither the dead-letter message
nor the wake waits for the answer. A caller that does not receive it times out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from slotkeeper.slots.callers import AnswerOutcome
from slotkeeper.slots.executions import (
    AlreadyRan,
    NameTaken,
    Started,
    StartOutcome,
    StartRejected,
    StartUnavailable,
    Workflow,
)
from slotkeeper.slots.process import MAX_HIDE_SECONDS, MAX_REMOVALS, Process
from slotkeeper.slots.protocol import (
    AlreadyHeld,
    Cancelled,
    Candidate,
    Full,
    Granted,
    HeldByAnother,
    LeasesOnly,
    Misconfigured,
    Paused,
    Registration,
    Reservation,
    Slots,
    UnknownProcess,
)
from slotkeeper.slots.queues import RequestQueue, backoff_seconds, hide_seconds, wake_next
from slotkeeper.slots.request import Delivery, InvalidRequest, Request, parse_request, process_of, token_of
from slotkeeper.slots.skipped_requests import SkippedRequests

# A further reserve is needed only if another request took the slot that this one saw free. That is rare, because only
# the head of each process's group tries.
_MAX_RESERVES = 5
# Receives that end before the count is checked: a crash, a timeout.
_SPARE_RECEIVES = 20
# Receives up to which a message is hidden no longer than until the next lease can expire. Leases that are extended for
# days would otherwise use up the receives, of which hide_seconds needs 700. Later, the janitor removes expired leases.
_LEASE_RECEIVES = 200
# Seconds before the end of the queue's retention at which a waiting request expires. The requests behind it may be of
# the same age, and each must be received and dead-lettered before SQS deletes it. For 120,000 requests, one day is
# 0.7 s each. A queue should hold fewer: SQS looks for groups among the first 120,000 messages (SQS guide, "Avoid large
# message backlogs with the same message group ID"), and RequestBacklogAlarm rings at half of that.
EXPIRES_BEFORE = 86_400
# The same after an error, which may be temporary, and may have started the workflow: two of the longest waits.
_ERROR_EXPIRES_BEFORE = 2 * MAX_HIDE_SECONDS

# Why a request was refused a slot, for the log -> for the reason of a dead-letter message.
_CAUSES = {
    "blocked": "its weight is above the process's limit",
    "paused": "the process is paused",
    "full": "the process is full",
    "callers": "the task tokens of the requests that hold slots leave no space for its own in the process's item",
    "overtaken": "requests of a higher priority come first",
    "rate": "the process's rate permits no further start yet",
}


@dataclass(frozen=True)
class Admitted:
    """The workflow runs. The message can be deleted."""

    request: Request


@dataclass(frozen=True)
class Repeated:
    """The request has run before: a very late redelivery, or a request id that was reused within 90 days."""

    execution: str
    process: str


@dataclass(frozen=True)
class DeadLettered:
    """The message is in the dead-letter queue with `code` and `reason`.

    `request` is None if the body was not valid, `answered` if no caller waits.
    """

    code: str
    reason: str
    request: Request | None = field(default=None, compare=False)
    answered: AnswerOutcome | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Skipped:
    """The request could not start when it was received, and has ended. `answered`: as in DeadLettered."""

    request: Request
    reason: str
    answered: AnswerOutcome | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Waiting:
    """The request does not fit, or it is not its turn. The message is hidden until a wake.

    `because`: a key of _CAUSES, or "contended" if no attempt had an outcome that lasted.
    """

    request: Request
    because: str
    waited: float


@dataclass(frozen=True)
class Deferred:
    """The message cannot be handled now. SQS delivers it again after a backoff. An operator should check the reason."""

    process: str
    reason: str


Admission = Admitted | Repeated | DeadLettered | Skipped | Waiting | Deferred


@dataclass(frozen=True)
class Starter:
    """Admits messages, one at a time.

    Args:
        queue_visibility: the queue's default visibility timeout, seconds.
        queue_retention: the queue's retention period, seconds.
        queue_max_receives: the number of receives after which SQS moves a message to the dead-letter queue itself.
        on_request: receives each request that was parsed.
        answer: answers the caller of a dead-lettered or skipped request: task token, code and reason.
        sleep: for the part of a second until a process's rate permits the next start.
        clock: the time at which a message is hidden until a start is due.
    """

    slots: Slots
    queue: RequestQueue
    workflow: Workflow
    skipped: SkippedRequests
    queue_visibility: int
    queue_retention: int
    queue_max_receives: int
    on_request: Callable[[Request], None] = lambda _: None
    answer: Callable[[str, str, str], AnswerOutcome] | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def admit(self, delivery: Delivery, now: float) -> Admission:
        """Handle one delivery. `now` is in seconds since the epoch.

        Raises:
            ClientError, BotoCoreError: a call failed or its answer was lost. A reservation stays, and the next delivery
                finds it. The caller must call `defer` and act on its result.
        """
        try:
            request = parse_request(delivery)
        except InvalidRequest as error:
            return self._dead_letter(delivery, now, "InvalidRequest", str(error))
        self.on_request(request)

        if request.is_too_late(now):
            return self._too_late(delivery, request, now)
        if request.when_busy == "skip" and delivery.receives > 1:
            note = self.skipped.note_of(request.execution_name)
            if note and note.message_id == delivery.message_id:
                return self._skip_unless_started(delivery, request, note.reason, now)
        return self._reserve_and_start(delivery, request, now)

    def _reserve_and_start(self, delivery: Delivery, request: Request, now: float) -> Admission:
        candidate = Candidate.of(request, delivery)
        was_registered = delivery.receives > 1
        for _ in range(_MAX_RESERVES):
            reservation = self._reserve(candidate, now)
            match reservation:
                case Granted() | AlreadyHeld():
                    made_here = isinstance(reservation, Granted)
                    if was_registered and not made_here:
                        # Another message with this id may have made the reservation, which ended only its own wait.
                        self.slots.end_wait(candidate)
                    return self._start(delivery, request, now, made_here=made_here, was_registered=was_registered)
                case HeldByAnother() | UnknownProcess() | LeasesOnly() | Cancelled():
                    code, reason = _why_never(reservation, request)
                    return self._dead_letter(delivery, now, code, reason, request)
                case Misconfigured(reason):
                    reason = f"the slot table's item of process {request.process!r} is malformed: {reason}"
                    return self._defer(delivery, now, request, reason)
                case Full(seen) | Paused(seen):
                    because = _because(candidate, seen, now)
                    if request.when_busy == "skip":
                        reason = f"it could not start when it was received, since {_CAUSES[because]}"
                        return self._skip_unless_started(delivery, request, reason, now)
                    left = seen.seconds_until_due(now) if because == "rate" else 0.0
                    if overdue := self._overdue(delivery, now):
                        reason = f"{overdue}; {_CAUSES[because]}. Redrive this message to let it wait again"
                        return self._dead_letter(delivery, now, "Expired", reason, request)
                    was_registered = True
                    seconds = self._hide_seconds(delivery, request, seen, now, left)
                    registration = self.slots.wait(candidate, seen, now + seconds, is_early=left > 0)
                    if registration is Registration.SPENT:
                        break
                    if registration is Registration.REGISTERED and 0 < left < 1:
                        self.sleep(left)
                        now += left
                    elif registration is not Registration.RESERVE_AGAIN and self._hide(
                        candidate, delivery, now, seconds, is_early=left > 0
                    ):
                        return Waiting(request, because, now - delivery.sent_at)

        self.queue.make_visible(delivery.receipt_handle)
        return Waiting(request, "contended", now - delivery.sent_at)

    def _reserve(self, candidate: Candidate, now: float) -> Reservation:
        """Reserve a slot, also that of an expired lease."""
        reservation = self.slots.reserve(candidate, now)
        expired = reservation.seen.expired_leases(now) if isinstance(reservation, Full | Paused) else {}
        if not expired:
            return reservation
        for name, holder in islice(expired.items(), MAX_REMOVALS):
            # The answer does not matter: after a lost one botocore repeats the call, which then is refused.
            self.slots.release(candidate.process, name, holder.raw)
        reservation = self.slots.reserve(candidate, now)
        wake_next(self.slots, self.queue, candidate.process, now)
        return reservation

    def _skip_unless_started(self, delivery: Delivery, request: Request, reason: str, now: float) -> Admission:
        # Also of a message with a note, which may have arrived late, after the message's next receive had started it.
        if started := self.workflow.find(request):
            return self._conclude(started, delivery, request, now, made_here=False, was_registered=False)
        self.skipped.add_note(request, delivery, reason, now)
        return Skipped(request, reason, self._answer(delivery, "Skipped", reason))

    def _too_late(self, delivery: Delivery, request: Request, now: float) -> Admission:
        """Dead-letter a request whose `start_before` has passed, unless it has started."""
        started = self.workflow.find(request)
        if started is None:
            # Of a starter that died, or lost an answer, before it started the workflow. If that arrives all the same,
            # it cannot confirm its slot, and returns the request, which is then too late too.
            self.slots.cancel(request.process, request.execution_name)
            seen = self.slots.read(request.process)
            if seen is None or request.execution_name not in seen.holders:
                reason = f"start_before was {request.start_before}, and the request had not started by then"
                return self._dead_letter(delivery, now, "TooLate", reason, request)
            started = Started()  # its workflow has confirmed the slot, and is not described yet
        candidate, was_registered = Candidate.of(request, delivery), delivery.receives > 1
        if was_registered:
            self.slots.end_wait(candidate)
        return self._conclude(started, delivery, request, now, made_here=False, was_registered=was_registered)

    def _hide_seconds(self, delivery: Delivery, request: Request, seen: Process, now: float, left: float) -> int:
        """`left`: the seconds until a start is due, if only the rate refused it, otherwise 0.0."""
        if left:  # of less than a second the starter is the timer, and if it dies, the queue's default
            seconds = min(int(left), MAX_HIDE_SECONDS) or self.queue_visibility
            return _until_deadline(request, seconds, now)
        seconds = hide_seconds(now - delivery.sent_at, self.queue_visibility)
        if delivery.receives <= _LEASE_RECEIVES and (expiry := seen.next_expiry) is not None:
            seconds = min(seconds, max(1, math.ceil(expiry - now)))
        return _until_deadline(request, seconds, now)

    def _hide(self, candidate: Candidate, delivery: Delivery, now: float, seconds: int, *, is_early: bool) -> bool:
        """Hide a registered message; False if it can proceed, so that the caller reserves again."""
        # A start becomes due at a time of the clock. The calls since `now` may have been slow.
        passed = max(0, int(self.clock() - now)) if is_early else 0
        self.queue.hide(delivery, max(0, seconds - passed))
        return not self.slots.can_proceed(candidate, now + seconds)

    def defer(self, delivery: Delivery, now: float, error: Exception) -> DeadLettered | Deferred:
        """After `admit` raised `error`: shorten the message's visibility timeout, or dead-letter it.

        It is dead-lettered before SQS would move it without a reason after too many receives, or would delete it at the
        end of its retention.

        Raises:
            ClientError, BotoCoreError: a call failed. The message comes back after the queue's default visibility
                timeout.
        """
        try:
            request = parse_request(delivery)
        except InvalidRequest:
            request = None
        reason = f"{type(error).__name__}: {error}. The workflow may have started; check with slotkeeper explain"
        return self._defer(delivery, now, request, reason, _ERROR_EXPIRES_BEFORE)

    def _start(
        self, delivery: Delivery, request: Request, now: float, *, made_here: bool, was_registered: bool
    ) -> Admission:
        outcome = self.workflow.start(request)
        return self._conclude(outcome, delivery, request, now, made_here=made_here, was_registered=was_registered)

    def _conclude(
        self,
        outcome: StartOutcome,
        delivery: Delivery,
        request: Request,
        now: float,
        *,
        made_here: bool,
        was_registered: bool,
    ) -> Admission:
        match outcome:
            case Started():
                if was_registered:
                    self._wake(request, now)
                return Admitted(request)
            case AlreadyRan():
                # Safe whether this call or an earlier one made the reservation: the execution of this name has closed
                # and no other can start, so no workflow can confirm it. Such a reservation is made when the message
                # comes again between its workflow's release and its end.
                self._release(request, now)
                return Repeated(request.execution_name, request.process)
            case NameTaken(is_open):
                # An earlier reservation may belong to the open execution, which has not confirmed it yet.
                if made_here or not is_open:
                    self._release(request, now)
                reason = (
                    f"request_id {request.request_id!r} is already used by another request, which "
                    f"{'runs' if is_open else 'ran'} with other arguments as {request.execution_name}. A request_id "
                    "must be unique for 90 days. Send this request again with a new request_id"
                )
                return self._dead_letter(delivery, now, "RequestIdReused", reason, request)
            case StartRejected(reason):
                self._release(request, now)
                return self._dead_letter(delivery, now, "InvalidExecution", reason, request)
            case StartUnavailable(reason):
                self._release(request, now)
                return self._defer(delivery, now, request, f"the workflow cannot be started: {reason}")

    def _release(self, request: Request, now: float) -> None:
        self.slots.cancel(request.process, request.execution_name)
        self._wake(request, now)

    def _wake(self, request: Request, now: float) -> None:
        wake_next(self.slots, self.queue, request.process, now)

    def _defer(
        self, delivery: Delivery, now: float, request: Request | None, reason: str, margin: int = EXPIRES_BEFORE
    ) -> DeadLettered | Deferred:
        """Hide a message that cannot be handled now, or dead-letter it if it has expired.

        Hidden for at most the queue's default visibility timeout: no wake comes when the problem has ended, and the
        whole group waits behind the message.
        """
        if overdue := self._overdue(delivery, now, margin):
            return self._dead_letter(delivery, now, "Expired", f"{overdue}: {reason}", request)
        seconds = backoff_seconds(delivery.receives, self.queue_visibility)
        self.queue.hide(delivery, _until_deadline(request, seconds, now) if request else seconds)
        return Deferred(process_of(delivery.group_id), reason)

    def _overdue(self, delivery: Delivery, now: float, margin: int = EXPIRES_BEFORE) -> str:
        """Why the message must not wait longer, or "": SQS would delete it, or dead-letter it without a reason."""
        waited = int(now - delivery.sent_at)
        if waited > self.queue_retention - margin:
            return f"waited {waited} s, nearly the queue's retention of {self.queue_retention} s"
        if delivery.receives >= self.queue_max_receives - _SPARE_RECEIVES:
            return f"received {delivery.receives} times, nearly the queue's maximum of {self.queue_max_receives}"
        return ""

    def _dead_letter(
        self, delivery: Delivery, now: float, code: str, reason: str, request: Request | None = None
    ) -> DeadLettered:
        self.queue.dead_letter(delivery, code, reason)
        if request:
            self.slots.end_wait(Candidate.of(request, delivery))
            self._wake(request, now)
        return DeadLettered(code, reason, request, self._answer(delivery, code, reason))

    def _answer(self, delivery: Delivery, code: str, reason: str) -> AnswerOutcome | None:
        token = token_of(delivery.body)
        return self.answer(token, code, reason) if token and self.answer else None


def _until_deadline(request: Request, seconds: int, now: float) -> int:
    """At most the seconds until `start_before`, when the message must be received again.

    After it, an error must not be repeated each second: that would use up the receives.
    """
    deadline = request.deadline
    return seconds if deadline is None or now >= deadline else min(seconds, math.ceil(deadline - now))


def _why_never(refused: HeldByAnother | UnknownProcess | LeasesOnly | Cancelled, request: Request) -> tuple[str, str]:
    """The code and the reason of the dead-letter message of a request that would never be granted a slot."""
    match refused:
        case HeldByAnother(weight):
            return "RequestIdReused", (
                f"request_id {request.request_id!r} is already used by another request, which holds a slot of weight "
                f"{weight} as {request.execution_name}. A request_id must be unique for 90 days. Send this request "
                "again with a new request_id"
            )
        case UnknownProcess():
            return "UnknownProcess", (
                f"process {request.process!r} does not exist in the slot table. Add it with slotkeeper process add, "
                "then redrive this message"
            )
        case LeasesOnly():
            return "LeasesOnly", (
                f"process {request.process!r} is for leases only: it has no target, and runs no request. Send the "
                "request to a process with a target"
            )
        case Cancelled(since, by):
            by_whom = f" by {by}" if by else ""
            return "Cancelled", f"cancelled{by_whom} at {datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _because(candidate: Candidate, seen: Process, now: float) -> str:
    weight = candidate.weight_in(seen)
    if weight > seen.slot_limit:
        return "blocked"
    if seen.paused:
        return "paused"
    if not seen.fits(weight):
        return "full"
    if not seen.takes_token(candidate.token_bytes):
        return "callers"
    return "rate" if candidate.is_admitted_by(seen) and not seen.is_due(now) else "overtaken"
