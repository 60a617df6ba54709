"""The judge of a process's item in SlotTable: which version of it is wrong, and which step no condition allows.

A history is the versions of one item, in the order of the writes: the table's stream (races), the engine's journal
(soak), or the simulated table (simulation). Each breach names a guarantee of docs/correctness.md. Pure. An item is
parsed without the product's code, so that a bug of its parser hides nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots import process as bounds


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
    redriven: bool = False
    until: int = 0
    code: str = ""
    key: str = ""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Holder:
        """Parse a holder in DynamoDB's format."""
        return cls(
            raw["state"]["S"],
            int(raw["since"]["N"]),
            raw.get("job", {}).get("S"),
            int(raw["quiet_since"]["N"]) if "quiet_since" in raw else None,
            int(raw["weight"]["N"]) if "weight" in raw else 1,
            "redriven" in raw,
            int(raw["until"]["N"]) if "until" in raw else 0,
            raw.get("code", {"S": ""})["S"],
            raw.get("key", {"S": ""})["S"],
        )

    @property
    def is_lease(self) -> bool:
        return self.state == "LEASED"

    @property
    def removable_from(self) -> int:
        """When other callers may remove a lease."""
        return self.until + CLOCK_SKEW_SECONDS


@dataclass(frozen=True)
class Item:
    """A version of a process's item.

    Attributes:
        grants: changes with each grant of slots to requests.
        interval: of the process's rate, in milliseconds; 0 without a rate.
        lead: by how many milliseconds a start may come before `next_start`, which is in milliseconds since the epoch.
        key_limit: the limit of each key without one in `key_limits`; None: there is none.
        after_keys: rank of a priority -> the key whose turn was last in it, unless it was that of no key.
        at: when it was written, in seconds since the epoch, if that was recorded.
    """

    process: str
    limit: int
    count: int
    holders: Mapping[str, Holder]
    paused: bool = False
    grants: int = 0
    target: str = ""
    default_weight: int = 1
    interval: int = 0
    lead: int = 0
    next_start: int = 0
    at: float = 0.0
    key_limit: int | None = None
    key_limits: Mapping[str, int] = field(default_factory=dict)
    after_keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: Mapping[str, Any], at: float = 0.0) -> Item:
        """Parse an item in DynamoDB's format."""
        rate = {name: int(value["N"]) for name, value in raw.get("rate", {"M": {}})["M"].items()}
        interval = math.ceil(1000 * rate["seconds"] / rate["count"]) if rate else 0
        return cls(
            process=raw["process_name"]["S"],
            limit=int(raw["slot_limit"]["N"]),
            count=int(raw["slots_in_use"]["N"]),
            holders={name: Holder.read(entry["M"]) for name, entry in raw["holders"]["M"].items()},
            paused=raw.get("paused", {}).get("BOOL", False),
            grants=int(raw.get("grants", {"N": "0"})["N"]),
            target=raw["target"]["S"],
            default_weight=int(raw.get("default_weight", {"N": "1"})["N"]),
            interval=interval,
            lead=(rate["burst"] - 1) * interval if rate else 0,
            next_start=int(raw.get("next_start", {"N": "0"})["N"]),
            at=at,
            key_limit=int(raw["key_limit"]["N"]) if "key_limit" in raw else None,
            key_limits={key: int(of["N"]) for key, of in raw.get("key_limits", {"M": {}})["M"].items()},
            after_keys={rank: of["S"] for rank, of in raw.get("after_keys", {"M": {}})["M"].items()},
        )

    @property
    def weight(self) -> int:
        """The sum of the holders' weights."""
        return sum(holder.weight for holder in self.holders.values())

    @property
    def held_by_key(self) -> Counter[str]:
        """The sum of the holders' weights, by key; "" are requests without one. A lease belongs to none."""
        held = Counter[str]()
        for holder in self.holders.values():
            held[holder.key] += 0 if holder.is_lease else holder.weight
        return held

    def limit_of(self, key: str) -> float:
        """The limit of a key; infinite if there is none."""
        limit = self.key_limits.get(key, self.key_limit)
        return math.inf if limit is None else limit

    def without(self, holders: Mapping[str, Holder]) -> Item:
        left = {name: holder for name, holder in self.holders.items() if name not in holders}
        return replace(self, holders=left, count=self.count - sum(holder.weight for holder in holders.values()))


class Asked(NamedTuple):
    """The request of a new holder.

    Attributes:
        weight: 0 is the process's default weight. None: not known.
        adopted: an operator has adopted the execution, which ran already without a slot.
        key: "" for none. None: not known.
    """

    weight: int | None = None
    adopted: bool = False
    key: str | None = None


AskedBy = Callable[[str, Holder], Asked | None]


class Writer(NamedTuple):
    """Who has removed or extended a lease. `code`: of its own lease. `clock`: the latest that its clock has shown."""

    code: str
    clock: float


