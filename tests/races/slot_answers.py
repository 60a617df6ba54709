"""What the clients of a race say, held against the stream, write by write; and by itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.races.slot_history import Entry, Item, Operation


@dataclass
class Writes:
    """The writes of the stream, counted by what a client can know of them."""

    grants: Counter[tuple[str, int]] = field(default_factory=Counter)
    confirms: Counter[str] = field(default_factory=Counter)
    quiets: Counter[tuple[str, Entry, int]] = field(default_factory=Counter)
    gone: defaultdict[str, Counter[Entry]] = field(default_factory=lambda: defaultdict(Counter))
    waits: Counter[str] = field(default_factory=Counter)

    def add(self, old: Item, new: Item) -> None:
        """One write more: the item before it and after it."""
        for name, entry in new.holders.items():
            before = old.holders.get(name)
            if before is None:
                self.grants[name, entry.since] += 1
            elif before.state != entry.state:
                self.confirms[name] += 1
            elif before != entry and entry.quiet_since is not None:
                self.quiets[name, before, entry.quiet_since] += 1
        for name in old.holders.keys() - new.holders.keys():
            self.gone[name][old.holders[name]] += 1
        if new.waiting and new.waiting != old.waiting:
            self.waits[new.waiting.receipt_handle] += 1


def wrong_answers(writes: Writes, operations: list[Operation]) -> Iterator[str]:
    """What the clients say that the stream does not, and the other way round."""
    by_name: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_name[operation.name].append(operation)
        yield from _wrong_mark(operation, writes)
    for name, of_name in by_name.items():
        yield from _wrong_give_backs(name, of_name, writes)
        confirmed = [operation for operation in of_name if operation.step == "confirm"]
        if writes.confirms[name] > sum(operation.done + operation.lost for operation in confirmed):
            yield f"{name} was confirmed more often than anybody says"
    for step, marks in (("reserve", {mark for _, mark in writes.grants}), ("wait", {*map(_mark_of, writes.waits)})):
        written = {mark for operation in operations if operation.step == step for mark in operation.marks}
        if strange := marks - written:
            yield f"nobody asked for these: {step} {sorted(strange)}"


def _mark_of(receipt_handle: str) -> int:
    return int(receipt_handle.rpartition("-")[2])


def _wrong_mark(operation: Operation, writes: Writes) -> Iterator[str]:
    """A step that writes its mark has taken effect once if it says so and not if it does not."""
    name, seen = operation.name, operation.seen
    *_, last = operation.marks
    if operation.step == "reserve":
        marked = [writes.grants[name, mark] for mark in operation.marks]
    elif operation.step == "wait":
        marked = [writes.waits[f"handle-{mark}"] for mark in operation.marks]
    elif operation.step == "quiet" and seen is not None:
        marked = [writes.quiets[name, seen, mark] for mark in operation.marks]
    else:
        return
    if marked[-1] != operation.done or max(marked) > 1:
        yield f"{operation.step} of {name} (mark {last}) answered {operation.answer}, and was done {marked} times"


def _wrong_give_backs(name: str, operations: list[Operation], writes: Writes) -> Iterator[str]:
    """Each slot that went was given back by one who says so, or who did not hear; who says so, gave one back."""
    gone = writes.gone[name]
    reported = Counter(operation.step for operation in operations if operation.done)
    lost = sum(operation.lost for operation in operations if operation.step in ("release", "cancel", "reclaim"))
    reclaimed = Counter(operation.seen for operation in operations if operation.step == "reclaim" and operation.done)
    for seen, count in reclaimed.items():
        went = gone[seen] if seen else 0
        if count > went:
            yield f"{name}: the janitor says that it freed {seen} {count} times; it went {went} times"
    left = gone - reclaimed
    reserved = sum(count for entry, count in left.items() if entry.state == "RESERVED")
    if reported["cancel"] > reserved:
        yield f"{name}: cancelled {reported['cancel']} times, of which it was RESERVED {reserved} times"
    given_back = reported["cancel"] + reported["release"]
    if not given_back <= left.total() <= given_back + lost:
        yield f"{name}: {left.total()} times gone, {given_back} times given back, {lost} answers lost"


def most_certain_holders(operations: list[Operation]) -> int:
    """How many, at most, had been told that they hold a slot which nobody had begun to give back."""
    ends: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.step in ("release", "cancel", "reclaim") and (operation.done or operation.lost):
            ends[operation.name].append(operation)
    changes = []
    for grant in operations:
        if grant.answer == "Granted":
            end = min((back.start for back in ends[grant.name] if back.end > grant.start), default=float("inf"))
            if end > grant.end:
                changes += [(grant.end, 1), (end, -1)]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most
