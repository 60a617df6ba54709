"""Checks of a history of work: the limit (S1), lost requests (S3), repeated work (S7) and order (S5). Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from slotkeeper.slots.executions import ACCOUNTED_FOR, ANSWER_FAILED, SUCCEEDED_CAUSE
from slotkeeper.slots.process import RETENTION_SECONDS
from slotkeeper.slots.request import execution_name
from slotkeeper_cli.audit.work_history import (
    CHILD,
    CHILDREN,
    EXECUTIONS,
    GLUE_RUNS,
    REQUESTS,
    STARTED,
    Attempt,
    LimitSteps,
    Sending,
    WorkHistory,
    WorkInterval,
    acts_of,
    limit_steps,
)
from slotkeeper_cli.formatting import count, iso
from slotkeeper_cli.requests import RETURNED, fields_in

MAX_EXAMPLES = 10
# Seconds. Records have milliseconds.
_CLOCK = 0.01
_FAILED_QUEUE = "FailedRequestQueue"
_DEAD_LETTER_QUEUE = "RequestDeadLetterQueue"


class Result(StrEnum):
    """What the records state about a guarantee."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class CheckResult:
    """One check of a history.

    Attributes:
        id: one word, by which callers name the check.
        claim: the guarantee in a sentence.
        finding: what the records state, in a sentence.
        numbers: the same as data.
        examples: what fails, at most MAX_EXAMPLES.
        sample: what was left out; empty if all was read.
    """

    id: str
    claim: str
    result: Result
    finding: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    examples: Sequence[str] = ()
    sample: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON shows it."""
        return {**vars(self), "numbers": dict(self.numbers), "examples": list(self.examples)}


@dataclass
class Found:
    """What one check has found so far: what fails, and what cannot be decided."""

    fails: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def conclude(
    name: str,
    claim: str,
    found: Found,
    finding: str,
    numbers: Mapping[str, Any],
    *,
    shown: bool = True,
    sample: str = "",
) -> CheckResult:
    """The result: what fails counts more than what cannot be decided, and that more than what holds."""
    result = Result.HOLDS if shown else Result.NOT_SHOWN
    if found.unknown:
        result = Result.NOT_SHOWN
        finding = (
            f"{finding}; {'; '.join(first_of(found.unknown, 3))}" if finding else "; ".join(first_of(found.unknown, 3))
        )
    if found.fails:
        result = Result.FAILS
        finding = f"{count(len(found.fails), 'violation')}; {finding}"
    return CheckResult(name, claim, result, finding, numbers, first_of(found.fails, MAX_EXAMPLES), sample)


def first_of(texts: Sequence[str], most: int) -> list[str]:
    more = len(texts) - most
    return [*texts[:most], *([f"and {more:,} more"] if more > 0 else [])]


def sample_of(history: WorkHistory, *sources: str) -> str:
    return "; ".join(history.samples[each] for each in sources if each in history.samples)


def never_above(history: WorkHistory) -> CheckResult:
    """S1 and S1b: never more weight at work than the limit at which it was admitted.

    The last of some concurrent requests was admitted while the others held their slots, after the last one was admitted
    `bounds.reservation` before its start at the earliest. So their weight is at most the highest limit since then. A
    limit that is lowered below what runs is no violation: it admits nothing.

    Times of one kind of record are compared only with each other. A time in whole seconds may have been rounded up or
    down, so it counts for a second less at its end: overlaps shorter than that are hidden, and never invented. A
    request that was not read counts 1. Leases leave no record.

    If the versions of the item are known, all that ran did so while its execution held a confirmed slot.
    """
    claim = "never more weight at work than the limit then in force"
    lacking = history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN, "SlotTable")
    found = Found(unknown=lacking or history.lacks_work())
    peaks: dict[str, dict[str, Any]] = {}
    kinds = _by_kind(history)
    for name in history.names:
        limits = limit_steps(history, name)
        for kind, work in kinds.get(name, {}).items():
            if history.versions_of(name):
                found.fails += _outside(history, work)
            peak = _peak(history, name, kind, work, limits, found)
            if peak:
                peaks.setdefault(name, {})[kind] = peak
    others = Counter(each.kind for each in history.work if not each.execution)
    text = [
        f"{name}: at most {peak['weight']:,} of {_limit_text(peak['limit'])} ({kind}s)"
        for name, of in peaks.items()
        for kind, peak in of.items()
    ]
    text += [f"{count(number, kind)} not started by Slotkeeper" for kind, number in others.items()]
    numbers = {"processes": peaks, "not_started_by_slotkeeper": dict(others)}
    sample = sample_of(history, EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS)
    return conclude("limit", claim, found, "; ".join(text) or "nothing ran", numbers, shown=bool(peaks), sample=sample)


def _limit_text(limit: int | None) -> str:
    return "an unknown limit" if limit is None else f"{limit:,}"


def _by_kind(history: WorkHistory) -> dict[str, dict[str, list[WorkInterval]]]:
    """What ran, by process and kind."""
    found: dict[str, dict[str, list[WorkInterval]]] = defaultdict(lambda: defaultdict(list))
    for each in history.work:
        if each.execution:
            found[each.process][each.kind].append(each)
    return found


def _peak(
    history: WorkHistory, name: str, kind: str, work: Sequence[WorkInterval], limits: LimitSteps, found: Found
) -> dict[str, Any]:
    """The most weight at the same time in the period and the limit then; what is above goes into `found`."""
    weights = _Weights(history, name)
    lowest = limits.least(-math.inf, math.inf)
    best: dict[str, Any] = {}
    unknown: dict[str, None] = {}
    above = False
    for at, active in _starts(work, history.now):
        if not history.since <= at <= history.until:
            continue
        sure, assumed = weights.sure(active), weights.assumed(active)
        limit = lowest
        if lowest is None or assumed > min(lowest, best.get("weight", 0)):
            last = max(_admitted_by(history, one) for one in active)
            earlier = 0.0 if history.versions_of(name) else history.bounds.reservation
            limit = limits.most(last - earlier, last)
        if assumed > best.get("weight", 0):
            best = {"weight": assumed, "limit": limit, "at": iso(at), "count": len(active)}
        is_above = limit is not None and sure > limit
        if is_above and not above:
            found.fails.append(_above(history, name, kind, at, sure, limit or 0, active))
        above = is_above
        if limit is None:
            unknown[f"the limit of {name} is not known at every time"] = None
        elif assumed > limit and not is_above:
            unknown[f"{name}: weights of {kind}s that were not read may be above the limit"] = None
    if best and weights.are_mixed and any(weights.of(each) is None for each in work):
        unknown[f"{name}: its requests have different weights, and not all were read"] = None
    found.unknown += unknown
    return best


def _starts(work: Sequence[WorkInterval], now: float) -> Iterator[tuple[float, list[WorkInterval]]]:
    """Each certain start, by time, with all that certainly ran then."""
    events = list[tuple[float, bool, int]]()
    for number, each in enumerate(work):
        start, end = each.certain(now)
        if start < end:
            events += [(start, True, number), (end, False, number)]
    active: dict[int, WorkInterval] = {}
    for at, is_start, number in sorted(events):
        if is_start:
            active[number] = work[number]
            yield at, list(active.values())
        else:
            del active[number]


class _Weights:
    """The weights of a process's work."""

    def __init__(self, history: WorkHistory, name: str) -> None:
        self._attempts = history.by_execution
        default = history.default_weight(name)
        read = {each.weight for each in history.by_process.get(name, []) if each.weight is not None}
        self.are_mixed = not read <= {default}
        self._unread = 1 if self.are_mixed else default

    def of(self, work: WorkInterval) -> int | None:
        """The weight; None if it was not read."""
        attempt = self._attempts.get(work.execution)
        return attempt.weight if attempt else None

    def sure(self, works: Sequence[WorkInterval]) -> int:
        """The least that these may weigh."""
        return sum(self.of(each) or 1 for each in works)

    def assumed(self, works: Sequence[WorkInterval]) -> int:
        """What these weigh, if those that were not read have the default weight, as all that were read have."""
        return sum(self.of(each) or self._unread for each in works)