def wrong_item(item: Item) -> Iterator[Breach]:
    """The breaches in one version."""
    if item.count != item.weight:
        yield Breach("S2", f"slots_in_use is {item.count}, and {len(item.holders)} holders weigh {item.weight}")
    if len(item.holders) > bounds.MAX_HOLDERS:
        yield Breach("S2b", f"{len(item.holders)} holders, at most {bounds.MAX_HOLDERS} are allowed")


def wrong_step(
    before: Item, after: Item, asked: AskedBy = lambda *_: None, writer: Writer | None = None
) -> Iterator[Breach]:
    """The further breaches in one write, from the version before it and after it, of which `wrong_item` has none.

    Args:
        asked: the request of a new holder, by its name and entry; None if it is not known.
        writer: None if it is not known.
    """
    added = {name: holder for name, holder in after.holders.items() if name not in before.holders}
    removed = {name: holder for name, holder in before.holders.items() if name not in after.holders}
    changed = [name for name, holder in after.holders.items() if before.holders.get(name, holder) != holder]
    is_takeover = len(added) == len(removed) == 1 and all(each.is_lease for each in (added | removed).values())
    if bool(added) + bool(removed) + bool(changed) > 1 + is_takeover or len(changed) > 1:
        yield Breach("S1", f"several holders have changed: {sorted([*added, *removed, *changed])}")
    granted = {}
    for name, holder in added.items():
        of = asked(name, holder)
        if not (holder.redriven or (of and of.adopted)):  # the janitor or an operator has adopted what runs already
            granted[name] = holder
            yield from _wrong_grant(before, name, holder, of)
    if granted:
        yield from _wrong_grants(before.without(removed) if is_takeover else before, after, granted, writer)
    for holder in removed.values():
        early = holder.removable_from - writer.clock if writer and holder.is_lease else 0
        if writer and early > 0 and writer.code != holder.code:
            yield Breach("S1c", f"{holder} is removed {early:.2f} s before others may remove it")
    for name in changed:
        yield from _wrong_change(name, before.holders[name], after, writer)


def wrong_history(items: Iterable[Item], asked: AskedBy = lambda *_: None) -> Iterator[tuple[str, Breach]]:
    """The breaches in the versions of several items, in the order of the writes, each with its process's name."""
    last: dict[str, Item] = {}
    for item in items:
        before, last[item.process] = last.get(item.process), item
        for breach in chain(wrong_item(item), wrong_step(before, item, asked) if before else ()):
            yield item.process, breach


def _wrong_grant(before: Item, name: str, holder: Holder, asked: Asked | None) -> Iterator[Breach]:
    """The breaches in one holder of a grant."""
    if not holder.is_lease and holder[:1] + holder[2:4] != ("RESERVED", None, None):
        yield Breach("S1b", f"{name} begins as {holder}")
    weighs = holder.weight if asked is None or asked.weight is None else asked.weight or before.default_weight
    if holder.weight != weighs:
        yield Breach("S1", f"{name} has weight {holder.weight}, but its request weighs {weighs}")
    if asked is not None and asked.key not in (None, holder.key):
        yield Breach("S1", f"{name} has key {holder.key!r}, but its request has {asked.key!r}")
    if before.target == NO_TARGET and not holder.is_lease:
        yield Breach("S10", f"{name} takes a slot of a process for leases")


def _wrong_grants(free: Item, after: Item, granted: Mapping[str, Holder], writer: Writer | None) -> Iterator[Breach]:
    """The breaches of limit and rate. `free`: the version before the grant, without a lease that it takes over.

    The writer's clock had shown its latest time at the write, or an earlier one.
    """
    weight, in_use = sum(holder.weight for holder in granted.values()), max(free.count, free.weight)
    if free.paused or in_use + weight > free.limit or len(after.holders) > bounds.MAX_HOLDERS:
        seen = f"slots_in_use {free.count}, {len(free.holders)} holders of {free.weight}, the limit {free.limit}"
        text = f"{sorted(granted)} of weight {weight} take slots that are not free"
        yield Breach("S1", f"{text}: {seen}, paused {free.paused}")
    for key in {holder.key for holder in granted.values() if not holder.is_lease}:
        if (held := after.held_by_key[key]) > free.limit_of(key):
            yield Breach("S12", f"{sorted(granted)} are granted, and key {key!r} has {held} of {free.limit_of(key)}")
    if after.grants <= free.grants and free.target != NO_TARGET:
        yield Breach("S5", f"{sorted(granted)} are granted, and grants stays {free.grants}")
    if not free.interval:
        return
    moved, least = after.next_start - free.next_start, len(granted) * free.interval
    if moved < least:
        yield Breach("S11", f"{sorted(granted)} start, and move the next start by {moved} ms, not {least}")
    last_due = free.next_start + (len(granted) - 1) * free.interval - free.lead
    early = last_due - writer.clock * 1000 if writer else 0
    if early > 0:
        yield Breach("S11", f"{sorted(granted)} start {early:.0f} ms before they are due")


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
