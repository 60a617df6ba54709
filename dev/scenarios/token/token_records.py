"""Records: the senders' deliveries, the API's log, the token's item, the chatbot's metrics. Epoch seconds."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.emulator.chat_service import ChatService, Request, TokenLife

from .messages import Delivery

ITEM = "chatbot"  # the key of the token that all instances share


@dataclass(frozen=True)
class Stored:
    """The token's item at the end. `token`: the number of the API's token, never the token itself."""

    token: int | None
    live: bool
    generation: int
    locked: bool


@dataclass(frozen=True)
class Records:
    deliveries: Sequence[Delivery]
    log: Sequence[Request]
    tokens: Sequence[TokenLife]
    stored: Stored
    metrics: Mapping[str, float] = field(default_factory=dict)  # sums, by name

    @property
    def invalidated(self) -> list[TokenLife]:
        """The tokens that the run has invalidated."""
        return [life for life in self.tokens if life.ended_by == "invalidate"]

    @property
    def auths(self) -> list[Request]:
        """Every `POST /auth`."""
        return [request for request in self.log if (request.method, request.path) == ("POST", "/auth")]

    @property
    def auths_by_cause(self) -> list[list[Request]]:
        """Groups: the `POST /auth` before the first invalidation, and those between each one and the next."""
        instants = [life.until for life in self.invalidated if life.until is not None]
        groups: list[list[Request]] = [[] for _ in range(len(instants) + 1)]
        for request in self.auths:
            groups[bisect_right(instants, request.began)].append(request)
        return groups


def read_stored(dynamodb: Any, table: str, service: ChatService) -> Stored:
    """Read the item consistently. Raises LookupError without an item."""
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


def read_metrics(logs: Any, group: str) -> Mapping[str, float]:
    """The sums of the metrics in a function's log (CloudWatch guide, "Specification: Embedded metric format")."""
    sums = Counter[str]()
    for page in logs.get_paginator("filter_log_events").paginate(
        logGroupName=group, filterPattern='"CloudWatchMetrics"'
    ):
        for event in page["events"]:
            entry = json.loads(event["message"])
            for metric in (each for directive in entry["_aws"]["CloudWatchMetrics"] for each in directive["Metrics"]):
                value = entry[metric["Name"]]
                sums[metric["Name"]] += sum(value) if isinstance(value, list) else value
    return sums


@dataclass(frozen=True)
class MessageOutcome:
    """A message and its `POST /answers`."""

    delivery: Delivery
    asks: Sequence[Request]

    @property
    def message_id(self) -> str:
        return self.delivery.message.message_id

    @property
    def wait(self) -> float | None:
        """Seconds from its first 401 to a request with a valid token. None without either of them.

        A message that meets two invalid tokens, the cached and the stored one, has waited once.
        """
        rejected = next((ask.ended for ask in self.asks if ask.status == 401), None)
        admitted = [ask.began for ask in self.asks if ask.status != 401 and rejected and ask.began >= rejected]
        return admitted[0] - rejected if rejected and admitted else None


def message_outcomes(records: Records) -> list[MessageOutcome]:
    """One for each message, in order."""
    asks: dict[str, list[Request]] = defaultdict(list)
    for request in records.log:
        asks[request.text or ""].append(request)
    return [MessageOutcome(each, asks[each.message.text]) for each in records.deliveries]
