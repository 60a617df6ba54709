"""Handles one delivery of a work message: performs the work, schedules a retry, or dead-letters the message.

    parse      an invalid message is dead-lettered
    ask        the downstream's state permits the attempt; otherwise the message is held back
    claim      claims the message's attempt in the ledger, or reads the outcome that another delivery has recorded
    perform    does the work, unless an earlier delivery has recorded how the attempt failed
    report     the downstream's state is changed by the outcome
    carry out  records the plan for a failure, then schedules the next attempt or dead-letters the message
    settle     records the outcome of the claim

A message is deleted only when its request is done or is stored elsewhere. If `consume` raises, the message stays on the
queue, and the next delivery reads from the ledger which steps are done.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any
from urllib.parse import quote

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.retry.attempt import (
    DIED,
    NOT_PERMITTED,
    Outcome,
    WorkDeadLettered,
    WorkDeferred,
    WorkRetried,
    WorkSucceeded,
    not_started,
    parse_plan,
    result_to_json,
)
from slotkeeper.retry.deferral import Deferrals, waiting_since
from slotkeeper.retry.delivery import NOT_BEFORE_ATTRIBUTE, DeadLetterQueue, RetryQueue, TooLarge
from slotkeeper.retry.downstream.downstreams import DEFAULT, UNWATCHED, Admission, Downstreams, name_of
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
from slotkeeper.retry.message import InvalidMessage, Message, parse_message
from slotkeeper.retry.plan import AttemptHistory, DeadLetter, RetryAt, plan_retry
from slotkeeper.retry.policy import BUILT_IN, MAX_AGE_SECONDS, BuiltInPolicy, PolicyParameter, PolicyUnavailable
from slotkeeper.settings import CLOCK_SKEW_SECONDS

# Seconds of the invocation reserved for recording, scheduling and settling the outcome. The work does not get them.
RESERVED_SECONDS = 15.0
# A message that is due within this many seconds counts as due, because two clocks may differ.
DUE_TOLERANCE_SECONDS = 1.0
MIN_WORK_SECONDS = 1.0
# A message whose attempt could not be claimed or decided comes back after so many seconds at its first receives, then
# after the queue's visibility timeout. The fast retries are few, because SQS dead-letters a message without a reason
# when it has been received too often.
QUICK_RETRY_SECONDS, QUICK_RETRY_RECEIVES = 60, 10


class StillInProgress(Exception):
    """Another delivery works on this attempt. The message stays on the queue until that delivery's lease has ended."""


class NoTimeLeft(Exception):
    """The invocation has too little time left to start an attempt. The message stays on the queue."""


class TimeoutTooShort(RuntimeError):
    """The function's timeout is too short for any attempt. No message of the batch was handled."""


@dataclass(frozen=True)
class WorkRequest:
    """The request that `perform` receives. `attempt` is 1, 2, ..."""

    request_id: str
    payload: Mapping[str, Any] = field(repr=False)
    attempt: int = 1

    @property
    def key(self) -> str:
        """The request id, percent-encoded: ASCII letters, digits and `_.-~%`, for HTTP headers, URLs and object keys.

        It is the same for each attempt, and different for different ids. At most 1,536 characters.
        """
        return quote(self.request_id, safe="")


Perform = Callable[[WorkRequest, float], Any]
DownstreamOf = str | Callable[[WorkRequest], str]


@dataclass(frozen=True)
class _Delivery:
    """One delivery of a message, and what its invocation needs to handle it.

    Args:
        downstream: the name of the request's downstream; empty if the worker watches none.
        now: when the delivery began to be handled, epoch seconds.
        lease: seconds for which its attempt is claimed.
    """

    record: SQSRecord
    message: Message
    perform: Perform
    context: LambdaContext
    downstream: str
    now: float
    lease: float


