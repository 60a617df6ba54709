"""When queued requests are expected to start, from how long recent requests of their process have held their slots.

The queue is replayed from now on, several times, each time with other durations: so the range is narrow for a request
far behind, and wide for the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Behind, Blocked, InPause, KeyBlocked, Stopped, Wait
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.rows import QueuedRow, RequestRow
from slotkeeper_cli.audit.intervals import percentile
from slotkeeper_cli.formatting import count, duration, iso, local_time
from slotkeeper_cli.replay import START_SECONDS, QueuedWork, Replay, ReplayCourse

# Durations below which no range is stated.
MIN_SAMPLES = 5
# Replays, and the most requests in all of them: some half a second.
MAX_REPLAYS = 9
_MOST_WORKS = 10_000


def slot_seconds(ended: Iterable[RequestRow]) -> list[float]:
    """For how long requests that have ended held their slots, in seconds.

    Those that failed are included, since their slots became free too.
    """
    held = (each for each in ended if each.state in ("SUCCEEDED", "FAILED", "REDRIVEN"))
    return [each.ended - each.started for each in held if each.ended and each.started]


def expected_starts(
    process: Process, queue: Sequence[QueuedRow], durations: Sequence[float], now: float
) -> dict[str, dict[str, Any]]:
    """When each request of a queue is expected to start, by execution, as JSON shows it.

    `at` is the median of the replays, in ISO 8601, and `seconds` the time until then. Both are None if no time can be
    given: `text` has the reason.

    Args:
        queue: in its order, all of it.
        durations: for how long recent requests of the process have held their slots, in seconds.
        now: seconds since the epoch.
    """
    known = sorted(durations) if len(durations) >= MIN_SAMPLES else []
    works = [row for row in queue if row.queued.execution not in process.holders]
    number = max(1, min(MAX_REPLAYS, _MOST_WORKS // max(1, len(works))))
    courses = [_course(process, works, known, now, each, number) for each in range(number)]
    samples = count(len(durations), "recent request")
    return {row.queued.execution: _expected(process, row, courses, samples, bool(known), now) for row in queue}


def _course(
    process: Process, queue: Sequence[QueuedRow], durations: Sequence[float], now: float, at: int, replays: int
) -> ReplayCourse:
    """One of the replays, by its number. Together they have each part of the durations of each holder."""
    ends = dict[str, float]()
    for name, holder in process.holders.items():
        shares = Random(name).sample(range(replays), replays)  # noqa: S311
        ends[name] = _end_of(holder, durations, now, (shares[at] + 0.5) / replays)
    random = Random(at)  # noqa: S311
    if (drift := process.slots_in_use - process.held_weight) > 0:  # which frees nothing
        # No key has it, as no key has a lease.
        holder = Holder("LEASED", int(now), "", None, {}, drift)
        process = replace(process, holders={**process.holders, "": holder})
    works = [
        QueuedWork(**vars(row.queued), arrives=now, seconds=random.choice(durations) if durations else math.inf)
        for row in queue
    ]
    return Replay(process, works, now, ends=ends, pace=START_SECONDS).run()


def _end_of(holder: Holder, durations: Sequence[float], now: float, share: float) -> float:
    """When a holder is expected to free its slot: infinite if it has run for longer than each recent request."""
    if holder.until is not None:
        # A lease may be released at any time until its end.
        return now + share * max(0.0, (holder.removable_from or holder.until) - now)
    longer = percentile([each for each in durations if each > now - holder.since], share)
    return math.inf if longer is None else holder.since + longer


def _expected(
    process: Process, row: QueuedRow, courses: Sequence[ReplayCourse], samples: str, is_known: bool, now: float
) -> dict[str, Any]:
    execution = row.queued.execution
    if execution in process.holders:
        return _answer(now, now, "now: it has a slot, and is starting")
    if process.target == NO_TARGET:
        return _answer(None, now, "never: the process has no target, so its requests are rejected")
    starts = sorted(course.starts.get(execution, math.inf) for course in courses)
    at = starts[len(starts) // 2]
    if math.isinf(at):
        return _answer(None, now, _why(execution, courses[0], samples, is_known))
    of = f" ({samples})" if is_known else ""
    low, high = (duration(each - now) if each < math.inf else "later" for each in (starts[0], starts[-1]))
    between = low if low == high else f"{low} to {high}"
    return _answer(at, now, f"in {between}, by about {local_time(at)}{of}" if at > now else f"now{of}")


def _answer(at: float | None, now: float, text: str) -> dict[str, Any]:
    if at is None:
        return {"at": None, "seconds": None, "text": text}
    return {"at": iso(at), "seconds": max(0, int(at - now)), "text": text}


def _why(execution: str, course: ReplayCourse, samples: str, is_known: bool) -> str:
    """Why no time can be given."""
    if execution in course.left and is_known:
        return "never: its start_before comes first, or it leaves the queue because it cannot start now"
    wait: Wait | None = course.waits.get(execution)
    while wait and isinstance(wait.reason, Behind):
        wait = course.waits.get(wait.reason.first)
    match wait and wait.reason:
        case Blocked(weight, slot_limit):
            return f"not known: its weight {weight} is above the limit {slot_limit}"
        case KeyBlocked(_, weight, key_limit):
            return f"not known: its weight {weight} is above the limit {key_limit} of its key"
        case Stopped():
            return "not known: the limit is 0"
        case InPause():
            return "not known: the process is paused"
    if not is_known:
        return f"not known: {samples} of the process, {MIN_SAMPLES} are needed"
    return f"not known: a holder has run for longer than each recent request ({samples})"
