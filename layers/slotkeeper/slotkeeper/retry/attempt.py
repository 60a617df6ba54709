"""What becomes of an attempt: the outcomes of a delivery, and what the ledger keeps of a result or a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.retry.delivery import PlannedDelivery
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.ledger import AlreadySettled
from slotkeeper.retry.plan import DeadLetter, RetryAt

MAX_RESULT_CHARACTERS = 32_768  # a row is read and written whole, so its size is its price

DIED = Failure(
    types=("Died",),
    reason="Died: nobody noted how the attempt ended: the worker was killed, timed out or ran out of memory. "
    "Its effect may be there",
)


@dataclass(frozen=True)
class WorkSucceeded:
    """The work is done, and its result is in the ledger. `started_at`: when the attempt started_at, epoch seconds."""

    result: Any
    started_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class WorkRetried:
    """The attempt failed, and the next one is scheduled. `died`: an earlier delivery's attempt, which never ended."""

    delivery: PlannedDelivery
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True)
class WorkDeadLettered:
    """The message is in the dead-letter queue. `died` as in WorkRetried."""

    code: str
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True)
class WorkDeferred:
    """The message came before its time, and was sent on. `until`: when it is due, epoch seconds."""

    until: float


Outcome = WorkSucceeded | WorkRetried | WorkDeadLettered | AlreadySettled | WorkDeferred


def not_started(seconds_left: float) -> Failure:
    """The failure of an attempt whose claim took the time that the work needed."""
    reason = f"TooSlow: {seconds_left:.0f} s of the invocation were left after the claim; the work was not called"
    return Failure(types=("TooSlow",), reason=reason, counts=False)


def parse_plan(plan: Mapping[str, Any]) -> RetryAt | DeadLetter | Failure:
    """The `plan` of a row: what was decided about a failure, or the failure itself if that is still to be decided."""
    if "types" in plan:
        return Failure.from_record(plan)
    return RetryAt(**plan) if "when" in plan else DeadLetter(**plan)


def result_to_json(result: Any) -> str:
    """A result as JSON. The work is done, so no result may keep that from being recorded."""
    try:
        text = json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({"left_out": f"the result, a {type(result).__name__}, is not JSON"})
    if len(text) > MAX_RESULT_CHARACTERS:
        return json.dumps({"left_out": f"the result has {len(text)} characters, above {MAX_RESULT_CHARACTERS}"})
    return text
