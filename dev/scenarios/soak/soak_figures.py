"""The figures and claims of `make soak`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the start):

| key | meaning |
|---|---|
| `requests`, `bad_messages` | sent |
| `executions` | how many ended in each status |
| `given_back`, `kept`, `dead_lettered` | attempts returned to the queue, requests in FailedRequestQueue, dead letters |
| `glue_runs` | how many ended in each state |
| `faults` | how many of each kind have acted |
| `rounds` | the janitor's runs: at, seconds, ok (it completed and reported no error) |
| `writes` | of the slot table |
| `dead_holders` | slots that their workflow did not release itself |
| `handoff` | count, median and longest of the undisturbed hand-offs |
| `calm_from` | from this instant on no fault acted, and the janitor was paused |
| `marks` | at, until, kind, said, process of every fault that acted |
| `processes` | a process each: limit, and the steps of holders, of its Glue runs alive and of its limit over time |
| `load` | how many processes wanted a processor, on average over the last 1, 5 and 15 minutes |
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dev.emulator.live_view import counted
from dev.scenarios.runner.claims import Claim, first_names, judge
from dev.scenarios.runner.intervals import overlap_seconds, peak, rounded, steps
from dev.scenarios.runner.scenario import Run
from dev.scenarios.slots.slot_records import Execution, GlueRun

from .slot_use import Holding, Idle, holdings, idle
from .soak_plan import DECK, RESTARTED, SHORT
from .soak_records import CLOSED, RETURNED, FaultMark, Records

# Seconds. A wake takes a fraction of one; the machine is busy. What the fallback alone would admit takes 7.5 and more.
MAX_HANDOFF = 5.0
# Seconds. A message whose starter died is visible again after 6, or waits for 7.5 if it registered;
# another fault may meet it then, and on a busy machine new containers take their time.
MAX_IDLE_AFTER_FAULTS = 60.0
FAULT_LASTS = 10.0  # seconds that a fault has effects: until a new container receives a hidden message
CLOCK = 0.01  # seconds: the records are rounded to milliseconds
# What can cost a message its starter, or a slot its wake. An abort can: the workflow then wakes no request.
DISTURBING = {
    "abort",
    "abort at a step",
    "abort, run left alive",
    "containers killed",
    "engine killed",
    "engine restarted",
    "fault in StartExecution",
    "fault in a task",
    "fault in an API call",
    "redriven",
}


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


def build(
    parameters: Parameters,
    limits: Mapping[str, int],
    started: float,
    records: Records,
    run: Run,
    *,
    load: Sequence[float] = (),
) -> dict[str, Any]:
    """The report of one run; `started`: epoch seconds."""
    slots = holdings(records.changes)
    stretches = [each for process in limits for each in idle(records, process, slots)]
    restarts = RESTARTED if parameters.minutes >= SHORT else RESTARTED[1:]
    claims = [
        accounted(records),
        failed_are_kept(records),
        success_is_a_glue_run(records),
        never_above(records),
        runs_hold_slots(records, slots),
        counter_is_right(records),
        dead_are_freed(records, slots),
        message_order(records),
        handed_off_when_calm(records, stretches),
        handed_off_under_faults(records, stretches),
        every_fault_acted(records, [*DECK, *restarts]),
    ]
    calm = [each.seconds for each in stretches if each.started >= records.calm_from and each.admitted]
    stopped = {e.name: e.stopped or math.inf for e in records.executions}
    figures = {
        "requests": sum(not sent.bad for sent in records.sent),
        "bad_messages": sum(bool(sent.bad) for sent in records.sent),
        "executions": dict(Counter(e.status for e in records.executions)),
        "given_back": sum(e.error == RETURNED for e in records.executions),
        "kept": len({message.execution for message in records.kept}),
        "dead_lettered": len(records.dead),
        "glue_runs": dict(Counter(run.state for run in records.runs)),
        "faults": dict(Counter(mark.kind for mark in records.faults)),
        "rounds": [
            {"at": round(r.started - started, 2), "seconds": round(r.ended - r.started, 2), "ok": r.ok}
            for r in records.janitor_runs
        ],
        "writes": len(records.changes),
        "dead_holders": sum(stopped.get(slot.execution, 0.0) < slot.freed for slot in slots),
        "handoff": {
            "count": len(calm),
            "median": rounded(statistics.median(calm)) if calm else None,
            "longest": rounded(max(calm, default=None)),
        },
        "calm_from": round(records.calm_from - started, 2),
        "marks": [
            {"at": round(mark.at - started, 2), "until": round(mark.until - started, 2)}
            | {"kind": mark.kind, "said": mark.detail, "process": mark.process}
            for mark in records.faults
        ],
        "processes": {process: _process(records, process, limit, started) for process, limit in limits.items()},
        "load": [round(each, 1) for each in load],
    }
    return run.report(parameters, started, claims, figures)


def _process(records: Records, process: str, limit: int, started: float) -> dict[str, Any]:
    changes = [change for change in records.changes if change.process == process]
    alive = steps(
        (run.started, run.completed or math.inf)
        for run in records.runs
        if (run.execution or "").rsplit("-", 1)[0] == process
    )
    return {
        "limit": limit,
        "holders": [(round(change.at - started, 2), len(change.holders)) for change in changes],
        "limits": [(round(change.at - started, 2), 0 if change.paused else change.limit) for change in changes],
        "alive": [(round(at - started, 2), number) for at, number in alive if at < math.inf],
    }


# ------------------------------------------------------------------------------------------------------------- claims


def accounted(records: Records) -> Claim:
    """S3: what was sent was started or dead-lettered, what was given back was started again, and all of it ended."""
    executions = {(e.request_id, e.attempt): e for e in records.executions}
    dead = Counter(letter.source for letter in records.dead)
    requests = {sent.request_id for sent in records.sent if not sent.bad}
    good = [sent for sent in records.sent if not sent.bad]
    bad = [sent for sent in records.sent if sent.bad]
    returned = [e for e in records.executions if e.error == RETURNED]
    known = {sent.message_id for sent in records.sent}
    problems = {
        "lost": [s.request_id for s in good if (s.request_id, 1) not in executions and not dead[s.message_id]],
        "a good request dead-lettered": [s.request_id for s in good if dead[s.message_id]],
        "given back and lost": [e.name for e in returned if (e.request_id, e.attempt + 1) not in executions],
        "not ended": [e.name for e in records.executions if e.status not in CLOSED],
        "workflows of no request": [e.name for e in records.executions if e.request_id not in requests],
        "started twice": [
            f"{r} ({a})"
            for (r, a), n in Counter((e.request_id, e.attempt) for e in records.executions).items()
            if n > 1
        ],
        "bad messages without one dead letter": [
            f"{s.bad} ({dead[s.message_id]})" for s in bad if dead[s.message_id] != 1
        ],
        "dead letters without a reason": [
            str(letter.source) for letter in records.dead if not (letter.error and letter.cause)
        ],
        "dead letters of no message": [letter.body[:60] for letter in records.dead if letter.source not in known],
        "left": [f"{number} {what}" for what, number in records.left.items() if number],
    }
    finding = (
        f"{len(good)} requests started, {len(returned)} attempts given back and started again, {len(bad)} dead-lettered"
    )
    return judge("S3: nothing sent is lost", problems, finding, shown=bool(good))


def failed_are_kept(records: Records) -> Claim:
    """S3: an execution that did not succeed has its request kept or queued again; one that did is in no such queue.

    One that was aborted on its way out, kept, and then redriven to its end has failed once and succeeded once.
    """
    kept = Counter(letter.execution for letter in records.kept)
    failed = [e for e in records.executions if e.status in CLOSED and e.status != "SUCCEEDED"]
    known = {e.name for e in failed} | {e.name for e in records.executions if e.redrives}
    problems = {
        "neither kept nor given back": [e.name for e in failed if e.error != RETURNED and not kept[e.name]],
        "kept without error or cause": [str(k.execution) for k in records.kept if not (k.error and k.cause)],
        "kept and not failed": sorted(str(name) for name in set(kept) - known),
    }
    twice = sum(number > 1 for number in kept.values())
    finding = f"{len(failed)} did not succeed, {len(kept)} of them kept with error and cause, {twice} more than once"
    return judge("S3: what did not succeed is kept", problems, finding, shown=bool(failed))


def success_is_a_glue_run(records: Records) -> Claim:
    """An execution that says SUCCEEDED has one Glue run that does, and none has two."""
    succeeded = Counter(run.execution for run in records.runs if run.state == "SUCCEEDED")
    done = [e for e in records.executions if e.status == "SUCCEEDED"]
    problems = {
        "SUCCEEDED without a run that did": [e.name for e in done if not succeeded[e.name]],
        "done twice": [str(name) for name, number in succeeded.items() if number > 1],
    }
    return judge("a success is one Glue run's", problems, f"{len(done)} succeeded", shown=bool(done))


def never_above(records: Records) -> Claim:
    """S1, at every write of the table: every new holder is within the limit of that instant."""
    before: dict[str, set[str]] = defaultdict(set)
    wrong, admitted, full = [], 0, False
    for change in records.changes:
        new = set(change.holders) - before[change.process]
        before[change.process] = set(change.holders)
        admitted += len(new)
        full = full or bool(new and len(change.holders) == change.limit)
        if new and len(change.holders) > change.limit:
            wrong.append(f"{change.process}: {len(change.holders)} of {change.limit}")
        elif new and change.paused:
            wrong.append(f"{change.process}: paused")
    finding = f"{admitted} admissions" if full else f"{admitted} admissions, none into the last slot"
    return judge("S1: no request is admitted above the limit", {"admitted": wrong}, finding, shown=full)


def counter_is_right(records: Records) -> Claim:
    """S2, at every write of the table."""
    wrong = [f"{c.process}: {c.count}, held by {len(c.holders)}" for c in records.changes if c.count != len(c.holders)]
    finding = f"at each of {len(records.changes)} writes"
    return judge("S2: the counter is the number of holders", {"differs": wrong}, finding, shown=bool(records.changes))


def runs_hold_slots(records: Records, slots: Sequence[Holding]) -> Claim:
    """S1b: a Glue run lives inside its execution's confirmed slot, from its first instant to its last, and alone."""
    held: dict[str | None, list[Holding]] = defaultdict(list)
    for slot in slots:
        held[slot.execution].append(slot)
    outside = [
        str(run.execution) for run in records.runs if not any(_inside(run, slot) for slot in held[run.execution])
    ]
    lives: dict[str | None, list[tuple[float, float]]] = defaultdict(list)
    for run in records.runs:
        lives[run.execution].append((run.started, _end(run)))
    problems = {
        "alive without a slot of its own": outside,
        "two at once in one slot": [str(name) for name, intervals in lives.items() if peak(intervals) > 1],
        "alive at the end": [str(run.execution) for run in records.runs if run.completed is None],
    }
    most = peak([(run.started, _end(run)) for run in records.runs])
    finding = f"{len(records.runs)} runs, at most {most} alive at once, each inside its workflow's slot"
    return judge("S1b: no Glue run is alive without a slot", problems, finding, shown=bool(records.runs))


