"""The record of a process in a period: its requests, and the settings that were in force."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import key_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.work_history import SET_KEY_LIMIT, OperatorAct, key_limits_over_time
from slotkeeper_cli.formatting import seconds
from slotkeeper_cli.rates import parse_rate
from slotkeeper_cli.replay import SettingsChange


@dataclass(frozen=True)
class PastRequest:
    """One attempt of a request, as it is recorded. Times are seconds since the epoch.

    Attributes:
        sent: when it was sent, or redriven.
        started: None if it has not started.
        ended: None if its work has not ended.
        place: text that sorts as its place in the queue.
        granted: text that sorts as its grant: those of one grant have the same until "#". "" if it was not recorded.
        leaves: when it leaves the queue if it has not started: its deadline, or when it was cancelled.
    """

    execution: str
    sent: float
    started: float | None
    ended: float | None
    weight: int = 1
    place: str = ""
    skips: bool = False
    leaves: float = math.inf
    granted: str = ""

    @property
    def key(self) -> str:
        return key_of(self.place)

    @property
    def is_queued(self) -> bool:
        """Whether it has neither started nor left the queue."""
        return self.started is None and self.ended is None


@dataclass(frozen=True)
class Recording:
    """The record of a process in a period.

    Attributes:
        process: as it is now.
        since: the begin of the period, or the first request if that is later.
        requests: those that were queued or held a slot in the period.
        first: settings of the process at the begin that were others than now.
        changes: of these until the end of the period, by time.
        target_since: since when the process has its target; infinite in the past if that is not recorded.
        doubts: why the settings of then may have been others, in sentences.
        notes: further gaps of the records, in sentences.
    """

    process: Process
    since: float
    until: float
    requests: Sequence[PastRequest]
    first: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[SettingsChange] = ()
    target_since: float = -math.inf
    doubts: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def begin(self) -> Process:
        """The process at the begin, without holders."""
        return replace(self.process, holders={}, slots_in_use=0, next_start=0, after_keys={}, **self.first)

    @property
    def limits(self) -> list[tuple[float, int]]:
        """(instant, limit from then on), by time."""
        changes = ((each.at, each.fields.get("slot_limit")) for each in self.changes)
        return [(self.since, self.begin.slot_limit), *((at, limit) for at, limit in changes if limit is not None)]

    @cached_property
    def started(self) -> list[PastRequest]:
        """The requests that started in the period."""
        return [each for each in self.requests if each.started is not None and each.started >= self.since]

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many requests are known (`samples`: with their end), and of which something is not."""
        return {
            "samples": sum(each.ended is not None for each in self.started),
            "started": len(self.started),
            "running_at_begin": sum(each.started is not None and each.started < self.since for each in self.requests),
            "waiting_at_begin": sum(each.sent < self.since for each in self.started),
            "running_at_end": sum(each.started is not None and each.ended is None for each in self.requests),
            "waiting_at_end": sum(each.is_queued for each in self.requests),
        }


def recording_of(
    process: Process,
    rows: Sequence[RequestRow],
    lines: Sequence[Mapping[str, Any]],
    since: float,
    until: float,
    doubts: Sequence[str] = (),
) -> Recording:
    """The recording of a period.

    An audit line is written before its change, and does not prove it. The next line's `before`, or the present item,
    does; what contradicts them is a doubt.

    Args:
        process: as it is now.
        rows: those that had not ended at the begin.
        lines: of the audit log, that concern the process, since the begin.
        doubts: about what was read.
    """
    # A returned one has held no slot: its next attempt has its place, and the time at which it was sent.
    rows = [row for row in rows if row.state not in ("RETURNED", "REJECTED") and row.sent <= until]
    requests = sorted((_request(row, process) for row in rows), key=lambda each: (each.place, each.sent))
    begin = max(since, min((each.sent for each in requests), default=since))
    made = _with_settings(Recording(process, begin, until, requests, doubts=doubts), lines)
    changed = {name for change in made.changes for name in change.fields}
    is_open = sum(each.ended is None for each in requests)
    has_lease = any(each.is_lease for each in process.holders.values())
    facts = [
        ("rate" in changed, f"the rate has changed: the replay has the present one, {process.rate or 'none'}"),
        (
            "key_limit" in changed,
            "limits of keys have changed: the replay has the present ones, or that of --key-limit",
        ),
        ("paused" in changed, "it was paused in the period: so it is in the replay"),
        (process.paused, "it is paused: the replay goes as if it was resumed now"),
        (is_open, f"{is_open:,} have not ended: for how long they hold their slots is taken from those that have"),
        (has_lease, "leases leave no record and are not replayed"),
    ]
    notes = [*made.doubts, *(text for applies, text in facts if applies)]
    resumed = [SettingsChange(until, {"paused": False})] if process.paused else []
    return replace(made, changes=[*made.changes, *resumed], notes=notes)


