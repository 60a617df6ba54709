"""Events for EventBridge: ends of requests (completion.schema.json) and changes of breakers (breaker.schema.json).

An event is published after everything that it reports, and a failure to publish does not change what it reports. The
workflow publishes its own completion events in the same format by a direct integration.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import boto3
from aws_lambda_powertools.metrics import MetricUnit

from slotkeeper.aws.clients import client_config
from slotkeeper.observability import logger, metrics
from slotkeeper.settings import EventSettings, load_settings

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

SCHEMA_FILE = Path(__file__).with_name("completion.schema.json")
SOURCE = "slotkeeper"
VERSION = "1"
DETAIL_TYPES = {
    "SUCCEEDED": "Slotkeeper Request Succeeded",
    "FAILED": "Slotkeeper Request Failed",
    "DEAD_LETTERED": "Slotkeeper Request Dead-Lettered",
    "SKIPPED": "Slotkeeper Request Skipped",
}
Status = Literal["SUCCEEDED", "FAILED", "DEAD_LETTERED", "SKIPPED"]

BREAKER_SCHEMA_FILE = Path(__file__).with_name("breaker.schema.json")
# Another source, so that rules for completion events, which match source and stack, do not receive these.
BREAKER_SOURCE = "slotkeeper.breaker"
BREAKER_DETAIL_TYPES = {"OPEN": "Slotkeeper Breaker Opened", "CLOSED": "Slotkeeper Breaker Closed"}

# Maximum characters per field, of up to 12 bytes each. An entry may have 256 KB (EventBridge API Reference, PutEvents).
MAX_CHARACTERS = {"process": 128, "request_id": 128, "error": 256, "cause": 8000, "code": 100, "reason": 2000}

MAX_TRIES = 2
MAX_TRY_SECONDS = 7.0  # two attempts of a call and the wait between them
CLIENT_CONFIG = client_config(read_timeout=2, attempts=2)


class CompletionEvents:
    """Publishes completion events and changes of breakers.

    Publishing never raises, and never takes longer than `seconds_left`.

    Args:
        stack: the name of the stack that handled the requests.
        on_unsent: receives the reason why an event could not be published.
        seconds_left: returns the seconds that publishing may take; a call that could take longer is not made.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        events: EventBridgeClient,
        bus_name: str,
        stack: str,
        *,
        on_unsent: Callable[[str], None],
        seconds_left: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events = events
        self._bus_name = bus_name
        self._stack = stack
        self._on_unsent = on_unsent
        self.seconds_left = seconds_left
        self._clock = clock

    @classmethod
    def from_environment(cls) -> CompletionEvents:
        """Create the publisher for the bus in the environment's settings. Raises MissingSetting."""
        settings = load_settings(EventSettings)
        return cls(
            boto3.client("events", config=CLIENT_CONFIG),
            settings.event_bus_name,
            settings.powertools_service_name or os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "slotkeeper"),
            on_unsent=_not_sent,
        )

    def publish(self, status: Status, key: str, detail: Mapping[str, object], finished: float | None = None) -> bool:
        """Publish how a request has ended; False if that failed.

        Args:
            key: identifies this end together with the status, so that consumers can drop duplicates.
            detail: further fields of the schema. Fields that are None are omitted.
            finished: when the request ended, seconds since the epoch. Default: now.
        """
        ended = {
            "status": status,
            "deduplication_id": f"{key}/{status}",
            "finished_at": instant(self._clock() if finished is None else finished),
        }
        return self._publish(SOURCE, DETAIL_TYPES[status], key, ended | dict(detail))

    def publish_breaker(self, downstream: str, state: str, reason: str, at: float, epoch: int) -> bool:
        """Publish that a breaker was opened or closed; False if that failed.

        Args:
            state: OPEN or CLOSED.
            at: when it changed, seconds since the epoch.
            epoch: the number of the state, which identifies the change together with `downstream`.
        """
        detail = {"downstream": downstream, "state": state, "reason": reason, "at": instant(at), "epoch": epoch}
        return self._publish(BREAKER_SOURCE, BREAKER_DETAIL_TYPES[state], downstream, detail)

    def _publish(self, source: str, detail_type: str, key: str, detail: Mapping[str, object]) -> bool:
        try:
            fields = {name: _bounded(name, value) for name, value in detail.items() if value is not None}
            entry = {
                "EventBusName": self._bus_name,
                "Source": source,
                "DetailType": detail_type,
                "Detail": json.dumps({"version": VERSION, "stack": self._stack} | fields),
            }
            reason = self._send(entry)
        except Exception as error:  # any exception: the reported thing has happened, and the caller continues
            reason = f"{type(error).__name__}: {error}"
        if reason:
            self._on_unsent(f"{detail_type}, {key}: {reason}")
        return not reason

    def _send(self, entry: Any) -> str:
        """Send the entry; return the reason if that failed, else ""."""
        reason = ""
        for _ in range(MAX_TRIES):
            left = self.seconds_left()
            if left < MAX_TRY_SECONDS:
                return reason or f"{left:.1f} s are left, and a call may take {MAX_TRY_SECONDS:.0f} s"
            answer = self._events.put_events(Entries=[entry])
            # EventBridge reports a refused entry with HTTP 200 (EventBridge guide, "Handling failures with PutEvents").
            if not answer["FailedEntryCount"]:
                return ""
            refused = answer["Entries"][0]
            reason = f"{refused.get('ErrorCode')}: {refused.get('ErrorMessage')}"
        return reason


def _bounded(name: str, value: object) -> object:
    return value[: MAX_CHARACTERS.get(name)] if isinstance(value, str) else value


def instant(seconds: float) -> str:
    """Format epoch seconds like the workflow's times: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _not_sent(reason: str) -> None:
    logger.error("Could not publish an event; its consumers do not receive it", reason=reason)
    metrics.add_metric("EventsNotSent", MetricUnit.Count, 1)
