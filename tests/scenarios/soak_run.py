"""Records of a soak that satisfy every claim. Seconds count from 1000."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dev.judge.slot_item import Holder, Item
from dev.scenarios.slots.slot_records import EndMessage, Execution, GlueRun
from dev.scenarios.soak.soak_figures import Parameters, build
from dev.scenarios.soak.soak_plan import DECK, RESTARTED
from dev.scenarios.soak.soak_records import RETURNED, FaultMark, JanitorRun, Records, SentMessage
from tests.scenarios.reports import run_of

ORIGIN = 1000.0
CALM = 100.0
LIMITS = {"p": 1}


def sent(number: int, at: float, *, bad: str = "") -> SentMessage:
    """The message of r<number>."""
    return SentMessage("p", f"r{number}", f"m{number}", str(100 + number), ORIGIN + at, "{}", bad)


def execution(number: int, start: float, stop: float | None, **changes: Any) -> Execution:
    """The first workflow of r<number>."""
    stopped = None if stop is None else ORIGIN + stop
    made = Execution(f"p-{number}", f"r{number}", 1, "SUCCEEDED", ORIGIN + start, stopped)
    return replace(made, **changes)


def glue_run(number: int, start: float, stop: float | None, state: str = "SUCCEEDED", name: str = "") -> GlueRun:
    """The run of r<number>'s first workflow, unless another is named."""
    completed = None if stop is None else ORIGIN + stop
    return GlueRun(f"jr-{number}-{start}", name or f"p-{number}", state, ORIGIN + start, completed)


def change(at: float, *holders: str, limit: int = 1, count: int | None = None, paused: bool = False) -> Item:
    """The item with these holders. A name that ends in "?" is not confirmed."""
    held = {
        name.removesuffix("?"): Holder("RESERVED") if name.endswith("?") else Holder("RUNNING", target="job")
        for name in holders
    }
    in_use = len(held) if count is None else count
    return Item("p", limit, in_use, held, paused, target="job", at=ORIGIN + at)


def served(number: int, start: float, stop: float) -> list[Item]:
    """The table's changes by a workflow: reserved, confirmed, released."""
    return [change(start, f"p-{number}?"), change(start + 0.1, f"p-{number}"), change(stop)]


def records(**changes: Any) -> Records:
    """Three requests through one slot, of which the second fails; a bad message; two more requests without faults."""
    made = Records(
        sent=[sent(1, 0), sent(2, 0.1), sent(3, 0.2), sent(9, 0.3, bad="not JSON"), sent(4, 100.1), sent(5, 100.1)],
        executions=[
            execution(1, 1, 3),
            execution(2, 3.2, 5, status="FAILED", error="RequestFailed"),
            execution(3, 5.2, 7),
            execution(4, 100.2, 102),
            execution(5, 102.2, 104),
        ],
        runs=[
            glue_run(1, 1.5, 2.5),
            glue_run(2, 3.5, 4.5, "FAILED"),
            glue_run(3, 5.5, 6.5),
            glue_run(4, 100.5, 101.5),
            glue_run(5, 102.5, 103.5),
        ],
        kept=[kept("p-2")],
        dead=[dead_letter("m9")],
        changes=[
            change(-1),
            *served(1, 1, 2.9),
            *served(2, 3.1, 4.9),
            *served(3, 5.1, 6.9),
            *served(4, 100.2, 101.9),
            *served(5, 102.1, 103.9),
        ],
        janitor_runs=[JanitorRun(ORIGIN + at, ORIGIN + at + 0.2, True) for at in range(3, 99, 3)],
        faults=[FaultMark(ORIGIN + 50, kind, "", "", ORIGIN + 50) for kind in (*DECK, *RESTARTED)],
        calm_from=ORIGIN + CALM,
        grace=2,
        left={"on RequestQueue": 0, "running": 0, "holders": 0},
    )
    return replace(made, **changes)


def report(recorded: Records) -> dict[str, Any]:
    return build(Parameters(2.0, 1, 1), LIMITS, ORIGIN, recorded, run_of(storm=99.0))


def failing(recorded: Records) -> dict[str, str]:
    """First word of its name -> finding, of the claims that fail."""
    return {c["name"].split(":")[0]: c["found"] for c in report(recorded)["checks"] if c["ok"] is False}


def not_shown(recorded: Records) -> set[str]:
    """First words of the names of the claims that are not shown."""
    return {c["name"].split(":")[0] for c in report(recorded)["checks"] if c["ok"] is None}


def kept(execution: str, cause: str = "exit code 1") -> EndMessage:
    return EndMessage(None, execution, "Glue.JobRunNotSucceeded", cause, "{}")


def dead_letter(source: str) -> EndMessage:
    return EndMessage(None, None, "InvalidRequest", "not JSON", "{not JSON", source, ORIGIN + 7.2)


def given_back(number: int, start: float, stop: float) -> Execution:
    """A workflow whose slot was freed before it confirmed."""
    return execution(number, start, stop, status="FAILED", error=RETURNED)
