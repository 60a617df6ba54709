"""The claims of `make run PRIORITIES=yes` about priorities and weights. Pure.

The evidence must not be the table's own opinion of whose turn it is:

- The weight in use is computed from Step Functions' and Glue's records, whose requests state their weights.
- The order is that of Step Functions' starts against SQS's sequence numbers.
- That a request waited is stated by the starter's log line, which it writes for each delivery that it refuses.
- Only the order of two writes, a registration and a reservation, is read from the item's versions: Step Functions lists
  a start after its slot was reserved. Each refusal must have its registration there. So a request that is never
  registered, and therefore keeps none out, fails the claim too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from dev.emulator.live_view import counted
from dev.judge.slot_item import Asked, Holder, Item, wrong_history
from dev.scenarios.runner.claims import Claim, judge
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES, execution_name
from slotkeeper_cli.intervals import rounded, value_at

from .priority_records import PriorityRecords
from .slot_figures import out_of_order
from .slot_requests import PROCESS

# Seconds. A wake takes a fraction of a second, more on a busy machine. Without one, a message is hidden for 225.
MAX_HANDOFF = 5.0
CLOCK = 0.002  # seconds: log lines have milliseconds
OPERATOR = "make run"


def claims(records: PriorityRecords) -> list[Claim]:
    return [
        never_above(records),
        message_order(records),
        keeps_lower_out(records),
        urgent_start(records),
        blocked_waits_for_the_limit(records),
        cancelled_ends(records),
        counter_is_right(records),
    ]


def most_weight(records: PriorityRecords) -> list[dict[str, int]]:
    """The most weight at the same time by each record, before and after the limit was raised."""
    raised = records.raised[0] if records.raised else math.inf
    phases = [(-math.inf, raised), (raised, math.inf)]
    return [
        {name: _most(steps, start, end) for name, steps in records.loads.items()}
        for start, end in phases
        if start < math.inf
    ]


def _most(steps: Sequence[tuple[float, int]], start: float, end: float) -> int:
    values = [value for at, value in steps if start <= at < end]
    before = [value for at, value in steps if at < start]
    return max([*values, *before[-1:]], default=0)


def never_above(records: PriorityRecords) -> Claim:
    """S1, S1b with weights. Glue's times may be whole seconds, which never add an overlap."""
    limits = [limit for _, limit in records.limits]
    phases = list(zip(most_weight(records), limits, strict=True))
    problems = {
        f"above the limit of {limit}": [f"{name} {value}" for name, value in most.items() if value > limit]
        for most, limit in phases
    }
    finding = ", then ".join(
        f"{most['glue_runs']} in Glue, {most['glue_states']} inside RunGlueJob, {most['held']} held of {limit}"
        for most, limit in phases
    )
    shown = max(phases[0][0].values()) == records.limit
    return judge("never more weight than the limit at the same time", problems, finding, shown=shown)


def message_order(records: PriorityRecords) -> Claim:
    """S5: within each priority."""
    wrong, pairs = [], 0
    for priority in PRIORITIES:
        sequence = {
            each.request.request_id: each.sequence for each in records.sent if each.request.priority == priority
        }
        late, starts = out_of_order(records.records.executions, sequence)
        wrong += late
        pairs += max(0, starts - 1)
    finding = f"{counted(pairs, 'start')} after the start of the previous message of the priority"
    return judge("each priority starts in message order", {"out of order": wrong}, finding, shown=pairs > 0)


def keeps_lower_out(records: PriorityRecords) -> Claim:
    """No slot is reserved while a request of higher priority is registered that is not heavier than the limit.

    A registration ends with the request's own reservation or dead-letter message. A waker that finds the message
    received again also ends it; then the request must be registered again, or hold its slots, within a hand-off.
    """
    ids = {execution_name(PROCESS, each.request.request_id, 1): each.request.request_id for each in records.sent}
    lost, grants, cleared = [], 0, 0
    for before, after in pairwise(records.changes):
        grants += len(after.holders.keys() - before.holders.keys())
        for name in _registered(before) - _registered(after) - after.holders.keys():
            if ids.get(name) not in records.dead_at:
                cleared += 1
                lost += [str(ids.get(name))] if _absent(records.changes, name, after.at) > MAX_HANDOFF else []
    first: dict[str, float] = {}
    for change in records.changes:
        for name in _registered(change):
            first.setdefault(ids.get(name, name), change.at)
    unregistered = [r.request_id for r in records.refusals if first.get(r.request_id, math.inf) > r.at + CLOCK]
    passed = _breaches(records, "S8")
    problems = {"passed": passed, "refused but not registered": unregistered, "registration lost": lost}
    finding = f"{grants} reservations, {len(records.refusals)} refusals; {cleared} registrations ended by a wake"
    urgent = {each.request.request_id for each in records.sent if each.request.priority == "high"}
    shown = any(refusal.request_id in urgent for refusal in records.refusals)
    return judge("a waiting request keeps lower priorities out", problems, finding, shown=shown)


def _absent(changes: Sequence[Item], name: str, since: float) -> float:
    """The seconds from an instant until an execution is registered again or holds its slots."""
    again = (each.at for each in changes if each.at > since and (name in _registered(each) or name in each.holders))
    return next(again, math.inf) - since


