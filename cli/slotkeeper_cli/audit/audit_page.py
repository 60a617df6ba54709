"""The page of `slotkeeper audit --html`: the timeline of each process, its figures and failures, and the checks.

It is one file to attach to an incident, whose readers have no access to the account.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slotkeeper.slots.request_table import FAILURES
from slotkeeper_cli.audit.check_result import CheckResult, Result, first_of
from slotkeeper_cli.audit.figures import figures, held
from slotkeeper_cli.audit.free_slot_checks import waits
from slotkeeper_cli.audit.intervals import Interval, overlap_seconds, value_at, weighted_steps
from slotkeeper_cli.audit.work_history import REQUESTS, WorkHistory, acts_of, limit_steps, pauses
from slotkeeper_cli.formatting import count
from slotkeeper_cli.look.pages import lasting, render
from slotkeeper_cli.look.timeline import MAX_BARS, Bar, Mark, Timeline, label_of, notes_of, timeline_svg
from slotkeeper_cli.requests import failed_at, grouped, state_of

# Processes with most executions that have a section; names of requests in a row of failures; requests whose table is
# open when the page is.
MAX_SECTIONS, MAX_NAMES, MAX_OPEN = 20, 20, 100


def audit_page(history: WorkHistory, results: Sequence[CheckResult], stack: str) -> str:
    """Return the page as a text in UTF-8."""
    by_number = sorted(history.names, key=lambda name: -len(history.by_process.get(name, [])))
    of = figures(history)
    numbers = Counter(each.result for each in results)
    return render(
        "audit.html",
        title=f"Slots of stack {stack}",
        since=history.since,
        until=history.until,
        read_at=history.now,
        verdict=[(str(result), numbers[result]) for result in Result if numbers[result]],
        not_read=[each.as_dict() for each in history.not_read],
        processes=[_process(history, name, of[name]) for name in sorted(by_number[:MAX_SECTIONS])],
        left_out=sorted(by_number[MAX_SECTIONS:]),
        checks=[each.as_dict() for each in results],
        max_open=MAX_OPEN,
    )


def _process(history: WorkHistory, name: str, of: dict[str, Any]) -> dict[str, Any]:
    timeline, now = history_timeline(history, name), history.processes.get(name)
    return {
        "name": name,
        "now": now and {"limit": now.slot_limit, "in_use": now.slots_in_use, "paused": now.paused},
        "weights": [each.weight for each in now.holders.values()] if now else [],
        "queued": None if history.lacks(REQUESTS) else sum(bool(each.place) for each in history.rows_of.get(name, [])),
        "timeline": timeline_svg(timeline),
        "notes": notes_of(timeline),
        "figures": of,
        "failures": _failures(history, name),
        "changes": timeline.marks[:MAX_BARS],
        "requests": timeline.bars[-MAX_BARS:],
        "number": len(timeline.bars),
    }


def _failures(history: WorkHistory, name: str) -> list[dict[str, Any]]:
    """The failures of the period in groups of equal ones, the largest first, with those that were redriven since."""
    rows = (each for each in history.rows_of.get(name, []) if each.state in (*FAILURES, "REDRIVEN"))
    groups = grouped(each for each in rows if history.since <= (each.ended or 0.0) <= history.until)
    return [
        {
            "code": each.code or "no code",
            "reason": each.reason,
            "requests": first_of([row.request_id for row in reversed(each.rows)], MAX_NAMES),
            "failures": len(each.rows),
            "first": failed_at(each.rows[-1]),
            "last": failed_at(each.rows[0]),
        }
        for each in sorted(groups, key=lambda each: -len(each.rows))
    ]


def history_timeline(history: WorkHistory, name: str) -> Timeline:
    """The timeline of a process: the part of the period in which something happened, with a margin."""
    bars, marks = _bars(history, name), _marks(history, name)
    instants = [*(at for each in bars for span in (each.wait, each.held) if span for at in span)]
    instants += [each.at for each in marks]
    inside = [min(max(at, history.since), history.until) for at in instants] or [history.since, history.until]
    margin = max(0.5, 0.02 * (max(inside) - min(inside)))
    since, until = max(history.since, min(inside) - margin), min(history.until, max(inside) + margin)
    notes = []
    if until - since < 0.95 * (history.until - history.since):
        notes.append("The rest of the period, in which nothing is recorded, is not drawn.")
    if unknown := sum(each.wait is None and each.held is not None and each.held[0] >= history.since for each in bars):
        notes.append(f"For how long {count(unknown, 'execution')} waited is not recorded.")
    process = history.processes.get(name)
    if leases := sum(each.is_lease for each in process.holders.values()) if process else 0:
        notes.append(
            f"{count(leases, 'lease holds', 'leases hold')} a slot now. Leases leave no record and are not drawn."
        )
    return Timeline(name, since, until, bars, limit_steps(history, name).steps, pauses(history, name), marks, notes)


def _marks(history: WorkHistory, name: str) -> list[Mark]:
    """The changes of a process in the period that concern its slots, and those of breakers, by time."""
    acts = [each for each in acts_of(history, name) if each.action.startswith(("process ", "holder ", "stack "))]
    breakers = [each for each in history.acts if each.action.startswith("retry breaker")]
    # Without the account, which the ARN of a caller contains.
    found = [Mark(each.at, _text(each.action, each.fields), each.by.split(":", 5)[-1]) for each in acts + breakers]
    return sorted((each for each in found if history.since <= each.at <= history.until), key=lambda each: each.at)


def _text(action: str, fields: Mapping[str, object]) -> str:
    if action == "process set-limit":
        return f"limit {fields.get('before')} to {fields.get('after')}"
    if action.startswith("retry breaker"):
        return f"{action.removeprefix('retry ')} {fields.get('downstream')}"
    return action.removeprefix("process ")


def _bars(history: WorkHistory, name: str) -> list[Bar]:
    """The requests of a process in the period, by the times of their sending or start."""
    holders = held(history, history.by_process.get(name, []))
    known = {row.execution: (row, wait) for row, wait in waits(history, name)}
    used = weighted_steps((span, history.weight(attempt.execution)) for attempt, span in holders)
    queue = weighted_steps((wait, 1) for _, wait in known.values())
    limits, breaks = limit_steps(history, name), pauses(history, name)
    instants = sorted({-math.inf, *(at for at, _ in (*used, *limits.steps)), math.inf})
    in_force = [limits.values(at, at)[-1] for at in instants[:-1]]
    free = [None if most is None else most - value_at(used, at) for at, most in zip(instants, in_force, strict=False)]

    def why(wait: Interval, weight: int) -> str:
        parts = range(bisect_right(instants, wait[0]) - 1, bisect_left(instants, wait[1]))
        full = [(instants[n], instants[n + 1]) for n in parts if (units := free[n]) is not None and units < weight]
        times = {"no slot free for": overlap_seconds(full, wait), "paused for": overlap_seconds(breaks, wait)}
        others = value_at(queue, wait[0]) - 1
        first = [f"{count(others, 'other')} waiting when it was sent"] if others > 0 else []
        texts = (f"{text} {lasting(amount)}" for text, amount in times.items() if amount >= 0.05)
        return ", ".join([*texts, *first])

    found = []
    for attempt, span in holders:
        if span[1] >= history.since and span[0] <= history.until:
            wait = known[attempt.execution][1] if attempt.execution in known else None
            label = label_of(attempt.row) if attempt.row else attempt.execution
            key = attempt.row.key if attempt.row else ""
            state = attempt.status.lower().replace("_", " ")
            found.append(Bar(label, state, history.weight(attempt.execution), wait, held=span, key=key))
    for execution in known.keys() - history.by_execution.keys():
        row, wait = known[execution]
        found.append(Bar(label_of(row), str(state_of(row.state)), history.weight(execution), wait, key=row.key))
    found.sort(key=lambda each: min(filter(None, (each.wait, each.held))))
    # The page names the newest.
    newest = (replace(each, why=why(each.wait, each.weight)) if each.wait else each for each in found[-MAX_BARS:])
    return [*found[:-MAX_BARS], *newest]
