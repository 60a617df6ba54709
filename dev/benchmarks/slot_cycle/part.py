"""The part as the benchmark calls it."""

from __future__ import annotations

from pathlib import Path

from dev.benchmarks.outcome import Outcome, Tell
from dev.benchmarks.slot_cycle import course, overhead, picture, report
from dev.emulator.aws import EngineError
from dev.emulator.dynamodb_local import DynamoDbLocal, DynamoDbLocalError

NAME = "slot-cycle"
TITLE = "The slot's cycle: reserve, confirm, release"
MINUTES = 3.5


def measure(folder: Path, tell: Tell, *, small: bool = False) -> Outcome:
    """Measure it on a DynamoDB Local of its own. Raises EngineError, CannotGoOn."""
    extent = course.SMALL if small else course.WHOLE
    try:
        engine = DynamoDbLocal.start(folder / "dynamodb.log")
    except DynamoDbLocalError as error:
        raise EngineError(str(error)) from None
    with engine:
        measured = course.run(engine, extent, tell)
    calls = overhead.measure(3 if small else 60)
    cycles, units = folder / "cycles.png", folder / "units.png"
    picture.draw_cycles(measured, extent, report.MOST, cycles)
    picture.draw_units(units)
    pictures = [
        (cycles, "a cycle of each design in bare writes of our item: median of the rounds, and their middle half"),
        (units, "what a cycle is charged by how many hold a slot, and how short jobs may be"),
    ]
    return report.outcome(measured, calls, extent, pictures)
