"""Checks a race for slots: every state of the item, every step between two states, and every answer to a client.

1. The stream has each state of the item.
2. The clients' history must agree with the stream, write by write.
3. Observers read during the race. Their reads must be states of the stream, in its order, so the stream is complete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.races.slot_answers import Writes, most_certain_holders, wrong_answers
from tests.races.slot_history import Entry, Item, Operation

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
    most_certain_holders: int  # by the clients' own clocks alone


class Judge:
    """Checks the items of a race one after the other, then answers and reads. `faults` contains sentences.

    Args:
        steady: only clients write to the item, so that its limit is constant and its count correct.
    """

    def __init__(self, *, steady: bool) -> None:
        self.faults: list[str] = []
        self.curve: list[tuple[int, int]] = []  # holders and limit after each write
        self._steady = steady
        self._writes = Writes()
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        self._last: Item | None = None

    def take(self, item: Item) -> None:
        """Check the next item. The first one is the created item, the last one the final item."""
        number = len(self.curve)
        old, self._last = self._last, item
        self.curve.append((len(item.holders), item.limit))
        self._places[item.digest].append(number)
        if old is not None:
            self._writes.add(old, item)
            self.faults += [f"write {number}: {fault}" for fault in _wrong_step(old, item)]
        if self._steady:
            self.faults += [f"write {number}: {fault}" for fault in _wrong_item(item)]

    def conclude(self, operations: list[Operation], snapshots: list[list[int]]) -> Figures:
        """Check the answers, and the digests that each observer read, after every slot was freed."""
        left = self._last
        if left is None or left.holders or left.count:
            self.faults.append(f"at the end, after every slot was freed, the item is {left}")
        self.faults += wrong_answers(self._writes, operations)
        for of_one in snapshots:
            self.faults += self._unknown(of_one)
        certain = most_certain_holders(operations)
        _, limit = self.curve[0]
        if self._steady and certain > limit:
            self.faults.append(f"{certain} clients held a slot at the same time by their answers, the limit {limit}")
        answers = Counter(operation.answer for operation in operations)
        return Figures(
            operations=len(operations),
            lost_answers=sum(operation.lost for operation in operations),
            grants=answers["Granted"],
            refusals=answers["Full"] + answers["Paused"],
            writes=len(self.curve) - 1,
            snapshots=sum(map(len, snapshots)),
            most_holders=max(held for held, _ in self.curve),
            most_certain_holders=certain,
        )

    def summary(self) -> str:
        """The first faults as text, and the number of others."""
        more = len(self.faults) - MAX_FAULTS_SHOWN
        return "\n".join([*self.faults[:MAX_FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])])

    def _unknown(self, snapshots: list[int]) -> Iterator[str]:
        reached = 0
        for number, digest in enumerate(snapshots):
            places = self._places[digest]
            later = bisect_left(places, reached)
            if later == len(places):
                yield f"snapshot {number} is no item of the stream since write {reached}"
                return
            reached = places[later]


def _wrong_item(item: Item) -> Iterator[str]:
    held = len(item.holders)
    if held > item.limit:
        yield f"{held} holders, the limit {item.limit}"
    if item.drift:
        yield f"slots_in_use {item.count}, {held} holders"


def _wrong_step(old: Item, new: Item) -> Iterator[str]:
    added = new.holders.keys() - old.holders.keys()
    removed = old.holders.keys() - new.holders.keys()
    changed = [name for name, entry in new.holders.items() if old.holders.get(name, entry) != entry]
    if len(added) + len(removed) + len(changed) > 1:
        yield f"more than one holder has changed: {sorted([*added, *removed, *changed])}"
    if added and (old.full or old.paused):
        yield (
            f"{added} admitted without a free slot: slots_in_use {old.count}, {len(old.holders)} holders, "
            f"the limit {old.limit}, paused {old.paused}"
        )
    for name in added:
        if (new.holders[name].state, new.holders[name].job) != ("RESERVED", None):
            yield f"{name} begins as {new.holders[name]}"
    for name in changed:
        if not _may_become(old.holders[name], new.holders[name]):
            yield f"{name} was {old.holders[name]} and is {new.holders[name]}"
    repaired = old.holders == new.holders and not new.drift
    if new.drift != old.drift and new.disturbed == old.disturbed and not repaired:
        yield f"slots_in_use was {old.count} of {len(old.holders)} holders, and is {new.count} of {len(new.holders)}"
    if new.waiting != old.waiting:
        if new.waiting is None or (old.waiting and new.waiting[:2] <= old.waiting[:2]):
            yield f"{old.waiting} was replaced by an older delivery: {new.waiting}"
        if not (old.full or old.paused):
            yield f"{new.waiting} waits although a slot is free"


def _may_become(old: Entry, new: Entry) -> bool:
    confirmed = (old.state, new.state, new.job) == ("RESERVED", "RUNNING", "job")
    if confirmed:
        return new == old._replace(state="RUNNING", job="job")
    return new == old._replace(quiet_since=new.quiet_since)
