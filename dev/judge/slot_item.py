"""The judge of a process's item in SlotTable: which version of it is wrong, and which step no condition allows.

A history is the versions of one item, in the order of the writes: the table's stream (races), the engine's journal
(soak), or the simulated table (simulation). Each breach names a guarantee of docs/correctness.md. Pure. An item is
parsed without the product's code, so that a bug of its parser hides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import process as bounds
from slotkeeper.slots.process import higher
from slotkeeper.slots.request import PRIORITIES, Position, Priority
from slotkeeper.slots.targets import NO_TARGET


class Breach(NamedTuple):
    """A guarantee that does not hold, and how."""

    guarantee: str
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.text}"


class Holder(NamedTuple):
    """An execution or a lease that holds a slot. Times are seconds since the epoch; `until` and `code` of a lease."""

    state: str
    since: int = 0
    target: str | None = None
    quiet_since: int | None = None
    weight: int = 1
    token_bytes: int = 0
    redriven: bool = False
    until: int = 0
    code: str = ""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Holder:
        """Parse a holder in DynamoDB's format."""
        return cls(
            raw["state"]["S"],
            int(raw["since"]["N"]),
            raw.get("job", {}).get("S"),
            int(raw["quiet_since"]["N"]) if "quiet_since" in raw else None,
            int(raw["weight"]["N"]) if "weight" in raw else 1,
            len(raw["task_token"]["S"].encode()) if "task_token" in raw else 0,
            "redriven" in raw,
            int(raw["until"]["N"]) if "until" in raw else 0,
            raw.get("code", {"S": ""})["S"],
        )

    @property
    def is_lease(self) -> bool:
        return self.state == "LEASED"

    @property
    def removable_from(self) -> int:
        """When other callers may remove a lease."""
        return self.until + CLOCK_SKEW_SECONDS


class Waiting(NamedTuple):
    """A registration, or without a receipt handle a tombstone. Only that of a waker names an execution."""

    sequence: str
    receives: int
    receipt_handle: str = ""
    weight: int = 0
    execution: str = ""
    token_bytes: int = 0

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Waiting:
        """Parse a registration or a tombstone in DynamoDB's format."""
        return cls(
            raw["sequence"]["S"],
            int(raw["receives"]["N"]),
            raw.get("receipt_handle", {"S": ""})["S"],
            int(raw["weight"]["N"]) if "weight" in raw else 0,
            raw.get("execution", {"S": ""})["S"],
            int(raw["token_bytes"]["N"]) if "token_bytes" in raw else 0,
        )

    @property
    def position(self) -> Position:
        return self.sequence, self.receives


@dataclass(frozen=True)
class Item:
    """A version of a process's item.

    Attributes:
        waiting: by priority: each registration and tombstone.
        turns: by priority: when the last turn began.
        lost: execution name -> when it was noted that its message is lost.
        cancelled: the executions of cancelled requests.
        interval: of the process's rate, in milliseconds; 0 without a rate.
        lead: by how many milliseconds a start may come before `next_start`, which is in milliseconds since the epoch.
        disturbed: changes when a test itself writes a wrong count.
        at: when it was written, in seconds since the epoch, if that was recorded.
    """

    process: str
    limit: int
    count: int
    holders: Mapping[str, Holder]
    paused: bool = False
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()
    target: str = ""
    default_weight: int = 1
    interval: int = 0
    lead: int = 0
    next_start: int = 0
    disturbed: int = 0
    at: float = 0.0

    @classmethod
    def read(cls, raw: Mapping[str, Any], at: float = 0.0) -> Item:
        """Parse an item in DynamoDB's format."""
        maps = {name: raw.get(name, {"M": {}})["M"] for name in ("holders", "waiting", "lost", "cancelled")}
        rate = {name: int(value["N"]) for name, value in raw.get("rate", {"M": {}})["M"].items()}
        interval = math.ceil(1000 * rate["seconds"] / rate["count"]) if rate else 0
        return cls(
            process=raw["process_name"]["S"],
            limit=int(raw["slot_limit"]["N"]),
            count=int(raw["slots_in_use"]["N"]),
            holders={name: Holder.read(entry["M"]) for name, entry in maps["holders"].items()},
            paused=raw.get("paused", {}).get("BOOL", False),
            waiting={priority: Waiting.read(entry["M"]) for priority, entry in maps["waiting"].items()},
            turns={each: int(raw[f"turn_{each}"]["N"]) for each in PRIORITIES if f"turn_{each}" in raw},
            lost={name: int(note["M"]["noted"]["N"]) for name, note in maps["lost"].items()},
            cancelled=frozenset(maps["cancelled"]),
            target=raw["target"]["S"],
            default_weight=int(raw.get("default_weight", {"N": "1"})["N"]),
            interval=interval,
            lead=(rate["burst"] - 1) * interval if rate else 0,
            next_start=int(raw.get("next_start", {"N": "0"})["N"]),
            disturbed=int(raw.get("disturbed", {"N": "0"})["N"]),
            at=at,
        )

    @property
    def weight(self) -> int:
        """The sum of the holders' weights."""
        return sum(holder.weight for holder in self.holders.values())

    @property
    def drift(self) -> int:
        return self.count - self.weight

    @property
    def registered(self) -> dict[str, Waiting]:
        """The registrations by priority, without the tombstones."""
        return {priority: each for priority, each in self.waiting.items() if each.receipt_handle}

    def fits(self, weight: int) -> bool:
        in_use = max(self.count, self.weight)
        return not self.paused and in_use + weight <= self.limit and len(self.holders) < bounds.MAX_HOLDERS

    def kept_out_by(self, priority: Priority | None) -> list[Waiting]:
        """The registrations that keep a request of this priority out; all of them with None."""
        earlier = PRIORITIES if priority is None else higher(priority)
        return [one for each, one in self.registered.items() if each in earlier and one.weight <= self.limit]

    def without(self, holders: Mapping[str, Holder]) -> Item:
        left = {name: holder for name, holder in self.holders.items() if name not in holders}
        return replace(self, holders=left, count=self.count - sum(holder.weight for holder in holders.values()))


