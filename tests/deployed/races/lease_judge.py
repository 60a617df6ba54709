"""What may happen to leases, checked at every write of a race, and against what their holders believed.

Time is the race's true time, in seconds; each caller's clock differs from it by up to MAX_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dev.judge.slot_item import Item, Writer, wrong_item, wrong_step
from slotkeeper.settings import CLOCK_SKEW_SECONDS

MAX_FAULTS_SHOWN = 20
MAX_ERROR = CLOCK_SKEW_SECONDS / 2 - 0.1  # of a clock; two clocks differ by less than the skew


@dataclass
class LeaseRecord:
    """One lease as its holder knows it. `ends`: its end by true time.

    Args:
        granted, left: when its last call was answered, and when the release was called.
        released: the answer of the release, None if the holder died. `may_have_released`: an answer was lost.
    """

    code: str
    weight: int
    granted: float
    ends: float
    left: float = 0.0
    released: bool | None = None
    may_have_released: bool = False


@dataclass
class LeaseHistory:
    """What one client did. `removals`: the code of each expired lease that it removed or tried to, and its clock."""

    leases: list[LeaseRecord] = field(default_factory=list)
    removals: list[tuple[str, float]] = field(default_factory=list)
    refusals: int = 0
    lost_answers: int = 0
    faults: list[str] = field(default_factory=list)


class LeaseFigures(NamedTuple):
    """The figures of a race."""

    writes: int
    grants: int
    refusals: int
    removals: int
    extensions: int
    lost_answers: int
    lost_leases: int
    most_in_blocks: int


class LeaseJudge:
    """Takes every item of a race, oldest first, then concludes. `faults` contains sentences."""

    figures: LeaseFigures

    def __init__(self, histories: Iterable[LeaseHistory]) -> None:
        self.faults: list[str] = []
        self._writes = 0
        self._last: Item | None = None
        self._histories = list(histories)
        self._leases = {lease.code: lease for history in self._histories for lease in history.leases}
        self.faults += [fault for history in self._histories for fault in history.faults]
        self._written: set[str] = set()  # codes
        self._removers: dict[str, float] = {}  # code -> the latest clock of those who tried to remove the lease
        for code, clock in (each for history in self._histories for each in history.removals):
            self._removers[code] = max(clock, self._removers.get(code, clock))
        self._removals = self._extensions = 0

    def take(self, item: Item) -> None:
        """Check the next version. The first one is the created item, the last one the final item."""
        self._written |= {holder.code for holder in item.holders.values()}
        breaches = list(wrong_item(item))
        if old := self._last:
            gone = (self._leases.get(each.code) for name, each in old.holders.items() if name not in item.holders)
            self._removals += sum(lease is not None and lease.released is not True for lease in gone)
            self._extensions += sum(old.holders.get(name, holder) != holder for name, holder in item.holders.items())
            breaches += wrong_step(old, item, writer=self._writer(old, item))
        self.faults += [f"write {self._writes}: {breach}" for breach in breaches]
        self._writes += 1
        self._last = item

    def summary(self) -> str:
        """The first faults as text, and the number of others."""
        more = len(self.faults) - MAX_FAULTS_SHOWN
        return "\n".join([*self.faults[:MAX_FAULTS_SHOWN], *([f"and {more} more"] if more > 0 else [])])

    def _writer(self, old: Item, new: Item) -> Writer | None:
        """The remover of another caller's lease, with the latest time that a clock of a caller that tried has shown."""
        removed = next((holder.code for name, holder in old.holders.items() if name not in new.holders), "")
        lease = self._leases.get(removed)
        if lease is None or lease.released or lease.may_have_released or removed not in self._removers:
            return None
        return Writer("", self._removers[removed])

    def conclude(self) -> None:
        if unknown := self._leases.keys() - self._written:
            self.faults.append(f"{len(unknown)} grants are in no write")
        limit, most = self._last.limit if self._last else 0, self._most_in_blocks()
        if most > limit:
            self.faults.append(f"blocks of {most} ran at the same time within their leases, the limit {limit}")
        self.figures = LeaseFigures(
            self._writes,
            len(self._leases),
            sum(history.refusals for history in self._histories),
            self._removals,
            self._extensions,
            sum(history.lost_answers for history in self._histories),
            sum(lease.released is False for lease in self._leases.values()),
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
