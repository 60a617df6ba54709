"""The figures and claims of `make run`: records in, report out. Pure.

Keys of report.json next to those of dev/scenarios/runner/scenario.py (times in seconds; instants count from the first
request sent):

| key | meaning |
|---|---|
| `requests` | requests sent |
| `succeeded`, `failed` | requests whose last workflow ended SUCCEEDED, or FAILED / ABORTED / TIMED_OUT |
| `given_back` | workflows that returned their request to the queue (attempt + 1) |
| `kept` | messages in FailedRequestQueue: request_id, execution, error, cause, reason (the cause in a sentence) |
| `dead_lettered` | messages in the dead-letter queue, same form |
| `results` | result objects in the data bucket |
| `max_glue_runs_alive` | most Glue runs alive at any instant, by StartedOn and CompletedOn of GetJobRuns |
| `max_glue_states_open` | the same by Step Functions: most workflows inside RunGlueJob, which encloses the Glue run |
| `max_slots_held` | most workflows between their start and ReleaseSlot |
| `starts_in_message_order` | workflows started in the order of their messages' SQS sequence numbers |
| `slots_in_use_at_end` | of the slot table, after the last workflow |
| `handoff` | count, median, p99, max: from a release to the start of the workflow that took the slot |
| `slot_utilisation` | share of the slot-seconds that workflows hold, from the first start to the last |
| `glue_utilisation` | the same for the time inside RunGlueJob |
| `total_seconds` | first request sent to last workflow ended |
| `workflows` | one entry per workflow: name, request_id, status, instants of its message (`queued`) and its states |
| `handoffs` | one entry per hand-off: released, seconds, from, to |
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from dev.emulator.live_view import counted
from dev.scenarios.runner.claims import Claim, first_names, judge
from dev.scenarios.runner.scenario import Run
from slotkeeper_cli.intervals import Interval, Release, Start, handoffs, peak, rounded, since, spread, utilisation

from .slot_records import EndMessage, Execution, Records
from .slot_requests import SentRequest

HANDOFF_MEDIAN = 1.5  # seconds; without a wake, a message becomes visible after minutes
FAILURES = ("FAILED", "ABORTED", "TIMED_OUT")


@dataclass(frozen=True)
class Parameters:
    requests: int
    limit: int
    fail: float
    priorities: bool = False
    target: str = "glue"


class Measured(NamedTuple):
    """What each run has, with any kind of target. `last`: the last workflow of each request, by its id."""

    last: dict[str, Execution]
    origin: float
    claims: list[Claim]
    figures: dict[str, Any]


def build(parameters: Parameters, sent: Sequence[SentRequest], records: Records, run: Run) -> dict[str, Any]:
    """The report of one run. `sent` must not be empty."""
    executions = records.executions
    alive = peak((each.started, end_of(each.completed)) for each in records.glue_runs)
    last, origin, claims, figures = measure(
        parameters.limit, sent, records, "glue", "RunGlueJob", {"Glue runs alive": alive}
    )
    figures |= {
        "given_back": len(executions) - len({e.request_id for e in executions}),
        "results": len(records.outputs),
        "max_glue_runs_alive": alive,
    }
    return run.report(parameters, origin, [*claims, outcomes_as_expected(sent, records, last)], figures)


def measure(
    limit: int, sent: Sequence[SentRequest], records: Records, work: str, state: str, alive: Mapping[str, int]
) -> Measured:
    """The claims and figures that do not depend on what the slots run.

    Args:
        work: the prefix of the figures of what the slots run.
        state: the state that runs it.
        alive: the most at any instant by its own records, by what was counted.
    """
    executions, last = records.executions, last_attempts(sent, records)
    held, inside = held_intervals(executions), work_intervals(executions, state)
    peaks = {f"inside {state}": peak(inside), "holding a slot": peak(held)}
    sent_at = {each.request.request_id: each.at for each in sent}
    starts = [Start(e.name, e.started, sent_at.get(e.request_id, math.inf)) for e in executions]
    passed = handoffs(releases(executions), starts, limit)
    gaps = [handoff.seconds for handoff in passed]
    median = statistics.median(gaps) if gaps else None
    origin = min(each.at for each in sent)
    window = (executions[0].started, max(e.started for e in executions)) if executions else (0.0, 0.0)
    in_order = message_order(sent, records)
    claims = [
        accounted(sent, records, last),
        never_above(limit, {**alive, **peaks}),
        in_order,
        slots_are_released(records),
        hand_off_is_fast(median, len(gaps)),
        failed_are_kept(last, records.kept),
    ]
    figures = {
        "requests": len(sent),
        "succeeded": sum(e.status == "SUCCEEDED" for e in last.values()),
        "failed": sum(e.status in FAILURES for e in last.values()),
        "kept": [end_message(message) for message in records.kept],
        "dead_lettered": [end_message(message) for message in records.dead],
        f"max_{work}_states_open": peak(inside),
        "max_slots_held": peak(held),
        "starts_in_message_order": in_order.ok is not False,
        "slots_in_use_at_end": records.slots_in_use,
        "handoff": {"count": len(gaps), "median": rounded(median)} | spread(gaps, p99=0.99),
        "slot_utilisation": rounded(utilisation(held, window, limit)),
        f"{work}_utilisation": rounded(utilisation(inside, window, limit)),
        "total_seconds": rounded(max((end_of(e.stopped) for e in executions), default=origin) - origin),
        "workflows": [
            _workflow(e, origin, work, state) | {"queued": since(_queued(e, sent_at, executions), origin)}
            for e in executions
        ],
        "handoffs": [
            {"released": since(h.released, origin), "seconds": rounded(h.seconds)}
            | {"from": h.from_execution, "to": h.to_execution}
            for h in passed
        ],
    }
    return Measured(last, origin, claims, figures)


def end_of(instant: float | None) -> float:
    """An interval without an end counts in every later peak."""
    return math.inf if instant is None else instant


def held_intervals(executions: Sequence[Execution]) -> list[Interval]:
    """From the start to the entry into ReleaseSlot, which is inside the time for which the workflow holds its slot."""
    return [(e.started, end_of(e.entered("ReleaseSlot") or e.stopped)) for e in executions]


def work_intervals(executions: Sequence[Execution], state: str) -> list[Interval]:
    """The time in the state that runs the work."""
    entered = [(e.entered(state), end_of(e.exited(state) or e.stopped)) for e in executions]
    return [(start, end) for start, end in entered if start is not None]


def releases(executions: Sequence[Execution]) -> list[Release]:
    """The workflows' releases that have ended."""
    found = [(e.name, *e.states.get("ReleaseSlot", (0.0, None))) for e in executions]
    return [Release(name, entered, exited) for name, entered, exited in found if exited is not None]


