"""What a soak has to show, each claim held against the records. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from dev.scenarios.runner.checking import Check, counted, named
from dev.scenarios.slots.figures import overlap_seconds, peak
from dev.scenarios.slots.records import GlueRun

from .holding import Holding, Idle
from .plan import RESTARTED
from .records import OVER, RETURNED, Execution, Mark, Records

# Seconds. A wake takes a fraction of one; the machine is busy. What the fallback alone would admit takes 7.5 and more.
HANDOFF = 5.0
# Seconds. A message that a starter took with it to its death is seen again after 6, or waits for 7.5 if it registered;
# another fault may meet it then, and on a busy machine new containers take their time.
AFTER_FAULTS = 60.0
BEFORE = 10.0  # seconds for which a fault acts on: until a hidden message is seen again by a new container
CLOCK = 0.01  # seconds: the records are rounded to milliseconds
# What can cost a message its starter, or a slot its wake. An abort can: the workflow then wakes nobody.
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


def _check(name: str, problems: Mapping[str, Sequence[str]], found: str, *, shown: bool = True) -> Check:
    said = [f"{what}: {named(which)}" for what, which in problems.items() if which]
    if said:
        return Check(name, False, "; ".join(said))
    return Check(name, True if shown else None, found)


def accounted(records: Records) -> Check:
    """S3: what was sent was started or set aside, what was given back was started again, and all of it ended."""
    executions = {(e.request_id, e.attempt): e for e in records.executions}
    dead = Counter(letter.source for letter in records.dead)
    requests = {sent.request_id for sent in records.sent if not sent.bad}
    good = [sent for sent in records.sent if not sent.bad]
    bad = [sent for sent in records.sent if sent.bad]
    returned = [e for e in records.executions if e.error == RETURNED]
    known = {sent.message_id for sent in records.sent}
    problems = {
        "lost": [s.request_id for s in good if (s.request_id, 1) not in executions and not dead[s.message_id]],
        "a good request set aside": [s.request_id for s in good if dead[s.message_id]],
        "given back and lost": [e.name for e in returned if (e.request_id, e.attempt + 1) not in executions],
        "not ended": [e.name for e in records.executions if e.status not in OVER],
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
            letter.source for letter in records.dead if not (letter.code and letter.reason)
        ],
        "dead letters of nobody": [letter.body[:60] for letter in records.dead if letter.source not in known],
        "still there": [f"{number} {what}" for what, number in records.left.items() if number],
    }
    found = f"{len(good)} requests started, {len(returned)} attempts given back and started again, {len(bad)} set aside"
    return _check("S3: nothing sent is lost", problems, found, shown=bool(good))


def failed_are_kept(records: Records) -> Check:
    """S3: an execution that did not succeed has its request kept or queued again; one that did is in no such queue.

    One that was aborted on its way out, kept, and then redriven to its end has failed once and succeeded once.
    """
    kept = Counter(letter.execution for letter in records.kept)
    failed = [e for e in records.executions if e.status in OVER and e.status != "SUCCEEDED"]
    known = {e.name for e in failed} | {e.name for e in records.executions if e.redrives}
    problems = {
        "neither kept nor given back": [e.name for e in failed if e.error != RETURNED and not kept[e.name]],
        "kept without error or cause": [k.execution for k in records.kept if not (k.error and k.cause)],
        "kept and not failed": sorted(set(kept) - known),
    }
    twice = sum(number > 1 for number in kept.values())
    found = f"{len(failed)} did not succeed, {len(kept)} of them kept with error and cause, {twice} more than once"
    return _check("S3: what did not succeed is kept", problems, found, shown=bool(failed))


def success_is_glue_s(records: Records) -> Check:
    """An execution that says SUCCEEDED has one Glue run that does, and none has two."""
    succeeded = Counter(run.execution for run in records.runs if run.state == "SUCCEEDED")
    done = [e for e in records.executions if e.status == "SUCCEEDED"]
    problems = {
        "SUCCEEDED without a run that did": [e.name for e in done if not succeeded[e.name]],
        "done twice": [str(name) for name, number in succeeded.items() if number > 1],
    }
    return _check("a success is one Glue run's", problems, f"{len(done)} succeeded", shown=bool(done))


def never_above(records: Records) -> Check:
    """S1, at every write of the table: whoever is new in it is within the limit of that instant."""
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
    found = f"{admitted} admissions" if full else f"{admitted} admissions, none into the last slot"
    return _check("S1: nobody is admitted above the limit", {"admitted": wrong}, found, shown=full)


def counter_is_right(records: Records) -> Check:
    """S2, at every write of the table."""
    wrong = [f"{c.process}: {c.count}, held by {len(c.holders)}" for c in records.changes if c.count != len(c.holders)]
    found = f"at each of {len(records.changes)} writes"
    return _check("S2: the counter is the number of holders", {"differs": wrong}, found, shown=bool(records.changes))


def runs_hold_slots(records: Records, slots: Sequence[Holding]) -> Check:
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
    found = f"{len(records.runs)} runs, at most {most} alive at once, each inside its workflow's slot"
    return _check("S1b: no Glue run is alive without a slot", problems, found, shown=bool(records.runs))


def _end(run: GlueRun) -> float:
    return math.inf if run.completed is None else run.completed


def _inside(run: GlueRun, slot: Holding) -> bool:
    return slot.confirmed <= run.started + CLOCK and _end(run) <= slot.freed + CLOCK


def message_order(records: Records) -> Check:
    """S5, of first attempts: a request given back goes to the tail. Equal instants count as in order."""
    place = {sent.request_id: number for number, sent in enumerate(records.sent)}
    wrong, pairs = [], 0
    for process in {sent.process for sent in records.sent}:
        mine = [e for e in records.executions if e.attempt == 1 and e.process == process and e.request_id in place]
        for earlier, later in pairwise(sorted(mine, key=lambda e: (e.started, place[e.request_id]))):
            pairs += 1
            if place[later.request_id] < place[earlier.request_id]:
                wrong.append(f"{later.request_id} after {earlier.request_id}")
    found = f"{counted(pairs, 'start')} after the one before it"
    return _check("S5: workflows start in message order", {"out of order": wrong}, found, shown=bool(pairs))


def dead_are_freed(records: Records, slots: Sequence[Holding]) -> Check:
    """S4, in rounds, so that a slow machine is no fault: one complete round may look, the next one frees."""
    executions = {e.name: e for e in records.executions}
    late, dead, most, longest = [], 0, 0, 0.0
    for slot in slots:
        since = _dead_since(slot, executions.get(slot.execution), records)
        if since is None:
            continue
        dead += 1
        longest = max(longest, slot.freed - since)
        rounds = [r for r in records.rounds if r.ok and r.began >= since + records.grace and r.ended < slot.freed]
        most = max(most, len(rounds))
        if len(rounds) > 1:
            late.append(f"{slot.execution} ({len(rounds)} rounds)")
    name = "S4: the slot of a dead holder is free after two rounds"
    before = f"{counted(most, 'complete round')} before the one that frees, {longest:.1f} s in all"
    found = f"{counted(dead, 'dead holder')}; at most {before}"
    return _check(name, {"held on": late}, found, shown=dead > 0)


def _dead_since(slot: Holding, execution: Execution | None, records: Records) -> float | None:
    """When both the execution and its Glue runs were over; None if it gave its slot back itself."""
    if execution is None:
        return slot.taken
    if execution.stopped is None or execution.stopped >= slot.freed or execution.started > slot.freed:
        return None
    # Held for a moment by a late redelivery, after its execution had closed.
    since = max(slot.taken, execution.stopped)
    return max([since, *(run.completed or 0.0 for run in records.runs if run.execution == slot.execution)])


def handed_on_when_calm(records: Records, stretches: Sequence[Idle]) -> Check:
    """S6, where nothing disturbs and the janitor rests: only the wake can have done it."""
    calm = [each for each in stretches if each.began >= records.calm_from]
    late = [f"{each.process} ({each.seconds:.1f} s)" for each in calm if each.seconds > HANDOFF]
    gaps = sorted(each.seconds for each in calm if each.admitted)
    found = (
        f"{counted(len(gaps), 'hand-off')}, median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s"
        if gaps
        else "none"
    )
    return _check("S6: undisturbed, a free slot is taken within seconds", {"idle": late}, found, shown=bool(gaps))


def handed_on_in_the_storm(records: Records, stretches: Sequence[Idle]) -> Check:
    """S6: room beside a waiting message lasts for seconds, or for a fallback's time if a fault is to blame."""
    storm = [each for each in stretches if each.began < records.calm_from]
    disturbed = [each for each in storm if each.seconds > HANDOFF and _is_disturbed(each, records.marks)]
    problems = {
        "idle, and nothing to blame": [
            f"{each.process} ({each.seconds:.1f} s)"
            for each in storm
            if each.seconds > HANDOFF and each not in disturbed
        ],
        "idle for too long": [
            f"{each.process} ({up:.1f} s)" for each in disturbed if (up := _up(each, records.marks)) > AFTER_FAULTS
        ],
    }
    longest = max((each.seconds for each in storm), default=0.0)
    found = (
        f"{len(storm)} times, {len(disturbed)} for more than {HANDOFF:.0f} s and after faults, at most {longest:.1f} s"
    )
    return _check("S6: no room lies idle beside a request for long", problems, found, shown=bool(storm))


