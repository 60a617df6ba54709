"""The run's report: records in, figures and checks out. Pure.

Keys of report.json (times in seconds; instants count from the first request sent):

| key | meaning |
|---|---|
| `parameters` | requests, limit and fail share of this run |
| `started_at` | when the first request was sent, ISO 8601, UTC |
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
| `slots_in_use_at_end` | of the slot table, when all was over |
| `handoff` | count, median, p99, max: from a release to the start of the workflow that took over the slot |
| `slot_utilisation` | share of slot-seconds held by workflows, from the first start to the last (later, nobody waits) |
| `glue_utilisation` | the same for the time inside RunGlueJob |
| `total_seconds` | first request sent to last workflow ended |
| `checks` | name, ok (null: this run could not show it), and what was found, for each claim the run has to show |
| `ok` | no check fails |
| `workflows` | one entry a workflow: name, request_id, status, instants of its states |
| `handoffs` | one entry a hand-off: released, seconds, from, to |
| `phases` | seconds each phase took: start, deploy, upload, send, run, collect |
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dev.scenarios.runner.checking import none_fails

from . import checks
from .checks import FAILURES
from .figures import Handoff, Interval, Release, Start, handoffs, peak, percentile, utilisation
from .records import EndMessage, Execution, Records
from .sending import Sent


@dataclass(frozen=True)
class Parameters:
    requests: int
    limit: int
    fail: float


def _end(instant: float | None) -> float:
    """What has not ended lasts for ever: it must count in every peak."""
    return math.inf if instant is None else instant


def held_intervals(executions: Sequence[Execution]) -> list[Interval]:
    """From the start to the entry of ReleaseSlot: surely inside the time in which the workflow holds its slot."""
    return [(e.started, _end(e.release_entered or e.stopped)) for e in executions]


def glue_intervals(executions: Sequence[Execution]) -> list[Interval]:
    return [(e.glue_entered, _end(e.glue_exited or e.stopped)) for e in executions if e.glue_entered is not None]


def find_handoffs(sent: Sequence[Sent], records: Records, limit: int) -> list[Handoff]:
    sent_at = {s.request.request_id: s.at for s in sent}
    releases = [
        Release(e.name, e.release_entered, e.release_exited)
        for e in records.executions
        if e.release_entered is not None and e.release_exited is not None
    ]
    starts = [Start(e.name, e.started, sent_at.get(e.request_id, math.inf)) for e in records.executions]
    return handoffs(releases, starts, limit)


def _round(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 3)


def build(parameters: Parameters, sent: Sequence[Sent], records: Records, phases: dict[str, float]) -> dict[str, Any]:
    """The report of one run, as it is written to report.json. `sent` must not be empty."""
    limit, executions = parameters.limit, records.executions
    last = checks.outcomes(sent, records)
    glue_alive = peak((run.started, _end(run.completed)) for run in records.glue_runs)
    glue_open, slots_held = peak(glue_intervals(executions)), peak(held_intervals(executions))
    passed = find_handoffs(sent, records, limit)
    gaps = [handoff.seconds for handoff in passed]
    median = statistics.median(gaps) if gaps else None
    origin = min(s.at for s in sent)
    window = (executions[0].started, max(e.started for e in executions)) if executions else (0.0, 0.0)
    in_order = checks.message_order(sent, records)
    held_to = [
        checks.accounted(sent, records, last),
        checks.never_above(limit, glue_alive, glue_open, slots_held),
        in_order,
        checks.slots_are_back(records),
        checks.handoff_is_fast(median, len(gaps)),
        checks.failed_are_kept(last, records.kept),
        checks.outcomes_as_expected(sent, records, last),
    ]
    return {
        "parameters": asdict(parameters),
        "started_at": datetime.fromtimestamp(origin, UTC).isoformat(timespec="milliseconds"),
        "requests": len(sent),
        "succeeded": sum(e.status == "SUCCEEDED" for e in last.values()),
        "failed": sum(e.status in FAILURES for e in last.values()),
        "given_back": len(executions) - len({e.request_id for e in executions}),
        "kept": [_letter(m) for m in records.kept],
        "dead_lettered": [_letter(m) for m in records.dead],
        "results": len(records.outputs),
        "max_glue_runs_alive": glue_alive,
        "max_glue_states_open": glue_open,
        "max_slots_held": slots_held,
        "starts_in_message_order": in_order.ok is not False,
        "slots_in_use_at_end": records.slots_in_use,
        "handoff": {
            "count": len(gaps),
            "median": _round(median),
            "p99": _round(percentile(gaps, 0.99)),
            "max": _round(max(gaps, default=None)),
        },
        "slot_utilisation": _round(utilisation(held_intervals(executions), window, limit)),
        "glue_utilisation": _round(utilisation(glue_intervals(executions), window, limit)),
        "total_seconds": _round(max((_end(e.stopped) for e in executions), default=origin) - origin),
        "checks": [asdict(check) for check in held_to],
        "ok": none_fails(held_to),
        "workflows": [_workflow(e, origin) for e in executions],
        "handoffs": [
            {"released": _round(h.released - origin), "seconds": _round(h.seconds)}
            | {"from": h.from_execution, "to": h.to_execution}
            for h in passed
        ],
        "phases": {name: round(seconds, 2) for name, seconds in phases.items()},
    }


def _letter(message: EndMessage) -> dict[str, str | None]:
    """The body only where it says something new: of a message that carries no request of ours."""
    fields = asdict(message) | {"reason": message.reason}
    return {key: value for key, value in fields.items() if key != "body" or not message.request_id}


def _workflow(execution: Execution, origin: float) -> dict[str, Any]:
    names = ("started", "glue_entered", "glue_exited", "release_entered", "release_exited", "stopped")
    instants = {name: getattr(execution, name) for name in names}
    return {
        "name": execution.name,
        "request_id": execution.request_id,
        "attempt": execution.attempt,
        "status": execution.status,
        "error": execution.error,
        **{name: None if at is None else _round(at - origin) for name, at in instants.items()},
    }
