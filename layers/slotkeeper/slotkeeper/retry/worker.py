"""What a Lambda function over a queue with retries has to call: batches, metrics, and a log line for each message."""

from __future__ import annotations

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
from slotkeeper.retry.consumer import RESERVED_SECONDS, Consumer, NoTimeLeft, NotYetDue, Perform, StillInProgress
from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.events import PublishedDeadLetters, publish_if_succeeded
from slotkeeper.retry.ledger import AlreadySettled, Ledger
from slotkeeper.retry.message import Message, instant
from slotkeeper.retry.parameter import PolicyParameter
from slotkeeper.settings import RetrySettings, load_settings

CLIENT_CONFIG = client_config(read_timeout=3, attempts=3)
_POLICY_CLIENT_CONFIG = client_config(read_timeout=2, attempts=2)  # a worker continues with its last policy


class RetryingWorker:
    """`handle` is all that a handler has to call. `perform` raises Retryable or Poison, see slotkeeper.retry.errors."""

    def __init__(self, consumer: Consumer, perform: Perform, events: CompletionEvents | None = None) -> None:
        """`events`: publishes outcomes; `handle` limits the time that publishing may take."""
        self._consumer = consumer
        self._perform = perform
        self._events = events

    @classmethod
    def from_environment(cls, perform: Perform) -> RetryingWorker:
        """Over the queues and tables that the environment names. Raises MissingSetting."""
        settings = load_settings(RetrySettings)
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
            ),
            max_delay=settings.scheduler_beyond_seconds,
            max_message_bytes=settings.work_queue_largest_message,
            on_refused=_schedule_refused,
        )
        events = CompletionEvents.from_environment()
        consumer = Consumer(
            Ledger(boto3.client("dynamodb", config=CLIENT_CONFIG), settings.request_ledger_table_name),
            queue,
            PublishedDeadLetters(
                sqs, settings.work_dead_letter_queue_url, settings.work_queue_largest_message, events=events
            ),
            PolicyParameter(
                boto3.client("ssm", config=_POLICY_CLIENT_CONFIG),
                settings.retry_policy_parameter,
                on_invalid=_policy_invalid,
            ),
            work_seconds=settings.work_seconds,
            on_message=_start_log,
            on_end=partial(publish_if_succeeded, events),
        )
        return cls(consumer, perform, events)

    def handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answers the event source mapping which messages have to stay on the queue."""
        if self._events:
            # An event leaves what the consumer keeps of the invocation for its end.
            self._events.seconds_left = lambda: context.get_remaining_time_in_millis() / 1000 - RESERVED_SECONDS
        # By default Powertools raises when every message of a batch failed, which with batches of one is each time: the
        # function's error metric would count what the queue simply brings again.
        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        answer = process_partial_response(
            event=event, record_handler=partial(self._consume, context), processor=processor, context=context
        )
        return dict(answer)

    def _consume(self, context: LambdaContext, record: SQSRecord) -> None:
        logger.remove_keys(["request_id", "attempt"])  # the message's before this one in the batch
        logger.append_keys(message_id=record.message_id)
        try:
            outcome = self._consumer.consume(record, self._perform, context)
        except StillInProgress as error:
            logger.info("Left the message on the queue: another delivery works on it", reason=str(error))
            raise
        except (NoTimeLeft, NotYetDue) as error:
            logger.warning("Left the message on the queue", reason=str(error))
            raise
        except Exception:
            logger.exception("Left the message on the queue")
            metrics.add_metric("WorkLeft", MetricUnit.Count, 1)
            raise
        _log_outcome(outcome)


def _start_log(message: Message) -> None:
    logger.append_keys(request_id=message.request_id, attempt=message.attempt)
    # Its largest value is watched in place of Lambda's recursion guard, which leaves this function alone.
    metrics.add_metric("WorkHops", MetricUnit.Count, message.attempt)


def _log_outcome(outcome: Outcome) -> None:
    match outcome:
        case WorkSucceeded():
            logger.info("Done")
            metrics.add_metric("WorkSucceeded", MetricUnit.Count, 1)
        case WorkRetried(delivery, reason, _, cause):
            logger.warning(
                "Booked another attempt", reason=reason, by=delivery.by, due=instant(delivery.due), exc_info=cause
            )
            metrics.add_metric("WorkRetried", MetricUnit.Count, 1)
        case WorkDeadLettered(code, reason, _, cause):
            logger.error("Moved the message to the dead-letter queue", code=code, reason=reason, exc_info=cause)
            metrics.add_metric("WorkDeadLettered", MetricUnit.Count, 1)
            if code in ("AttemptsExhausted", "TooOld"):
                metrics.add_metric("RetriesExhausted", MetricUnit.Count, 1)
        case AlreadySettled(status, attempts):
            logger.warning("Dropped a repeated message", request_status=status, request_attempts=attempts)
            metrics.add_metric("WorkRepeated", MetricUnit.Count, 1)
        case WorkDeferred(until):
            logger.info("Sent the message on: it is not due yet", due=instant(until))
    if isinstance(outcome, WorkRetried | WorkDeadLettered) and outcome.died:
        metrics.add_metric("WorkDied", MetricUnit.Count, 1)


def _schedule_refused(reason: str) -> None:
    logger.error("Scheduler did not take a retry, which goes by the queue instead", reason=reason)
    metrics.add_metric("RetryScheduleRefused", MetricUnit.Count, 1)


def _policy_invalid(reason: str) -> None:
    logger.error("The retry policy is not used", reason=reason)
    metrics.add_metric("RetryPolicyInvalid", MetricUnit.Count, 1)
