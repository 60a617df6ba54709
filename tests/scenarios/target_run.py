"""Records of `make run TARGET=workflow` with figures that are easy to compute. Seconds; the first request is sent at
1000."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dev.scenarios.slots.slot_figures import Parameters
from dev.scenarios.slots.slot_records import EndMessage, Execution, Records
from dev.scenarios.slots.slot_requests import Request, SentRequest
from dev.scenarios.slots.target_figures import build
from dev.scenarios.slots.target_records import Called, Child, TargetRecords
from dev.scenarios.slots.target_requests import PROCESS, expected
from tests.scenarios.reports import run_of

ORIGIN = 1000.0
INPUT = {"month": "2012-01", "days": [{"temp_max": 7.5, "precipitation": 0.1}, {"temp_max": 9.0, "precipitation": 0.2}]}
ASKED = ["r3", "r4"]  # by the caller, the others by a producer
DAMAGED = "r2"


def _request(number: int) -> Request:
    name = f"r{number}"
    return Request(name, "2012-01", {}, name == DAMAGED, input=INPUT, process=PROCESS)


SENT = [SentRequest(_request(number), 100 + number, ORIGIN + number / 100) for number in range(1, 5)]


def workflow(number: int, start: float) -> Execution:
    """A second: the child from start + 0.1 to start + 0.7, ReleaseSlot until start + 0.85, the answer until + 0.9."""
    name, failed = f"r{number}", f"r{number}" == DAMAGED
    answer = "AnswerFailure" if failed else "AnswerSuccess"
    at = ORIGIN + start
    states: dict[str, tuple[float, float | None]] = {
        "RunStateMachine": (at + 0.1, at + 0.7),
        "ReleaseSlot": (at + 0.8, at + 0.85),
    }
    return Execution(
        name=f"{PROCESS}-{number}",
        request_id=name,
        attempt=1,
        status="FAILED" if failed else "SUCCEEDED",
        started=at,
        stopped=at + 1,
        states=states | ({answer: (at + 0.85, at + 0.9)} if name in ASKED else {}),
    )


def child(execution: Execution) -> Child:
    """The child of a workflow."""
    entered, exited = execution.states["RunStateMachine"]
    output = None if execution.status == "FAILED" else expected(INPUT)
    return Child(execution.name, execution.status, entered, exited, output)


WORKFLOWS = [workflow(1, 0.2), workflow(2, 1.15), workflow(3, 2.1), workflow(4, 3.05)]
CHILDREN = [child(each) for each in WORKFLOWS]
ANSWERS = [{"request_id": name, "result": expected(INPUT)} for name in ASKED]
KEPT = EndMessage(DAMAGED, f"{PROCESS}-2", "StateMachine.ExecutionNotSucceeded", "BadInput", "{}")


def records(**changes: Any) -> TargetRecords:
    """The records of a run without faults through one slot, with changes to them or to AWS's records."""
    fields: dict[str, Any] = {
        "executions": WORKFLOWS,
        "glue_runs": [],
        "kept": [KEPT],
        "dead": [],
        "still_queued": 0,
        "slots_in_use": 0,
        "holders": [],
    }
    aws = Records(**fields | {name: changes.pop(name) for name in list(changes) if name in fields})
    called = Called("SUCCEEDED", ASKED, ANSWERS, ORIGIN, ORIGIN + 5)
    return replace(TargetRecords(SENT, aws, CHILDREN, called), **changes)


def report(recorded: TargetRecords) -> dict[str, Any]:
    return build(Parameters(4, 1, 0.25, target="workflow"), recorded, run_of(run=1.0))
