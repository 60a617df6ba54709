"""What the template passes to a function through its environment, read once and typed.

A field's name in capitals is the name of its variable. Times are in seconds, sizes in bytes. Named tuples: every cold
start makes all these classes, and a dataclass takes four times as long to be made.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple


class MissingSetting(RuntimeError):
    """An environment variable that the template sets is missing, or not a number: the text names it."""


def load_settings[S: tuple[Any, ...]](settings: type[S]) -> S:
    """One of the classes below from the environment. A field that may be None is None where its variable is not set.

    Raises:
        MissingSetting: a variable is not set, or not a whole number where its field is one.
    """
    make: Callable[..., S] = settings
    return make(*(_read(name.upper(), expected) for name, expected in settings.__annotations__.items()))


def _read(variable: str, expected: Any) -> str | int | None:
    value = os.environ.get(variable, "")
    if not value:
        if expected is not str and expected is not int:
            return None
        raise MissingSetting(f"environment variable {variable} is not set; template.yaml sets it")
    if expected is not int:
        return value
    if not value.isdecimal():
        raise MissingSetting(f"environment variable {variable} must be a whole number, got {value!r}")
    return int(value)


class StarterSettings(NamedTuple):
    slot_table_name: str
    workflow_arn: str
    request_queue_url: str
    request_dead_letter_queue_url: str
    queue_visibility_seconds: int
    queue_retention_seconds: int
    queue_max_receives: int


class JanitorSettings(NamedTuple):
    slot_table_name: str
    settled_table_name: str
    workflow_arn: str
    request_queue_url: str
    failed_request_queue_url: str
    grace_seconds: int
    look_gap_seconds: int


class ClosedExecutionSettings(NamedTuple):
    """What the function of status events needs, and the janitor does not."""

    status_event_queue_url: str


class EventSettings(NamedTuple):
    """For the functions that publish how a request has ended."""

    event_bus_name: str
    powertools_service_name: str  # the stack's name


class TokenSettings(NamedTuple):
    """What the chatbot and the refresher share."""

    token_table_name: str
    chat_api_url: str
    token_min_refresh_seconds: int


class ChatbotSettings(NamedTuple):
    """Without a `token_refresher_function` the chatbot has the credentials, and refreshes the token itself."""

    seen_signature_table_name: str
    signing_key_secret: str
    token_refresher_function: str | None


class CredentialsSettings(NamedTuple):
    """For the function that refreshes the token."""

    api_credentials_secret: str


class RetrySettings(NamedTuple):
    """For a worker with retries."""

    work_queue_url: str
    work_queue_arn: str
    work_dead_letter_queue_url: str
    work_queue_largest_message: int
    request_ledger_table_name: str
    retry_schedule_group: str
    retry_schedule_role_arn: str
    retry_schedule_dead_letter_queue_arn: str
    retry_policy_parameter: str
    scheduler_beyond_seconds: int
    work_seconds: int


class WorkSettings(NamedTuple):
    """For the shipped work, the part of the worker that users replace."""

    data_bucket_name: str
    work_seconds: int
