"""Predicts the waits of recorded requests at another limit: their replay, if a replay of the recorded time agrees.

The replay at another limit has the recorded arrivals, durations, pauses and redrives, and the present rate. How long a
request holds its slot that has not ended is taken from those that have; of one that runs, from those that took longer
than it already has.

A replay has no delays. The time that starts take beyond the rule, such as a cold start, the hand-off of a slot, and
the time from one start to the next, is taken from the records. First the recorded time is replayed, at the settings
that were in force. If that replay does not have the recorded waits, something that is in no record has delayed
requests, and nothing can be predicted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean, median, stdev
from typing import Any

from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queued import before_key, rank_of
from slotkeeper_cli.audit.intervals import percentile, rounded, spread, utilization, weighted_steps
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.formatting import count, duration, iso
from slotkeeper_cli.replay import START_SECONDS, QueuedWork, Replay, SettingsChange
from slotkeeper_cli.what_if.recording import PastRequest, Recording
from slotkeeper_cli.write_units import demand, key_bytes

# Fewer do not show a p90.
MIN_SAMPLES = 20
# Percentiles of waits that a replay must have, up to this part and these seconds.
CHECKED = (0.5, 0.9)
TOLERANCE, TOLERATED_SECONDS = 0.15, 1.0
# The part of the requests that may have waited already when the period began.
_MOST_WAITING_AT_BEGIN = 0.1
# The part of the requests that something may have delayed which is in no record.
_MOST_UNEXPLAINED = 0.1
# Seconds from which a wait counts as one for a slot.
_WAITED = 1.0
# Seconds after which a delay, and the time from one start to the next, is none of Slotkeeper's usual ones.
_LONGEST_DELAY, _LONGEST_PACE = 5.0, 1.0
# Starts after another one that show the time from one to the next.
_TOGETHER = 5


class CannotKnow(ValueError):
    """The records do not show what was asked. The text states why, and what to do."""


@dataclass(frozen=True)
class Course:
    """How a period went, or would have gone.

    Attributes:
        starts: when each request started, infinite if it waits, by execution; without those that left the queue.
        waits: of those that started in the period or later, in seconds; infinite for those that wait.
        left: the number that left the queue without a start.
        longest_queue: the most requests that waited at the same time.
        utilization: the part of the offered slots that was used; None if none was offered.
        waits_by_key: the same waits, by key; "" are those without one.
    """

    starts: Mapping[str, float]
    waits: Sequence[float]
    left: int
    longest_queue: int
    utilization: float | None
    waits_by_key: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """The figures as JSON shows them; times in seconds, None for a start that does not happen."""
        return {
            "wait": spread(self.waits, p50=0.5, p90=0.9, p99=0.99),
            "waited": sum(each >= _WAITED for each in self.waits),
            "not_started": sum(math.isinf(each) for each in self.waits),
            "left": self.left,
            "longest_queue": self.longest_queue,
            "utilization": rounded(self.utilization),
        }


def predict(
    recording: Recording,
    limit: int,
    duration_factor: float = 1.0,
    arrival_factor: float = 1.0,
    least: int = MIN_SAMPLES,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Course]:
    """Replay the requests at a limit.

    The result has the courses `recorded`, `check` (the replay at the settings of then, which has the recorded waits)
    and `replayed`.

    Args:
        duration_factor: 0.5: each takes half of its time.
        arrival_factor: 2: they arrive in half of the time.
        least: the samples that are needed.
        settings: further ones of the replay, as fields of `Process`: `key_limit`. By default the present ones.

    Raises:
        CannotKnow: the records do not show it.
    """
    other = _at(recording, {"slot_limit": limit, **(settings or {})}, arrival_factor)
    _check_samples(recording, other.begin, least)
    lengths = _lengths(recording)
    observed = _observed(recording, lengths)
    recorded, check = _recorded(recording), _course(recording, lengths, observed)
    _check_agreement(recording, check, observed)
    weight = other.process.default_weight
    of_keys = key_bytes(other.process)
    needed = demand(other.process.name, other.process.target, max(1, limit // weight), weight, of_keys)
    observed = replace(observed, pace=max(observed.pace, 1 / needed.starts_a_second))
    replayed = _course(other, _scaled(lengths, duration_factor), observed)
    low, high = (_scaled(each, duration_factor) for each in _bounds(recording, lengths))
    if low != high and not _agree(_course(other, low, observed).waits, _course(other, high, observed).waits):
        ended = recording.counts["samples"]
        raise CannotKnow(
            f"{count(len(recording.requests) - ended, 'request')} of process {recording.process.name} have not ended, "
            f"and the {ended:,} that have do not show well enough for how long these will hold their slots: the waits "
            "cannot be known. Give an earlier --since, or ask again after more have ended"
        )
    return {"recorded": recorded, "check": check, "replayed": replayed}


def _scaled(lengths: Mapping[str, float], factor: float) -> dict[str, float]:
    return {execution: length * factor for execution, length in lengths.items()}


def _check_samples(recording: Recording, replayed: Process, least: int) -> None:
    name, counts, limit = recording.process.name, recording.counts, replayed.slot_limit
    if heavy := [each for each in recording.requests if each.weight > limit]:
        heaviest = max(heavy, key=lambda each: each.weight)
        raise CannotKnow(
            f"{len(heavy):,} of the recorded requests of process {name} would never start at limit {limit}, such as "
            f"{heaviest.execution} of weight {heaviest.weight}: give --limit {heaviest.weight} or more"
        )
    for each in recording.requests:
        of_its_key = replayed.limit_of(each.key)
        if of_its_key is not None and each.weight > of_its_key:
            own = each.key in replayed.key_limits
            raise CannotKnow(
                f"{each.execution} of process {name}, of weight {each.weight}, would never start at limit {of_its_key} "
                f"of {of_key(each.key)}: "
                + ("raise this key's own limit" if own else f"give --key-limit {each.weight} or more")
            )
    if counts["samples"] < least:
        raise CannotKnow(
            f"process {name} has {counts['samples']} requests that started and ended; {least} are needed. Of "
            f"{counts['started']} that started, {counts['running_at_end']} still run. Give an earlier --since"
        )
    if counts["waiting_at_begin"] > _MOST_WAITING_AT_BEGIN * counts["started"]:
        first = min(each.sent for each in recording.started)
        raise CannotKnow(
            f"the period begins within a backlog: {counts['waiting_at_begin']:,} of the {counts['started']:,} requests "
            f"that started waited already, and how many would have waited at another limit cannot be known. Give a "
            f"--since before {iso(first)}, or one after the backlog"
        )
    has_leases = any(each.is_lease for each in recording.process.holders.values())
    is_other = {limit} != {each for _, each in recording.limits} or replayed.key_limit != recording.begin.key_limit
    if has_leases and is_other:
        raise CannotKnow(
            f"leases hold slots of process {name}, and leave no record: how many they would have taken at another "
            "limit cannot be known. The metric SlotsInUse counts their slots too (docs/metrics.md)"
        )


def _check_agreement(recording: Recording, check: Course, observed: _Observed) -> None:
    """The check must have the recorded waits of the requests that started."""
    waits = [_start(each) - each.sent for each in recording.started]
    checked = [check.starts.get(each.execution, math.inf) - each.sent for each in recording.started]
    if _agree(waits, checked) and len(observed.unexplained) <= _MOST_UNEXPLAINED * len(waits):
        return
    shown = [" and ".join(_shown(percentile(each, share)) for share in CHECKED) for each in (waits, checked)]
    text = (
        f"the records of process {recording.process.name} do not explain its waits: their p50 and p90 are {shown[0]}, "
        f"and by the settings of then would have been {shown[1]}."
    )
    if observed.unexplained:
        late, at, execution = max(observed.unexplained)
        text += (
            f" {count(len(observed.unexplained), 'request')} waited although a slot was free by the records, such as "
            f"{execution} for {duration(late)} until {iso(at)}. Leases, an outage, and a change "
            "of the item by something else than a command leave no record."
        )
        minutes = int(recording.until - max(at for _, at, _ in observed.unexplained)) // 60
        text += f" Give --since {minutes}m, which begins after them" if minutes else " Ask again later"
    else:
        text += " More requests ran than these settings allow. Give a --since after the last change of the limit"
    doubts = "".join(f". The settings of then: {each}" for each in recording.doubts)
    raise CannotKnow(f"{text}{doubts}")


def _shown(wait: float | None) -> str:
    return "infinite" if wait is None or math.isinf(wait) else duration(wait)


def _agree(waits: Sequence[float], others: Sequence[float]) -> bool:
    pairs = ((percentile(waits, share) or 0.0, percentile(others, share) or 0.0) for share in CHECKED)
    return all(a == b or abs(a - b) <= TOLERANCE * a + TOLERATED_SECONDS for a, b in pairs)


def _at(recording: Recording, settings: Mapping[str, Any], arrival_factor: float) -> Recording:
    """The recording at these settings, otherwise at the present ones, with arrivals and pauses closer together."""

    def moved(at: float) -> float:
        return recording.since + max(0.0, at - recording.since) / arrival_factor + min(0.0, at - recording.since)

    pauses = [each for each in recording.changes if "paused" in each.fields]
    present = {name: getattr(recording.process, name) for name in ("rate", "key_limit", "key_limits")}
    return replace(
        recording,
        first={**recording.first, **present, **settings},
        changes=[SettingsChange(moved(each.at), {"paused": each.fields["paused"]}) for each in pauses],
        requests=[
            replace(each, sent=moved(each.sent), leaves=each.leaves - each.sent + moved(each.sent))
            for each in recording.requests
        ],
        until=moved(recording.until),
    )


def _recorded(recording: Recording) -> Course:
    known = [each for each in recording.requests if each.started is not None or each.is_queued]
    starts = {each.execution: _start(each) for each in known}
    ends = {each.execution: math.inf if each.ended is None else each.ended for each in known}
    return _course_of(recording, starts, ends)


def _course(recording: Recording, lengths: Mapping[str, float], observed: _Observed) -> Course:
    """A replay of a recording, in which each request holds its slot for its length."""
    begin, ends, works = _begin(recording, lengths, observed)
    hand_off, pace = observed.hand_off, observed.pace
    made = Replay(
        begin, works, recording.since, ends=ends, changes=recording.changes, hand_off=hand_off, pace=pace
    ).run()
    starts = {each.execution: _start(each) for each in recording.requests if each.execution in ends}
    starts |= dict.fromkeys(made.waits, math.inf) | dict(made.starts)
    return _course_of(recording, starts, {name: start + lengths[name] for name, start in starts.items()})


def _course_of(recording: Recording, starts: Mapping[str, float], ends: Mapping[str, float]) -> Course:
    """The course of the requests that have a start, which is infinite if they wait."""
    waited, used = list[tuple[float, float]](), list[tuple[tuple[float, float], int]]()
    by_key: dict[str, list[float]] = defaultdict(list)
    for each in recording.requests:
        start = starts.get(each.execution, -math.inf)
        if start >= recording.since:
            waited.append((each.sent, start))
            by_key[each.key].append(start - each.sent)
        if each.execution in starts:
            used.append(((start, ends[each.execution]), each.weight))
    queue = weighted_steps((wait, 1) for wait in waited)
    return Course(
        starts,
        [start - sent for sent, start in waited],
        len(recording.requests) - len(starts),
        max((number for _, number in queue), default=0),
        utilization(used, recording.limits, (recording.since, recording.until)),
        by_key,
    )


def _begin(
    recording: Recording, lengths: Mapping[str, float], observed: _Observed
) -> tuple[Process, dict[str, float], list[QueuedWork]]:
    """The process at the begin, when each of its holders frees its slot, and the other requests."""
    holders, ends, works = dict[str, Holder](), dict[str, float](), list[QueuedWork]()
    for number, each in enumerate(sorted(recording.requests, key=lambda each: (each.place, each.sent))):
        length = lengths[each.execution]
        if each.started is not None and each.started < recording.since:
            holders[each.execution] = Holder("RUNNING", int(each.started), "", None, {}, each.weight, each.key)
            ends[each.execution] = each.started + length
        else:
            arrives = max(recording.since, each.sent) + observed.arrivals.get(each.execution, observed.arrival)
            place = f"{before_key(rank_of(each.place) or '0', each.key)}{number:09}"
            works.append(
                QueuedWork(each.execution, place, each.weight, each.leaves, each.skips, arrives=arrives, seconds=length)
            )
    return replace(recording.begin, holders=holders), ends, works


def _ended(recording: Recording) -> list[float]:
    """For how long the requests that have ended held their slots, in order: those of the present target, if any."""
    lengths = [
        (each.sent, each.ended - each.started)
        for each in recording.requests
        if each.started is not None and each.ended is not None
    ]
    of_target = [length for sent, length in lengths if sent >= recording.target_since]
    return sorted(of_target or (length for _, length in lengths))


def _lengths(recording: Recording) -> dict[str, float]:
    """For how long each request holds its slot, in seconds; infinite if that is not known.

    Of one that has not ended it is that of another one. Together, those that have not started have the mean of those
    that have.
    """
    lengths, ended, others = dict[str, float](), _ended(recording), list[str]()
    known = [*ended]
    for each in recording.requests:
        if each.started is None:
            others.append(each.execution)
        elif each.ended is not None:
            lengths[each.execution] = each.ended - each.started
        else:
            longer = [length for length in ended if length > recording.until - each.started]
            lengths[each.execution] = Random(each.execution).choice(longer) if longer else math.inf  # noqa: S311
            known += [lengths[each.execution]] if longer else []
    known.sort()
    Random(len(others)).shuffle(others)  # noqa: S311
    for number, execution in enumerate(others):
        lengths[execution] = known[len(known) * number // len(others)] if known else math.inf
    return lengths


def _bounds(recording: Recording, lengths: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """The lengths at least and at most: the mean of those that have ended is that of the others, within two errors.

    One that has run for longer than each of them ends now, or never.
    """
    ended = _ended(recording)
    mean = fmean(ended) if len(ended) > 1 else 0.0
    # No slot is held for less than no time.
    error = min(1.0, 2 * stdev(ended) / math.sqrt(len(ended)) / mean) if mean else 1.0
    low, high = dict(lengths), dict(lengths)
    for each in recording.requests:
        if each.ended is None:
            length = lengths[each.execution]
            low[each.execution], high[each.execution] = length * (1 - error), length * (1 + error)
            if each.started is not None and math.isinf(length):
                low[each.execution] = recording.until - each.started
    return low, high


@dataclass(frozen=True)
class _Observed:
    """The time that starts have taken beyond the rule, in seconds.

    Attributes:
        arrivals: from the sending of each request that found a free slot.
        arrival: the usual one of these, for all others.
        hand_off: from a release to the start of the next request.
        pace: from one start to the next one that could come with it.
        unexplained: all other delays: seconds, when it started, and its execution.
    """

    arrivals: Mapping[str, float]
    arrival: float
    hand_off: float
    pace: float
    unexplained: Sequence[tuple[float, float, str]]


def _observed(recording: Recording, lengths: Mapping[str, float]) -> _Observed:
    begin, ends, works = _begin(recording, lengths, _NOTHING)
    starts = _starts_in_order(recording)
    in_order = sorted(recording.started, key=lambda each: starts[each.execution])
    could = Replay(begin, works, recording.since, ends, recording.changes, recorded=starts).run().startable
    times = [starts[each.execution] for each in in_order]
    ready = [could.get(each.execution, math.inf) for each in in_order]
    # The fastest starts that followed each other although all of them could start already.
    pace = math.inf
    for at in range(_TOGETHER, len(times)):
        if max(ready[at - _TOGETHER : at + 1]) <= times[at - _TOGETHER]:
            pace = min(pace, (times[at] - times[at - _TOGETHER]) / _TOGETHER)
    pace = max(START_SECONDS, pace if pace <= _LONGEST_PACE else 0.0)
    arrivals, hand_offs, unexplained = dict[str, float](), list[float](), list[tuple[float, float, str]]()
    for at, each in enumerate(in_order):
        before = at - bisect_left(times, ready[at])
        late = max(0.0, times[at] - ready[at] - pace * before)
        if late > _LONGEST_DELAY:
            unexplained.append((late, times[at], each.execution))
        elif ready[at] <= max(recording.since, each.sent):
            arrivals[each.execution] = late
        elif ready[at] < math.inf:
            hand_offs.append(late)
    return _Observed(arrivals, median(arrivals.values() or [0.0]), fmean(hand_offs or [0.0]), pace, unexplained)


def _starts_in_order(recording: Recording) -> dict[str, float]:
    """When each request started. The starts of one grant are recorded in any order, and have here that of the turns."""
    grants: dict[str, list[PastRequest]] = defaultdict(list)
    for each in sorted(recording.started, key=_start):
        grants[each.granted.partition("#")[0] or each.execution].append(each)
    pairs = ((sorted(batch, key=lambda each: each.granted), batch) for batch in grants.values())
    return {each.execution: _start(at) for batch in pairs for each, at in zip(*batch, strict=True)}


_NOTHING = _Observed({}, 0.0, 0.0, 0.0, ())


def _start(request: PastRequest) -> float:
    return math.inf if request.started is None else request.started