def _outside(history: WorkHistory, works: Sequence[WorkInterval]) -> list[str]:
    """S1b: what ran while its execution held no confirmed slot, by the versions of the item."""
    found = []
    for work in works:
        start, end = work.certain(history.now)
        held = history.holdings.get(work.execution, ())
        if not any(each.confirmed <= start + _CLOCK and end <= each.freed + _CLOCK for each in held):
            found.append(f"{work.execution}: a {work.kind} from {iso(start)} to {iso(end)} without a confirmed slot")
    return found


def _admitted_by(history: WorkHistory, work: WorkInterval) -> float:
    """An instant by which its request had been admitted; exactly then if the versions of the item are known."""
    if taken := [each.taken for each in history.holdings.get(work.execution, ()) if each.taken <= work.started]:
        return taken[-1]
    attempt = history.by_execution.get(work.execution)
    return attempt.started if attempt else work.started


def _above(
    history: WorkHistory, name: str, kind: str, at: float, weight: int, limit: int, active: Sequence[WorkInterval]
) -> str:
    newest = sorted(active, key=lambda each: each.started)[-3:]
    text = (
        f"{name}: {weight:,} of {limit:,} at {iso(at)} by {kind}s, the last of {', '.join(e.execution for e in newest)}"
    )
    forced = [each for each in acts_of(history, name) if _is_override(each.action, each.fields) and each.at <= at]
    return f"{text}; after {forced[-1].action} at {iso(forced[-1].at)} by {forced[-1].by}" if forced else text


