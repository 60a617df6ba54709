"""The part as the benchmark calls it."""

from __future__ import annotations

from pathlib import Path

from dev.benchmarks.outcome import Outcome, Tell
from dev.benchmarks.slot_cycle import slot_cycle_report as report
from dev.benchmarks.slot_cycle import slot_cycle_run as course
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
    return report.outcome(measured, extent)
