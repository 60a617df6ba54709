"""Records of `make run PRIORITIES=yes` that satisfy every claim. Seconds; the first request is sent at 1000.

One slot. Low r1 runs; urgent r3 starts before normal r2, which waited first; urgent c is cancelled while it waits; b,
of weight 2, is blocked until the limit is raised to 3; low r4 starts meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dev.judge.slot_item import Holder, Item, Waiting
from dev.scenarios.slots.priority_figures import build
from dev.scenarios.slots.priority_records import PriorityRecords, Refusal
from dev.scenarios.slots.priority_requests import Mix
from dev.scenarios.slots.slot_figures import Parameters
from dev.scenarios.slots.slot_records import EndMessage, Execution, GlueRun, Records
from dev.scenarios.slots.slot_requests import PROCESS, Request, SentRequest
from slotkeeper.slots.request import Priority, execution_name
from tests.scenarios.reports import run_of

ORIGIN = 1000.0
LIMIT, RAISED = 1, 3
ACCOUNTED = "every request is accounted for"


def name(request_id: str) -> str:
    return execution_name(PROCESS, request_id, 1)


def sent(request_id: str, at: float, sequence: int, priority: Priority = "normal", weight: int = 1) -> SentRequest:
    arguments = {"--output_key": f"output/{request_id}.json"}
    request = Request(request_id, "2012-01", arguments, False, priority, weight)
    return SentRequest(request, sequence, ORIGIN + at)


def workflow(each: SentRequest, start: float, stop: float) -> Execution:
    """Glue from start + 0.1 to stop - 0.3, ReleaseSlot from stop - 0.2 to stop - 0.1."""
    states: dict[str, tuple[float, float | None]] = {
        "RunGlueJob": (ORIGIN + start + 0.1, ORIGIN + stop - 0.3),
        "ReleaseSlot": (ORIGIN + stop - 0.2, ORIGIN + stop - 0.1),
    }
    request = each.request
    return Execution(
        name(request.request_id),
        request.request_id,
        1,
        "SUCCEEDED",
        ORIGIN + start,
        ORIGIN + stop,
        states,
        priority=request.priority,
        weight=request.weight,
    )


def change(
    at: float, *holders: str, limit: int = LIMIT, weights: dict[str, int] | None = None, **waiting: tuple[str, int]
) -> Item:
    """The item with these requests as holders, and by priority the registered request and its weight."""
    held = {name(each): Holder("RUNNING", weight=(weights or {}).get(each, 1)) for each in holders}
    registered = {
        priority: Waiting("1", 1, "handle", weight, name(request_id))
        for priority, (request_id, weight) in waiting.items()
    }
    in_use = sum(each.weight for each in held.values())
    return Item(PROCESS, limit, in_use, held, waiting=registered, at=ORIGIN + at)


SENT = [
    sent("r1", 0.0, 1, "low"),
    sent("r2", 0.0, 2),
    sent("r4", 0.0, 3, "low"),
    sent("r3", 0.5, 4, "high"),
    sent("c", 3.5, 5, "high"),
    sent("b", 4.5, 6, "high", 2),
]
R1, R2, R4, R3, C, B = SENT
WORKFLOWS = [
    workflow(R1, 0.2, 2.2),
    workflow(R3, 2.2, 4.4),
    workflow(R2, 4.4, 6.4),
    workflow(R4, 6.5, 8.5),
    workflow(B, 7.1, 9.1),
]
CHANGES = [
    change(-1),
    change(0.1, "r1"),
    change(0.3, "r1", normal=("r2", 1)),
    change(0.6, "r1", normal=("r2", 1), high=("r3", 1)),
    change(2.05, normal=("r2", 1), high=("r3", 1)),
    change(2.15, "r3", normal=("r2", 1)),
    change(3.6, "r3", normal=("r2", 1), high=("c", 1)),
    change(4.0, "r3", normal=("r2", 1)),
    change(4.25, normal=("r2", 1)),
    change(4.35, "r2"),
    change(4.6, "r2", high=("b", 2)),
    change(4.7, "r2", high=("b", 2), low=("r4", 1)),
    change(6.25, high=("b", 2), low=("r4", 1)),
    change(6.4, "r4", high=("b", 2)),
    change(7.0, "r4", high=("b", 2), limit=RAISED),
    change(7.05, "r4", "b", weights={"b": 2}, limit=RAISED),
    change(8.35, "b", weights={"b": 2}, limit=RAISED),
    change(8.95, limit=RAISED),
]
CANCELLED = EndMessage("c", None, "Cancelled", "cancelled by make run at 2026-01-01", "{}", "m", ORIGIN + 4.0)
MIX = Mix({}, [], [], cancelled="c", blocked="b", raised=RAISED)


def aws(**changes: Any) -> Records:
    made = Records(
        executions=WORKFLOWS,
        glue_runs=[GlueRun(e.name, e.name, e.status, *e.states["RunGlueJob"]) for e in WORKFLOWS],
        kept=[],
        dead=[CANCELLED],
        still_queued=0,
        slots_in_use=0,
        holders=[],
        outputs=frozenset(f"output/{e.request_id}.json" for e in WORKFLOWS),
    )
    return replace(made, **changes)


def records(**changes: Any) -> PriorityRecords:
    refusals = [("r2", 0.35), ("r3", 0.65), ("c", 3.65), ("b", 4.65), ("r4", 4.75)]
    made = PriorityRecords(
        sent=SENT,
        mix=MIX,
        limit=LIMIT,
        records=aws(),
        changes=CHANGES,
        refusals=[Refusal(request_id, ORIGIN + at) for request_id, at in refusals],
        raised=(ORIGIN + 6.9, ORIGIN + 7.0),
    )
    return replace(made, **changes)


def report(recorded: PriorityRecords) -> dict[str, Any]:
    return build(Parameters(len(recorded.sent), LIMIT, 0.0, priorities=True), recorded, run_of(run=1.0))
