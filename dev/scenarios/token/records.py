"""What the run is judged by: the senders' own notes, the API's log, the token's item, and the chatbot's metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.chat_service import ChatService, Request, TokenLife

from .course import Invalidation
from .sending import Delivery

ITEM = "chatbot"  # the key of the token that all instances share


@dataclass(frozen=True)
class Stored:
    """The token's item at the end: which of the API's tokens it holds, never the token."""

    token: int | None
    live: bool
    generation: int
    locked: bool


@dataclass(frozen=True)
class Records:
    deliveries: Sequence[Delivery]
    log: Sequence[Request]
    tokens: Sequence[TokenLife]
    invalidations: Sequence[Invalidation]
    stored: Stored
    metrics: Mapping[str, float] = field(default_factory=dict)  # sums, by name


def read_stored(dynamodb: Any, table: str, service: ChatService) -> Stored:
    """By a consistent read. Raises LookupError without its item."""
    item = dynamodb.get_item(TableName=table, Key={"token_name": {"S": ITEM}}, ConsistentRead=True).get("Item")
    if item is None:
        raise LookupError(f"table {table} has no item {ITEM}: no instance of the chatbot has stored a token")
    token = item.get("access_token", {}).get("S", "")
    return Stored(
        token=service.number_of(token),
        live=service.is_live(token),
        generation=int(item.get("generation", {"N": "0"})["N"]),
        locked="refresh_lock" in item,
    )


def read_metrics(logs: Any, group: str) -> dict[str, float]:
    """The sums of the metrics in a function's log, where the embedded AWS leaves them and CloudWatch takes them."""
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
    return sum_metrics(event["message"] for page in pages for event in page["events"])


def sum_metrics(lines: Iterable[str]) -> dict[str, float]:
    """Sums by name of lines in embedded metric format (CloudWatch guide, "Specification: Embedded metric format")."""
    sums: dict[str, float] = {}
    for line in lines:
        try:
            told = json.loads(line)
            directives = told["_aws"]["CloudWatchMetrics"]
        except (ValueError, TypeError, KeyError):
            continue  # a line of another kind
        for name in {metric["Name"] for directive in directives for metric in directive["Metrics"]}:
            values = told[name] if isinstance(told[name], list) else [told[name]]
            sums[name] = sums.get(name, 0) + sum(values)
    return sums
