"""The slot protocol: one DynamoDB item per process, one conditional UpdateItem per step.

    process_name   S, key
    slot_limit     N, 0..500: the maximum number of holders
    slots_in_use   N: always size(holders)
    holders        M: execution name -> {state: RESERVED or RUNNING, since, job, quiet_since}
    waiting        M: the last refused head of the queue, {receipt_handle, sequence, receives, since, execution,
                   request_id}
    cancelled      M, optional: execution name of a cancelled request -> {since, by} (see cancellation.py)
    paused         BOOL: true refuses every reserve
    job_name       S: the process's Glue job

    reserve   starter            takes a slot, if one is free
    wait      starter            stores the receipt handle, so that the next wake can make this message visible
    confirm   workflow           RESERVED -> RUNNING; the Glue job starts only after it
    release   workflow, janitor  frees the slot
    cancel    starter, janitor   frees the slot while it is still RESERVED
    wake      after each release reads `waiting` and the counters, and makes that message visible again

The head of the queue is the first request of a process's message group. After an operator raises a limit or lifts a
pause, the operator command wakes too.

The workflow performs confirm and release itself (statemachines/glue_workflow.asl.json). Their expressions are repeated
here, and a test compares the two. The holders never exceed the limit because of write conditions alone; no clock is
part of that argument. Times are whole seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute, Table
from slotkeeper.slots.process import MalformedProcess, Process, read_process
from slotkeeper.slots.request import Delivery

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Both counts, because a counter that has drifted must refuse rather than admit: slots_in_use may be wrong, the map not.
# `<`, not `<>`: after an operator lowers the limit below the number of holders, `<>` would admit every request.
RESERVE_UPDATE = "SET slots_in_use = slots_in_use + :one, holders.#me = :entry"
RESERVE_CONDITION = (
    "slots_in_use < slot_limit AND size(holders) < slot_limit AND attribute_not_exists(holders.#me) "
    "AND attribute_not_exists(cancelled.#me) AND (attribute_not_exists(paused) OR paused = :false)"
)

# Only a newer delivery registers: a slow duplicate must not replace the receipt handle of the delivery after it.
WAIT_UPDATE = "SET waiting = :waiting"
WAIT_CONDITION = (
    "(slots_in_use >= slot_limit OR size(holders) >= slot_limit OR paused = :true) "
    "AND (attribute_not_exists(waiting) OR waiting.#sequence < :sequence "
    "OR (waiting.#sequence = :sequence AND waiting.receives < :receives))"
)

CONFIRM_UPDATE = "SET holders.#me.#state = :running, holders.#me.job = job_name"
CONFIRM_CONDITION = "attribute_exists(holders.#me)"

RELEASE_UPDATE = "SET slots_in_use = slots_in_use - :one REMOVE holders.#me"
RELEASE_CONDITION = "attribute_exists(holders.#me)"
CANCEL_CONDITION = "holders.#me.#state = :reserved"
UNCHANGED_CONDITION = "holders.#me = :seen"

WAKE_PROJECTION = "waiting, slot_limit, slots_in_use, paused"

# The number of holders from which a reserve reads before it writes. DynamoDB charges a refused write like a successful
# one, one write unit per KB of the item. A read costs one read unit per 4 KB, at a fifth of the price, and uses none of
# the 1,000 write units per second of one item (DynamoDB guide, "DynamoDB read and write operations"). With fewer
# holders the extra call would save almost nothing.
PRECHECK_FROM_HOLDERS = 30


@dataclass(frozen=True)
class Granted:
    """This call reserved the slot."""


@dataclass(frozen=True)
class AlreadyHeld:
    """The request already holds its slot: the message was redelivered, or the answer of an earlier call was lost."""


@dataclass(frozen=True)
class Full:
    """Every slot is held. Requests are admitted again after a release."""


@dataclass(frozen=True)
class Paused:
    """The process is paused. Requests are admitted again after an operator lifts the pause."""


@dataclass(frozen=True)
class Cancelled:
    """An operator has cancelled the request. `since`: seconds since the epoch. `by`: the operator, empty if unknown."""

    since: int
    by: str


@dataclass(frozen=True)
class UnknownProcess:
    """No item exists for the process. Unlike `Full`, waiting would never end."""


@dataclass(frozen=True)
class Misconfigured:
    """The item does not have the documented types, so conditions on it mean nothing. Example: a limit as a string."""

    reason: str


Reservation = Granted | AlreadyHeld | Full | Paused | Cancelled | UnknownProcess | Misconfigured


class Registration(Enum):
    """The result of registering a refused delivery."""

    REGISTERED = auto()
    RESERVE_AGAIN = auto()  # a reserve would now have another outcome: a slot is free, or the process was removed
    SUPERSEDED = auto()  # a newer delivery is already registered


@dataclass(frozen=True)
class WaitingRequest:
    """The message that a wake would make visible."""

    receipt_handle: str
    sequence: str
    receives: int


class Slots:
    """The steps of the protocol against one table. Errors of DynamoDB itself pass through as ClientError.

    Args:
        large: processes that are known to have at least PRECHECK_FROM_HOLDERS holders.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, *, large: Iterable[str] = ()) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self._is_large = dict.fromkeys(large, True)  # as of the last refusal or read

    def reserve(self, process: str, execution: str, now: float) -> Reservation:
        """Take a slot for an execution that is about to start. `now` is in seconds since the epoch."""
        try:
            return self._precheck(process, execution) or self._reserve(process, execution, now)
        except ClientError as error:
            # `holders` as a list or a string has a size, so the condition holds, but the update cannot add an entry.
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            reservation = self._why_refused(process, execution, {})
            if not isinstance(reservation, Misconfigured):
                raise
            return reservation

    def _precheck(self, process: str, execution: str) -> Full | Paused | None:
        """Refuse by a read where the process has many holders; None if a write must decide. A read never admits."""
        if not self._is_large.get(process):
            return None
        try:
            seen = self.read(process)
        except MalformedProcess:
            return None
        if seen is None or seen.has_free_slot or execution in seen.holders or execution in seen.cancelled:
            return None
        return Paused() if seen.paused else Full()

    def _reserve(self, process: str, execution: str, now: float) -> Reservation:
        entry = {"M": {"state": {"S": "RESERVED"}, "since": {"N": str(int(now))}}}
        values = {":one": {"N": "1"}, ":entry": entry, ":false": {"BOOL": False}}
        write = self._table.update(process, RESERVE_UPDATE, RESERVE_CONDITION, values, {"#me": execution})
        return Granted() if write.held else self._why_refused(process, execution, write.item)

    def wait(self, process: str, execution: str, delivery: Delivery, request_id: str = "") -> Registration:
        """Register a refused delivery, so that the next wake makes its message visible.

        `since` is the time at which the message was sent, however often the request was refused.

        Args:
            request_id: for the operator command. An execution's name is a hash, which does not contain it.
        """
        sequence = {"S": delivery.sortable_sequence}
        receives = {"N": str(delivery.receives)}
        waiting = {
            "receipt_handle": {"S": delivery.receipt_handle},
            "sequence": sequence,
            "receives": receives,
            "since": {"N": str(int(delivery.sent_at))},
            "execution": {"S": execution},
        } | ({"request_id": {"S": request_id}} if request_id else {})
        values = {
            ":waiting": {"M": waiting},
            ":sequence": sequence,
            ":receives": receives,
            ":true": {"BOOL": True},
        }
        write = self._table.update(process, WAIT_UPDATE, WAIT_CONDITION, values, {"#sequence": "sequence"})
        if write.held:
            return Registration.REGISTERED
        seen = self._parse(process, write.item)
        return Registration.RESERVE_AGAIN if seen is None or seen.has_free_slot else Registration.SUPERSEDED

    def release(self, process: str, execution: str, seen: Mapping[str, Any]) -> bool:
        """Free a slot whose holder has not changed since the caller read it; False if it has changed.

        Args:
            seen: the holder's map as it was read, in DynamoDB's format.
        """
        return self._give_back(
            process, execution, f"{RELEASE_CONDITION} AND {UNCHANGED_CONDITION}", {":seen": {"M": seen}}
        )

    def adopt(self, process: str, execution: str, since: float, job: str) -> bool:
        """Adopt a running execution: record it as a holder; False if it already holds a slot.

        For use after the table was restored or edited manually. Adopting ignores the limit, because the execution runs
        anyway. While the holders exceed the limit, no request is admitted.
        """
        holder = {"state": {"S": "RUNNING"}, "since": {"N": str(int(since))}, "job": {"S": job}}
        condition = "attribute_exists(process_name) AND attribute_not_exists(holders.#me)"
        values = {":one": {"N": "1"}, ":entry": {"M": holder}}
        return self._table.update(process, RESERVE_UPDATE, condition, values, {"#me": execution}).held

    def cancel(self, process: str, execution: str) -> bool:
        """Free a slot that is still RESERVED; False if the workflow has confirmed it, or the slot was freed."""
        return self._give_back(process, execution, CANCEL_CONDITION, {":reserved": {"S": "RESERVED"}})

    def mark_quiet(self, process: str, execution: str, seen: Mapping[str, Any], now: float | None) -> bool:
        """Record in a holder when a check first found no live Glue run of it; with None, remove the record.

        The record is part of the holder for two reasons: the janitor's second check reads the time of the first, and a
        release fails if the holder has changed between the two.
        """
        names = {"#me": execution}
        values: dict[str, Any] = {":seen": {"M": seen}}
        if now is None:
            update = "REMOVE holders.#me.quiet_since"
        else:
            update = "SET holders.#me.quiet_since = :now"
            # Rounded up: rounding must not shorten the gap to the second check.
            values[":now"] = {"N": str(math.ceil(now))}
        return self._table.update(process, update, UNCHANGED_CONDITION, values, names).held

    def remove_registration(self, process: str, receipt_handle: str) -> bool:
        """Remove a registration whose receipt handle SQS has rejected; False if a newer one has replaced it.

        A rejected handle never becomes valid again, so no wake is lost. A message that was received since then is
        registered with its new handle before the starter hides it.
        """
        values = {":handle": {"S": receipt_handle}}
        return self._table.update(process, "REMOVE waiting", "waiting.receipt_handle = :handle", values).held

    def waiting_at_free_slot(self, process: str) -> WaitingRequest | None:
        """Return the waiting request if a slot is free: the read that precedes a wake."""
        item = Attributes(self._table.read(process, ProjectionExpression=WAKE_PROJECTION))
        try:
            waiting = item.map("waiting", None)
            is_full = item.number("slots_in_use") >= item.number("slot_limit")
            if waiting is None or is_full or item.flag("paused", False):
                return None
            return WaitingRequest(waiting.text("receipt_handle"), waiting.text("sequence"), waiting.whole("receives"))
        except MalformedAttribute:
            return None  # the step that freed a slot must not fail because of it; the janitor reports the item

    def can_proceed(self, process: str, execution: str) -> bool:
        """Read consistently whether a new reserve is needed: its outcome would differ, or no wake would come.

        Between `wait` and this read, only a removal of the process removes a registration. So an item without a
        registration was removed and added again, and a release would not wake the request.
        """
        seen = self.read(process)
        if seen is None or seen.waiting_handle is None:
            return True
        return seen.has_free_slot or execution in seen.cancelled

    def read(self, process: str) -> Process | None:
        """Read the process's item consistently; None if it does not exist.

        Raises:
            MalformedProcess: the item's attributes are not of the documented types.
        """
        return self._parse(process, {})

    def _give_back(self, process: str, execution: str, condition: str, values: Mapping[str, Any]) -> bool:
        names = {"#me": execution} | ({"#state": "state"} if "#state" in condition else {})
        return self._table.update(process, RELEASE_UPDATE, condition, {":one": {"N": "1"}, **values}, names).held

    def _parse(self, process: str, item: Item) -> Process | None:
        # A refused write returns the item only if one exists, and some local engines never return it.
        item = item or self._table.read(process)
        if not item:
            return None
        seen = read_process(item)
        self._is_large[process] = len(seen.holders) >= PRECHECK_FROM_HOLDERS
        return seen

    def _why_refused(self, process: str, execution: str, item: Item) -> Reservation:
        try:
            seen = self._parse(process, item)
        except MalformedProcess as error:
            return Misconfigured(str(error))
        if seen is None:
            return UnknownProcess()
        if execution in seen.holders:
            return AlreadyHeld()
        if cancelled := seen.cancelled.get(execution):
            return Cancelled(cancelled.since, cancelled.by)
        return Paused() if seen.paused else Full()
