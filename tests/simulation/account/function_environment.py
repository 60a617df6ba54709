"""The variables of the functions that are the same in each simulated account, and their effect on loaded modules."""

from __future__ import annotations

import importlib
import sys

from slotkeeper import events, observability, retry
from slotkeeper.chatbot import token as chat_token
from slotkeeper.retry import worker as retrying_worker
from tests.simulation.account.executions import WORKFLOW
from tests.simulation.account.items import LEDGER, REQUESTS, SEEN, SLOTS, TOKENS

OF_SLOTS = {
    "EVENT_BUS_NAME": "default",
    "GRACE_SECONDS": "120",
    "CHECK_GAP_SECONDS": "30",
    "REQUEST_RETENTION_DAYS": "30",
    "FAILED_RETENTION_DAYS": "90",
    "FAILURE_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:failures",
    "SLOT_TABLE_NAME": SLOTS,
    "REQUEST_TABLE_NAME": REQUESTS,
    "WORKFLOW_ARN": WORKFLOW,
    "DISPATCH_QUEUE_URL": "https://sqs/bells",
    "REQUEST_DEAD_LETTER_QUEUE_URL": "https://sqs/dead.fifo",
    "ENDING_QUEUE_URL": "https://sqs/endings",
    "STACK_NAME": "slotkeeper",
    "POWERTOOLS_METRICS_NAMESPACE": "Slotkeeper",
    "POWERTOOLS_SERVICE_NAME": "slotkeeper",
    "POWERTOOLS_TRACE_DISABLED": "true",
}
OF_THE_WORKER = {
    "WORK_QUEUE_URL": "https://sqs/work",
    "WORK_DEAD_LETTER_QUEUE_URL": "https://sqs/work-dead",
    "REQUEST_LEDGER_TABLE_NAME": LEDGER,
    "WORK_QUEUE_ARN": "arn:aws:sqs:us-east-1:123456789012:work",
    "WORK_QUEUE_LARGEST_MESSAGE": "1047552",
    "RETRY_SCHEDULE_GROUP": "retries",
    "RETRY_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
    "RETRY_SCHEDULE_DEAD_LETTER_QUEUE_ARN": "arn:aws:sqs:us-east-1:123456789012:schedules-dead",
    "RETRY_POLICY_PARAMETER": "/policy",
    "SCHEDULER_BEYOND_SECONDS": "900",
    "WORK_SECONDS": "50",
}
OF_THE_CHATBOT = {
    "TOKEN_TABLE_NAME": TOKENS,
    "SEEN_SIGNATURE_TABLE_NAME": SEEN,
    "SIGNING_KEY_SECRET": "signing",
    "API_CREDENTIALS_SECRET": "credentials",
    "TOKEN_MIN_REFRESH_SECONDS": "0",
}


class CurrentStdout:
    """Writes to the current `sys.stdout`, which pytest replaces in each phase of a test."""

    def write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


def read_again() -> None:
    """Reload the modules that create objects of Powertools, which read the variables then."""
    importlib.reload(observability)
    for module in (chat_token, events, retrying_worker, retry):
        importlib.reload(module)
    (log,) = observability.logger.handlers
    log.setStream(CurrentStdout())
