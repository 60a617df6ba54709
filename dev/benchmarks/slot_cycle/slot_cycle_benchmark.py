"""The slot's cycle on DynamoDB Local."""

from __future__ import annotations

from pathlib import Path

from dev.benchmarks.outcome import Notify, Outcome
from dev.benchmarks.slot_cycle import slot_cycle_report, slot_cycle_run
from dev.emulator.aws import EngineError
from dev.emulator.dynamodb_local import DynamoDbLocal, DynamoDbLocalError

TITLE = "The slot's cycle: reserve, confirm, release"
MINUTES = 3.5


def measure(folder: Path, notify: Notify, *, small: bool = False) -> Outcome:
    """Raises EngineError, CannotGoOn."""
    extent = slot_cycle_run.SMALL if small else slot_cycle_run.WHOLE
    try:
        engine = DynamoDbLocal.start(folder / "dynamodb.log")
    except DynamoDbLocalError as error:
        raise EngineError(str(error)) from None
    with engine:
        measured = slot_cycle_run.run(engine, extent, notify)
    return slot_cycle_report.outcome(measured, extent)
