"""What a write may change in a process's item. Each fault of a write is a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slotkeeper.slots.request import PRIORITIES, Priority
from tests.races.slot_history import Entry, Item, Waiting
from tests.races.slot_messages import Message


@dataclass(frozen=True)
class Rules:
    """What is checked.

    Args:
        steady: the limit is constant and the count correct.
        counted: the count is correct, since the test itself does not write wrong counts.
        most_holders: instead of MAX_HOLDERS.
        default_weight: the process's.
    """

    steady: bool
    counted: bool
    most_holders: int
    default_weight: int

    def wrong_item(self, item: Item) -> Iterator[str]:
        """The faults of one state."""
        if self.steady and item.weight > item.limit:
            yield f"{item.weight} in use by {len(item.holders)} holders, the limit {item.limit}"
        if self.counted and item.drift:
            yield f"slots_in_use {item.count}, but {len(item.holders)} holders weigh {item.weight}"
        if len(item.holders) > self.most_holders:
            yield f"{len(item.holders)} holders, at most {self.most_holders} are allowed"

    def wrong_step(self, old: Item, new: Item, granted: Message | None) -> Iterator[str]:
        """The faults of one write, from the item before it and after it.

        Args:
            granted: what the client asked for whose reserve the write is; None if the write adds no holder.
        """
        added = new.holders.keys() - old.holders.keys()
        removed = old.holders.keys() - new.holders.keys()
        changed = [name for name, entry in new.holders.items() if old.holders.get(name, entry) != entry]
        if len(added) + len(removed) + len(changed) > 1:
            yield f"more than one holder has changed: {sorted([*added, *removed, *changed])}"
        for name in added:
            yield from self._wrong_grant(old, name, new.holders[name], granted)
        for name in changed:
            if not _may_become(old.holders[name], new.holders[name]):
                yield f"{name} was {old.holders[name]} and is {new.holders[name]}"
        repaired = old.holders == new.holders and not new.drift
        if new.drift != old.drift and new.disturbed == old.disturbed and not repaired:
            yield (
                f"slots_in_use was {old.count} for holders of {old.weight}, and is {new.count} for holders of "
                f"{new.weight}"
            )
        yield from self._wrong_waiting(old, new, granted, other_change=bool(removed or changed))
        yield from _wrong_turns(old, new, granted)

    def _wrong_grant(self, old: Item, name: str, entry: Entry, granted: Message | None) -> Iterator[str]:
        if (entry.state, entry.target) != ("RESERVED", None):
            yield f"{name} begins as {entry}"
        if not old.fits(entry.weight, self.most_holders):
            yield (
                f"{name} of weight {entry.weight} admitted without a free slot: slots_in_use {old.count}, "
                f"{len(old.holders)} holders of {old.weight}, the limit {old.limit}, paused {old.paused}"
            )
        if granted is None:
            return
        if entry.weight != (granted.weight or self.default_weight):
            yield f"{name} has weight {entry.weight}, but its request weighs {granted.weight or self.default_weight}"
        if before := old.before(granted.priority, with_message=bool(granted.sequence)):
            yield f"{granted} admitted before {before}, the limit {old.limit}"

    def _wrong_waiting(self, old: Item, new: Item, granted: Message | None, *, other_change: bool) -> Iterator[str]:
        tombstone = granted and Waiting(*granted.position, "", 0, "")
        for priority in PRIORITIES:
            was, now = old.waiting.get(priority), new.waiting.get(priority)
            if was and was.execution and now and now.sequence > was.sequence:
                yield f"the name of an earlier message, {was}, was replaced by {now}"
            if granted and granted.sequence and priority == granted.priority:
                if now != tombstone:
                    yield f"{granted} admitted without its tombstone: {was} became {now}"
                if was and was.receipt_handle and was.position > granted.position:
                    yield f"{was} was replaced by the grant of an older delivery: {granted}"
            elif was != now:
                if granted or other_change:
                    yield f"a write that changed a holder replaced {was} by {now}"
                elif now is None:
                    yield f"{was} was removed"
                elif now.receipt_handle:
                    yield from self._wrong_registration(old, priority, now)
                elif was is None or not was.execution or now.position < was.position:
                    yield f"{was} was replaced by an older tombstone: {now}"

    def _wrong_registration(self, old: Item, priority: Priority, now: Waiting) -> Iterator[str]:
        was = old.waiting.get(priority)
        if was and now.position <= was.position:
            yield f"{was} was replaced by an older delivery: {now}"
        if now.execution in old.holders:
            yield f"{now} waits although it holds a slot"
        admitted = old.fits(now.weight, self.most_holders) and not old.before(priority, with_message=True)
        if self.counted and admitted:
            yield f"{now} waits although a slot is free"


def _wrong_turns(old: Item, new: Item, granted: Message | None) -> Iterator[str]:
    """A turn begins with a grant, since all requests of the races have waited, or with the end of a registration."""
    for priority in PRIORITIES:
        was, now = old.turns.get(priority), new.turns.get(priority)
        if granted and granted.sequence and priority == granted.priority:
            if was == now:
                yield f"{granted} admitted without a turn"
        elif was != now and (priority not in old.registered or priority in new.registered):
            yield f"the turn of {priority} was {was} and is {now}, but no registration of it has ended"


def _may_become(old: Entry, new: Entry) -> bool:
    confirmed = (old.state, new.state, new.target) == ("RESERVED", "RUNNING", "job")
    if confirmed:
        return new == old._replace(state="RUNNING", target="job")
    return new == old._replace(quiet_since=new.quiet_since)
