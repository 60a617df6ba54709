"""The ledger's row as the place where Powertools' Idempotency keeps what it knows of an attempt.

An attempt of a request is the idempotent function: it begins once, and who asks again is told how it stands. Powertools
leads through it, over the ledger's steps (Powertools guide, "Idempotency", Bring your own persistent store).
Its own DynamoDB layer would not do: it puts whole items, deletes a failed call's record whoever holds it by then, and
knows one record a key, not a chain of attempts.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aws_lambda_powertools.utilities.idempotency import BasePersistenceLayer
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyItemAlreadyExistsError,
    IdempotencyItemNotFoundError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord
from aws_lambda_powertools.utilities.idempotency.serialization.base import BaseIdempotencySerializer

from slotkeeper.retry.delivery import Booked
from slotkeeper.retry.ledger import (
    DEAD_LETTERED,
    SUCCEEDED,
    WAITING,
    Claimed,
    IdReused,
    InProgress,
    Ledger,
    NextHasBegun,
    Settled,
)
from slotkeeper.retry.message import Message


@dataclass(frozen=True)
class Succeeded:
    """The work is done, and its result noted. `began`: when the attempt did, in seconds since the epoch."""

    result: Any
    began: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Retrying:
    """The attempt failed, and the next one is booked. `died`: an earlier delivery's attempt, which never ended."""

    booked: Booked
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True)
class DeadLettered:
    """The message is in the dead-letter queue."""

    code: str
    reason: str
    died: bool = False
    cause: Exception | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Repeated:
    """This attempt has had its end before, or a later one has begun: nothing was done.

    Args:
        attempts: the latest one, which began at `began`, in seconds since the epoch.
        result: its result, JSON, if it succeeded.
    """

    status: str
    attempts: int
    began: float = field(default=0.0, compare=False)
    result: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class NotDue:
    """The message came before its time, and was sent on."""

    until: float


Outcome = Succeeded | Retrying | DeadLettered | Repeated | NotDue


class AttemptStore(BasePersistenceLayer):
    """One delivery's view of the ledger. `claim` is what it got; None until Powertools has asked for it."""

    def __init__(self, ledger: Ledger, message: Message, token: str, now: float, lease: float) -> None:
        BasePersistenceLayer.__init__(self)
        self._ledger = ledger
        self._message = message
        self._ask = (token, now, lease)
        self.claim: Claimed | IdReused | None = None

    def _put_record(self, data_record: DataRecord) -> None:
        claim = self._ledger.claim(self._message, *self._ask)
        if isinstance(claim, Settled):
            ended = json.dumps(vars(claim))
            data_record = DataRecord(data_record.idempotency_key, status="COMPLETED", response_data=ended)
            raise IdempotencyItemAlreadyExistsError(old_data_record=data_record)
        if isinstance(claim, InProgress):
            data_record = DataRecord(data_record.idempotency_key, status="INPROGRESS")
            raise IdempotencyItemAlreadyExistsError(old_data_record=data_record)
        self.claim = claim

    def _update_record(self, data_record: DataRecord) -> None:
        if not isinstance(self.claim, Claimed):
            return  # the row is another request's
        ended = json.loads(data_record.response_data)
        if ended["status"] == SUCCEEDED:
            self._ledger.settle_succeeded(self._message, self.claim, ended["result"])
            return
        # A retry that is due at once may be claimed by another worker before this one has noted that it waits; a dead
        # letter may be redriven as soon. Nothing is left to note, and the message can be given up.
        with suppress(NextHasBegun):
            if ended["status"] == WAITING:
                self._ledger.settle_waiting(self._message, self.claim, ended["due"])
            else:
                self._ledger.settle_dead_lettered(self._message, self.claim)

    def _delete_record(self, data_record: DataRecord) -> None:
        """Nothing: what a failed attempt has come to stands in the row, and its lease ends by itself."""

    def _get_record(self, idempotency_key: str) -> DataRecord:
        # Asked only if a refused claim said nothing of the row, which it always does.
        raise IdempotencyItemNotFoundError(idempotency_key)


class OutcomeSerializer(BaseIdempotencySerializer):
    """What of an outcome goes into the row, and what who asks again is told."""

    def to_dict(self, data: Outcome) -> dict[str, Any]:
        match data:
            case Succeeded(result):
                return {"status": SUCCEEDED, "result": as_text(result)}
            case Retrying(booked):
                return {"status": WAITING, "due": booked.due}
            case _:
                return {"status": DEAD_LETTERED}

    def from_dict(self, data: dict[str, Any]) -> Outcome:
        return Repeated(**data)


RESULT_LENGTH = 32_768  # characters; a row is read and written whole, so its size is its price


def as_text(result: Any) -> str:
    """A result as JSON. The work is done, so no result may keep that from being noted."""
    try:
        text = json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({"left_out": f"the result, a {type(result).__name__}, is not JSON"})
    if len(text) > RESULT_LENGTH:
        return json.dumps({"left_out": f"the result has {len(text)} characters, above {RESULT_LENGTH}"})
    return text