def end_message(message: EndMessage) -> dict[str, str | None]:
    """The body is added if the message contains no request of this run."""
    fields = {name: getattr(message, name) for name in ("request_id", "execution", "error", "cause", "reason")}
    return fields if message.request_id else fields | {"body": message.body}


def _queued(execution: Execution, sent_at: Mapping[str, float], executions: Sequence[Execution]) -> float | None:
    """When the message of this attempt was sent: by the producer, or by the workflow of the attempt before."""
    if execution.attempt == 1:
        return sent_at.get(execution.request_id)
    before = (execution.request_id, execution.attempt - 1)
    return next((e.stopped for e in executions if (e.request_id, e.attempt) == before), None)


def _workflow(execution: Execution, origin: float, work: str, state: str) -> dict[str, Any]:
    instants = {
        "started": execution.started,
        f"{work}_entered": execution.entered(state),
        f"{work}_exited": execution.exited(state),
        "release_entered": execution.entered("ReleaseSlot"),
        "release_exited": execution.exited("ReleaseSlot"),
        "stopped": execution.stopped,
    }
    texts = {name: getattr(execution, name) for name in ("name", "request_id", "attempt", "status", "error")}
    return texts | {name: since(instant, origin) for name, instant in instants.items()}


# ------------------------------------------------------------------------------------------------------------- claims


def last_attempts(sent: Sequence[SentRequest], records: Records) -> dict[str, Execution]:
    last: dict[str, Execution] = {}
    for execution in sorted(records.executions, key=lambda e: -e.attempt):
        last.setdefault(execution.request_id, execution)
    return {s.request.request_id: last[s.request.request_id] for s in sent if s.request.request_id in last}


def accounted(sent: Sequence[SentRequest], records: Records, last: Mapping[str, Execution]) -> Claim:
    """S3: each request was started once per attempt, and ended; or it is dead-lettered. Nothing else was started."""
    dead = {message.request_id for message in records.dead}
    ids = [s.request.request_id for s in sent]
    attempts = Counter((e.request_id, e.attempt) for e in records.executions)
    problems = {
        "neither started nor dead-lettered": [i for i in ids if i not in last and i not in dead],
        "started and dead-lettered": [i for i in ids if i in last and i in dead],
        "not ended": [i for i, e in last.items() if e.status not in ("SUCCEEDED", *FAILURES)],
        "started twice": [i for (i, _), count in attempts.items() if count > 1],
        "workflows of no request": [e.name for e in records.executions if e.request_id not in set(ids)],
        "still on RequestQueue": [str(records.still_queued)] if records.still_queued else [],
    }
    finding = f"{len(last)} started and ended, {len(dead)} dead-lettered, of {len(ids)}"
    return judge("every request is accounted for", problems, finding)


