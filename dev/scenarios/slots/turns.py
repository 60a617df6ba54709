"""Whose turn it was, and for how long a slot was free for it: from messages, starts and releases. Pure; seconds.

The turn is computed from the rule alone: of the requests that were sent and have not started, the first message of each
priority is its head, and the head of the highest priority has the turn, unless it is heavier than the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slotkeeper.slots.request import PRIORITIES, Priority
from slotkeeper_cli.intervals import Steps, value_at


@dataclass(frozen=True)
class Asking:
    """A request from its sending until its start or dead-letter message. `until` is infinite if there is neither."""

    name: str
    priority: Priority
    weight: int
    sequence: int
    sent: float
    until: float
    started: bool


@dataclass(frozen=True)
class Turn:
    """A time in which a request had the turn and fitted.

    Args:
        started: its start ended this time. Otherwise another request took the slots or the turn.
        after_release: the time began when slots were released or the limit was raised.
    """

    request: Asking
    began: float
    ended: float
    started: bool
    after_release: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def turns(asking: Sequence[Asking], held: Steps, limits: Steps) -> list[Turn]:
    """All times in which a request could have started, by time.

    Args:
        held: the weight in use.
        limits: from before the first request was sent.
    """
    ends = {each.until for each in asking if each.until < math.inf}
    instants = sorted({each.sent for each in asking} | ends | {at for at, _ in (*held, *limits)})
    groups = [sorted((e for e in asking if e.priority == p), key=lambda e: e.sequence) for p in PRIORITIES]
    found: list[Turn] = []
    current: Asking | None = None
    began = 0.0
    for instant in instants:
        able = _able(groups, instant, value_at(held, instant), value_at(limits, instant))
        if able is current:
            continue
        if current is not None:
            found.append(_turn(current, began, instant, held, limits))
        current, began = able, instant
    return found if current is None else [*found, _turn(current, began, math.inf, held, limits)]


def _able(groups: Sequence[list[Asking]], instant: float, held: int, limit: int) -> Asking | None:
    """The request that has the turn, if it fits. `groups`: by priority, in message order; removes those that ended."""
    for group in groups:
        while group and group[0].until <= instant:
            group.pop(0)
        head = next((each for each in group if each.sent <= instant < each.until), None)
        if head is not None and head.weight <= limit:
            return head if held + head.weight <= limit else None
    return None


def _turn(request: Asking, began: float, ended: float, held: Steps, limits: Steps) -> Turn:
    before = math.nextafter(began, -math.inf)
    released = value_at(held, began) < value_at(held, before) or value_at(limits, began) > value_at(limits, before)
    return Turn(request, began, ended, request.started and ended == request.until, released)