def _is_override(action: str, fields: Mapping[str, Any]) -> bool:
    """Whether an operator's change may let one more run than the limit."""
    return bool(fields.get("forced")) or action == "stack restore" or bool(fields.get("adopt"))


def not_accounted(history: WorkHistory) -> Iterator[str]:
    """S3 of a whole run: each message has its outcome, each execution its message, and nothing is left."""
    if history.queued:
        yield f"{count(history.queued, 'message')} left on RequestQueue"
    yield from (f"{each.label} has not ended" for each in history.attempts if not each.is_closed)
    for name, process in history.processes.items():
        yield from (f"{name}: {each.execution} is still registered" for each in process.waiting.values())
    sent = {each.execution for each in history.sendings}
    yield from (
        f"{each.label} was started without a message" for each in history.attempts if each.execution not in sent
    )
    yield from _wrong_messages(history)
    yield from _wrong_outcomes(history)


def _wrong_messages(history: WorkHistory) -> Iterator[str]:
    """Kept messages without a reason, or of requests that did not fail."""
    sent = {key for each in history.sendings for key in (each.execution, each.message_id) if key}
    for each in history.kept:
        label = each.execution or f"message {each.source}"
        if not each.code or each.code == "none" or not each.reason:
            yield f"{label} is in {each.queue} without a reason"
        if each.queue == _DEAD_LETTER_QUEUE and not sent & {each.execution, each.source}:
            yield f"{label} is in {each.queue}, and was not sent"
        attempt = history.by_execution.get(each.execution)
        # One that was aborted after it kept its request, and then redriven, has failed once and succeeded once.
        if each.queue == _FAILED_QUEUE and not (attempt and (attempt.has_failed or attempt.redrives)):
            yield f"{label} is in {each.queue}, and did not fail"


def _wrong_outcomes(history: WorkHistory) -> Iterator[str]:
    dead: dict[str, list[str]] = defaultdict(list)
    for kept in history.kept:
        if kept.queue == _DEAD_LETTER_QUEUE:
            for key in {kept.execution, kept.source} - {""}:
                dead[key].append(kept.code)
    last: dict[tuple[str, str, str], Attempt] = {}
    for attempt in sorted(history.attempts, key=lambda each: each.number):
        last[attempt.process, attempt.request_id, attempt.caller] = attempt
    for sending in history.sendings:
        codes = dead.get(sending.message_id) or dead.get(sending.execution) or []
        first = history.by_execution.get(sending.execution)
        if first is not None and codes:
            yield f"{first.label} was started and dead-lettered"
        if len(codes) > 1:
            yield f"{sending.execution} was dead-lettered {len(codes)} times"
        ended = last[first.process, first.request_id, first.caller] if first else None
        status = "" if ended is None else "FAILED" if ended.has_failed else ended.status
        found = status or next(iter(codes), "")
        if sending.outcome and found not in ("", sending.outcome) and not (status and sending.outcome == STARTED):
            yield f"{ended.label if ended else sending.execution} ended {found}, expected {sending.outcome}"


def without_success(history: WorkHistory) -> Iterator[str]:
    """S7 of a whole run: an execution that succeeded has run exactly one thing that did."""
    done = Counter(each.execution for each in history.work if each.succeeded)
    for attempt in history.attempts:
        if attempt.status == "SUCCEEDED" and not done[attempt.execution]:
            yield f"{attempt.label} succeeded, and nothing that it ran did"


