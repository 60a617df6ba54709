"""The token item: one DynamoDB item a token, one conditional UpdateItem a step.

    token_name      S, key
    access_token    S: the token that all instances use
    generation      N: +1 with every stored token
    stored_at       N
    refresh_seconds N: how long the lock of the stored token was held. A hint for who waits for the next one; nothing
                    goes wrong if it is
    refresh_lock    M {release_code S, expires N}: who refreshes; absent when nobody does
    refused_until   N: the API gave no token, and is left in peace until then; absent otherwise
    refused_reason  S: why
    dropped         N: the generation whose token an operator has removed

    acquire        an instance that found the token invalid  locks the refresh, if the item is still what it read
    store          holder of the lock                        stores the new token and unlocks
    refuse         holder of the lock                        states why there is no new token, and unlocks
    release        holder of the lock                        unlocks without a new token
    drop           an operator                               removes the token that was read: the next instance that
                                                             needs one refreshes it under the lock
    clear_refusal  an operator                               ends the refusal that was read early

`acquire` with the release code of an expired lock takes it over. A release code is used for one lock only: a lock that
still has the code that was read is the lock that was read, and no token was stored since. Times are seconds since the
epoch, to the millisecond; never milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ACQUIRE_UPDATE = "SET refresh_lock = :lock REMOVE refused_until, refused_reason"
STORE_UPDATE = (
    "SET access_token = :token, stored_at = :now, refresh_seconds = :seconds, "
    "generation = if_not_exists(generation, :zero) + :one REMOVE refresh_lock"
)
REFUSE_UPDATE = "SET refused_until = :until, refused_reason = :reason REMOVE refresh_lock"
RELEASE_UPDATE = "REMOVE refresh_lock"
HELD_CONDITION = "refresh_lock.release_code = :mine"
# Whatever the lock says: who holds it stores a newer token or none, and neither needs the one that goes.
DROP_UPDATE = "SET dropped = :generation REMOVE access_token"
DROP_CONDITION = "generation = :generation"
CLEAR_REFUSAL_UPDATE = "REMOVE refused_until, refused_reason"
CLEAR_REFUSAL_CONDITION = "refused_until <= :until"

# Everything but the token: what was never read stands in no output, no traceback and no log of botocore's.
STATUS_ATTRIBUTES = "generation, stored_at, refresh_lock.expires, refused_until, refused_reason, dropped"

MAX_REASON_LENGTH = 500  # characters of a reason that are kept


class MalformedToken(Exception):
    """The item is not what this page says; the text names the item and the attribute."""


@dataclass(frozen=True)
class RefreshLock:
    release_code: str
    expires: float


@dataclass(frozen=True)
class TokenItem:
    """The item as it was read. Without an item: generation 0, no token, no lock."""

    access_token: str | None = field(default=None, repr=False)  # a traceback shows no token
    generation: int = 0
    stored_at: float = 0.0
    lock: RefreshLock | None = None
    refused_until: float | None = None
    refused_reason: str = ""
    refresh_seconds: float = 0.0


@dataclass(frozen=True)
class TokenStatus:
    """The item as people may see it: without the token, and without the release code, by which one could store another.

    Times are seconds since the epoch. Before the first token the generation is 0. `has_token` is False once an operator
    has removed the token, until the next one.
    """

    generation: int = 0
    has_token: bool = False
    stored_at: float = 0.0
    lock_expires: float | None = None
    refused_until: float | None = None
    refused_reason: str = ""


class TokenTable:
    """The steps against one table. Errors of DynamoDB itself pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "token_name")

    def read(self, name: str) -> TokenItem:
        """The item, read consistently: an older one would bring back a token that is dead.

        Raises:
            MalformedToken: its attributes are not of the documented types.
        """
        return _parse(name, self._table.read(name))

    def acquire(self, name: str, seen: TokenItem, release_code: str, expires: float) -> bool:
        """Locks the refresh, if token, lock and refusal are still as `seen`; True if the lock is the caller's.

        With an unlocked item only the first of many gets it. With a locked one the caller must have found that lock
        expired, and takes it over. The refusal is compared too: else whoever looked before somebody else was refused
        would ask the API again at once.
        """
        lock = {"release_code": {"S": release_code}, "expires": _number(expires)}
        values: dict[str, Any] = {":lock": {"M": lock}, ":generation": {"N": str(seen.generation)}}
        conditions = ["generation = :generation"]
        if not seen.generation:  # absent, or somebody has set it to 0
            conditions = ["(attribute_not_exists(generation) OR generation = :generation)"]
        if seen.lock is None:
            conditions.append("attribute_not_exists(refresh_lock)")
        else:
            conditions.append("refresh_lock.release_code = :code")
            values[":code"] = {"S": seen.lock.release_code}
        if seen.refused_until is None:
            conditions.append("attribute_not_exists(refused_until)")
        else:
            conditions.append("refused_until <= :until")
            values[":until"] = _number(seen.refused_until + 0.001)  # rounding must not make it smaller than itself
        _, now = self._update(name, ACQUIRE_UPDATE, " AND ".join(conditions), values)
        # A condition that fails on one's own code is an answer lost on its way: the lock was taken by this very call.
        return now.lock is not None and now.lock.release_code == release_code

    def store(
        self, name: str, release_code: str, token: str, now: float, seconds: float = 0.0
    ) -> tuple[bool, TokenItem]:
        """Stores a new token under one's own lock: whether it is stored, and the item as it stands now.

        Args:
            seconds: for how long the lock has been held.
        """
        values = {
            ":mine": {"S": release_code},
            ":token": {"S": token},
            ":now": _number(now),
            ":seconds": _number(seconds),
            ":zero": {"N": "0"},
            ":one": {"N": "1"},
        }
        _, item = self._update(name, STORE_UPDATE, HELD_CONDITION, values)
        return item.access_token == token, item

    def refuse(self, name: str, release_code: str, until: float, reason: str) -> bool:
        """Ends one's own lock without a token. False if the lock was another's or gone."""
        values = {
            ":mine": {"S": release_code},
            ":until": _number(until),
            ":reason": {"S": reason[:MAX_REASON_LENGTH]},
        }
        return self._update(name, REFUSE_UPDATE, HELD_CONDITION, values)[0]

    def release(self, name: str, release_code: str) -> bool:
        """Ends one's own lock; the token stays. False if the lock was another's or gone."""
        return self._update(name, RELEASE_UPDATE, HELD_CONDITION, {":mine": {"S": release_code}})[0]

    def status(self, name: str) -> TokenStatus:
        """The item without the token, which is not read at all. Raises MalformedToken."""
        item = self._table.read(name, ProjectionExpression=STATUS_ATTRIBUTES)
        if "refresh_lock" in item:
            item["refresh_lock"] = {"M": {"release_code": {"S": ""}, **item["refresh_lock"].get("M", {})}}
        seen = _parse(name, item)
        dropped = item.get("dropped", {}).get("N")
        return TokenStatus(
            seen.generation,
            seen.generation > 0 and dropped != str(seen.generation),
            seen.stored_at,
            seen.lock.expires if seen.lock else None,
            seen.refused_until,
            seen.refused_reason,
        )

    def drop(self, name: str, generation: int) -> bool:
        """Removes the token of this generation, once or more often; False if another is stored by now.

        Who has it in a cache goes on with it until the API refuses it, which the next token's `POST /auth` sees to.
        """
        return self._operate(name, DROP_UPDATE, DROP_CONDITION, {":generation": {"N": str(generation)}})

    def clear_refusal(self, name: str, seen_until: float) -> bool:
        """Ends the refusal that was seen to last until then; False if it is gone, or another one stands there."""
        until = _number(seen_until + 0.001)  # as in `acquire`
        return self._operate(name, CLEAR_REFUSAL_UPDATE, CLEAR_REFUSAL_CONDITION, {":until": until})

    def _operate(self, name: str, update: str, condition: str, values: Mapping[str, Any]) -> bool:
        """A step whose answer does not bring the item, and with it the token."""
        return self._table.update(name, update, condition, values, ReturnValuesOnConditionCheckFailure="NONE").held

    def _update(self, name: str, update: str, condition: str, values: Mapping[str, Any]) -> tuple[bool, TokenItem]:
        """Whether the condition held, and the item as it stands now."""
        held, item = self._table.update_and_read(name, update, condition, values)
        return held, _parse(name, item)


def _number(seconds: float) -> dict[str, str]:
    return {"N": f"{seconds:.3f}"}


def _parse(name: str, item: Mapping[str, Any]) -> TokenItem:
    token = Attributes(item)
    try:
        lock = token.map("refresh_lock", None)
        return TokenItem(
            access_token=token.text("access_token", None),
            generation=token.whole("generation", 0),
            stored_at=token.number("stored_at", 0.0),
            lock=RefreshLock(lock.text("release_code"), lock.number("expires")) if lock else None,
            refused_until=token.number("refused_until", None),
            refused_reason=token.text("refused_reason", ""),
            refresh_seconds=token.number("refresh_seconds", 0.0),
        )
    except MalformedAttribute as error:  # without its text, which may hold the token
        raise MalformedToken(
            f"item {name!r} of the token table: {error.attribute} is not of its documented type"
        ) from None
