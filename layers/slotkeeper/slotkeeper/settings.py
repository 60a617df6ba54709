"""What the template tells a function through its environment, read once and typed.

Named tuples: every cold start makes all these classes, and a dataclass takes four times as long to be made.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class MissingSetting(RuntimeError):
    """An environment variable that the template sets is not there, or not a number: the text names it."""


def _text(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise MissingSetting(f"environment variable {name} is not set; template.yaml sets it")
    return value


def _number(name: str) -> int:
    value = _text(name)
    if not value.isdecimal():
        raise MissingSetting(f"environment variable {name} must be a whole number, got {value!r}")
    return int(value)


class StarterSettings(NamedTuple):
    """Times are in seconds."""

    slot_table_name: str
    workflow_arn: str
    request_queue_url: str
    dead_letter_queue_url: str
    queue_visibility: int
    queue_retention: int
    queue_max_receives: int

    @classmethod
    def from_environment(cls) -> StarterSettings:
        return cls(
            slot_table_name=_text("SLOT_TABLE_NAME"),
            workflow_arn=_text("WORKFLOW_ARN"),
            request_queue_url=_text("REQUEST_QUEUE_URL"),
            dead_letter_queue_url=_text("REQUEST_DEAD_LETTER_QUEUE_URL"),
            queue_visibility=_number("QUEUE_VISIBILITY_SECONDS"),
            queue_retention=_number("QUEUE_RETENTION_SECONDS"),
            queue_max_receives=_number("QUEUE_MAX_RECEIVES"),
        )


class JanitorSettings(NamedTuple):
    """Times are in seconds."""

    slot_table_name: str
    settled_table_name: str
    workflow_arn: str
    request_queue_url: str
    failed_request_queue_url: str
    grace: int
    look_gap: int

    @classmethod
    def from_environment(cls) -> JanitorSettings:
        return cls(
            slot_table_name=_text("SLOT_TABLE_NAME"),
            settled_table_name=_text("SETTLED_TABLE_NAME"),
            workflow_arn=_text("WORKFLOW_ARN"),
            request_queue_url=_text("REQUEST_QUEUE_URL"),
            failed_request_queue_url=_text("FAILED_REQUEST_QUEUE_URL"),
            grace=_number("GRACE_SECONDS"),
            look_gap=_number("LOOK_GAP_SECONDS"),
        )


class ClosedExecutionSettings(NamedTuple):
    """What the function of status events needs, and the janitor does not."""

    status_event_queue_url: str

    @classmethod
    def from_environment(cls) -> ClosedExecutionSettings:
        return cls(status_event_queue_url=_text("STATUS_EVENT_QUEUE_URL"))


class EventSettings(NamedTuple):
    """For whoever tells producers what became of their requests."""

    bus_name: str
    stack: str

    @classmethod
    def from_environment(cls) -> EventSettings:
        return cls(bus_name=_text("EVENT_BUS_NAME"), stack=_text("POWERTOOLS_SERVICE_NAME"))


class TokenSettings(NamedTuple):
    """What the chatbot and the refresher share. Times are in seconds."""

    token_table_name: str
    chat_api_url: str
    min_refresh: int

    @classmethod
    def from_environment(cls) -> TokenSettings:
        return cls(
            token_table_name=_text("TOKEN_TABLE_NAME"),
            chat_api_url=_text("CHAT_API_URL").rstrip("/"),
            min_refresh=_number("TOKEN_MIN_REFRESH_SECONDS"),
        )


class ChatbotSettings(NamedTuple):
    """Either `credentials_secret` or `token_refresher` is None: who has the credentials refreshes the token."""

    seen_signature_table_name: str
    signing_key_secret: str
    credentials_secret: str | None
    token_refresher: str | None

    @classmethod
    def from_environment(cls) -> ChatbotSettings:
        refresher = os.environ.get("TOKEN_REFRESHER_FUNCTION") or None
        return cls(
            seen_signature_table_name=_text("SEEN_SIGNATURE_TABLE_NAME"),
            signing_key_secret=_text("SIGNING_KEY_SECRET"),
            credentials_secret=None if refresher else _text("API_CREDENTIALS_SECRET"),
            token_refresher=refresher,
        )


class RefresherSettings(NamedTuple):
    credentials_secret: str

    @classmethod
    def from_environment(cls) -> RefresherSettings:
        return cls(credentials_secret=_text("API_CREDENTIALS_SECRET"))


class RetrySettings(NamedTuple):
    """For a worker with retries. Times are in seconds, sizes in bytes."""

    queue_url: str
    queue_arn: str
    dead_letter_queue_url: str
    ledger_table_name: str
    schedule_group: str
    schedule_role_arn: str
    schedule_dead_letter_queue_arn: str
    policy_parameter: str
    scheduler_beyond: int
    work_seconds: int
    largest_message: int

    @classmethod
    def from_environment(cls) -> RetrySettings:
        return cls(
            queue_url=_text("WORK_QUEUE_URL"),
            queue_arn=_text("WORK_QUEUE_ARN"),
            dead_letter_queue_url=_text("WORK_DEAD_LETTER_QUEUE_URL"),
            ledger_table_name=_text("REQUEST_LEDGER_TABLE_NAME"),
            schedule_group=_text("RETRY_SCHEDULE_GROUP"),
            schedule_role_arn=_text("RETRY_SCHEDULE_ROLE_ARN"),
            schedule_dead_letter_queue_arn=_text("RETRY_SCHEDULE_DEAD_LETTER_QUEUE_ARN"),
            policy_parameter=_text("RETRY_POLICY_PARAMETER"),
            scheduler_beyond=_number("SCHEDULER_BEYOND_SECONDS"),
            work_seconds=_number("WORK_SECONDS"),
            largest_message=_number("WORK_QUEUE_LARGEST_MESSAGE"),
        )


class WorkSettings(NamedTuple):
    """For the shipped work, the part of the worker that users replace. Times are in seconds."""

    data_bucket_name: str
    work_seconds: int

    @classmethod
    def from_environment(cls) -> WorkSettings:
        return cls(data_bucket_name=_text("DATA_BUCKET_NAME"), work_seconds=_number("WORK_SECONDS"))