@dataclass
class Consumer:
    """Handles deliveries one by one.

    Args:
        downstreams: permits or refuses attempts by the state of the downstream. None: every attempt is permitted.
        downstream: the name of a request's downstream, or a function that returns it.
        work_seconds: the maximum duration of an attempt, in seconds. The work receives it and must keep to it.
        on_message: receives each parsed message before its attempt is claimed.
        on_end: receives each claimed or repeated message, its SQS record and its outcome, after the ledger has recorded
            the outcome. It must not raise.
        clock: seconds since the epoch.
        timer: monotonic seconds, for the duration of a call.
    """

    ledger: Ledger
    queue: RetryQueue
    dead_letters: DeadLetterQueue
    policy: PolicyParameter | BuiltInPolicy
    _: KW_ONLY
    downstreams: Downstreams | None = None
    downstream: DownstreamOf = DEFAULT
    work_seconds: float = math.inf
    on_message: Callable[[Message], None] = lambda _message: None
    on_end: Callable[[Message, SQSRecord, Outcome], None] = lambda *_: None
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._deferrals = Deferrals(self.queue)

    def consume(self, record: SQSRecord, perform: Perform, context: LambdaContext) -> Outcome:
        """Handle one delivery. `perform` may raise Retryable or Poison; any other exception is retried too.

        After any exception the message must stay on the queue.

        Raises:
            StillInProgress: another delivery works on this attempt.
            NoTimeLeft: the invocation has too little time left.
            NotYetDue: the message is not due yet and was received before.
            WaitsForDownstream: the downstream may not be called now. No attempt was made.
            PolicyUnavailable: the attempt failed, and no policy could be read. A later delivery decides.
            ClientError, BotoCoreError: an AWS call failed.
        """
        now = self.clock()
        try:
            message = parse_message(record.body)
        except InvalidMessage as error:
            self.dead_letters.send_invalid(record.body, record.message_id, str(error))
            return WorkDeadLettered("InvalidMessage", str(error))
        self.on_message(message)
        size = len(record.body.encode())
        if message.attempt == 1 and size > self.queue.max_request_bytes:
            reason = f"the body has {size} bytes; a request may have at most {self.queue.max_request_bytes}"
            return self._refuse(record, message, "TooLarge", f"{reason}. Put the payload into S3 and send its key")
        not_before = _not_before(record, now)
        if not_before > now + DUE_TOLERANCE_SECONDS:
            return self._deferrals.until_due(record, message, not_before, now)
        left = _seconds_left(context)
        if left - RESERVED_SECONDS < MIN_WORK_SECONDS:
            raise NoTimeLeft(
                f"{left:.0f} s of the invocation are left, and {RESERVED_SECONDS:.0f} s are reserved for recording the "
                "outcome"
            )
        name = self._downstream_of(message)
        # The lease outlasts the invocation, because two workers' clocks may differ.
        delivery = _Delivery(record, message, perform, context, name, now, left + CLOCK_SKEW_SECONDS)
        admission = self._ask(delivery)
        match admission:
            case WorkDeferred():
                return admission
            case DeadLetter():
                outcome = self._handle(delivery, UNWATCHED, admission)
            case Admission():
                with admission:
                    outcome = self._handle(delivery, admission)
        self.on_end(message, record, outcome)
        return outcome

    def _downstream_of(self, message: Message) -> str:
        """The name of the request's downstream; empty if the worker watches none."""
        if self.downstreams is None:
            return ""
        return name_of(self.downstream, WorkRequest(message.request_id, message.payload, message.attempt))

    def _ask(self, delivery: _Delivery) -> Admission | WorkDeferred | DeadLetter:
        """Ask whether the downstream may be called. A DeadLetter: the message has waited longer than any rule allows.

        Raises:
            WaitsForDownstream: it may not be called now, and the message is hidden.
        """
        if self.downstreams is None:
            return UNWATCHED
        record, message, name, now = delivery.record, delivery.message, delivery.downstream, delivery.now
        policy = self.policy.latest_for_downstream()
        try:
            answer = self.downstreams.ask(name, policy, is_retry=message.attempt > 1, lease=delivery.lease)
            # A message that only has to be deleted or dead-lettered does not wait for the downstream.
            if isinstance(answer, Admission) or not self.ledger.would_begin(message, now):
                return answer if isinstance(answer, Admission) else answer.without_work()
        except Exception:
            self._retry_soon(record)
            raise
        age = now - waiting_since(record, message, policy.max_age)
        if age > policy.max_age:
            return DeadLetter(
                "TooOld",
                f"attempt {message.attempt} has waited for downstream {name!r} ({answer.reason}) until {age:.0f} s "
                f"after the request's first attempt or receive, and the policy allows {policy.max_age:.0f} s",
            )
        return self._deferrals.hold_back(record, message, answer, now)

    def _handle(self, delivery: _Delivery, admission: Admission, expired: DeadLetter | None = None) -> Outcome:
        record, message = delivery.record, delivery.message
        claim = self._claim(delivery)
        match claim:
            case InProgress(lease_until):
                raise StillInProgress(
                    f"another delivery works on attempt {message.attempt}; its lease ends in "
                    f"{lease_until - delivery.now:.0f} s"
                )
            case AlreadySettled():
                return claim
            case RequestIdReused(status, attempts):
                reason = (
                    f"request_id {message.request_id!r} is already used by a request with another payload, which is "
                    f"{status} at attempt {attempts}. Send this request again with a new request_id"
                )
                return self._refuse(record, message, "RequestIdReused", reason)
            case Claimed():
                outcome = self._attempt(delivery, claim, admission, expired)
                self._settle(message, claim, outcome)
                return outcome

    def _claim(self, delivery: _Delivery) -> Claim:
        token, name = uuid.uuid4().hex, delivery.downstream
        try:
            return self.ledger.claim(delivery.message, token, delivery.now, delivery.lease, name)
        except Exception:
            self._retry_soon(delivery.record)
            raise

    def _retry_soon(self, record: SQSRecord) -> None:
        if int(record.attributes.approximate_receive_count) <= QUICK_RETRY_RECEIVES:
            self.queue.hide(record.receipt_handle, QUICK_RETRY_SECONDS)

    def _attempt(
        self, delivery: _Delivery, claim: Claimed, admission: Admission, expired: DeadLetter | None
    ) -> WorkSucceeded | WorkRetried | WorkDeadLettered:
        message = delivery.message
        recorded = claim.plan and parse_plan(claim.plan)
        if isinstance(recorded, RetryAt | DeadLetter):
            return self._carry_out(message, claim, recorded, claim.history)
        cause = None
        # Read the remaining time again, because the claim may have been slow.
        seconds = _seconds_left(delivery.context) - RESERVED_SECONDS
        if recorded:
            failure = recorded
            claim = replace(claim, died=failure.types == DIED.types)
        elif claim.died:
            failure = replace(DIED, counts=admission.death_counts)
        elif expired:
            error = f"{expired.code}: {expired.reason}"
            history = self.ledger.record(message, claim, vars(expired), error, expired.code)
            return self._carry_out(message, claim, expired, history)
        elif not admission.is_permitted:
            failure = NOT_PERMITTED
        elif seconds < MIN_WORK_SECONDS:
            failure = not_started(seconds + RESERVED_SECONDS)
        else:
            request = WorkRequest(message.request_id, message.payload, message.attempt)
            began = self.timer()
            try:
                result = delivery.perform(request, min(self.work_seconds, seconds))
            except Exception as error:
                failure = Failure.of(error)
                # Log a traceback only for exceptions that the work did not raise deliberately.
                cause = None if isinstance(error, Retryable | Poison) else error
                if not admission.failed(failure, self.timer() - began):
                    failure = replace(failure, counts=False)
            else:
                admission.succeeded(self.timer() - began)
                return WorkSucceeded(result, claim.started_at)
        return self._decide(delivery, claim, failure, cause)

    def _decide(
        self, delivery: _Delivery, claim: Claimed, failure: Failure, cause: Exception | None
    ) -> WorkRetried | WorkDeadLettered:
        """Decide about a failure, record the decision, and carry it out.

        It is recorded first, so that a later delivery does not decide differently.
        """
        message = delivery.message
        attempts = AttemptHistory(message.request_id, (*message.retries, claim.started_at), message.uncounted)
        try:
            policy = BUILT_IN if failure.final else self.policy.latest()  # every policy dead-letters Poison
        except PolicyUnavailable:
            self.ledger.defer(message, claim, failure.to_record(), failure.reason, failure.type)
            self._retry_soon(delivery.record)
            raise
        plan = plan_retry(failure, attempts, policy, self.clock())
        history = self.ledger.record(message, claim, vars(plan), failure.reason, failure.type)
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
                delivery = self.queue.schedule(next_message, plan.when, self.clock())
                return WorkRetried(delivery, reason, claim.died, cause, plan.counted)
            except TooLarge as error:
                plan = DeadLetter("TooLarge", f"{error}, so it is not retried. The last error: {reason}")
        self.dead_letters.send(message, claim.started_at, plan.code, plan.reason, history)
        return WorkDeadLettered(plan.code, plan.reason, claim.died, cause)

    def _settle(
        self, message: Message, claim: Claimed, outcome: WorkSucceeded | WorkRetried | WorkDeadLettered
    ) -> None:
        if isinstance(outcome, WorkSucceeded):
            self.ledger.settle_succeeded(message, claim, result_to_json(outcome.result))
            return
        # Another worker may claim the next attempt before this write: a retry may be due immediately, and an operator
        # may redrive a dead-letter message immediately. Then nothing is left to record, and the message can be deleted.
        with suppress(NextAttemptClaimed):
            if isinstance(outcome, WorkRetried):
                self.ledger.settle_waiting(message, claim, outcome.delivery.due)
            else:
                self.ledger.settle_dead_lettered(message, claim)

    def _refuse(self, record: SQSRecord, message: Message, code: str, reason: str) -> WorkDeadLettered:
        self.dead_letters.send_unworked(message, record.message_id, code, reason)
        return WorkDeadLettered(code, reason)


def _seconds_left(context: LambdaContext) -> float:
    return context.get_remaining_time_in_millis() / 1000


def _not_before(record: SQSRecord, now: float) -> float:
    attribute = record.message_attributes[NOT_BEFORE_ATTRIBUTE]
    try:
        due = float((attribute and attribute.get("stringValue")) or 0)
    except ValueError:
        return 0.0
    # A time later than any policy allows was set by a sender, for example in milliseconds. With it the message would
    # never become due.
    return due if due <= now + MAX_AGE_SECONDS else 0.0
