"""When each execution held a slot, and when a slot was free although a request waited. Pure; seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dev.judge.slot_item import Item
from slotkeeper_cli.intervals import Interval, merged, overlap_seconds, overlaps

from .soak_plan import RESTARTED
from .soak_records import FaultMark, Records

FAULT_LASTS = 10.0  # seconds after a fault within which a new container receives a hidden message
# Faults that can end a starter or lose a wake. An aborted workflow wakes no request.
DISTURBING = {
    *RESTARTED,
    "abort",
    "abort at a step",
    "abort, run left alive",
    "containers killed",
    "fault in StartExecution",
    "fault in a task",
    "fault in an API call",
    "redriven",
}


@dataclass(frozen=True)
class Holding:
    """A slot held by one execution. `confirmed` and `freed` are infinite if they did not happen."""

    process: str
    execution: str
    taken: float
    confirmed: float
    freed: float


@dataclass(frozen=True)
class Idle:
    """A time in which a slot was free and a request waited. `admitted`: an admission ended it."""

    process: str
    started: float
    ended: float
    admitted: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.started


def holdings(changes: Iterable[Item]) -> list[Holding]:
    """All holdings, in the order of their reservations."""
    opened: dict[tuple[str, str], tuple[float, float]] = {}
    closed: list[Holding] = []
    for change in changes:
        for key in [key for key in opened if key[0] == change.process and key[1] not in change.holders]:
            closed.append(Holding(*key, *opened.pop(key), change.at))
        for name, holder in change.holders.items():
            key = (change.process, name)
            taken, confirmed = opened.get(key, (change.at, math.inf))
            if holder.state == "RUNNING" and confirmed == math.inf:
                confirmed = change.at
            opened[key] = (taken, confirmed)
    closed += [Holding(*key, *times, math.inf) for key, times in opened.items()]
    return sorted(closed, key=lambda holding: holding.taken)


def free_slots(changes: Sequence[Item], process: str) -> list[Interval]:
    """When the process could have admitted another request."""
    mine = [change for change in changes if change.process == process]
    ends = [*(change.at for change in mine), math.inf][1:]
    return merged(
        (change.at, end)
        for change, end in zip(mine, ends, strict=True)
        if change.weight < change.limit and not change.paused
    )


def waiting_requests(records: Records, process: str, slots: Sequence[Holding]) -> list[Interval]:
    """When a message of the process was on the queue: from its sending to its admission or dead-letter message.

    Messages that a returned request sent are left out, since their time was not recorded.
    """
    taken: dict[str, float] = {}
    for slot in slots:
        taken.setdefault(slot.execution, slot.taken)
    first = {(e.process, e.request_id): e.name for e in records.executions if e.attempt == 1}
    dead_lettered = {message.source: message.at for message in records.dead}
    waits = []
    for sent in records.sent:
        if sent.process == process:
            name = first.get((process, sent.request_id), "")
            end = dead_lettered.get(sent.message_id, math.inf) if sent.bad else taken.get(name, math.inf)
            waits.append((sent.at, end))
    return merged(waits)


def idle(records: Records, process: str, slots: Sequence[Holding]) -> list[Idle]:
    """Every time in which the process had a free slot and a message on the queue."""
    admissions = sorted(slot.taken for slot in slots if slot.process == process)
    stretches: list[Idle] = []
    for started, ended in overlaps(free_slots(records.changes, process), waiting_requests(records, process, slots)):
        at = started
        for admitted in [a for a in admissions if started < a <= ended]:
            stretches.append(Idle(process, at, admitted, True))
            at = admitted
        if at < ended:
            stretches.append(Idle(process, at, ended, False))
    return stretches


def seconds_with_engine(each: Idle, faults: Sequence[FaultMark]) -> float:
    """The seconds of the idle time in which the engine ran."""
    down = [(mark.at, mark.until) for mark in faults if mark.kind in RESTARTED]
    return each.seconds - overlap_seconds(down, (each.started, each.ended))


def is_disturbed(each: Idle, faults: Sequence[FaultMark]) -> bool:
    """Whether a fault can have caused the idle time."""
    return any(
        mark.kind in DISTURBING
        and mark.process in ("", each.process)
        and mark.at < each.ended
        and mark.until + FAULT_LASTS > each.started
        for mark in faults
    )
