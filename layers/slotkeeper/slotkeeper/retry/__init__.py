"""Retries that outlive the queue's retention and maximum receives, for any consumer of SQS messages.

    worker = RetryingWorker.from_environment(perform)  # perform(request, remaining_seconds) -> result

    def handler(event, context):
        return worker.handle(event, context)

`handle` also writes the metrics and adds the invocation to the log lines, so the handler needs no decorator.
`perform` may raise Retryable or Poison; any other exception is retried too. `plan_retry` is the decision alone.
"""

from slotkeeper.retry.consumer import Perform, WorkRequest
from slotkeeper.retry.errors import Failure, Poison, Retryable
from slotkeeper.retry.plan import AttemptHistory, DeadLetter, RetryAt, plan_retry
from slotkeeper.retry.policy import Policy, Rule
from slotkeeper.retry.worker import RetryingWorker

__all__ = [
    "AttemptHistory",
    "DeadLetter",
    "Failure",
    "Perform",
    "Poison",
    "Policy",
    "RetryAt",
    "Retryable",
    "RetryingWorker",
    "Rule",
    "WorkRequest",
    "plan_retry",
]
