"""The outcomes of a delivery, and how the ledger stores a result or a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotkeeper.retry.delivery import PlannedDelivery
from slotkeeper.retry.errors import Failure
from slotkeeper.retry.ledger import AlreadySettled
from slotkeeper.retry.plan import DeadLetter, RetryAt

MAX_RESULT_CHARACTERS = 32_768  # DynamoDB charges each read and write by the size of the whole row

DIED = Failure(
    types=("Died",),
    reason="Died: the attempt ended without a recorded result: the worker was killed, timed out or ran out of memory. "
    "Its work may have taken effect",
)

NOT_PERMITTED = Failure(
    types=("NotPermitted",),
    reason="NotPermitted: the downstream could not be called, and the attempt was claimed because its row changed "
    "after it was read; the work was not called",
    counts=False,
)


@dataclass(frozen=True)
class WorkSucceeded:
    """The work succeeded, and its result is in the ledger. `started_at`: start of the attempt, epoch seconds."""

    result: Any
    started_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class WorkRetried:
    """The attempt failed, and the next one is scheduled.

    Args:
        died: it was an earlier delivery's, whose worker died.
        counted: it uses up one of the policy's attempts.
    """

    delivery: PlannedDelivery
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)
    counted: bool = True


@dataclass(frozen=True)
class WorkDeadLettered:
    """The message is in the dead-letter queue. `died` as in WorkRetried."""

    code: str
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True)
class WorkDeferred:
    """The message was not due yet and was sent to the queue again. `until`: when it is due, epoch seconds."""

    until: float


Outcome = WorkSucceeded | WorkRetried | WorkDeadLettered | AlreadySettled | WorkDeferred


def not_started(seconds_left: float) -> Failure:
    """The failure of an attempt whose claim took so long that no time was left for the work."""
    reason = f"TooSlow: {seconds_left:.0f} s of the invocation were left after the claim; the work was not called"
    return Failure(types=("TooSlow",), reason=reason, counts=False)


def parse_plan(plan: Mapping[str, Any]) -> RetryAt | DeadLetter | Failure:
    """Parse the `plan` of a row: the decision about a failure, or the failure itself if no decision was made yet."""
    if "types" in plan:
        return Failure.from_record(plan)
    return RetryAt(**plan) if "when" in plan else DeadLetter(**plan)


def result_to_json(result: Any) -> str:
    """Encode a result as JSON. It never raises, because a success must be recorded with any result."""
    try:
        text = json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({"left_out": f"the result, a {type(result).__name__}, is not JSON"})
    if len(text) > MAX_RESULT_CHARACTERS:
        return json.dumps({"left_out": f"the result has {len(text)} characters, above {MAX_RESULT_CHARACTERS}"})
    return text
