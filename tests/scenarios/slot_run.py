"""Records of `make run` with figures that are easy to compute. Seconds; the first request is sent at 1000."""

from __future__ import annotations

from typing import Any

from dev.scenarios.slots.slot_figures import Parameters, build
from dev.scenarios.slots.slot_records import EndMessage, Execution, GlueRun, Records
from dev.scenarios.slots.slot_requests import Request, SentRequest
from tests.scenarios.reports import run_of

ORIGIN = 1000.0


def sent(count: int, *, damaged: tuple[int, ...] = ()) -> list[SentRequest]:
    """`count` requests, r1 first, sent 0.01 s after one another."""
    return [
        SentRequest(
            Request(f"r{i}", "2012-01", {"--output_key": f"output/r{i}.json"}, damaged=i in damaged),
            sequence=100 + i,
            at=ORIGIN + (i - 1) * 0.01,
        )
        for i in range(1, count + 1)
    ]


def workflow(number: int, start: float, stop: float, *, status: str = "SUCCEEDED", **changes: Any) -> Execution:
    """The workflow of r<number>: Glue from start + 0.1 to stop - 0.2, ReleaseSlot from stop - 0.1 to stop - 0.05."""
    fields: dict[str, Any] = {
        "name": f"sample-{number}",
        "request_id": f"r{number}",
        "attempt": 1,
        "status": status,
        "started": ORIGIN + start,
        "stopped": ORIGIN + stop,
        "states": {
            "RunGlueJob": (ORIGIN + start + 0.1, ORIGIN + stop - 0.2),
            "ReleaseSlot": (ORIGIN + stop - 0.1, ORIGIN + stop - 0.05),
        },
    }
    return Execution(**(fields | changes))


def glue_run(number: int, start: float, stop: float | None, state: str = "SUCCEEDED") -> GlueRun:
    completed = None if stop is None else ORIGIN + stop
    return GlueRun(f"jr-{number}", f"sample-{number}", state, ORIGIN + start, completed)


def kept(number: int, *, error: str | None = "States.TaskFailed", cause: str | None = "not a number") -> EndMessage:
    return EndMessage(f"r{number}", f"sample-{number}", error, cause, "{}")


def records(executions: list[Execution], **changes: Any) -> Records:
    """Records that agree with the executions: a Glue run and, where it succeeded, a result for each."""
    fields: dict[str, Any] = {
        "executions": sorted(executions, key=lambda e: e.started),
        "glue_runs": [
            GlueRun(f"jr-{e.name}", e.name, e.status, *e.states["RunGlueJob"])
            for e in executions
            if "RunGlueJob" in e.states
        ],
        "kept": [kept(int(e.request_id[1:])) for e in executions if e.status != "SUCCEEDED"],
        "dead": [],
        "still_queued": 0,
        "slots_in_use": 0,
        "holders": [],
        "outputs": frozenset(f"output/{e.request_id}.json" for e in executions if e.status == "SUCCEEDED"),
    }
    return Records(**(fields | changes))


def report(count: int, recorded: Records, *, limit: int = 1, damaged: tuple[int, ...] = ()) -> dict[str, Any]:
    return build(Parameters(count, limit, 0.0), sent(count, damaged=damaged), recorded, run_of(run=1.0))
