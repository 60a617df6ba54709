"""Records: the senders' deliveries, the API's log, the token's item, the chatbot's metrics. Epoch seconds."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dev.emulator.chat_service import ChatService, Request, TokenLife

from .chat_senders import Delivery
from .message_feed import Invalidation

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
    invalidations: Sequence[Invalidation]
    stored: Stored
    metrics: Mapping[str, float] = field(default_factory=dict)  # sums, by name


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


def read_metrics(logs: Any, group: str) -> dict[str, float]:
    """The sums of the metrics in a function's log."""
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
    return sum_metrics(event["message"] for page in pages for event in page["events"])


def sum_metrics(lines: Iterable[str]) -> dict[str, float]:
    """Sums by name of lines in embedded metric format (CloudWatch guide, "Specification: Embedded metric format")."""
    sums: dict[str, float] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            directives = entry["_aws"]["CloudWatchMetrics"]
        except (ValueError, TypeError, KeyError):
            continue  # a line of another kind
        for name in {metric["Name"] for directive in directives for metric in directive["Metrics"]}:
            values = entry[name] if isinstance(entry[name], list) else [entry[name]]
            sums[name] = sums.get(name, 0) + sum(values)
    return sums


class Kind(StrEnum):
    """How a message was answered."""

    COLD = "cold"  # before there was a token
    DIRECT = "direct"  # with a valid token
    RENEWED = "renewed"  # after one or two invalid tokens
    SENT_AGAIN = "sent_again"  # only after a further try of its sender
    REFUSED = "refused"  # not answered: given up


@dataclass(frozen=True)
class MessageOutcome:
    """A message and its `POST /answers`.

    `wait`: seconds from its first 401 to a request with a valid token. None without either of them.
    """

    delivery: Delivery
    asks: tuple[Request, ...]
    kind: Kind
    wait: float | None

    @property
    def message_id(self) -> str:
        return self.delivery.message.message_id

    @property
    def latency(self) -> float:
        """Seconds from its first request to its end, by its sender's clock."""
        return self.delivery.ended - self.delivery.sent


def auths(log: Sequence[Request]) -> list[Request]:
    """Every `POST /auth`."""
    return [request for request in log if (request.method, request.path) == ("POST", "/auth")]


def message_outcomes(records: Records) -> list[MessageOutcome]:
    """One for each message, in order."""
    asks: dict[str, list[Request]] = {}
    for request in records.log:
        if request.text is not None:
            asks.setdefault(request.text, []).append(request)
    answered = [r.ended for r in auths(records.log) if r.status == 200 and r.ended is not None]
    first_token = min(answered, default=float("inf"))
    return [_outcome(delivery, asks.get(delivery.message.text, []), first_token) for delivery in records.deliveries]


def _outcome(delivery: Delivery, asks: Sequence[Request], first_token: float) -> MessageOutcome:
    kind = Kind.DIRECT
    if delivery.answer is None:
        kind = Kind.REFUSED
    elif len(delivery.tries) > 1:
        kind = Kind.SENT_AGAIN
    elif any(ask.status == 401 for ask in asks):
        kind = Kind.RENEWED
    elif delivery.sent < first_token:
        kind = Kind.COLD
    return MessageOutcome(delivery, tuple(asks), kind, _wait(asks))


def _wait(asks: Sequence[Request]) -> float | None:
    """A message that meets two invalid tokens, the cached and the stored one, has waited once."""
    rejected = next((ask.ended for ask in asks if ask.status == 401), None)
    if rejected is None:
        return None
    admitted = [ask.began for ask in asks if ask.status != 401 and ask.began >= rejected]
    return admitted[0] - rejected if admitted else None


def auths_by_cause(log: Sequence[Request], invalidations: Sequence[Invalidation]) -> list[list[Request]]:
    """Groups: the `POST /auth` before the first invalidation, and those between each one and the next."""
    groups: list[list[Request]] = [[] for _ in range(len(invalidations) + 1)]
    instants = [invalidation.at for invalidation in invalidations]
    for request in auths(log):
        groups[bisect_right(instants, request.began)].append(request)
    return groups
