"""Who held a slot from when to when, and where room lay idle beside somebody who waited. Pure; seconds throughout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dev.scenarios.slots.figures import Interval

from .records import Change, Records


@dataclass(frozen=True)
class Holding:
    """A slot in one holder's hands. `confirmed` and `freed` are infinite where that never came."""

    process: str
    execution: str
    taken: float
    confirmed: float
    freed: float


@dataclass(frozen=True)
class Idle:
    """Room beside a request that waited, until somebody was admitted or one of the two was over."""

    process: str
    began: float
    ended: float
    admitted: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def holdings(changes: Iterable[Change]) -> list[Holding]:
    """In the order in which the slots were taken."""
    opened: dict[tuple[str, str], tuple[float, float]] = {}
    found: list[Holding] = []
    for change in changes:
        for key in [key for key in opened if key[0] == change.process and key[1] not in change.holders]:
            found.append(Holding(*key, *opened.pop(key), change.at))
        for name, state in change.holders.items():
            key = (change.process, name)
            taken, confirmed = opened.get(key, (change.at, math.inf))
            if state == "RUNNING" and confirmed == math.inf:
                confirmed = change.at
            opened[key] = (taken, confirmed)
    found += [Holding(*key, *times, math.inf) for key, times in opened.items()]
    return sorted(found, key=lambda holding: holding.taken)


def room(changes: Sequence[Change], process: str) -> list[Interval]:
    """When one more could have been admitted."""
    mine = [change for change in changes if change.process == process]
    ends = [*(change.at for change in mine), math.inf][1:]
    return merged(
        (change.at, end)
        for change, end in zip(mine, ends, strict=True)
        if len(change.holders) < change.limit and not change.paused
    )


def waits(records: Records, process: str, slots: Sequence[Holding]) -> list[Interval]:
    """When a message of the process was on the queue, by its sending and what became of it.

    A message that another attempt of its request sent is left out: nobody wrote down when.
    """
    taken: dict[str, float] = {}
    for slot in slots:
        taken.setdefault(slot.execution, slot.taken)
    first = {(e.process, e.request_id): e.name for e in records.executions if e.attempt == 1}
    set_aside = {letter.source: letter.at for letter in records.dead}
    found = []
    for sent in records.sent:
        if sent.process == process:
            name = first.get((process, sent.request_id), "")
            end = set_aside.get(sent.message_id, math.inf) if sent.bad else taken.get(name, math.inf)
            found.append((sent.at, end))
    return merged(found)


def idle(records: Records, process: str, slots: Sequence[Holding]) -> list[Idle]:
    """Every stretch of time in which the process had room and a message on the queue."""
    admissions = sorted(slot.taken for slot in slots if slot.process == process)
    found: list[Idle] = []
    for began, ended in overlaps(room(records.changes, process), waits(records, process, slots)):
        at = began
        for admitted in [a for a in admissions if began < a <= ended]:
            found.append(Idle(process, at, admitted, True))
            at = admitted
        if at < ended:
            found.append(Idle(process, at, ended, False))
    return found


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same instants, as intervals that neither touch nor overlap, by time."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def overlaps(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What lies in both; each a list that `merged` has made."""
    return [(max(a[0], b[0]), min(a[1], b[1])) for a in some for b in others if max(a[0], b[0]) < min(a[1], b[1])]
