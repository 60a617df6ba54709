"""What became of each message and each invalidation, put together from both ends of the wire. Pure; epoch seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dev.emulator.chat_service import Request

from .course import Invalidation
from .records import Records
from .sending import Delivery

# How a message was answered: `cold` met no token at all, `at_once` a valid one, `renewed` one dead one or two before
# the next, `sent_again` needed its sender to try again, `refused` was given up.
Kind = Literal["cold", "at_once", "renewed", "sent_again", "refused"]


@dataclass(frozen=True)
class Fate:
    """A message, the `POST /answers` made for it, and the seconds from its first 401 to a token that was valid.

    `wait` is None if it met no 401, or nothing else.
    """

    delivery: Delivery
    asks: tuple[Request, ...]
    kind: Kind
    wait: float | None

    @property
    def latency(self) -> float:
        """Seconds from its first request to its end, as its sender saw it."""
        return self.delivery.ended - self.delivery.sent


def auths(log: Sequence[Request]) -> list[Request]:
    """Every `POST /auth`."""
    return [request for request in log if (request.method, request.path) == ("POST", "/auth")]


def first_token_at(records: Records) -> float:
    """When the first `POST /auth` was answered with a token; for ever, if none was."""
    ended = [r.ended for r in auths(records.log) if r.status == 200 and r.ended is not None]
    return min(ended, default=float("inf"))


def fates(records: Records) -> list[Fate]:
    """One for each message, in their order."""
    asked: dict[str, list[Request]] = {}
    for request in records.log:
        if request.text is not None:
            asked.setdefault(request.text, []).append(request)
    first = first_token_at(records)
    return [_fate(delivery, asked.get(delivery.message.text, []), first) for delivery in records.deliveries]


def _fate(delivery: Delivery, asks: Sequence[Request], first_token: float) -> Fate:
    kind: Kind = "at_once"
    if delivery.answer is None:
        kind = "refused"
    elif len(delivery.tries) > 1:
        kind = "sent_again"
    elif any(ask.status == 401 for ask in asks):
        kind = "renewed"
    elif delivery.sent < first_token:
        kind = "cold"
    return Fate(delivery, tuple(asks), kind, _wait(asks))


def _wait(asks: Sequence[Request]) -> float | None:
    """Whoever meets two dead tokens, its own and the stored one, has waited once all the same."""
    turned_away = next((ask.ended for ask in asks if ask.status == 401), None)
    if turned_away is None:
        return None
    admitted = [ask.began for ask in asks if ask.status != 401 and ask.began >= turned_away]
    return admitted[0] - turned_away if admitted else None


def auths_by_cause(log: Sequence[Request], invalidations: Sequence[Invalidation]) -> list[list[Request]]:
    """The `POST /auth` before the first invalidation, then those after each of them and before the next one."""
    found: list[list[Request]] = [[] for _ in range(len(invalidations) + 1)]
    instants = [invalidation.at for invalidation in invalidations]
    for request in auths(log):
        found[bisect_right(instants, request.began)].append(request)
    return found


def healing(records: Records, invalidation: Invalidation) -> float | None:
    """Seconds from the invalidation to the first answer given with a newer token; None if there was none."""
    served = [
        request.began
        for request in records.log
        if request.text is not None and request.status == 200 and (request.token or 0) > invalidation.token
    ]
    return min(served) - invalidation.at if served else None
