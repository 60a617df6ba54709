"""A message of a queue from its delivery to its end: worked on, scheduled again, or dead-lettered.

    parse      what is no message becomes a dead letter
    claim      the message's attempt in the ledger, or what another delivery has made of it
    perform    the work; or what an earlier delivery has recorded about its failure
    carry out  a failure's plan, recorded first: the next attempt is scheduled, or a dead letter is sent
    settle     the claim, with its outcome

A message is deleted only when what it asked for is done, or is stored somewhere else. An exception that leaves
`consume` leaves the message on the queue, and its next delivery finds in the ledger how far this one came.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.retry.attempt import (
    DIED,
    Outcome,
    WorkDeadLettered,
    WorkDeferred,
    WorkRetried,
    WorkSucceeded,
    not_started,
    parse_plan,
    result_to_json,
)
from slotkeeper.retry.dead_letters import DeadLetterQueue
from slotkeeper.retry.delivery import NOT_BEFORE_ATTRIBUTE, RetryQueue, TooLarge
from slotkeeper.retry.errors import Failure, Poison, Retryable
from slotkeeper.retry.ledger import (
    AlreadySettled,
    Claim,
    Claimed,
    FailedAttempts,
    InProgress,
    Ledger,
    NextAttemptClaimed,
    RequestIdReused,
)
from slotkeeper.retry.message import InvalidMessage, Message, instant, parse_message
from slotkeeper.retry.parameter import PolicyParameter, PolicyUnavailable
from slotkeeper.retry.plan import AttemptHistory, DeadLetter, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN, MAX_AGE_SECONDS

# Of the invocation, not given to the work: for recording, scheduling and settling how it ended.
RESERVED_SECONDS = 15.0
# What a lease outlasts the invocation by: two workers' clocks may differ.
CLOCK_SKEW_SECONDS = 5.0
# Two clocks again: a message is not sent on for less than this.
DUE_TOLERANCE_SECONDS = 1.0
MIN_WORK_SECONDS = 1.0
# A message that is left with nothing claimed comes back after so many seconds, at its first receives; then after the
# queue's visibility timeout. SQS dead-letters it without a reason when it has been received too often.
QUICK_RETRY_SECONDS, QUICK_RETRY_RECEIVES = 60, 10
# A message of this age that waits for its time is sent on once more. SQS deletes it after at most 14 days (SQS
# quotas); the four days between are some nine deliveries.
RESEND_AGE_SECONDS = 10 * 86400


class StillInProgress(Exception):
    """Another delivery works on this attempt; the message stays until that one's lease has ended."""


class NoTimeLeft(Exception):
    """The invocation is too near its end to begin an attempt; the message stays for the next one."""


class NotYetDue(Exception):
    """The message came before its time, and not for the first time; it is hidden, if possible until it is due."""


@dataclass(frozen=True)
class WorkRequest:
    """What the work receives. `attempt` is 1, 2, ..."""

    request_id: str
    payload: Mapping[str, Any] = field(repr=False)
    attempt: int = 1


Perform = Callable[[WorkRequest, float], Any]


