"""What the run has to show, each claim held against the records. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from dev.scenarios.runner.checking import Check, counted, named

from .records import EndMessage, Execution, Records
from .sending import Sent

HANDOFF_MEDIAN = 1.5  # seconds; what the run has to show, although the visibility fallback is far longer
FAILURES = ("FAILED", "ABORTED", "TIMED_OUT")


def outcomes(sent: Sequence[Sent], records: Records) -> dict[str, Execution]:
    """Each request's last attempt."""
    last: dict[str, Execution] = {}
    for execution in records.executions:
        earlier = last.get(execution.request_id)
        if earlier is None or execution.attempt > earlier.attempt:
            last[execution.request_id] = execution
    return {s.request.request_id: last[s.request.request_id] for s in sent if s.request.request_id in last}


def accounted(sent: Sequence[Sent], records: Records, last: Mapping[str, Execution]) -> Check:
    """S3: each request was started once an attempt, and ended; or it is dead-lettered; nothing else was started."""
    dead = {letter.request_id for letter in records.dead}
    ids = [s.request.request_id for s in sent]
    lost = [i for i in ids if i not in last and i not in dead]
    both = [i for i in ids if i in last and i in dead]
    unfinished = [i for i, e in last.items() if e.status not in ("SUCCEEDED", *FAILURES)]
    attempts = Counter((e.request_id, e.attempt) for e in records.executions)
    twice = [i for (i, _), count in attempts.items() if count > 1]
    unknown = [e.name for e in records.executions if e.request_id not in set(ids)]
    problems = [
        f"{what}: {named(which)}"
        for what, which in (
            ("neither started nor dead-lettered", lost),
            ("started and dead-lettered", both),
            ("not ended", unfinished),
            ("started twice", twice),
            ("workflows of no request", unknown),
        )
        if which
    ]
    if records.still_queued:
        problems.append(f"still on RequestQueue: {records.still_queued}")
    found = f"{len(last)} started and ended, {len(dead)} dead-lettered, of {len(ids)}"
    return Check("every request is accounted for", not problems, "; ".join(problems) or found)


def failed_are_kept(last: dict[str, Execution], kept: Sequence[EndMessage]) -> Check:
    """The failed ones, and only they, are in FailedRequestQueue, with error and cause."""
    failed = {i for i, e in last.items() if e.status in FAILURES}
    said = {m.request_id for m in kept if m.error and m.cause}
    held = {m.request_id for m in kept}
    problems = [
        f"{what}: {named(sorted(str(i) for i in which))}"
        for what, which in (
            ("failed and not kept", failed - held),
            ("kept without error or cause", held - said),
            ("kept and not failed", held - failed),
        )
        if which
    ]
    name = "failed requests are in FailedRequestQueue"
    if not failed and not problems:
        return Check(name, None, "no request failed; with FAIL above 0 some do")
    found = f"{len(failed)} failed, {len(held)} kept with error and cause"
    return Check(name, not problems, "; ".join(problems) or found)


def outcomes_as_expected(sent: Sequence[Sent], records: Records, last: Mapping[str, Execution]) -> Check:
    """Damaged parts fail and whole ones succeed; a result exists exactly where the job succeeded."""
    wrong = [
        f"{s.request.request_id} {last[s.request.request_id].status}"
        for s in sent
        if s.request.request_id in last and (last[s.request.request_id].status == "SUCCEEDED") == s.request.damaged
    ]
    succeeded = {i for i, e in last.items() if e.status == "SUCCEEDED"}
    due = {s.request.output_key for s in sent if s.request.request_id in succeeded}
    problems = [
        f"{what}: {named(sorted(which))}"
        for what, which in (
            ("ended otherwise than their input says", wrong),
            ("succeeded without a result", due - records.outputs),
            ("result without a success", records.outputs - due),
        )
        if which
    ]
    damaged = sum(s.request.damaged for s in sent)
    found = f"{len(records.outputs)} results; {damaged} damaged inputs failed"
    return Check("outcomes are what the input says", not problems, "; ".join(problems) or found)


def message_order(sent: Sequence[Sent], records: Records) -> Check:
    """S5. First attempts only, as a request given back goes to the tail. Equal instants count as in order."""
    name = "workflows start in message order"
    sequence = {s.request.request_id: s.sequence for s in sent}
    first = [e for e in records.executions if e.attempt == 1 and e.request_id in sequence]
    started = sorted(first, key=lambda e: (e.started, sequence[e.request_id]))
    for earlier, later in pairwise(started):
        if sequence[later.request_id] < sequence[earlier.request_id]:
            found = f"{later.request_id} started after {earlier.request_id}, which was sent later"
            return Check(name, False, found)
    if len(started) < 2:
        return Check(name, None, f"{counted(len(started), 'start')}: nothing was there to be out of order")
    return Check(name, True, f"{len(started)} starts in the order of their SQS sequence numbers")


def never_above(limit: int, glue_alive: int, glue_open: int, slots_held: int) -> Check:
    """S1 and S1b, by Glue's records and by Step Functions'.

    Both, because Glue's times may be whole seconds, which can hide an overlap shorter than that (it can never make one
    up: what ended before another began still does when both are rounded down). Step Functions' are milliseconds.
    """
    name = f"never more than {limit} at once"
    found = f"at most {glue_alive} Glue runs alive, {glue_open} inside RunGlueJob, {slots_held} holding a slot"
    most = max(glue_alive, glue_open, slots_held)
    if most < limit:
        return Check(name, None, f"{found}: nobody found them all taken")
    return Check(name, most == limit, found)


def slots_are_back(records: Records) -> Check:
    """S2 and S4."""
    found = f"slots_in_use {records.slots_in_use}, holders: {named(records.holders) or 'none'}"
    return Check("every slot is back", records.slots_in_use == 0 and not records.holders, found)


def handoff_is_fast(median: float | None, count: int) -> Check:
    """S6. With no more requests than slots there is nothing to hand off."""
    name = f"hand-off median below {HANDOFF_MEDIAN} s"
    if median is None:
        return Check(name, None, "no request had to wait for a slot")
    return Check(name, median < HANDOFF_MEDIAN, f"{median:.3f} s over {counted(count, 'hand-off')}")
