"""The token item: one DynamoDB item per token, one conditional UpdateItem per step.

    token_name      S, key
    access_token    S: the token that all instances use
    generation      N: +1 with every stored token
    stored_at       N
    refresh_seconds N: how long the lock of the stored token was held: a hint for instances that wait for the next
                    token, which may be wrong
    refresh_lock    M {release_code S, expires N}: the lock of the instance that refreshes; absent without a refresh
    refused_until   N: the API gave no token and is not asked before this time; absent otherwise
    refused_reason  S: why
    dropped         N: the generation whose token an operator has removed

    acquire        an instance that found the token invalid  locks the refresh, if the item is unchanged since it was
                                                             read
    store          holder of the lock                        stores the new token and unlocks
    refuse         holder of the lock                        records why there is no new token, and unlocks
    release        holder of the lock                        unlocks without a new token
    drop           an operator                               removes the token that was read: the next instance that
                                                             needs one refreshes it under the lock
    clear_refusal  an operator                               ends the refusal that was read before its time

`acquire` with the release code of an expired lock takes it over. Each lock has a new release code. So if the code is
unchanged since it was read, the lock is the same, and no token was stored since. Times are seconds since the epoch,
with three decimals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table, number

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
# The lock is not part of the condition: its holder stores a newer token or none, and needs the dropped one in no case.
DROP_UPDATE = "SET dropped = :generation REMOVE access_token"
DROP_CONDITION = "generation = :generation"
CLEAR_REFUSAL_UPDATE = "REMOVE refused_until, refused_reason"
CLEAR_REFUSAL_CONDITION = "refused_until <= :until"

# All attributes except the token. A value that is not read cannot appear in an output, a traceback or botocore's log.
STATUS_ATTRIBUTES = "generation, stored_at, refresh_lock.expires, refused_until, refused_reason, dropped"

MAX_REASON_LENGTH = 500  # characters of a reason that are kept


class MalformedToken(Exception):
    """The item does not have the documented types. The message names the item and the attribute, without its value."""


@dataclass(frozen=True)
class RefreshLock:
    release_code: str
    expires: float


@dataclass(frozen=True)
class TokenItem:
    """The item as it was read. If no item exists: generation 0, no token, no lock."""

    access_token: str | None = field(default=None, repr=False)  # a repr in a traceback must not contain the token
    generation: int = 0
    stored_at: float = 0.0
    lock: RefreshLock | None = None
    refused_until: float | None = None
    refused_reason: str = ""
    refresh_seconds: float = 0.0


@dataclass(frozen=True)
class TokenStatus:
    """The item for display: without the token and the release code, with which a caller could store another token.

    Times are seconds since the epoch. Before the first token the generation is 0. `has_token` is False from the time at
    which an operator removes the token until the next token is stored.
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
        """Read the item consistently, because an outdated item could contain a token that is no longer valid.

        Raises:
            MalformedToken: its attributes do not have the documented types.
        """
        return _parse(name, self._table.read(name))

    def acquire(self, name: str, seen: TokenItem, release_code: str, expires: float) -> bool:
        """Lock the refresh if token, lock and refusal are unchanged since `seen`; True if the caller has the lock.

        If several callers have read an unlocked item, the first one gets the lock. If `seen` is locked, the caller must
        have found that lock expired, and takes it over. The refusal is compared too. Otherwise a caller that read the
        item before another instance was refused would call the API again immediately.
        """
        lock = {"release_code": {"S": release_code}, "expires": number(expires)}
        values: dict[str, Any] = {":lock": {"M": lock}, ":generation": {"N": str(seen.generation)}}
        conditions = ["generation = :generation"]
        if not seen.generation:  # absent, or manually set to 0
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
            values[":until"] = number(seen.refused_until + 0.001)  # rounding must not give a smaller number
        _, now = self._update(name, ACQUIRE_UPDATE, " AND ".join(conditions), values)
        # The condition also fails if botocore retries after a lost answer. Then the lock has this call's code.
        return now.lock is not None and now.lock.release_code == release_code

    def store(
        self, name: str, release_code: str, token: str, now: float, seconds: float = 0.0
    ) -> tuple[bool, TokenItem]:
        """Store a new token under the caller's lock; return whether it is stored, and the current item.

        Args:
            seconds: how long the lock has been held.
        """
        values = {
            ":mine": {"S": release_code},
            ":token": {"S": token},
            ":now": number(now),
            ":seconds": number(seconds),
            ":zero": {"N": "0"},
            ":one": {"N": "1"},
        }
        _, item = self._update(name, STORE_UPDATE, HELD_CONDITION, values)
        return item.access_token == token, item

    def refuse(self, name: str, release_code: str, until: float, reason: str) -> bool:
        """Record a refusal and end the caller's lock; False if the caller does not hold the lock any more."""
        values = {
            ":mine": {"S": release_code},
            ":until": number(until),
            ":reason": {"S": reason[:MAX_REASON_LENGTH]},
        }
        return self._update(name, REFUSE_UPDATE, HELD_CONDITION, values)[0]

    def release(self, name: str, release_code: str) -> bool:
        """End the caller's lock without a new token; False if the caller does not hold the lock any more."""
        return self._update(name, RELEASE_UPDATE, HELD_CONDITION, {":mine": {"S": release_code}})[0]

    def status(self, name: str) -> TokenStatus:
        """Read the item without the token. Raises MalformedToken."""
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
        """Remove the token of this generation; False if a newer one is stored. Safe to repeat.

        Instances that have the token in their cache use it until the API refuses it, after the next `POST /auth`.
        """
        return self._operate(name, DROP_UPDATE, DROP_CONDITION, {":generation": {"N": str(generation)}})

    def clear_refusal(self, name: str, seen_until: float) -> bool:
        """End the refusal that lasts until `seen_until`; False if it has ended, or a later one has replaced it."""
        until = number(seen_until + 0.001)  # as in `acquire`
        return self._operate(name, CLEAR_REFUSAL_UPDATE, CLEAR_REFUSAL_CONDITION, {":until": until})

    def _operate(self, name: str, update: str, condition: str, values: Mapping[str, Any]) -> bool:
        """Make an operator's update. DynamoDB does not return the item, because it contains the token."""
        return self._table.update(name, update, condition, values, ReturnValuesOnConditionCheckFailure="NONE").held

    def _update(self, name: str, update: str, condition: str, values: Mapping[str, Any]) -> tuple[bool, TokenItem]:
        """Make an update; return whether its condition held, and the current item."""
        held, item, _ = self._table.update_and_read(name, update, condition, values)
        return held, _parse(name, item)


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
    except MalformedAttribute as error:  # without its message, which may contain the token
        raise MalformedToken(
            f"item {name!r} of the token table: {error.attribute} is not of its documented type"
        ) from None