class Asked(NamedTuple):
    """The request of a new holder.

    Attributes:
        priority: None for a lease and for a request without a message, which all that wait keep out.
        weight: 0 is the process's default weight. None: not known.
        position: of its delivery, which has waited. None: not known, or no message.
        adopted: an operator has adopted the execution, which ran already without a slot.
    """

    priority: Priority | None
    weight: int | None = None
    position: Position | None = None
    adopted: bool = False


AskedBy = Callable[[str, Holder], Asked | None]


class Writer(NamedTuple):
    """Who has removed or extended a lease. `code`: of its own lease. `clock`: the latest that its clock has shown."""

    code: str
    clock: float


def wrong_item(item: Item, *, counted: bool = True) -> Iterator[Breach]:
    """The breaches in one version. `counted`: no test writes wrong counts."""
    if counted and item.drift:
        yield Breach("S2", f"slots_in_use is {item.count}, and {len(item.holders)} holders weigh {item.weight}")
    for name in item.cancelled & item.holders.keys():
        yield Breach("S3", f"{name} is cancelled and holds a slot")
    tokens = sum(holder.token_bytes for holder in item.holders.values())
    if tokens > bounds.MAX_TOKEN_BYTES:
        yield Breach("S2b", f"the holders' task tokens have {tokens} bytes")
    if len(item.holders) > bounds.MAX_HOLDERS:
        yield Breach("S2b", f"{len(item.holders)} holders, at most {bounds.MAX_HOLDERS} are allowed")


def wrong_step(
    before: Item,
    after: Item,
    asked: AskedBy = lambda *_: None,
    writer: Writer | None = None,
    *,
    counted: bool = True,
) -> Iterator[Breach]:
    """The breaches in one write, from the version before it and after it.

    Args:
        asked: the request of a new holder, by its name and entry; None if it is not known.
        writer: None if it is not known.
        counted: no test writes wrong counts.
    """
    added = {name: holder for name, holder in after.holders.items() if name not in before.holders}
    removed = {name: holder for name, holder in before.holders.items() if name not in after.holders}
    changed = [name for name, holder in after.holders.items() if before.holders.get(name, holder) != holder]
    is_repaired = before.holders == after.holders and not after.drift
    if after.drift != before.drift and after.disturbed == before.disturbed and not is_repaired:
        counts = f"slots_in_use was {before.count} for holders of {before.weight}"
        yield Breach("S2", f"{counts}, and is {after.count} for holders of {after.weight}")
    is_takeover = len(added) == len(removed) == 1 and all(each.is_lease for each in (added | removed).values())
    if len(added) + len(removed) + len(changed) > 1 + is_takeover:
        yield Breach("S1", f"more than one holder has changed: {sorted([*added, *removed, *changed])}")
    requests = {name: Asked(None) if holder.is_lease else asked(name, holder) for name, holder in added.items()}
    free = before.without(removed) if is_takeover else before
    for name, holder in added.items():
        of = requests[name]
        if not (holder.redriven or (of and of.adopted)):  # the janitor or an operator has adopted what runs already
            yield from _wrong_grant(free, name, holder, of)
            yield from _wrong_start(before, after, name, writer)
    for holder in removed.values():
        early = holder.removable_from - writer.clock if writer and holder.is_lease else 0
        if writer and early > 0 and writer.code != holder.code:
            yield Breach("S1c", f"{holder} is removed {early:.2f} s before others may remove it")
    for name in changed:
        yield from _wrong_change(name, before.holders[name], after, writer)
    if all(each and (each.priority is None or each.position) for each in requests.values()):
        granted = next(iter(requests.values()), None)
        is_other = bool(added or removed or changed)
        for priority in PRIORITIES:
            was, now = before.waiting.get(priority), after.waiting.get(priority)
            if was and was.execution and now and now.sequence > was.sequence:
                yield Breach("S3b", f"the name of an earlier message, {was}, was replaced by {now}")
            if granted and granted.position and granted.priority == priority:
                yield from _wrong_end(before, after, priority, granted.position)
            else:
                yield from _wrong_name(before, after, priority, with_holder=is_other, counted=counted)


