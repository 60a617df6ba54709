"""What producers hear of a request that is over: an EventBridge event whose detail is what completion.schema.json says.

It is sent when all that it tells of has happened, and nothing waits for it: whatever comes of sending it, the request's
own end stands. The workflow sends its own by a direct integration, in the same form.
"""

from __future__ import annotations

import json
import math
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
}
Status = Literal["SUCCEEDED", "FAILED", "DEAD_LETTERED"]

# Characters, of up to 12 bytes each. An entry may have 256 KB (EventBridge API Reference, PutEvents).
MAX_CHARACTERS = {"process": 128, "request_id": 128, "error": 256, "cause": 8000, "code": 100, "reason": 2000}

MAX_TRIES = 2
MAX_TRY_SECONDS = 7.0  # seconds: two attempts of a call with the wait between them
CLIENT_CONFIG = client_config(read_timeout=2, attempts=2)


class CompletionEvents:
    """Sends the events. Nothing that it is asked to do raises, or takes longer than the caller has.

    Args:
        stack: whose requests these are.
        on_unsent: told why an event could not be sent.
        seconds_left: for how long sending may take at most; none is begun that could take longer.
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
        """On the bus that the environment names. Raises MissingSetting."""
        settings = load_settings(EventSettings)
        return cls(
            boto3.client("events", config=CLIENT_CONFIG),
            settings.event_bus_name,
            settings.powertools_service_name,
            on_unsent=_not_sent,
        )

    def publish(self, status: Status, key: str, detail: Mapping[str, object], finished: float | None = None) -> bool:
        """Tells what became of a request; False if nobody could be told.

        Args:
            key: with the status, the same for every event about this end, and for no other.
            detail: further fields of the schema. What is None is left out.
            finished: when it was over, in seconds since the epoch; now, if it is not said.
        """
        try:
            entry = self._entry(status, key, self._clock() if finished is None else finished, detail)
            reason = self._send(entry)
        except Exception as error:  # of whatever kind: the request is over, and its message must go
            reason = f"{type(error).__name__}: {error}"
        if reason:
            self._on_unsent(f"{DETAIL_TYPES[status]}, {key}: {reason}")
        return not reason

    def _entry(self, status: Status, key: str, finished: float, detail: Mapping[str, object]) -> Any:
        fields = {
            "version": VERSION,
            "stack": self._stack,
            "status": status,
            "deduplication_id": f"{key}/{status}",
            "finished_at": instant(finished),
            **{name: _bounded(name, value) for name, value in detail.items() if value is not None},
        }
        return {
            "EventBusName": self._bus_name,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPES[status],
            "Detail": json.dumps(fields),
        }

    def _send(self, entry: Any) -> str:
        """Why it could not be sent; nothing if it was."""
        reason = ""
        for _ in range(MAX_TRIES):
            left = self.seconds_left()
            if left < MAX_TRY_SECONDS:
                return reason or f"no time is left: {left:.1f} s, and a call may take {MAX_TRY_SECONDS:.0f}"
            answer = self._events.put_events(Entries=[entry])
            # A refused entry comes with HTTP 200 (EventBridge guide, "Handling failures with PutEvents").
            if not answer["FailedEntryCount"]:
                return ""
            refused = answer["Entries"][0]
            reason = f"{refused.get('ErrorCode')}: {refused.get('ErrorMessage')}"
        return reason


def _bounded(name: str, value: object) -> object:
    return value[: MAX_CHARACTERS.get(name)] if isinstance(value, str) else value


def instant(seconds: float) -> str:
    """As the workflow's times are: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _not_sent(reason: str) -> None:
    logger.error("Producers were not told that a request is over", reason=reason)
    metrics.add_metric("EventsNotSent", MetricUnit.Count, 1)