def accounted(history: WorkHistory) -> CheckResult:
    """S3: every request that started has ended, is kept, is queued again or runs; every known message was handled.

    RequestQueue cannot be searched, so a request that may be there is not decided. A message that something else than
    this command has deleted from FailedRequestQueue looks lost.

    In a whole run, each message also has the expected outcome, and nothing is left.
    """
    claim = "every request that started has ended, is kept, is queued again or runs"
    found, ends = Found(unknown=history.lacks(EXECUTIONS)), Counter[str]()
    places = _Places(history)
    for attempt in history.attempts:
        if attempt.stopped is not None and attempt.stopped < history.since:
            continue
        end = places.of(attempt)
        ends[end] += 1
        if end == "lost":
            found.fails.append(
                f"{attempt.label} ended {attempt.status} at {iso(attempt.stopped or 0)}: neither in "
                "FailedRequestQueue, nor redriven, discarded or queued again"
            )
    for sending in history.sendings:
        if sending.execution not in history.by_execution and sending.at >= history.since:
            end = places.of_message(sending)
            ends[f"{end}, not started"] += 1
            if end == "lost":
                found.fails.append(f"{sending.execution}, sent at {iso(sending.at)}: neither started nor dead-lettered")
    for name, process in history.processes.items():
        for execution, lost in process.lost.items():
            if lost.reported and lost.noted >= history.since and execution not in history.by_execution:
                ends["lost, not started"] += 1
                found.fails.append(f"{lost.request_id or execution} ({name}): its message was deleted or purged")
    if history.run:
        found.fails += not_accounted(history)
    undecided = {end: number for end, number in ends.items() if end.startswith("not known")}
    found.unknown += [f"{number:,} {end}" for end, number in undecided.items()]
    text = ", ".join(
        f"{number:,} {end}"
        for end, number in sorted(ends.items(), key=lambda each: (-each[1], each[0]))
        if end not in undecided
    )
    sample = sample_of(history, EXECUTIONS, REQUESTS)
    numbers = {"ends": dict(ends)}
    return conclude("accounted", claim, found, text or "no request started", numbers, shown=bool(ends), sample=sample)


class _Places:
    """Where the request of an attempt is."""

    def __init__(self, history: WorkHistory) -> None:
        self._history = history
        self._kept = {each.execution for each in history.kept}
        self._sources = {each.source for each in history.kept} - {""}
        self._named = {
            execution
            for process in history.processes.values()
            for execution in (*process.holders, *(each.execution for each in process.named.values()), *process.lost)
        }
        self._sent = {each.execution for each in history.sendings}
        self._redriven = set[tuple[str, str, int]]()
        self._discarded = set[tuple[str, str, int]]()
        for act in history.acts:
            if act.action == "dlq redrive":
                for one in act.fields.get("sent", []):
                    self._redriven.add((one.get("process", ""), one.get("request_id", ""), one.get("attempt", 0) - 1))
            elif act.action == "dlq discard":
                body = fields_in(act.fields.get("body", ""))
                key = (body.get("process", ""), act.fields.get("request_id", ""), body.get("attempt", 1))
                self._discarded.add(key)
        self._succeeded = {each.execution for each in history.work if each.succeeded}
        self._children = {each.execution for each in history.work if each.succeeded and each.kind == CHILD}

    def of(self, attempt: Attempt) -> str:
        """One of a few phrases; `lost` only if every record was read in which the request could be."""
        history = self._history
        if not attempt.has_failed:
            return "succeeded" if attempt.is_closed else "running"
        if attempt.execution in self._kept:
            return "kept"
        if attempt.error == ANSWER_FAILED and attempt.cause.startswith(SUCCEEDED_CAUSE):
            return "succeeded"
        if attempt.execution in self._children or (attempt.caller and attempt.execution in self._succeeded):
            return "succeeded"
        if attempt.is_read:
            key = (attempt.process, attempt.request_id, attempt.number)
            callers = {attempt.caller, ""}
            following = {execution_name(*key[:2], attempt.number + 1, caller) for caller in callers}
            if following & (history.by_execution.keys() | self._named | self._kept | self._sent):
                return "queued again"
            if following & history.skipped:
                return "queued again, then skipped"
            if key in self._redriven:
                return "queued again"
            if key in self._discarded:
                return "discarded by an operator"
        return self._missing(attempt)

    def _missing(self, attempt: Attempt) -> str:
        history, ended = self._history, attempt.stopped or 0.0
        if lacking := history.lacks("FailedRequestQueue", "AuditLogGroup", "SlotTable", "SettledTable"):
            return f"not known, since not all could be read ({lacking[0]})"
        if not attempt.is_read:
            return "not known, since their requests were not read"
        if attempt.error == RETURNED:
            return "not known: returned, and perhaps on RequestQueue" if self._may_be_queued(ended) else "lost"
        if ended < history.now - RETENTION_SECONDS:
            return "not known: kept messages expire after 14 days"
        if attempt.error not in ACCOUNTED_FOR and ended > history.now - history.bounds.dead_holder:
            return "ended, to be kept by the janitor"
        if attempt.process not in history.processes:
            return "not known: their process was removed, or its item is malformed"
        return "lost"

    def of_message(self, sending: Sending) -> str:
        """Where a message is that has started no execution."""
        history = self._history
        if sending.execution in self._kept or sending.message_id in self._sources:
            return "dead-lettered"
        if sending.execution in self._named:
            return "waiting"
        if lacking := history.lacks(EXECUTIONS, "RequestDeadLetterQueue", "AuditLogGroup", "SlotTable"):
            return f"not known, since not all could be read ({lacking[0]})"
        return "not known: perhaps on RequestQueue" if self._may_be_queued(sending.at) else "lost"

    def _may_be_queued(self, sent: float) -> bool:
        """SQS's counts lag by a minute (SQS API Reference, GetQueueAttributes)."""
        history = self._history
        return history.queued != 0 or sent > history.now - history.bounds.dead_holder


