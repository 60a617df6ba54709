"""A message of a queue from its delivery to its end: worked on, booked again, or set aside.

Whatever happens, a message is given up only when what it asked for is done, or stands somewhere else. An exception
that leaves `consume` leaves the message on the queue, and its next delivery finds in the ledger how far this one came.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
)
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.retry.attempt import (
    AttemptStore,
    DeadLettered,
    NotDue,
    Outcome,
    OutcomeSerializer,
    Retrying,
    Succeeded,
)
from slotkeeper.retry.dead_letters import DeadLetterQueue
from slotkeeper.retry.delivery import NOT_BEFORE, RetryQueue, TooLarge
from slotkeeper.retry.errors import Failure, Poison, Retryable
from slotkeeper.retry.ledger import Claimed, History, IdReused, Ledger
from slotkeeper.retry.message import InvalidMessage, Message, instant, parse_message
from slotkeeper.retry.parameter import PolicyParameter, PolicyUnread
from slotkeeper.retry.plan import DeadLetter, RetryAt, plan_retry
from slotkeeper.retry.plan import History as Attempts
from slotkeeper.retry.policy import BUILT_IN, LONGEST_AGE

# Seconds of the invocation that the work is not given: for noting, booking and settling how it ended.
RESERVE = 15.0
# What a lease outlasts the invocation by, in seconds: two workers' clocks may differ.
CLOCK_SKEW = 5.0
# Two clocks again: a message is not sent on for less than this.
EARLY = 1.0
# Seconds that the work must at least be given.
LEAST = 1.0
# A message that is left with nothing claimed comes back after so many seconds, at its first receives; then after the
# queue's visibility timeout. SQS sets it aside without a reason when it has been received too often.
SOON, SOON_RECEIVES = 60, 10
# Seconds after which a message that waits for its time is sent on once more. SQS deletes it after at most 14 days (SQS
# quotas); the four days between are some nine deliveries.
OLD = 10 * 86400

StillInProgress = IdempotencyAlreadyInProgressError

DIED = Failure(
    types=("Died",),
    reason="Died: nobody noted how the attempt ended: the worker was killed, timed out or ran out of memory. "
    "Its effect may be there",
)


class NoTimeLeft(Exception):
    """The invocation is too near its end to begin an attempt; the message stays for the next one."""


class NotYetDue(Exception):
    """The message came before its time, and not for the first time; it is hidden, if possible until it is due."""


@dataclass(frozen=True)
class Request:
    """What the work is given."""

    request_id: str
    payload: Mapping[str, Any] = field(repr=False)
    attempt: int = 1


Perform = Callable[[Request, float], Any]


class Consumer:
    """Sees deliveries to their end, one by one.

    Args:
        work_seconds: how long an attempt may take at most; the work is told, and has to keep to it.
        on_message: told of each message as it was read, before anything is done about it.
        on_end: told what has come of each message that was read, and of the record that brought it, once the ledger
            knows. It must not raise.
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
            PolicyUnread: the attempt failed, and no policy could be read; a later delivery decides about it.
            Exception: whatever AWS calls raise. In every case the message has to stay on the queue.
        """
        now = self._clock()
        try:
            message = parse_message(record.body)
        except InvalidMessage as error:
            self._dead_letters.send_invalid(record.body, record.message_id, str(error))
            return DeadLettered("InvalidMessage", str(error))
        self._on_message(message)
        size = len(record.body.encode())
        if message.attempt == 1 and size > self._queue.largest_request:
            reason = f"the body has {size} bytes, and a request may have {self._queue.largest_request}"
            return self._set_aside(record, message, "TooLarge", f"{reason}; put its payload into S3, and send the key")
        not_before = _not_before(record, now)
        if not_before > now + EARLY:
            return self._wait(record, message, not_before, now)
        left = _seconds_left(context)
        if left - RESERVE < LEAST:
            raise NoTimeLeft(f"{left:.0f} s are left of the invocation, and {RESERVE:.0f} s are kept for its end")
        store = AttemptStore(self._ledger, message, uuid.uuid4().hex, now, left + CLOCK_SKEW)
        attempt = idempotent_function(
            self._attempt,
            data_keyword_argument="request",
            persistence_store=store,
            config=IdempotencyConfig(event_key_jmespath="[request_id, attempt]", lambda_context=context),
            output_serializer=OutcomeSerializer(),
        )
        request = Request(message.request_id, message.payload, message.attempt)
        try:
            outcome: Outcome = attempt(record, store, message, perform, context, request=request)
        except IdempotencyPersistenceLayerError:
            if store.claim is None:
                self._show_soon(record)
            raise
        self._on_end(message, record, outcome)
        return outcome

    def _wait(self, record: SQSRecord, message: Message, not_before: float, now: float) -> NotDue:
        """Sends a message that came before its time on, or hides it.

        A copy is sent on at its first delivery. What comes again may have been sent on, and only its deletion failed:
        where deleting fails, each delivery of each copy would make another one, without an end. Or sending failed, or
        the worker died over it, and nothing but this copy brings the attempt. So it stays, hidden for as long as SQS
        allows, and is sent on again only before SQS would delete it for its age.
        """
        attributes = record.attributes
        age = now - int(attributes.sent_timestamp) / 1000
        if int(attributes.approximate_receive_count) > 1:
            self._queue.show_again(record.receipt_handle, not_before - now)
            if age < OLD:
                raise NotYetDue(f"it is due at {instant(not_before)}, and this copy was delivered before")
        self._queue.send_on(message, not_before, now)
        return NotDue(not_before)

    def _show_soon(self, record: SQSRecord) -> None:
        if int(record.attributes.approximate_receive_count) <= SOON_RECEIVES:
            self._queue.show_again(record.receipt_handle, SOON)

    def _attempt(
        self,
        record: SQSRecord,
        store: AttemptStore,
        message: Message,
        perform: Perform,
        context: LambdaContext,
        *,
        request: Request,
    ) -> Outcome:
        claim = store.claim
        if isinstance(claim, IdReused):
            reason = f"request_id {message.request_id!r} belongs to a request with another payload"
            reason = f"{reason}, whose status is {claim.status} since attempt {claim.attempts}"
            return self._set_aside(
                record, message, "RequestIdReused", f"{reason}; send this one under an id of its own"
            )
        if claim is None:
            raise RuntimeError("Powertools' Idempotency is switched off (POWERTOOLS_IDEMPOTENCY_DISABLED)")
        recorded = claim.plan and _recorded(claim.plan)
        if isinstance(recorded, RetryAt | DeadLetter):
            return self._carry_out(message, claim, recorded, claim.history)
        cause = None
        # Read again: the claim may have taken its time.
        seconds = _seconds_left(context) - RESERVE
        if recorded:
            failure = recorded
            claim = replace(claim, died=failure == DIED)
        elif claim.died:
            failure = DIED
        elif seconds < LEAST:
            failure = _too_slow(seconds)
        else:
            try:
                return Succeeded(perform(request, min(self._work_seconds, seconds)), claim.began)
            except Exception as error:
                failure = Failure.of(error)
                # What the work says by itself needs no traceback; what it did not expect does.
                cause = None if isinstance(error, Retryable | Poison) else error
        # Decided once and noted first: a delivery that has to see this one's decision through must not make another.
        attempts = Attempts(message.request_id, (*message.retries, claim.began), message.uncounted)
        try:
            policy = BUILT_IN if failure.final else self._policy.get()  # no policy lets poison be tried again
        except PolicyUnread:
            self._ledger.defer(message, claim, failure.to_record(), failure.reason)
            self._show_soon(record)
            raise
        plan = plan_retry(failure, attempts, policy, self._clock())
        history = self._ledger.record(message, claim, vars(plan), failure.reason)
        return self._carry_out(message, claim, plan, history, cause)

    def _carry_out(
        self,
        message: Message,
        claim: Claimed,
        plan: RetryAt | DeadLetter,
        history: History,
        cause: Exception | None = None,
    ) -> Outcome:
        reason = str(history[-1]["error"])
        if isinstance(plan, RetryAt):
            after = message.after(claim.began, counted=plan.counted)
            try:
                booked = self._queue.book(after, plan.when, self._clock())
                return Retrying(booked, reason, claim.died, cause)
            except TooLarge as error:
                plan = DeadLetter("TooLarge", f"{error}, so it was not tried again after {reason}")
        self._dead_letters.send(message, claim.began, plan.code, plan.reason, history)
        return DeadLettered(plan.code, plan.reason, claim.died, cause)

    def _set_aside(self, record: SQSRecord, message: Message, code: str, reason: str) -> Outcome:
        self._dead_letters.send_unworked(message, record.message_id, code, reason)
        return DeadLettered(code, reason)


def _seconds_left(context: LambdaContext) -> float:
    return context.get_remaining_time_in_millis() / 1000


def _recorded(plan: Mapping[str, Any]) -> RetryAt | DeadLetter | Failure:
    if "types" in plan:
        return Failure.from_record(plan)
    return RetryAt(**plan) if "when" in plan else DeadLetter(**plan)


def _too_slow(seconds: float) -> Failure:
    reason = f"TooSlow: {seconds + RESERVE:.0f} s of the invocation were left after the claim; the work was not called"
    return Failure(types=("TooSlow",), reason=reason, counts=False)


def _not_before(record: SQSRecord, now: float) -> float:
    attribute = record.message_attributes[NOT_BEFORE]
    try:
        due = float((attribute and attribute.get("stringValue")) or 0)
    except ValueError:
        return 0.0
    # Later than any policy allows, it is not ours: a sender's milliseconds would keep the message hopping for ever.
    return due if due <= now + LONGEST_AGE else 0.0
