"""Retries that outlive the queue, for any consumer of SQS messages.

from slotkeeper.retry import Poison, Retryable, RetryingWorker

worker = RetryingWorker.from_environment(perform)     # perform(request, remaining_seconds) -> result

def handler(event, context):
    return worker.handle(event, context)
"""

from slotkeeper.retry.consumer import Request
from slotkeeper.retry.errors import Failure, Poison, Retryable
from slotkeeper.retry.plan import DeadLetter, History, RetryAt, plan_retry
from slotkeeper.retry.policy import Policy, Rule
from slotkeeper.retry.worker import RetryingWorker

__all__ = [
    "DeadLetter",
    "Failure",
    "History",
    "Poison",
    "Policy",
    "Request",
    "RetryAt",
    "Retryable",
    "RetryingWorker",
    "Rule",
    "plan_retry",
]
