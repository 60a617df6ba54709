"""The settings of functions, in environment variables, which the template of each function sets.

The variable's name is the field's name in capitals. Times are in seconds, sizes in bytes. The classes are named tuples,
because every cold start creates all of them, and creating a dataclass takes four times as long.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

# Any two machines' clocks differ by less than this many seconds: those of two containers, or of a lease's callers.
CLOCK_SKEW_SECONDS = 5
# Of a request, and of a process's limit, in the same unit: slots, or for example DPUs.
MAX_WEIGHT = 100_000
NO_TARGET = "none"  # of a process for leases alone, which runs no request


class MissingSetting(RuntimeError):
    """An environment variable is missing or not a number. The message names it."""


def load_settings[S: tuple[Any, ...]](settings: type[S]) -> S:
    """Load one of the classes below from the environment. An optional field is None if its variable is not set.

    Raises:
        MissingSetting: a required variable is not set, or the variable of an integer field is not a whole number.
    """
    make: Callable[..., S] = settings
    # Not __annotations__: those of a module that postpones their evaluation, such as the worker's, are strings.
    fields = get_type_hints(settings)
    required = [name.upper() for name, expected in fields.items() if expected in (str, int)]
    if missing := [name for name in required if not os.environ.get(name)]:
        expected = "; ".join(f"{name}: {MEANINGS[name]}" if name in MEANINGS else name for name in missing)
        raise MissingSetting(
            f"the function's environment lacks {expected}. Set it in the function's configuration (in a SAM template: "
            "Environment, Variables). Nothing was handled"
        )
    return make(*(_read(name.upper(), expected) for name, expected in fields.items()))


def _read(variable: str, expected: Any) -> str | int | None:
    value = os.environ.get(variable) or None
    if value is None or expected not in (int, int | None):
        return value
    if not value.isdecimal():
        raise MissingSetting(f"environment variable {variable} must be a whole number, got {value!r}")
    return int(value)


class StarterSettings(NamedTuple):
    slot_table_name: str
    request_table_name: str
    workflow_arn: str
    dispatch_queue_url: str
    ending_queue_url: str
    request_dead_letter_queue_url: str


class JanitorSettings(NamedTuple):
    """For the janitor and the function of endings."""

    slot_table_name: str
    request_table_name: str
    workflow_arn: str
    dispatch_queue_url: str
    request_dead_letter_queue_url: str
    failure_topic_arn: str
    grace_seconds: int
    check_gap_seconds: int
    request_retention_days: int
    failed_retention_days: int


class EndingSettings(NamedTuple):
    """Further settings of the function of endings."""

    ending_queue_url: str


class EventSettings(NamedTuple):
    """For the functions that publish completion events."""

    event_bus_name: str
    powertools_service_name: str | None  # the stack's name; without it the function's name


class TokenSettings(NamedTuple):
    """Shared by the chatbot and the refresher."""

    token_table_name: str
    chat_api_url: str
    token_min_refresh_seconds: int


class ChatbotSettings(NamedTuple):
    """For the chatbot. Without a `token_refresher_function` it refreshes the token itself, with the credentials."""

    seen_signature_table_name: str
    signing_key_secret: str
    token_refresher_function: str | None


class CredentialsSettings(NamedTuple):
    """For the function that refreshes the token."""

    api_credentials_secret: str


class RetrySettings(NamedTuple):
    """For a worker with retries, also in a function of your own. MEANINGS states what each variable contains.

    Optional: without `downstream_table_name` every attempt is permitted, without `event_bus_name` no completion events
    are published, without `retry_policy_parameter` the built-in policy is used, without `retry_schedule_key_arn`
    schedules are encrypted with AWS's own key, without `work_seconds` an attempt may take the rest of the invocation.
    """

    work_queue_url: str
    work_queue_arn: str
    work_dead_letter_queue_url: str
    work_queue_largest_message: int
    request_ledger_table_name: str
    retry_schedule_group: str
    retry_schedule_role_arn: str
    retry_schedule_dead_letter_queue_arn: str
    retry_schedule_key_arn: str | None
    retry_policy_parameter: str | None
    scheduler_beyond_seconds: int | None
    work_seconds: int | None
    event_bus_name: str | None
    downstream_table_name: str | None
    worker_concurrency: int | None


class RetryReportSettings(NamedTuple):
    """For the function that publishes the retry report."""

    request_ledger_table_name: str
    downstream_table_name: str
    failure_topic_arn: str
    stack_name: str


MEANINGS = {
    "WORK_QUEUE_URL": "the URL of the standard SQS queue with the requests",
    "WORK_QUEUE_ARN": "the ARN of that queue, to which schedules send retries",
    "WORK_QUEUE_LARGEST_MESSAGE": "the MaximumMessageSize of that queue, in bytes",
    "WORK_DEAD_LETTER_QUEUE_URL": "the URL of the queue for requests that are not retried",
    "REQUEST_LEDGER_TABLE_NAME": "the name of the DynamoDB table with the attempts; its key is request_id, a string",
    "RETRY_SCHEDULE_GROUP": "the name of the EventBridge Scheduler group for later retries",
    "RETRY_SCHEDULE_ROLE_ARN": "the ARN of the role with which schedules send to the queue",
    "RETRY_SCHEDULE_DEAD_LETTER_QUEUE_ARN": "the ARN of a standard queue for retries that a schedule cannot deliver",
    "TOKEN_TABLE_NAME": "the name of the DynamoDB table with the shared token; its key is token_name, a string",
    "EVENT_BUS_NAME": "the EventBridge bus for completion events, such as default",
}
