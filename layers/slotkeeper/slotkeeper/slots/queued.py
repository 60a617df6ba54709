"""A queued request as a dispatch reads it, its place in the queue, and which parts of a queue were read.

A place is text that sorts: first by priority, then by key, then by the time of sending. All requests of a key are
together, so one query finds the next key, however many requests are between. Those without a key come last:

    1#/acme<TAB>01700000000000#000...7      rank of its priority, key, milliseconds, sequence number
    1#01700000000000#000...8                the same without a key

DynamoDB compares text by its UTF-8 bytes (DynamoDB guide, "Query"), which is the order of Python. A tab sorts before
each character that a key may have, so no key comes between the requests of another one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_KEYED, _KEY_END = "/", "\t"  # "/" sorts before the digits of a time
_BEHIND = "~"  # behind each digit, "#" and tab
# Two places: from the first one to the second, by turns, nothing can start, nor in higher priorities. The second one
# may sort before the first one. Then the keys whose first request is in that part and does not fit into their limit.
type Passed = tuple[str, str, *tuple[str, ...]]
# Before and behind each place.
QUEUE_START, QUEUE_END = "#", _BEHIND


def place_of(rank: int, sent: float, sequence: str, key: str = "") -> str:
    """The place of a message in its process's queue.

    The sequence number, which has up to 39 digits (SQS API Reference, SendMessage), orders the messages of a sender
    that were sent in one millisecond.

    Args:
        rank: of its priority, 0 for the highest.
        sent: SentTimestamp, in seconds since the epoch.
        key: "" for none.
    """
    begin = before_key(str(rank), key) if key else before_rank(str(rank))
    return f"{begin}{round(sent * 1000):014}#{sequence.zfill(40)}"


def rank_of(place: str) -> str:
    """The rank of the priority in a place, as text."""
    return place[:1]


def key_of(place: str) -> str:
    """The key in a place; "" for none."""
    _, _, rest = place.partition("#")
    return rest[1:].partition(_KEY_END)[0] if rest.startswith(_KEYED) else ""


def sent_at(place: str) -> float:
    """The time in a place, in seconds since the epoch. Raises ValueError if it is malformed."""
    return int(place.rpartition("#")[0][-14:]) / 1000


def before_key(rank: str, key: str) -> str:
    """Sorts before each place of a key, and behind each of the keys before it."""
    return f"{rank}#{_KEYED}{key}{_KEY_END}" if key else f"{rank}#0"


def behind_key(rank: str, key: str) -> str:
    """Sorts behind each place of a key, and before each of the keys behind it."""
    return f"{before_key(rank, key)}{_BEHIND}" if key else behind_rank(rank)


def before_rank(rank: str) -> str:
    """Sorts before each place of a priority, and behind each of higher ones."""
    return f"{rank}#"


def behind_rank(rank: str) -> str:
    """Sorts behind each place of a priority, and before each of lower ones."""
    return f"{rank}{_BEHIND}"


@dataclass(frozen=True)
class Queued:
    """A queued request, as the index of a process's queue contains it.

    Attributes:
        execution: the name of its workflow execution.
        place: text that sorts: first by its priority, then by its key, then by the time of sending.
        weight: in the unit of the limit, as the request states it. None: the process's default weight.
        start_before: the time from which it does not start any more, in seconds since the epoch; None: it states none.
        skips: whether it leaves the queue if it cannot start now.
    """

    execution: str
    place: str
    weight: int | None = None
    start_before: float | None = None
    skips: bool = False

    @property
    def key(self) -> str:
        """Whose turn it takes, and whose limit applies to it; "" for none."""
        return key_of(self.place)


@dataclass(frozen=True)
class QueuePart:
    """A part of a queue that was read: its requests behind the place `after`, up to `until`."""

    requests: Sequence[Queued]
    after: str
    until: str


class QueueParts:
    """The parts of a queue that are known.

    Args:
        known: each may overlap others.
        passed: the part in which nothing can start, if that is known of one.
    """

    def __init__(self, known: Sequence[QueuePart] = (), passed: Passed | None = None) -> None:
        self.found: dict[str, Queued] = {}
        # Of each part, in their order. No two of them meet.
        self._begins: list[str] = []
        self._ends: list[str] = []
        self._passed = _by_turns(*passed[:2]) if passed else []
        self.full_keys = passed[2:] if passed else ()
        for part in [*known, *(QueuePart((), *each) for each in self._passed)]:
            self.add(part)

    def add(self, part: QueuePart) -> None:
        """Add a part, which may overlap others. Of an empty one only its requests."""
        self.found |= {each.execution: each for each in part.requests}
        if part.after >= part.until:
            return
        first, last = bisect_left(self._ends, part.after), bisect_right(self._begins, part.until)
        begins = min([part.after, *self._begins[first:last]])
        ends = max([part.until, *self._ends[first:last]])
        self._begins[first:last], self._ends[first:last] = [begins], [ends]

    @property
    def requests(self) -> list[Queued]:
        """The requests that were read, in the order of their places."""
        return sorted(self.found.values(), key=lambda each: each.place)

    def is_passed(self, place: str) -> bool:
        """Whether the request of a place cannot start now."""
        return any(after < place <= until for after, until in self._passed)

    def unread(self, after: str, until: str) -> str | None:
        """The place behind which a request of this part may be that is not known; None if there is none."""
        at = bisect_right(self._begins, after) - 1
        begin = max(after, self._ends[at]) if at >= 0 else after
        return begin if begin < until else None


def _by_turns(since: str, until: str) -> list[tuple[str, str]]:
    """The parts of a queue from one place to another, round the end of its priority, and all higher priorities."""
    rank = rank_of(until)
    begin = before_rank(rank)
    around = [(since, until)] if since <= until else [(since, behind_rank(rank)), (begin, until)]
    return [(QUEUE_START, begin), *around]


# Of a queue that was read as a whole.
WHOLE = QueueParts([QueuePart((), QUEUE_START, QUEUE_END)])
