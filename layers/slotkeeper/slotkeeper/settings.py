"""The settings that the template passes to functions in environment variables.

The variable's name is the field's name in capitals. Times are in seconds, sizes in bytes. The classes are named tuples,
because every cold start creates all of them, and creating a dataclass takes four times as long.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple


class MissingSetting(RuntimeError):
    """An environment variable is missing or not a number. The message names it."""


def load_settings[S: tuple[Any, ...]](settings: type[S]) -> S:
    """Load one of the classes below from the environment. An optional field is None if its variable is not set.

    Raises:
        MissingSetting: a required variable is not set, or the variable of an integer field is not a whole number.
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
    """Further settings of the function that handles status events."""

    status_event_queue_url: str


class EventSettings(NamedTuple):
    """For the functions that publish completion events."""

    event_bus_name: str
    powertools_service_name: str  # the stack's name


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
