"""Compares the answers that clients of a race received with the stream, write by write, and with each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from dev.judge.slot_item import Holder, Item
from tests.races.slot_history import Operation


@dataclass
class Writes:
    """The writes of the stream, counted by the values that a client knows."""

    grants: Counter[tuple[str, int]] = field(default_factory=Counter)
    weights: dict[int, int] = field(default_factory=dict)  # by the mark of the grant
    confirms: Counter[str] = field(default_factory=Counter)
    quiets: Counter[tuple[str, Holder, int]] = field(default_factory=Counter)
    released: defaultdict[str, Counter[Holder]] = field(default_factory=lambda: defaultdict(Counter))
    waits: Counter[str] = field(default_factory=Counter)  # receipt handles that were registered
    ended: Counter[str] = field(default_factory=Counter)  # those of registrations that ended without a grant

    def add(self, old: Item, new: Item) -> None:
        """Count a write, from the item before it and after it."""
        for name, entry in new.holders.items():
            before = old.holders.get(name)
            if before is None:
                self.grants[name, entry.since] += 1
                self.weights[entry.since] = entry.weight
            elif before.state != entry.state:
                self.confirms[name] += 1
            elif before != entry and entry.quiet_since is not None:
                self.quiets[name, before, entry.quiet_since] += 1
        for name in old.holders.keys() - new.holders.keys():
            self.released[name][old.holders[name]] += 1
        is_grant = bool(new.holders.keys() - old.holders.keys())
        for priority, waiting in new.waiting.items():
            was = old.waiting.get(priority)
            if waiting == was:
                continue
            if waiting.receipt_handle:
                self.waits[waiting.receipt_handle] += 1
            elif was and was.receipt_handle and not is_grant and new.lost == old.lost:
                self.ended[was.receipt_handle] += 1


def wrong_answers(writes: Writes, operations: list[Operation]) -> Iterator[str]:
    """Faults: answers without a write in the stream, and writes without an answer."""
    by_name: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_name[operation.name].append(operation)
        yield from _wrong_mark(operation, writes)
    for name, of_name in by_name.items():
        yield from _wrong_releases(name, of_name, writes)
        confirmed = [operation for operation in of_name if operation.step == "confirm"]
        if writes.confirms[name] > sum(operation.done + operation.lost for operation in confirmed):
            yield f"{name} was confirmed {writes.confirms[name]} times, more often than clients called confirm"
    yield from _wrong_ends(operations, writes)
    for step, marks in (("reserve", {mark for _, mark in writes.grants}), ("wait", {*map(_mark_of, writes.waits)})):
        written = {mark for operation in operations if operation.step == step for mark in operation.marks}
        if unknown := marks - written:
            yield f"no client made these calls: {step} {sorted(unknown)}"


def _mark_of(receipt_handle: str) -> int:
    return int(receipt_handle.rpartition("-")[2])


def _wrong_mark(operation: Operation, writes: Writes) -> Iterator[str]:
    """A step that writes its mark took effect once if its answer is positive, and never otherwise."""
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
        yield f"{operation.step} of {name} (mark {last}) answered {operation.answer}, and took effect {marked} times"


def _wrong_releases(name: str, operations: list[Operation], writes: Writes) -> Iterator[str]:
    """Each freed slot was freed by a call with a positive or a lost answer, and each positive answer freed one."""
    released = writes.released[name]
    reported = Counter(operation.step for operation in operations if operation.done)
    lost = sum(operation.lost for operation in operations if operation.step in ("release", "cancel", "reclaim"))
    reclaimed = Counter(operation.seen for operation in operations if operation.step == "reclaim" and operation.done)
    for seen, count in reclaimed.items():
        freed = released[seen] if seen else 0
        if count > freed:
            yield f"{name}: the janitor reports that it freed {seen} {count} times; the stream has {freed}"
    left = released - reclaimed
    reserved = sum(count for entry, count in left.items() if entry.state == "RESERVED")
    if reported["cancel"] > reserved:
        yield f"{name}: cancelled {reported['cancel']} times, of which it was RESERVED {reserved} times"
    released_count = reported["cancel"] + reported["release"]
    if not released_count <= left.total() <= released_count + lost:
        yield f"{name}: freed {left.total()} times, {released_count} positive answers, {lost} answers lost"


def _wrong_ends(operations: list[Operation], writes: Writes) -> Iterator[str]:
    """Each registration that ended without a grant was ended by a call with a positive or a lost answer."""
    ends = [operation for operation in operations if operation.step in ("clear", "end_wait")]
    cleared = Counter(operation.name for operation in ends if operation.step == "clear" and operation.done)
    for handle, count in cleared.items():
        if count > writes.ended[handle]:
            yield f"clients cleared the registration {handle} {count} times; the stream has {writes.ended[handle]}"
    done, lost = sum(operation.done for operation in ends), sum(operation.lost for operation in ends)
    if not done <= writes.ended.total() <= done + lost:
        yield f"{writes.ended.total()} registrations ended without a grant, {done} positive answers, {lost} lost"


def most_certain_weight(writes: Writes, operations: list[Operation]) -> int:
    """The largest weight of simultaneous grants, each from its answer until the first call that may free it."""
    ends: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.step in ("release", "cancel", "reclaim") and (operation.done or operation.lost):
            ends[operation.name].append(operation)
    changes = []
    for grant in operations:
        if grant.answer == "Granted":
            end = min((back.start for back in ends[grant.name] if back.end > grant.start), default=float("inf"))
            if end > grant.end:
                weight = writes.weights.get(grant.marks[-1], 1)
                changes += [(grant.end, weight), (end, -weight)]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most
