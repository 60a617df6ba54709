"""The figures and claims of `make soak`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the start):

| key | meaning |
|---|---|
| `requests`, `bad_messages` | messages sent |
| `executions` | number by status |
| `given_back`, `kept`, `dead_lettered` | attempts returned to the queue, requests in FailedRequestQueue, dead letters |
| `glue_runs` | number by state |
| `faults` | number of faults that acted, by kind |
| `rounds` | the janitor's runs: at, seconds, ok (it completed and reported no error) |
| `writes` | number of writes of the slot table |
| `handoff` | count, median, longest: hand-offs after `calm_from` |
| `calm_from` | from this instant no fault acted, and the janitor was paused |
| `marks` | at, until, kind, said (details), process of each fault that acted |
| `processes` | by process: limit, and the weight held, the Glue runs and the limit over time |
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.emulator.live_view import counted
from dev.scenarios.runner.claims import Claim, first_names, judge
from dev.scenarios.runner.scenario import Run
from dev.scenarios.slots.slot_figures import out_of_order
from dev.scenarios.slots.slot_records import Execution, GlueRun
from slotkeeper_cli.intervals import peak, rounded, steps

from .slot_use import Holding, Idle, holdings, idle, is_disturbed, seconds_with_engine
from .soak_plan import DECK, RESTARTED, SHORT
from .soak_records import CLOSED, RETURNED, Records

# Seconds. A wake takes a fraction of a second, more on a busy machine. Without one, an admission takes at least 7.5.
MAX_HANDOFF = 5.0
# Seconds. The message of a killed starter is visible again after 6, or after 7.5 if it was registered. Another fault
# may affect it then, and on a busy machine containers start slowly.
MAX_IDLE_AFTER_FAULTS = 60.0
CLOCK = 0.01  # seconds: the records are rounded to milliseconds


@dataclass(frozen=True)
class Parameters:
    minutes: float
    seed: int
    limit: int


def build(
    parameters: Parameters, limits: Mapping[str, int], started: float, records: Records, run: Run
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
    figures = {
        "requests": sum(not sent.bad for sent in records.sent),
        "bad_messages": sum(bool(sent.bad) for sent in records.sent),
        "executions": dict(Counter(e.status for e in records.executions).most_common()),
        "given_back": sum(e.error == RETURNED for e in records.executions),
        "kept": len({message.execution for message in records.kept}),
        "dead_lettered": len(records.dead),
        "glue_runs": dict(Counter(run.state for run in records.runs).most_common()),
        "faults": dict(Counter(mark.kind for mark in records.faults)),
        "rounds": [
            {"at": round(r.started - started, 2), "seconds": round(r.ended - r.started, 2), "ok": r.ok}
            for r in records.janitor_runs
        ],
        "writes": len(records.changes),
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
        "held": [(round(change.at - started, 2), change.weight) for change in changes],
        "limits": [(round(change.at - started, 2), 0 if change.paused else change.limit) for change in changes],
        "alive": [(round(at - started, 2), number) for at, number in alive if at < math.inf],
    }


# ------------------------------------------------------------------------------------------------------------- claims


def accounted(records: Records) -> Claim:
    """S3: each message was started or dead-lettered, each returned request was started again, and all ended."""
    attempts = Counter((e.request_id, e.attempt) for e in records.executions)
    dead = Counter(message.source for message in records.dead)
    good = [sent for sent in records.sent if not sent.bad]
    requests = {sent.request_id for sent in good}
    bad = [sent for sent in records.sent if sent.bad]
    returned = [e for e in records.executions if e.error == RETURNED]
    known = {sent.message_id for sent in records.sent}
    problems = {
        "lost": [s.request_id for s in good if not attempts[s.request_id, 1] and not dead[s.message_id]],
        "a good request dead-lettered": [s.request_id for s in good if dead[s.message_id]],
        "returned and lost": [e.name for e in returned if not attempts[e.request_id, e.attempt + 1]],
        "not ended": [e.name for e in records.executions if e.status not in CLOSED],
        "workflows of no request": [e.name for e in records.executions if e.request_id not in requests],
        "started twice": [f"{request} ({attempt})" for (request, attempt), n in attempts.items() if n > 1],
        "bad messages without one dead letter": [
            f"{s.bad} ({dead[s.message_id]})" for s in bad if dead[s.message_id] != 1
        ],
        "dead letters without a reason": [str(m.source) for m in records.dead if not (m.error and m.cause)],
        "dead letters of no message": [m.body[:60] for m in records.dead if m.source not in known],
        "left": [f"{number} {what}" for what, number in records.left.items() if number],
    }
    finding = f"{len(good)} requests started, {len(returned)} returned and started again, {len(bad)} dead-lettered"
    return judge("S3: nothing sent is lost", problems, finding, shown=bool(good))


def failed_are_kept(records: Records) -> Claim:
    """S3: the request of an execution without success is kept or returned to the queue, and no other request is.

    An execution that was aborted after it kept its request, and then redriven, has failed once and succeeded once.
    """
    kept = Counter(message.execution for message in records.kept)
    failed = [e for e in records.executions if e.status in CLOSED and e.status != "SUCCEEDED"]
    known = {e.name for e in failed} | {e.name for e in records.executions if e.redrives}
    problems = {
        "neither kept nor returned": [e.name for e in failed if e.error != RETURNED and not kept[e.name]],
        "kept without error or cause": [str(k.execution) for k in records.kept if not (k.error and k.cause)],
        "kept and not failed": sorted(str(name) for name in set(kept) - known),
    }
    twice = sum(number > 1 for number in kept.values())
    finding = f"{len(failed)} did not succeed, {len(kept)} of them kept with error and cause, {twice} more than once"
    return judge("S3: requests without success are kept", problems, finding, shown=bool(failed))


def success_is_a_glue_run(records: Records) -> Claim:
    """An execution that SUCCEEDED has exactly one Glue run that SUCCEEDED."""
    succeeded = Counter(run.execution for run in records.runs if run.state == "SUCCEEDED")
    done = [e for e in records.executions if e.status == "SUCCEEDED"]
    problems = {
        "SUCCEEDED without a Glue run that did": [e.name for e in done if not succeeded[e.name]],
        "two Glue runs that SUCCEEDED": [str(name) for name, number in succeeded.items() if number > 1],
    }
    return judge("each success is one Glue run", problems, f"{len(done)} succeeded", shown=bool(done))


def never_above(records: Records) -> Claim:
    """S1, at every write: each new holder is within the current limit, and a condition allows each step."""
    before: dict[str, set[str]] = defaultdict(set)
    admitted, full = 0, False
    for change in records.changes:
        new = set(change.holders) - before[change.process]
        before[change.process] = set(change.holders)
        admitted += len(new)
        full = full or bool(new and change.weight == change.limit)
    breaches = records.breaches
    problems = {
        "admitted": breaches.pop("S1", []),
        "no condition allows": [text for each, texts in breaches.items() if each != "S2" for text in texts],
    }
    finding = f"{admitted} admissions" if full else f"{admitted} admissions, none into the last slot"
    return judge("S1: no request is admitted above the limit", problems, finding, shown=full)


def counter_is_right(records: Records) -> Claim:
    """S2, at every write of the table."""
    finding = f"at each of {len(records.changes)} writes"
    problems = {"differs": records.breaches.get("S2", [])}
    return judge("S2: the counter is the weight held", problems, finding, shown=bool(records.changes))


def runs_hold_slots(records: Records, slots: Sequence[Holding]) -> Claim:
    """S1b: a Glue run is alive only while its execution holds a confirmed slot, and no second run is."""
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
        "alive without a slot": outside,
        "two concurrent runs in one slot": [str(name) for name, intervals in lives.items() if peak(intervals) > 1],
        "alive at the end": [str(run.execution) for run in records.runs if run.completed is None],
    }
    most = peak([(run.started, _end(run)) for run in records.runs])
    finding = f"{len(records.runs)} runs, at most {most} concurrently, each inside its workflow's slot"
    return judge("S1b: no Glue run is alive without a slot", problems, finding, shown=bool(records.runs))


def _end(run: GlueRun) -> float:
    return math.inf if run.completed is None else run.completed


def _inside(run: GlueRun, slot: Holding) -> bool:
    return slot.confirmed <= run.started + CLOCK and _end(run) <= slot.freed + CLOCK


def message_order(records: Records) -> Claim:
    """S5, of first attempts: a returned request goes to the tail of the queue. Equal instants count as in order."""
    place = {sent.request_id: number for number, sent in enumerate(records.sent)}
    wrong, pairs = [], 0
    for process in {sent.process for sent in records.sent}:
        late, starts = out_of_order((e for e in records.executions if e.process == process), place)
        wrong += late
        pairs += max(0, starts - 1)
    finding = f"{counted(pairs, 'start')} after the previous message's"
    return judge("S5: workflows start in message order", {"out of order": wrong}, finding, shown=bool(pairs))


def dead_are_freed(records: Records, slots: Sequence[Holding]) -> Claim:
    """S4: after at most one complete janitor run, the next one frees the slot. A slow machine has no effect on this."""
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
    before = f"{counted(most, 'complete run')} before the run that frees it, {longest:.1f} s in total"
    finding = f"{counted(dead, 'dead holder')}; at most {before}"
    return judge(name, {"not freed": late}, finding, shown=dead > 0)


def _dead_since(slot: Holding, execution: Execution | None, records: Records) -> float | None:
    """When the execution and its Glue runs had ended. None if the execution released its slot."""
    if execution is None:
        return slot.taken
    if execution.stopped is None or execution.stopped >= slot.freed or execution.started > slot.freed:
        return None
    # A late redelivery can take the slot for a moment after its execution has ended.
    since = max(slot.taken, execution.stopped)
    return max([since, *(run.completed or 0.0 for run in records.runs if run.execution == slot.execution)])


def handed_off_when_calm(records: Records, stretches: Sequence[Idle]) -> Claim:
    """S6, without faults and janitor: only a wake can admit the next request."""
    calm = [each for each in stretches if each.started >= records.calm_from]
    late = [f"{each.process} ({each.seconds:.1f} s)" for each in calm if each.seconds > MAX_HANDOFF]
    gaps = sorted(each.seconds for each in calm if each.admitted)
    median_ = f", median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s" if gaps else ""
    finding = f"{counted(len(gaps), 'hand-off')}{median_}"
    return judge("S6: undisturbed, a free slot is taken within seconds", {"idle": late}, finding, shown=bool(gaps))


def handed_off_under_faults(records: Records, stretches: Sequence[Idle]) -> Claim:
    """S6: a slot is free although a message waits, for seconds only, or until the message is visible after a fault."""
    faulty = [each for each in stretches if each.started < records.calm_from]
    disturbed = [each for each in faulty if each.seconds > MAX_HANDOFF and is_disturbed(each, records.faults)]
    problems = {
        "idle without a fault": [
            f"{each.process} ({each.seconds:.1f} s)"
            for each in faulty
            if each.seconds > MAX_HANDOFF and each not in disturbed
        ],
        "idle for too long": [
            f"{each.process} ({up:.1f} s)"
            for each in disturbed
            if (up := seconds_with_engine(each, records.faults)) > MAX_IDLE_AFTER_FAULTS
        ],
    }
    longest = max((each.seconds for each in faulty), default=0.0)
    finding = f"{len(faulty)} times, {len(disturbed)} above {MAX_HANDOFF:.0f} s after faults, at most {longest:.1f} s"
    return judge("S6: no slot is free for long while a request waits", problems, finding, shown=bool(faulty))


def every_fault_acted(records: Records, kinds: Sequence[str]) -> Claim:
    """Without the faults the other claims would show little."""
    acted = {mark.kind for mark in records.faults}
    missing = [kind for kind in kinds if kind not in acted]
    finding = f"{len(records.faults)} faults of {len(acted)} kinds"
    name = "every kind of fault has acted"
    return Claim(name, None, f"{finding}; not: {first_names(missing)}") if missing else Claim(name, True, finding)
