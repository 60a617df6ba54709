"""The worker that a Lambda function calls: handles a batch, with metrics and a log line for each message."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import boto3
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from slotkeeper.aws.clients import client_config
from slotkeeper.events import CompletionEvents
from slotkeeper.observability import logger, metrics
from slotkeeper.retry.attempt import Outcome, WorkDeadLettered, WorkDeferred, WorkRetried, WorkSucceeded
from slotkeeper.retry.consumer import (
    MIN_WORK_SECONDS,
    RESERVED_SECONDS,
    Consumer,
    DownstreamOf,
    NoTimeLeft,
    Perform,
    StillInProgress,
    TimeoutTooShort,
)
from slotkeeper.retry.deferral import NotYetDue, WaitsForDownstream
from slotkeeper.retry.delivery import MAX_DELAY_SECONDS, DeadLetterQueue, RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream.downstreams import DEFAULT, Downstreams, DownstreamTable, check_name
from slotkeeper.retry.downstream.health import MAX_CONCURRENCY, Health, State
from slotkeeper.retry.events import BreakerEvents, publish_dead_letter, publish_if_succeeded
from slotkeeper.retry.ledger import AlreadySettled, Ledger
from slotkeeper.retry.message import Message, instant
from slotkeeper.retry.policy import BuiltInPolicy, PolicyParameter
from slotkeeper.settings import RetrySettings, load_settings

CLIENT_CONFIG = client_config(read_timeout=3, attempts=3)
_HEALTH_CLIENT_CONFIG = client_config(read_timeout=1, attempts=2)  # short: it is called in the time of recording, too
_POLICY_CLIENT_CONFIG = client_config(read_timeout=2, attempts=2)  # short: without an answer the last policy is used

ANSWER_SECONDS = 1.0  # reserved for the end of an invocation whose outcomes are recorded


class RetryingWorker:
    """Handles the events of a work queue. `perform` may raise Retryable or Poison (slotkeeper.retry.errors)."""

    def __init__(
        self,
        consumer: Consumer,
        perform: Perform,
        events: CompletionEvents | None = None,
        breaker_events: BreakerEvents | None = None,
    ) -> None:
        """`events`, `breaker_events`: publish outcomes and changes; `handle` limits the time that this may take."""
        self._consumer = consumer
        self._perform = perform
        self._events = events
        self._breaker_events = breaker_events

    @classmethod
    def from_environment(cls, perform: Perform, *, downstream: DownstreamOf = DEFAULT) -> RetryingWorker:
        """Create the worker for the queues and tables in the environment's settings.

        Args:
            downstream: the name of the downstream that the work calls, or a function that returns it for a request. If
                the function fails, or returns no valid name, it is `default`.

        Raises:
            MissingSetting: a variable is missing or not a number.
            ValueError: the queue is a FIFO queue, a number is outside its bounds, or the name is not valid.
        """
        settings = load_settings(RetrySettings)
        beyond = settings.scheduler_beyond_seconds
        events = CompletionEvents.from_environment() if settings.event_bus_name else None
        breaker_events = BreakerEvents(events) if events else None
        sqs = boto3.client("sqs", config=CLIENT_CONFIG)
        queue = RetryQueue(
            sqs,
            boto3.client("scheduler", config=CLIENT_CONFIG),
            settings.work_queue_url,
            ScheduleTarget(
                settings.retry_schedule_group,
                settings.retry_schedule_role_arn,
                settings.work_queue_arn,
                settings.retry_schedule_dead_letter_queue_arn,
                settings.retry_schedule_key_arn,
            ),
            max_delay=MAX_DELAY_SECONDS if beyond is None else beyond,
            max_message_bytes=settings.work_queue_largest_message,
            on_refused=_schedule_refused,
        )
        dead_letters = settings.work_dead_letter_queue_url
        consumer = Consumer(
            Ledger(boto3.client("dynamodb", config=CLIENT_CONFIG), settings.request_ledger_table_name),
            queue,
            DeadLetterQueue(
                sqs,
                dead_letters,
                settings.work_queue_largest_message,
                partial(publish_dead_letter, events, dead_letters.rpartition("/")[2]) if events else lambda *_: None,
            ),
            _policy(settings.retry_policy_parameter),
            downstreams=_downstreams(settings.downstream_table_name, settings.worker_concurrency, breaker_events),
            downstream=check_name(downstream) if isinstance(downstream, str) else downstream,
            work_seconds=settings.work_seconds or math.inf,
            on_message=_start_log,
            on_end=partial(publish_if_succeeded, events) if events else lambda *_: None,
        )
        return cls(consumer, perform, events, breaker_events)

    def handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Handle a batch; return the messages that must stay on the queue, for the event source mapping.

        It also does what Powertools' decorators do for a handler: it writes the metrics, and adds the invocation's keys
        to each log line.

        Raises:
            TimeoutTooShort: the function's timeout is too short. All messages stay on the queue.
        """
        logged = logger.inject_lambda_context(self._handle, clear_state=True)
        answer: dict[str, Any] = metrics.log_metrics(logged, capture_cold_start_metric=True)(event, context)
        return answer

    def _handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        left, needed = context.get_remaining_time_in_millis() / 1000, RESERVED_SECONDS + MIN_WORK_SECONDS
        if left < needed:
            raise TimeoutTooShort(
                f"the function's Timeout leaves {left:.1f} s to this invocation, and an attempt needs {needed:.0f}: "
                f"{RESERVED_SECONDS:.0f} s to record its outcome and {MIN_WORK_SECONDS:.0f} s for the work. Set "
                f"Timeout to the seconds of the work + {RESERVED_SECONDS:.0f}, and the queue's VisibilityTimeout to "
                "six times Timeout. The messages return to the queue unchanged; no attempt was made"
            )
        # By default Powertools raises if every message of a batch failed. With batches of one, the function's error
        # metric would then count each message that stays on the queue.
        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        answer = process_partial_response(
            event=event, record_handler=partial(self._consume, context), processor=processor, context=context
        )
        return dict(answer)

    def _consume(self, context: LambdaContext, record: SQSRecord) -> None:
        logger.remove_keys(["request_id", "attempt"])  # of the previous message in the batch
        logger.append_keys(message_id=record.message_id)
        # Publishing must leave the time that the consumer reserves for recording the outcome.
        self._limit_publishing(context, RESERVED_SECONDS)
        try:
            outcome = self._consumer.consume(record, self._perform, context)
        except WaitsForDownstream as error:
            logger.info("Held the message back", reason=str(error))
            metrics.add_metric("WorkDeferred", MetricUnit.Count, 1)
            raise
        except StillInProgress as error:
            logger.info("Left the message on the queue: another delivery works on it", reason=str(error))
            raise
        except (NoTimeLeft, NotYetDue) as error:
            logger.warning("Left the message on the queue", reason=str(error))
            raise
        except Exception:
            logger.exception("Left the message on the queue after an error")
            metrics.add_metric("WorkLeft", MetricUnit.Count, 1)
            raise
        finally:
            if self._breaker_events:
                self._limit_publishing(context, ANSWER_SECONDS)
                self._breaker_events.publish_kept()
        _log_outcome(outcome)

    def _limit_publishing(self, context: LambdaContext, reserved: float) -> None:
        if self._events:
            self._events.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - reserved