def never_again(history: WorkHistory) -> CheckResult:
    """S7: nothing that succeeded ran again, and one execution never has two Glue runs at the same time.

    Of requests that were not read, only the work of each single execution is compared.
    """
    claim = "nothing that succeeded ran again"
    found = Found(unknown=history.lacks(EXECUTIONS, GLUE_RUNS, CHILDREN) or history.lacks_work())
    by_execution: dict[tuple[str, str], list[WorkInterval]] = defaultdict(list)
    for work in history.work:
        if work.execution:
            by_execution[work.kind, work.execution].append(work)
    repeated = 0
    for (kind, execution), works in by_execution.items():
        for earlier, later in pairwise(sorted(works, key=lambda each: each.started)):
            repeated += 1
            if earlier.succeeded:
                found.fails.append(
                    f"{execution}: a {kind} started at {iso(later.started)}, after one that had succeeded"
                )
            elif later.certain(history.now)[0] < earlier.certain(history.now)[1]:
                found.fails.append(f"{execution}: two {kind}s ran at {iso(later.started)}")
    if history.run and not found.unknown:
        found.fails += without_success(history)
    requests: dict[tuple[str, str, str], list[Attempt]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.is_read:
            requests[attempt.process, attempt.request_id, attempt.caller].append(attempt)
    for attempts in requests.values():
        for before, after in pairwise(sorted(attempts, key=lambda each: each.number)):
            # An execution that was redriven may succeed after the next attempt has started.
            if before.status == "SUCCEEDED" and (before.stopped or 0.0) <= after.started:
                at = iso(after.started)
                found.fails.append(f"{before.label} succeeded, and attempt {after.number} started at {at}")
    succeeded = sum(each.status == "SUCCEEDED" for each in history.attempts)
    text = f"{succeeded:,} succeeded; {count(repeated, 'further run')} of an execution after one without success"
    numbers = {"succeeded": succeeded, "further_runs": repeated}
    sample = sample_of(history, EXECUTIONS, GLUE_RUNS, CHILDREN, REQUESTS)
    return conclude("once", claim, found, text, numbers, shown=succeeded > 0, sample=sample)


def in_order(history: WorkHistory) -> CheckResult:
    """S5: the requests of one priority start in the order of their sequence numbers. Equal instants are in order."""
    claim = "the requests of one priority start in the order of their messages"
    found, starts = Found(unknown=history.lacks(EXECUTIONS)), 0
    groups: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for sending in history.sendings:
        attempt = history.by_execution.get(sending.execution)
        if attempt is not None and sending.sequence is not None:
            groups[sending.group].append((attempt.started, sending.sequence, sending.execution))
    for group, known in groups.items():
        starts += max(0, len(known) - 1)
        found.fails += [
            f"{group}: {later[2]} started at {iso(later[0])}, after {earlier[2]}, which was sent later"
            for earlier, later in pairwise(sorted(known))
            if later[1] < earlier[1]
        ]
    text = f"{count(starts, 'start')} after the previous message's" if starts else "no sequence numbers are known"
    return conclude("order", claim, found, text, {"starts": starts}, shown=starts > 0)