def _end(run: GlueRun) -> float:
    return math.inf if run.completed is None else run.completed


def _inside(run: GlueRun, slot: Holding) -> bool:
    return slot.confirmed <= run.started + CLOCK and _end(run) <= slot.freed + CLOCK


def message_order(records: Records) -> Claim:
    """S5, of first attempts: a request given back goes to the tail. Equal instants count as in order."""
    place = {sent.request_id: number for number, sent in enumerate(records.sent)}
    wrong, pairs = [], 0
    for process in {sent.process for sent in records.sent}:
        mine = [e for e in records.executions if e.attempt == 1 and e.process == process and e.request_id in place]
        for earlier, later in pairwise(sorted(mine, key=lambda e: (e.started, place[e.request_id]))):
            pairs += 1
            if place[later.request_id] < place[earlier.request_id]:
                wrong.append(f"{later.request_id} after {earlier.request_id}")
    finding = f"{counted(pairs, 'start')} after the one before it"
    return judge("S5: workflows start in message order", {"out of order": wrong}, finding, shown=bool(pairs))


def dead_are_freed(records: Records, slots: Sequence[Holding]) -> Claim:
    """S4, in janitor runs, so that a slow machine is no fault: one complete run may check, the next one frees."""
    executions = {e.name: e for e in records.executions}
    late, dead, most, longest = [], 0, 0, 0.0
    for slot in slots:
        since = _dead_since(slot, executions.get(slot.execution), records)
        if since is None:
            continue
        dead += 1
        longest = max(longest, slot.freed - since)
        complete = [
            r for r in records.janitor_runs if r.ok and r.started >= since + records.grace and r.ended < slot.freed
        ]
        most = max(most, len(complete))
        if len(complete) > 1:
            late.append(f"{slot.execution} ({len(complete)} runs)")
    name = "S4: the slot of a dead holder is free after two janitor runs"
    before = f"{counted(most, 'complete run')} before the one that frees, {longest:.1f} s in all"
    finding = f"{counted(dead, 'dead holder')}; at most {before}"
    return judge(name, {"not freed": late}, finding, shown=dead > 0)