def failed_are_kept(last: Mapping[str, Execution], kept: Sequence[EndMessage]) -> Claim:
    """Exactly the failed requests are in FailedRequestQueue, with error and cause."""
    failed = {i for i, e in last.items() if e.status in FAILURES}
    in_queue = {str(m.request_id) for m in kept}
    explained = {str(m.request_id) for m in kept if m.error and m.cause}
    problems = {
        "failed and not kept": sorted(failed - in_queue),
        "kept without error or cause": sorted(in_queue - explained),
        "kept and not failed": sorted(in_queue - failed),
    }
    finding = f"{len(failed)} failed, {len(in_queue)} kept with error and cause"
    if not failed:
        finding = "no request failed; with FAIL above 0 some do"
    return judge("failed requests are in FailedRequestQueue", problems, finding, shown=bool(failed))


def outcomes_as_expected(sent: Sequence[SentRequest], records: Records, last: Mapping[str, Execution]) -> Claim:
    """Damaged inputs fail and others succeed. A result exists exactly if the job succeeded."""
    ended = [(s.request, last[s.request.request_id].status) for s in sent if s.request.request_id in last]
    due = {request.output_key for request, status in ended if status == "SUCCEEDED"}
    problems = {
        "ended otherwise than expected of their input": [
            f"{request.request_id} {status}" for request, status in ended if (status == "SUCCEEDED") == request.damaged
        ],
        "succeeded without a result": sorted(due - records.outputs),
        "result without a success": sorted(records.outputs - due),
    }
    finding = f"{len(records.outputs)} results; {sum(request.damaged for request, _ in ended)} damaged inputs failed"
    return judge("the outcomes are those expected of the inputs", problems, finding)


def message_order(sent: Sequence[SentRequest], records: Records) -> Claim:
    """S5, of first attempts: a returned request goes to the tail of the queue. Equal instants count as in order."""
    wrong, starts = out_of_order(records.executions, {s.request.request_id: s.sequence for s in sent})
    finding = f"{starts} starts in the order of their SQS sequence numbers"
    if starts < 2:
        finding = f"{counted(starts, 'start')}: there is no order"
    return judge("workflows start in message order", {"out of order": wrong}, finding, shown=starts > 1)


def out_of_order(executions: Iterable[Execution], sequence: Mapping[str, int]) -> tuple[list[str], int]:
    """First attempts that started after a request that was sent later, and the number of first attempts."""
    first = [e for e in executions if e.attempt == 1 and e.request_id in sequence]
    started = sorted(first, key=lambda e: (e.started, sequence[e.request_id]))
    wrong = [
        f"{later.request_id} after {earlier.request_id}"
        for earlier, later in pairwise(started)
        if sequence[later.request_id] < sequence[earlier.request_id]
    ]
    return wrong, len(first)


def never_above(limit: int, peaks: Mapping[str, int]) -> Claim:
    """S1 and S1b, by the records of Glue and of Step Functions. `peaks`: most at any instant, by what was counted.

    Glue's times may be whole seconds, which hide an overlap shorter than a second but never add one. Step Functions'
    times are milliseconds.
    """
    finding = f"at most {', '.join(f'{most} {what}' for what, most in peaks.items())}"
    most, name = max(peaks.values()), f"never more than {limit} concurrently"
    if most < limit:
        return Claim(name, None, f"{finding}: the slots were never all in use")
    return Claim(name, most == limit, finding)


def slots_are_released(records: Records) -> Claim:
    """S2, S4."""
    finding = f"slots_in_use {records.slots_in_use}, holders: {first_names(records.holders) or 'none'}"
    return Claim("every slot is released", records.slots_in_use == 0 and not records.holders, finding)


def hand_off_is_fast(median: float | None, count: int) -> Claim:
    """S6. If there are no more requests than slots, no slot is handed off."""
    name = f"hand-off median below {HANDOFF_MEDIAN} s"
    if median is None:
        return Claim(name, None, "no request had to wait for a slot")
    return Claim(name, median < HANDOFF_MEDIAN, f"{median:.3f} s over {counted(count, 'hand-off')}")
