"""What may happen to leases, checked at every write of a race, and against what their holders believed.

Time is the race's true time, in seconds; each caller's clock differs from it by up to MAX_ERROR.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from slotkeeper.slots.process import LEASE_CLOCK_SKEW

MAX_ERROR = LEASE_CLOCK_SKEW / 2 - 0.1  # of a clock; two clocks differ by less than the skew
MAX_FAULTS_SHOWN = 5


@dataclass
class LeaseRecord:
    """One lease as its holder knows it. `ends`: its end by true time.

    Args:
        asked, granted: when its last call began and was answered.
        released: the answer of the release, None if the holder died. `may_have_released`: an answer was lost.
        left, answered: when the release was called and answered.
    """

    code: str
    weight: int
    asked: float
    granted: float
    ends: float
    left: float = 0.0
    answered: float = 0.0
    released: bool | None = None
    may_have_released: bool = False


@dataclass
class LeaseHistory:
    """What one client did."""

    leases: list[LeaseRecord] = field(default_factory=list)
    refusals: int = 0
    lost_answers: int = 0
    faults: list[str] = field(default_factory=list)


def save(histories: Iterable[LeaseHistory], path: Path) -> None:
    path.write_text("\n".join(json.dumps(asdict(history)) for history in histories))


def load(path: Path) -> Iterator[LeaseHistory]:
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        yield LeaseHistory(**fields | {"leases": [LeaseRecord(**each) for each in fields["leases"]]})


class LeaseEntry(NamedTuple):
    state: str
    weight: int
    until: int
    code: str


class LeaseItem(NamedTuple):
    """The process's item after a write."""

    limit: int
    count: int
    holders: Mapping[str, LeaseEntry]
    registered: int

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> LeaseItem:
        holders = {name: entry["M"] for name, entry in raw["holders"]["M"].items()}
        return cls(
            int(raw["slot_limit"]["N"]),
            int(raw["slots_in_use"]["N"]),
            {
                name: LeaseEntry(
                    entry["state"]["S"],
                    int(entry.get("weight", {"N": "1"})["N"]),
                    int(entry.get("until", {"N": "0"})["N"]),
                    entry.get("code", {"S": ""})["S"],
                )
                for name, entry in holders.items()
            },
            sum("receipt_handle" in entry["M"] for entry in raw["waiting"]["M"].values()),
        )

    @property
    def weight(self) -> int:
        return sum(entry.weight for entry in self.holders.values())


class LeaseFigures(NamedTuple):
    """What a race checked."""

    writes: int
    grants: int
    refusals: int
    takeovers: int
    extensions: int
    lost_answers: int
    lost_leases: int
    most_in_use: int
    most_in_blocks: int


class LeaseJudge:
    """Takes every item of a race, oldest first, then concludes. `faults` are sentences."""

    def __init__(self, histories: Iterable[LeaseHistory]) -> None:
        self._histories = list(histories)
        self._leases = {lease.code: lease for history in self._histories for lease in history.leases}
        self.faults = [fault for history in self._histories for fault in history.faults]
        self._last: LeaseItem | None = None
        self._added: set[str] = set()
        self._writes = self._takeovers = self._extensions = self._most = 0

    def take(self, item: LeaseItem) -> None:
        self._writes += 1
        self._most = max(self._most, item.weight)
        if item.count != item.weight:
            self.faults.append(f"slots_in_use {item.count} for holders of {item.weight}")
        if self._last:
            self.faults += self._wrong_write(self._last, item)
        self._last = item

    def _wrong_write(self, old: LeaseItem, new: LeaseItem) -> Iterator[str]:
        added = [new.holders[name] for name in new.holders.keys() - old.holders.keys()]
        removed = [old.holders[name] for name in old.holders.keys() - new.holders.keys()]
        changed = [name for name in new.holders.keys() & old.holders.keys() if new.holders[name] != old.holders[name]]
        is_takeover = [entry.state for entry in added + removed] == ["LEASED"] * 2
        if len(added) > 1 or len(removed) > 1 or len(changed) + bool(added or removed) > 1:
            yield f"a write changed several holders: {added}, {removed}, {changed}"
        if added and removed and not is_takeover:
            yield f"{added} replaced {removed}"
        if added and new.weight > new.limit:
            yield f"{added} admitted above the limit: {new.weight} of {new.limit} in use"
        for entry in added:
            if entry.state == "LEASED" and old.registered:
                yield f"{entry} was granted although a request waits"
            self._added.add(entry.code)
        for name in changed:
            before, after = old.holders[name], new.holders[name]
            if after != before._replace(until=after.until):
                yield f"{before} became {after}"
            if after.until < before.until:
                yield f"the end of {before} was moved back to {after.until}"
            self._extensions += 1
        for entry in removed:
            if entry.state == "LEASED":
                taker = added[0].code if is_takeover else ""
                self._takeovers += is_takeover
                yield from self._wrong_removal(entry, taker)

    def _wrong_removal(self, entry: LeaseEntry, taker: str) -> Iterator[str]:
        """A lease ends by its holder's release, or after the skew has passed since its end by the remover's clock."""
        lease, by = self._leases.get(entry.code), self._leases.get(taker)
        if lease is None or (not taker and (lease.released or lease.may_have_released)):
            return
        # When the taker read its clock; or at the latest, when the holder learned that the lease was lost.
        known = [each for each in (by.asked if by else 0.0, 0.0 if lease.released else lease.answered) if each]
        if known and min(known) + MAX_ERROR < entry.until + LEASE_CLOCK_SKEW:
            yield f"{lease} was freed at {min(known):.2f}, before {entry} had expired"

    def conclude(self) -> LeaseFigures:
        if unknown := self._leases.keys() - self._added:
            self.faults.append(f"{len(unknown)} grants are in no write")
        (limit, *_), most = self._last or (0,), self._most_in_blocks()
        if most > limit:
            self.faults.append(f"blocks of {most} ran at the same time within their leases, the limit {limit}")
        return LeaseFigures(
            self._writes,
            len(self._leases),
            sum(history.refusals for history in self._histories),
            self._takeovers,
            self._extensions,
            sum(history.lost_answers for history in self._histories),
            sum(lease.released is False for lease in self._leases.values()),
            self._most,
            most,
        )

    def _most_in_blocks(self) -> int:
        """The largest weight of the blocks that ran at one instant, each until it was left or its lease ended."""
        changes = []
        for lease in self._leases.values():
            end = min(lease.left or lease.ends, lease.ends)
            if end > lease.granted:
                changes += [(lease.granted, lease.weight), (end, -lease.weight)]
        most = now = 0
        for _, weight in sorted(changes):  # at the same instant, ends first
            now += weight
            most = max(most, now)
        return most

    def summary(self) -> str:
        """The first faults, and the number of others."""
        more = len(self.faults) - MAX_FAULTS_SHOWN
        return "\n".join([*self.faults[:MAX_FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])])