class Consumer:
    """Sees deliveries to their end, one by one.

    Args:
        work_seconds: how long an attempt may take at most; the work receives it, and has to keep to it.
        on_message: receives each message as it was read, before anything is done about it.
        on_end: receives each claimed or repeated message, the record that brought it and its outcome, once the ledger
            has it. It must not raise.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: RetryQueue,
        dead_letters: DeadLetterQueue,
        policy: PolicyParameter,
        *,
        work_seconds: float = math.inf,
        on_message: Callable[[Message], None] = lambda _message: None,
        on_end: Callable[[Message, SQSRecord, Outcome], None] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._dead_letters = dead_letters
        self._policy = policy
        self._work_seconds = work_seconds
        self._on_message = on_message
        self._on_end = on_end
        self._clock = clock

    def consume(self, record: SQSRecord, perform: Perform, context: LambdaContext) -> Outcome:
        """Sees one delivery to its end. `perform` raises Retryable or Poison; anything else is retried too.

        Raises:
            StillInProgress: another delivery works on this attempt.
            NoTimeLeft: too little is left of the invocation.
            NotYetDue: the message came before its time, again.
            PolicyUnavailable: the attempt failed, and no policy could be read; a later delivery decides about it.
            Exception: whatever AWS calls raise. In every case the message has to stay on the queue.
        """
        now = self._clock()
        try:
            message = parse_message(record.body)
        except InvalidMessage as error:
            self._dead_letters.send_invalid(record.body, record.message_id, str(error))
            return WorkDeadLettered("InvalidMessage", str(error))
        self._on_message(message)
        size = len(record.body.encode())
        if message.attempt == 1 and size > self._queue.max_request_bytes:
            reason = f"the body has {size} bytes, and a request may have {self._queue.max_request_bytes}"
            return self._refuse(record, message, "TooLarge", f"{reason}; put its payload into S3, and send the key")
        not_before = _not_before(record, now)
        if not_before > now + DUE_TOLERANCE_SECONDS:
            return self._defer(record, message, not_before, now)
        left = _seconds_left(context)
        if left - RESERVED_SECONDS < MIN_WORK_SECONDS:
            raise NoTimeLeft(
                f"{left:.0f} s are left of the invocation, and {RESERVED_SECONDS:.0f} s are kept for its end"
            )
        claim = self._claim(record, message, now, left + CLOCK_SKEW_SECONDS)
        outcome: Outcome
        match claim:
            case InProgress(lease_until):
                raise StillInProgress(
                    f"another delivery holds attempt {message.attempt} for up to {lease_until - now:.0f} s more"
                )
            case AlreadySettled():
                outcome = claim
            case RequestIdReused(status, attempts):
                reason = f"request_id {message.request_id!r} belongs to a request with another payload"
                reason = f"{reason}, whose status is {status} since attempt {attempts}"
                outcome = self._refuse(
                    record, message, "RequestIdReused", f"{reason}; send this one under an id of its own"
                )
            case Claimed():
                outcome = self._attempt(record, message, claim, perform, context)
                self._settle(message, claim, outcome)
        self._on_end(message, record, outcome)
        return outcome

    def _claim(self, record: SQSRecord, message: Message, now: float, lease: float) -> Claim:
        try:
            return self._ledger.claim(message, uuid.uuid4().hex, now, lease)
        except Exception:
            self._retry_soon(record)
            raise

    def _defer(self, record: SQSRecord, message: Message, not_before: float, now: float) -> WorkDeferred:
        """Sends a message that came before its time on, or hides it.

        A copy is sent on at its first delivery. What comes again may have been sent on, and only its deletion failed:
        where deleting fails, each delivery of each copy would make another one, without an end. Or sending failed, or
        the worker died over it, and nothing but this copy brings the attempt. So it stays, hidden for as long as SQS
        allows, and is sent on again only before SQS would delete it for its age.
        """
        attributes = record.attributes
        age = now - int(attributes.sent_timestamp) / 1000
        if int(attributes.approximate_receive_count) > 1:
            self._queue.hide(record.receipt_handle, not_before - now)
            if age < RESEND_AGE_SECONDS:
                raise NotYetDue(f"it is due at {instant(not_before)}, and this copy was delivered before")
        self._queue.send_on(message, not_before, now)
        return WorkDeferred(not_before)

    def _retry_soon(self, record: SQSRecord) -> None:
        if int(record.attributes.approximate_receive_count) <= QUICK_RETRY_RECEIVES:
            self._queue.hide(record.receipt_handle, QUICK_RETRY_SECONDS)

    def _attempt(
        self, record: SQSRecord, message: Message, claim: Claimed, perform: Perform, context: LambdaContext
    ) -> WorkSucceeded | WorkRetried | WorkDeadLettered:
        recorded = claim.plan and parse_plan(claim.plan)
        if isinstance(recorded, RetryAt | DeadLetter):
            return self._carry_out(message, claim, recorded, claim.history)
        cause = None
        # Read again: the claim may have taken its time.
        seconds = _seconds_left(context) - RESERVED_SECONDS
        if recorded:
            failure = recorded
            claim = replace(claim, died=failure == DIED)
        elif claim.died:
            failure = DIED
        elif seconds < MIN_WORK_SECONDS:
            failure = not_started(seconds + RESERVED_SECONDS)
        else:
            request = WorkRequest(message.request_id, message.payload, message.attempt)
            try:
                return WorkSucceeded(perform(request, min(self._work_seconds, seconds)), claim.started_at)
            except Exception as error:
                failure = Failure.of(error)
                # What the work says by itself needs no traceback; what it did not expect does.
                cause = None if isinstance(error, Retryable | Poison) else error
        # Decided once and recorded first: a delivery that carries this decision out later must not make another.
        attempts = AttemptHistory(message.request_id, (*message.retries, claim.started_at), message.uncounted)
        try:
            policy = BUILT_IN if failure.final else self._policy.get()  # no policy lets poison be tried again
        except PolicyUnavailable:
            self._ledger.defer(message, claim, failure.to_record(), failure.reason)
            self._retry_soon(record)
            raise
        plan = plan_retry(failure, attempts, policy, self._clock())
        history = self._ledger.record(message, claim, vars(plan), failure.reason)
        return self._carry_out(message, claim, plan, history, cause)

    def _carry_out(
        self,
        message: Message,
        claim: Claimed,
        plan: RetryAt | DeadLetter,
        history: FailedAttempts,
        cause: Exception | None = None,
    ) -> WorkRetried | WorkDeadLettered:
        reason = str(history[-1]["error"])
        if isinstance(plan, RetryAt):
            next_message = message.after(claim.started_at, counted=plan.counted)
            try:
                delivery = self._queue.schedule(next_message, plan.when, self._clock())
                return WorkRetried(delivery, reason, claim.died, cause)
            except TooLarge as error:
                plan = DeadLetter("TooLarge", f"{error}, so it was not tried again after {reason}")
        self._dead_letters.send(message, claim.started_at, plan.code, plan.reason, history)
        return WorkDeadLettered(plan.code, plan.reason, claim.died, cause)

    def _settle(
        self, message: Message, claim: Claimed, outcome: WorkSucceeded | WorkRetried | WorkDeadLettered
    ) -> None:
        if isinstance(outcome, WorkSucceeded):
            self._ledger.settle_succeeded(message, claim, result_to_json(outcome.result))
            return
        # A retry that is due immediately may be claimed by another worker before this one has recorded that it waits; a
        # dead letter may be redriven as soon. Nothing is left to record, and the message can be deleted.
        with suppress(NextAttemptClaimed):
            if isinstance(outcome, WorkRetried):
                self._ledger.settle_waiting(message, claim, outcome.delivery.due)
            else:
                self._ledger.settle_dead_lettered(message, claim)

    def _refuse(self, record: SQSRecord, message: Message, code: str, reason: str) -> WorkDeadLettered:
        self._dead_letters.send_unworked(message, record.message_id, code, reason)
        return WorkDeadLettered(code, reason)


def _seconds_left(context: LambdaContext) -> float:
    return context.get_remaining_time_in_millis() / 1000


def _not_before(record: SQSRecord, now: float) -> float:
    attribute = record.message_attributes[NOT_BEFORE_ATTRIBUTE]
    try:
        due = float((attribute and attribute.get("stringValue")) or 0)
    except ValueError:
        return 0.0
    # Later than any policy allows, it is not ours: a sender's milliseconds would keep the message hopping for ever.
    return due if due <= now + MAX_AGE_SECONDS else 0.0