def _request(row: RequestRow, process: Process) -> PastRequest:
    started, ended = row.started, row.ended
    if started is None and row.state in ("SUCCEEDED", "FAILED"):
        started = ended  # it ended before its start was recorded
    leaves = math.inf if row.start_before is None else row.start_before
    # One that was skipped or too late may start in a replay; one that was cancelled leaves at that time.
    if started is None and ended is not None and not row.skips:
        leaves = min(leaves, ended)
    return PastRequest(
        row.execution,
        row.sent if started is None else min(row.sent, started),
        started,
        ended,
        row.weight or process.default_weight,
        row.placed,
        row.skips,
        leaves,
        row.granted,
    )


def _with_settings(recording: Recording, lines: Sequence[Mapping[str, Any]]) -> Recording:
    process, target_since = recording.process, recording.target_since
    first, current = dict[str, Any](), dict[str, Any]()
    changes, doubts, acts = list[SettingsChange](), [*recording.doubts], list[OperatorAct]()
    for line in lines:
        try:
            at, (before, after) = seconds(str(line["at"])), _change(line)
        except (KeyError, TypeError, ValueError):
            doubts.append(f"an audit line of {line.get('action')} could not be read")
            continue
        acts.append(OperatorAct(at, str(line["action"]), fields=line))
        for name in before.keys() & {"slot_limit", "rate"}:
            if current.get(name, before[name]) != before[name]:
                doubts.append(f"its {name} was changed before {line['at']} by something else than a command")
        first = {**before, **first}
        current |= after
        changes += [SettingsChange(at, after)] if after else []
        if line["action"] == "process add":
            target_since = at
        if line["action"] == "process repair":
            doubts.append(f"its item was repaired at {line['at']}: its settings before that are not known")
    for name, value in current.items():
        if getattr(process, name) != value and name != "next_start":
            doubts.append(f"its {name} was changed by something else than a command")
    begin, *others = key_limits_over_time(process, acts)
    if any(act.action == SET_KEY_LIMIT for act in acts) and any(now is None for _, now in (begin, *others)):
        doubts.append("its limits of keys were changed by something else than a command")
    last = begin[1] or process
    first |= _key_limits(last) if _key_limits(last) != _key_limits(process) else {}
    for at, now in others:
        if _key_limits(now or process) != _key_limits(last):
            changes.append(SettingsChange(at, _key_limits(last := now or process)))
    changes.sort(key=lambda each: each.at)
    return replace(recording, first=first, changes=changes, target_since=target_since, doubts=doubts)


def _key_limits(process: Process) -> dict[str, Any]:
    return {"key_limit": process.key_limit, "key_limits": process.key_limits}


def _change(line: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The settings before and after a line of the audit log. Raises KeyError, TypeError or ValueError."""
    match line["action"]:
        case "process set-limit":
            return {"slot_limit": int(line["before"])}, {"slot_limit": int(line["after"])}
        case "process set-rate":
            rate = _rate(line["after"], line["burst"])
            return {"rate": _rate(line["before"])}, {"rate": rate, "next_start": 0}
        case "process pause":
            return {"paused": False}, {"paused": True}
        case "process resume":
            return {"paused": True}, {"paused": False}
        case "process add":
            rate = _rate(line["rate"], line["burst"])
            return {}, {"slot_limit": int(line["limit"]), "rate": rate, "paused": bool(line["paused"]), "next_start": 0}
        case "process remove":
            return {}, {"slot_limit": 0}
    return {}, {}


def _rate(text: str | None, burst: int = 1) -> Rate | None:
    """The rate of an audit line, such as `10/minute` or `10/minute, burst 2`. Raises ValueError."""
    if text is None:
        return None
    rate, _, own = text.partition(", burst ")
    return parse_rate(rate, int(own or burst))