def _policy(parameter: str | None) -> PolicyParameter | BuiltInPolicy:
    if parameter is None:
        return BuiltInPolicy()
    return PolicyParameter(boto3.client("ssm", config=_POLICY_CLIENT_CONFIG), parameter, on_invalid=_policy_invalid)


def _downstreams(table: str | None, most: int | None, events: BreakerEvents | None) -> Downstreams | None:
    if table is None:
        return None
    return Downstreams(
        DownstreamTable(boto3.client("dynamodb", config=_HEALTH_CLIENT_CONFIG), table),
        most=most or MAX_CONCURRENCY,
        on_health=partial(_health_seen, events),
        on_unreported=_health_unreported,
    )


def _health_seen(events: BreakerEvents | None, name: str, before: Health, after: Health, callers: int | None) -> None:
    metrics.add_metric("BreakerOpen", MetricUnit.Count, after.breaker.state != State.CLOSED)
    if callers is not None:
        permitted = callers if after.breaker.state == State.CLOSED else int(after.breaker.state == State.HALF_OPEN)
        metrics.add_metric("PermittedCallers", MetricUnit.Count, permitted)
    if after.breaker.changes != before.breaker.changes:
        change = after.breaker.changes[-1]
        logger.warning("The breaker changed its state", downstream=name, state=change.to, reason=change.why)
        if events:
            events.keep(name, after)


def _health_unreported(reason: str) -> None:
    logger.warning("Could not report an attempt's outcome to the downstream's state", reason=reason)
    metrics.add_metric("OutcomeNotReported", MetricUnit.Count, 1)


def _start_log(message: Message) -> None:
    logger.append_keys(request_id=message.request_id, attempt=message.attempt)
    # An alarm on its maximum replaces Lambda's recursive-loop detection, which is off for this function.
    metrics.add_metric("WorkHops", MetricUnit.Count, message.attempt)


def _log_outcome(outcome: Outcome) -> None:
    match outcome:
        case WorkSucceeded():
            logger.info("The work succeeded")
            metrics.add_metric("WorkSucceeded", MetricUnit.Count, 1)
        case WorkRetried(delivery, reason, _, cause, counted):
            logger.warning(
                "The attempt failed; scheduled the next one",
                reason=reason,
                by=delivery.by,
                due=instant(delivery.due),
                counted=counted,
                exc_info=cause,
            )
            metrics.add_metric("WorkRetried", MetricUnit.Count, 1)
        case WorkDeadLettered(code, reason, _, cause):
            logger.error("Moved the message to the dead-letter queue", code=code, reason=reason, exc_info=cause)
            metrics.add_metric("WorkDeadLettered", MetricUnit.Count, 1)
            if code in ("AttemptsExhausted", "TooOld"):
                metrics.add_metric("RetriesExhausted", MetricUnit.Count, 1)
        case AlreadySettled(status, attempts):
            logger.warning("Deleted a repeated message", request_status=status, request_attempts=attempts)
            metrics.add_metric("WorkRepeated", MetricUnit.Count, 1)
        case WorkDeferred(until):
            logger.info("No attempt may begin yet; sent the message to the queue again", due=instant(until))
    if isinstance(outcome, WorkRetried | WorkDeadLettered) and outcome.died:
        metrics.add_metric("WorkDied", MetricUnit.Count, 1)


def _schedule_refused(reason: str) -> None:
    logger.error("Scheduler did not accept a retry; the queue delivers it instead", reason=reason)
    metrics.add_metric("RetryScheduleRefused", MetricUnit.Count, 1)


def _policy_invalid(reason: str) -> None:
    logger.error("The retry policy parameter could not be used", reason=reason)
    metrics.add_metric("RetryPolicyInvalid", MetricUnit.Count, 1)