def _up(each: Idle, marks: Sequence[Mark]) -> float:
    """The seconds of it in which there was an engine."""
    down = [(mark.at, mark.until) for mark in marks if mark.kind in RESTARTED]
    return each.seconds - overlap_seconds(down, (each.began, each.ended))


def _is_disturbed(each: Idle, marks: Sequence[Mark]) -> bool:
    return any(
        mark.kind in DISTURBING
        and mark.process in ("", each.process)
        and mark.at < each.ended
        and mark.until + BEFORE > each.began
        for mark in marks
    )


def was_disturbed(records: Records, kinds: Sequence[str]) -> Check:
    """That anything is proved by it: every kind of fault has acted."""
    acted = {mark.kind for mark in records.marks}
    missing = [kind for kind in kinds if kind not in acted]
    found = f"{len(records.marks)} faults of {len(acted)} kinds"
    return Check(
        "every kind of fault has acted",
        None if missing else True,
        f"{found}; not: {named(missing)}" if missing else found,
    )


def all_checks(
    records: Records, slots: Sequence[Holding], stretches: Sequence[Idle], kinds: Sequence[str]
) -> list[Check]:
    return [
        accounted(records),
        failed_are_kept(records),
        success_is_glue_s(records),
        never_above(records),
        runs_hold_slots(records, slots),
        counter_is_right(records),
        dead_are_freed(records, slots),
        message_order(records),
        handed_on_when_calm(records, stretches),
        handed_on_in_the_storm(records, stretches),
        was_disturbed(records, kinds),
    ]