def wrong_history(items: Iterable[Item], asked: AskedBy = lambda *_: None) -> Iterator[tuple[str, Breach]]:
    """The breaches in the versions of several items, in the order of the writes, each with its process's name."""
    last: dict[str, Item] = {}
    for item in items:
        before, last[item.process] = last.get(item.process), item
        for breach in chain(wrong_item(item), wrong_step(before, item, asked) if before else ()):
            yield item.process, breach


def _wrong_grant(free: Item, name: str, holder: Holder, asked: Asked | None) -> Iterator[Breach]:
    """`free`: the version before the grant, without a lease that it takes over."""
    if not holder.is_lease and holder[:1] + holder[2:4] != ("RESERVED", None, None):
        yield Breach("S1b", f"{name} begins as {holder}")
    if not free.fits(holder.weight):
        in_use = f"slots_in_use {free.count}, {len(free.holders)} holders of {free.weight}, the limit {free.limit}"
        text = f"{name} of weight {holder.weight} takes a slot although none is free"
        yield Breach("S1", f"{text}: {in_use}, paused {free.paused}")
    weighs = holder.weight if asked is None or asked.weight is None else asked.weight or free.default_weight
    if holder.weight != weighs:
        yield Breach("S1", f"{name} has weight {holder.weight}, but its request weighs {weighs}")
    if free.target == NO_TARGET and (asked is None or asked.priority):
        yield Breach("S10", f"{name} takes a slot of a process for leases")
    if asked and (waiting := free.kept_out_by(asked.priority)):
        yield Breach("S8", f"{name} takes a slot before {', '.join(each.execution for each in waiting)}, which waits")


def _wrong_start(before: Item, after: Item, name: str, writer: Writer | None) -> Iterator[Breach]:
    """The breaches of the rate. The writer's clock had shown its latest time at the write, or an earlier one."""
    if not before.interval:
        return
    moved = after.next_start - before.next_start
    if moved < before.interval:
        yield Breach("S11", f"{name} starts, and moves the next start by {moved} ms, not {before.interval}")
    early = before.next_start - before.lead - writer.clock * 1000 if writer else 0
    if early > 0:
        yield Breach("S11", f"{name} starts {early:.0f} ms before it is due")


def _wrong_change(name: str, old: Holder, after: Item, writer: Writer | None) -> Iterator[Breach]:
    new = after.holders[name]
    if old.is_lease and new == old._replace(until=new.until):
        if new.until < old.until:
            yield Breach("S1c", f"the end of {old} was moved back to {new.until}")
        if writer and writer.code != old.code:
            yield Breach("S1c", f"{old} is extended by another caller")
    elif old.is_lease or new not in (
        old._replace(state="RUNNING", target=after.target),
        old._replace(quiet_since=new.quiet_since),
    ):
        yield Breach("S1c" if old.is_lease else "S1b", f"{name} was {old} and is {new}")


def _wrong_end(before: Item, after: Item, priority: Priority, position: Position) -> Iterator[Breach]:
    """The grant of a delivery that has waited ends its registration, and begins a turn."""
    was, now = before.waiting.get(priority), after.waiting.get(priority)
    if now != Waiting(*position):
        yield Breach("S6", f"{position} is granted without its tombstone: {was} became {now}")
    if was and was.receipt_handle and was.position > position:
        yield Breach("S6", f"{was} was replaced by the grant of an older delivery: {position}")
    if before.turns.get(priority) == after.turns.get(priority):
        yield Breach("S6", f"{position} is granted without a turn")


def _wrong_name(before: Item, after: Item, priority: Priority, *, with_holder: bool, counted: bool) -> Iterator[Breach]:
    """The breaches in the registration or tombstone of a priority that the write does not grant."""
    was, now = before.waiting.get(priority), after.waiting.get(priority)
    has_ended = was is not None and was.receipt_handle and not (now and now.receipt_handle)
    if before.turns.get(priority) != after.turns.get(priority) and not has_ended:
        yield Breach("S6", f"a turn of {priority} begins, but no registration of it has ended")
    if was == now:
        return
    if with_holder:
        yield Breach("S6", f"a write that changed a holder replaced {was} by {now}")
    elif now is None:
        yield Breach("S6", f"{was} was removed")
    elif now.receipt_handle:
        if was and now.position <= was.position:
            yield Breach("S6", f"{was} was replaced by an older delivery: {now}")
        if now.execution in before.holders:
            yield Breach("S6", f"{now} waits although it holds a slot")
        # A token that does not fit is refused by the number of holders, which may be the same without a holder's token.
        # With a rate, a request may wait although a slot is free.
        is_plain = counted and not now.token_bytes and not before.interval
        if is_plain and before.fits(now.weight) and not before.kept_out_by(priority):
            yield Breach("S6", f"{now} waits although a slot is free")
    elif was is None or not was.execution or now.position < was.position:
        yield Breach("S6", f"{was} was replaced by an older tombstone: {now}")