def _dead_since(slot: Holding, execution: Execution | None, records: Records) -> float | None:
    """When both the execution and its Glue runs had ended; None if it released its slot itself."""
    if execution is None:
        return slot.taken
    if execution.stopped is None or execution.stopped >= slot.freed or execution.started > slot.freed:
        return None
    # Held for a moment by a late redelivery, after its execution had closed.
    since = max(slot.taken, execution.stopped)
    return max([since, *(run.completed or 0.0 for run in records.runs if run.execution == slot.execution)])


def handed_off_when_calm(records: Records, stretches: Sequence[Idle]) -> Claim:
    """S6, without faults and without the janitor: only the wake can have done it."""
    calm = [each for each in stretches if each.started >= records.calm_from]
    late = [f"{each.process} ({each.seconds:.1f} s)" for each in calm if each.seconds > MAX_HANDOFF]
    gaps = sorted(each.seconds for each in calm if each.admitted)
    finding = (
        f"{counted(len(gaps), 'hand-off')}, median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s"
        if gaps
        else "none"
    )
    return judge("S6: undisturbed, a free slot is taken within seconds", {"idle": late}, finding, shown=bool(gaps))


def handed_off_under_faults(records: Records, stretches: Sequence[Idle]) -> Claim:
    """S6: a slot is free although a message waits for seconds, or for a fallback's time after a fault."""
    faulty = [each for each in stretches if each.started < records.calm_from]
    disturbed = [each for each in faulty if each.seconds > MAX_HANDOFF and _is_disturbed(each, records.faults)]
    problems = {
        "idle without a fault": [
            f"{each.process} ({each.seconds:.1f} s)"
            for each in faulty
            if each.seconds > MAX_HANDOFF and each not in disturbed
        ],
        "idle for too long": [
            f"{each.process} ({up:.1f} s)"
            for each in disturbed
            if (up := _up(each, records.faults)) > MAX_IDLE_AFTER_FAULTS
        ],
    }
    longest = max((each.seconds for each in faulty), default=0.0)
    finding = f"{len(faulty)} times, {len(disturbed)} above {MAX_HANDOFF:.0f} s after faults, at most {longest:.1f} s"
    return judge("S6: no slot is free for long while a request waits", problems, finding, shown=bool(faulty))


def _up(each: Idle, faults: Sequence[FaultMark]) -> float:
    """The seconds of it in which the engine ran."""
    down = [(mark.at, mark.until) for mark in faults if mark.kind in RESTARTED]
    return each.seconds - overlap_seconds(down, (each.started, each.ended))


def _is_disturbed(each: Idle, faults: Sequence[FaultMark]) -> bool:
    return any(
        mark.kind in DISTURBING
        and mark.process in ("", each.process)
        and mark.at < each.ended
        and mark.until + FAULT_LASTS > each.started
        for mark in faults
    )


def every_fault_acted(records: Records, kinds: Sequence[str]) -> Claim:
    """Every kind of fault has acted: without them the other claims prove little."""
    acted = {mark.kind for mark in records.faults}
    missing = [kind for kind in kinds if kind not in acted]
    finding = f"{len(records.faults)} faults of {len(acted)} kinds"
    return Claim(
        "every kind of fault has acted",
        None if missing else True,
        f"{finding}; not: {first_names(missing)}" if missing else finding,
    )
