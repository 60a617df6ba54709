"""Checks a race for slots: every state of the item, every step between two states, and every answer to a client.

1. The stream has each version of the item. The version before a write decides whether the write was allowed
   (dev/judge/slot_item.py).
2. The clients' history must agree with the stream, write by write. A mark in the item names the call that wrote it.
3. Observers read during the race. Their reads must be versions of the stream, in its order, so the stream is complete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dev.judge.slot_item import Asked, Holder, Item, Writer, wrong_item, wrong_step
from tests.races.slot_answers import Writes, most_certain_weight, wrong_answers
from tests.races.slot_history import Operation, digest
from tests.races.slot_messages import Message

MAX_FAULTS_SHOWN = 20  # of more, the report has the number


@dataclass(frozen=True)
class Figures:
    """The size of a race."""

    operations: int
    lost_answers: int
    grants: int
    refusals: int
    writes: int
    snapshots: int
    most_holders: int
    most_in_use: int  # the largest sum of weights
    most_certain: int  # the same by the clients' own clocks alone
    granted: Mapping[str, int]  # by priority
    heaviest: int  # the largest weight of a grant
    registrations: int
    cleared: int  # registrations that a waker or a dead-lettered message ended


class VersionJudge:
    """Checks the versions of an item, oldest first. `faults` contains sentences.

    Args:
        counted: no disturber writes wrong counts.
    """

    def __init__(self, *, counted: bool = True) -> None:
        self.faults: list[str] = []
        self.curve: list[tuple[int, int]] = []  # the sum of weights and the limit after each write
        self._counted = counted
        self._last: Item | None = None

    def take(self, item: Item) -> None:
        """Check the next version. The first one is the created item, the last one the final item."""
        old, self._last = self._last, item
        breaches = list(wrong_item(item, counted=self._counted))
        if old is not None:
            breaches += wrong_step(old, item, self._asked, self._writer(old, item), counted=self._counted)
        self.faults += [f"write {len(self.curve)}: {breach}" for breach in breaches]
        self.curve.append((item.weight, item.limit))

    def summary(self) -> str:
        """The first faults as text, and the number of others."""
        more = len(self.faults) - MAX_FAULTS_SHOWN
        return "\n".join([*self.faults[:MAX_FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])])

    def _asked(self, _name: str, _holder: Holder) -> Asked | None:
        """The request of a new holder, if it is known: it has no message."""
        return Asked(None)

    def _writer(self, _old: Item, _new: Item) -> Writer | None:
        """Who has removed a lease, if it is known."""
        return None


class Judge(VersionJudge):
    """Checks the items of a race, then answers and reads.

    Args:
        operations: what the clients did, with the release of every slot and the end of every registration afterwards.
        steady: the limit is constant and the count correct.
    """

    def __init__(self, operations: list[Operation], *, steady: bool = True, counted: bool = True) -> None:
        super().__init__(counted=counted)
        self._steady = steady
        self._operations = operations
        self._messages = {
            mark: each.message for each in operations if each.step == "reserve" and each.message for mark in each.marks
        }
        self._writes = Writes()
        self._granted: list[Message] = []
        self._heaviest = self._most_holders = 0
        self._places: defaultdict[int, list[int]] = defaultdict(list)

    def take(self, item: Item) -> None:
        self._places[digest(item)].append(len(self.curve))
        self._most_holders = max(self._most_holders, len(item.holders))
        if self._last is not None:
            self._writes.add(self._last, item)
            for name in item.holders.keys() - self._last.holders.keys():
                self._heaviest = max(self._heaviest, item.holders[name].weight)
                if message := self._messages.get(item.holders[name].since):
                    self._granted.append(message)
        super().take(item)

    def _asked(self, _name: str, holder: Holder) -> Asked | None:
        """By the mark of the reserve. An unknown mark is a fault of the answers."""
        message = self._messages.get(holder.since)
        return message.asked if message else None

    def conclude(self, snapshots: list[list[int]]) -> Figures:
        """Check the answers, and the digests that each observer read."""
        left = self._last
        if left is None or left.holders or left.count or left.registered:
            self.faults.append(
                f"at the end, after every slot was freed and every wake was rejected, the item is {left}"
            )
        self.faults += wrong_answers(self._writes, self._operations)
        for of_one in snapshots:
            self.faults += self._unknown(of_one)
        certain = most_certain_weight(self._writes, self._operations)
        _, limit = self.curve[0]
        if self._steady and certain > limit:
            self.faults.append(f"clients held {certain} at the same time by their answers, the limit {limit}")
        answers = Counter(operation.answer for operation in self._operations)
        return Figures(
            operations=len(self._operations),
            lost_answers=sum(operation.lost for operation in self._operations),
            grants=answers["Granted"],
            refusals=answers["Full"] + answers["Paused"],
            writes=len(self.curve) - 1,
            snapshots=sum(map(len, snapshots)),
            most_holders=self._most_holders,
            most_in_use=max(in_use for in_use, _ in self.curve),
            most_certain=certain,
            granted=dict(Counter(message.priority for message in self._granted)),
            heaviest=self._heaviest,
            registrations=self._writes.waits.total(),
            cleared=self._writes.ended.total(),
        )

    def _unknown(self, snapshots: list[int]) -> Iterator[str]:
        reached = 0
        for number, seen in enumerate(snapshots):
            places = self._places[seen]
            later = bisect_left(places, reached)
            if later == len(places):
                yield f"snapshot {number} is no item of the stream since write {reached}"
                return
            reached = places[later]