def _registered(change: Item) -> set[str]:
    return {each.execution for each in change.registered.values()}


def _breaches(records: PriorityRecords, guarantee: str) -> list[str]:
    """The judge's sentences on the item's versions."""
    priorities = {e.name: e.priority for e in records.records.executions}

    def asked(name: str, _: Holder) -> Asked:
        return Asked(priorities.get(name, DEFAULT_PRIORITY))

    return [breach.text for _, breach in wrong_history(records.changes, asked) if breach.guarantee == guarantee]


def urgent_start(records: PriorityRecords) -> Claim:
    """S6 for requests of high priority, after a limit change too: at each time in which one had the turn and fitted."""
    urgent = [turn for turn in records.turns if turn.request.priority == "high"]
    late = [f"{turn.request.name} ({turn.seconds:.1f} s)" for turn in urgent if turn.seconds > MAX_HANDOFF]
    gaps = [turn.seconds for turn in urgent if turn.started]
    after = sum(turn.started and turn.after_release for turn in urgent)
    finding = "no urgent request started"
    if gaps:
        finding = (
            f"{counted(len(gaps), 'urgent request')}, {after} of them after a release or a raised limit: "
            f"median {statistics.median(gaps):.2f} s, at most {max(gaps):.2f} s"
        )
    return judge("an urgent request starts as soon as it fits", {"late": late}, finding, shown=after > 0)


def blocked_waits_for_the_limit(records: PriorityRecords) -> Claim:
    """A request that is heavier than the limit waits until it is raised, and keeps none out meanwhile."""
    name, blocked = records.mix.blocked, records.last.get(records.mix.blocked)
    raised = records.raised[0] if records.raised else math.inf
    refused = min((each.at for each in records.refusals if each.request_id == name), default=math.inf)
    others = sum(refused < e.started < raised for e in records.records.executions if e.request_id != name)
    problems = {
        "started before the limit was raised": [name] if blocked and blocked.started < raised else [],
        "the limit was raised, and it did not start": [name] if raised < math.inf and not blocked else [],
    }
    finding = f"{counted(others, 'other request')} started while it waited"
    if blocked and raised < math.inf:
        finding += f"; it started {rounded(blocked.started - raised)} s after the limit was raised"
    shown = others > 0 and raised < math.inf
    return judge(
        "a request above the limit keeps none out, and starts after it was raised", problems, finding, shown=shown
    )


def cancelled_ends(records: PriorityRecords) -> Claim:
    """A cancelled head is dead-lettered although it does not fit, and the requests that it kept out start."""
    claim, name = "a cancelled head keeps none out", records.mix.cancelled
    if records.cancel_was_late:
        return Claim(claim, None, f"{name} had its slots before it was cancelled")
    messages = [message for message in records.records.dead if message.request_id == name]
    problems = {
        "started": [name] if name in records.last else [],
        "not dead-lettered once": [] if len(messages) == 1 else [f"{name} ({len(messages)})"],
        "without the reason": [
            name for each in messages if each.error != "Cancelled" or OPERATOR not in str(each.cause)
        ],
    }
    refused = any(each.request_id == name for each in records.refusals)
    ended = messages[0].at if messages else math.inf
    following = min((e.started for e in records.records.executions if e.started >= ended), default=math.inf)
    finding = "no request started after it"
    if following < math.inf:
        finding = f"dead-lettered while it waited; the next start {following - ended:.2f} s later"
    return judge(claim, problems, finding, shown=refused and following < math.inf)


def counter_is_right(records: PriorityRecords) -> Claim:
    """S2, at each write; and no registration is left at the end."""
    left = sorted(_registered(records.changes[-1])) if records.changes else []
    problems = {"differs": _breaches(records, "S2"), "registrations left": left}
    finding = f"at each of {len(records.changes)} writes; no registration is left"
    return judge("slots_in_use is the weight held", problems, finding, shown=bool(records.changes))


def ahead(records: PriorityRecords) -> int:
    """Starts while an earlier message of a higher priority was queued that was not blocked.

    A message behind the head of its group is delivered only after the head's message is deleted, so it keeps no other
    request out before that. A release of several slots can therefore start lower priorities too.
    """
    until = {each.name: each.until for each in records.asking}
    return sum(
        any(
            each.sent < start.until < until[each.name] and each.weight <= value_at(records.limits, start.until)
            for each in records.asking
            if PRIORITIES.index(each.priority) < PRIORITIES.index(start.priority)
        )
        for start in records.asking
        if start.started
    )


def passed(records: PriorityRecords) -> Mapping[str, int]:
    """For each urgent request that waited: starts of lower priority between its first refusal and its start.

    The blocked request is left out: others start while it waits.
    """
    first: dict[str, float] = {}
    for refusal in records.refusals:
        first.setdefault(refusal.request_id, refusal.at)
    executions = records.records.executions
    return {
        name: sum(first[name] < other.started < e.started and other.priority != "high" for other in executions)
        for name, e in records.last.items()
        if e.priority == "high" and name in first and name != records.mix.blocked
    }
