"""What-if predicts what a run at another limit does: shapes of work, each recorded at one limit and run at another.

The real code runs on the simulated AWS, once at each limit, with the same arrivals and durations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slotkeeper.slots.rate import Rate
from slotkeeper_cli.audit.intervals import percentile
from slotkeeper_cli.what_if.prediction import CannotKnow, Course, predict
from slotkeeper_cli.what_if.recording import recording_of
from tests.simulation.recorded_world import Act, Arrival, RecordedWorld, command, lease, redrive
from tests.simulation.slots_state import SECOND, Plan, Sent
from tests.simulation.worlds import BEGINNING

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
# A predicted percentile of the waits may differ from the true one by this part and these seconds.
TOLERANCE, TOLERATED_SECONDS = 0.15, 1.0


@dataclass(frozen=True)
class Shape:
    """A run that is recorded."""

    plan: Plan  # with the limit at which it is recorded
    limit: int  # at which it is predicted, and run again
    arrivals: Sequence[Arrival]
    acts: Sequence[Act] = ()
    of_record: Sequence[Act] = ()  # what happens only in the recorded run
    fails: Sequence[str] = ()  # the ids of the requests that fail at first
    # When it is recorded, in seconds from the beginning; a run that has ended by then is complete
    until: float = 100_000
    unknown: str = ""  # the command says that it cannot know, with these words


def arrivals(
    number: int, over: float, seconds: tuple[float, float] = (20, 60), prefix: str = "r", seed: int = 1, **sent: Any
) -> list[Arrival]:
    """Requests that are sent over a time, in seconds. Each value of `sent` draws a field of a request."""
    random = Random(seed)
    times = sorted(random.uniform(0, over) for _ in range(number))
    made = []
    for at, time in enumerate(times):
        fields = {name: draw(random) for name, draw in sent.items()}
        made.append(Arrival(time, Sent(f"{prefix}{at:03}", **fields), random.uniform(*seconds)))
    return made


BASE = arrivals(70, 900)
LIMITS = [command(300, 5, "set-limit", before=2, after=5), command(700, 3, "set-limit", before=5, after=3)]
FAILED = [each.sent.id for each in BASE[:24:2]]
OF_ANOTHER_JOB = arrivals(20, 900, prefix="x", seed=2, process=lambda _: SECOND)
SHAPES: dict[str, Callable[[], Shape]] = {
    "backlog": lambda: Shape(Plan(limit=2), 4, arrivals(120, 600, (30, 50)), until=900),
    "burst": lambda: Shape(Plan(limit=4), 20, arrivals(80, 1, (4, 6))),
    "rate": lambda: Shape(Plan(limit=1, rate=Rate(6, 60)), 4, arrivals(60, 500, (5, 30))),
    "weights": lambda: Shape(Plan(limit=4), 6, arrivals(70, 900, weight=lambda of: of.choice((1, 1, 2, 3)))),
    "priorities": lambda: Shape(
        Plan(limit=2), 3, arrivals(70, 900, priority=lambda of: of.choice(("high", "normal", "low")))
    ),
    "keys": lambda: Shape(Plan(limit=3, key_limit=2), 5, arrivals(70, 900, key=lambda of: of.choice("aabc"))),
    "leases": lambda: Shape(
        Plan(limit=3), 4, arrivals(60, 900), [lease(100, 1, 300), lease(100, 2, 300)], unknown="leave no record"
    ),
    "pauses": lambda: Shape(Plan(limit=3), 5, BASE, [command(300, 0, "pause"), command(420, -1, "resume")]),
    "limit changes": lambda: Shape(Plan(limit=2), 3, BASE, of_record=LIMITS),
    "redrives": lambda: Shape(
        Plan(limit=2), 3, BASE, [redrive(1500 + 20 * at, name) for at, name in enumerate(FAILED)], fails=FAILED
    ),
    "two jobs": lambda: Shape(Plan(limit=2), 3, sorted([*BASE, *OF_ANOTHER_JOB])),
}


def recorded(shape: Shape, limit: int, acts: Sequence[Act], until: float) -> RecordedWorld:
    world = RecordedWorld(replace(shape.plan, limit=limit), shape.arrivals, acts, shape.fails)
    world.run(until)
    return world


def prediction(shape: Shape) -> dict[str, Course]:
    """The command's prediction from the records of the run."""
    world = recorded(shape, shape.plan.limit, [*shape.acts, *shape.of_record], shape.until)
    process = world.process()
    return predict(recording_of(process, world.rows(), world.audit_lines, BEGINNING, world.now), shape.limit)


def true_waits(shape: Shape) -> list[float]:
    """The waits of a run at the other limit, until all has ended."""
    rows = recorded(shape, shape.limit, shape.acts, 100_000).rows()
    return [row.started - row.sent for row in rows if row.started is not None]


def _of_waits(waits: Sequence[float]) -> list[float]:
    return [percentile(waits, share) or 0.0 for share in (0.5, 0.9)]


def _shown(values: Sequence[float]) -> str:
    return " | ".join("not yet" if math.isinf(value) else f"{value:.0f} s" for value in values)


@pytest.mark.parametrize("name", SHAPES)
def test_a_prediction_has_the_waits_of_a_run_at_that_limit_or_says_that_it_cannot_know(name: str) -> None:
    shape = SHAPES[name]()
    limits, truth = f"{shape.plan.limit} to {shape.limit}", true_waits(shape)
    if shape.unknown:
        with pytest.raises(CannotKnow, match=shape.unknown):
            prediction(shape)
        assert f"| {name} | {limits} | cannot be known |" in PAGE
        return
    made = prediction(shape)
    assert len(made["replayed"].waits) == len(truth)
    for found, true in zip(_of_waits(made["replayed"].waits), _of_waits(truth), strict=True):
        assert abs(found - true) <= TOLERANCE * true + TOLERATED_SECONDS
    columns = (made["recorded"].waits, made["replayed"].waits, truth)
    assert f"| {name} | {limits} | {' | '.join(_shown(_of_waits(waits)) for waits in columns)} |" in PAGE
