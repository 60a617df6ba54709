"""The slot protocol: one DynamoDB item a process, one conditional UpdateItem a step.

    process_name   S, key
    slot_limit     N, 0..500: how many are admitted at once
    slots_in_use   N: always size(holders)
    holders        M: execution name -> {state: RESERVED or RUNNING, since, job, quiet_since}
    waiting        M: the last refused head of the queue, {receipt_handle, sequence, receives, since, execution}
    cancelled      M, absent until needed: execution name -> {since, by}, who is not to start (see cancellation.py)
    paused         BOOL: admit nobody
    job_name       S: the process's Glue job

    reserve   starter            takes a slot, if there is one
    wait      starter            leaves the receipt handle by which whoever makes room wakes this message
    confirm   workflow           RESERVED -> RUNNING; nothing runs before it
    release   workflow, janitor  gives the slot back
    cancel    starter, janitor   gives it back while it is still RESERVED
    wake      whoever made room  reads `waiting` and the counters, and makes that message visible again

The workflow performs confirm and release itself (statemachines/glue_workflow.asl.json); their expressions stand here
too, and a test holds the two together. Only a condition decides; no clock is part of the argument that there are
never more holders than slots. Times are whole seconds since the epoch.
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

# Both, because a counter that has drifted must err on the side of refusing: slots_in_use may be wrong, a map cannot.
# `<`, not `<>`: after the limit is lowered below the holders, `<>` would admit everybody.
RESERVE_UPDATE = "SET slots_in_use = slots_in_use + :one, holders.#me = :entry"
RESERVE_CONDITION = (
    "slots_in_use < slot_limit AND size(holders) < slot_limit AND attribute_not_exists(holders.#me) "
    "AND attribute_not_exists(cancelled.#me) AND (attribute_not_exists(paused) OR paused = :false)"
)

# Newer only: a duplicate delivery that was slow must not replace the handle of the delivery that came after it.
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

# Holders from which on a reserve looks first. DynamoDB charges a refused write as one that is made, a unit for each KB
# of the item; a read takes a unit for 4 KB, at a fifth of the price, and nothing of the thousand write units a second
# that one item has (DynamoDB guide, "DynamoDB read and write operations"). Below, the call more would save next to
# nothing.
PRECHECK_FROM_HOLDERS = 30


@dataclass(frozen=True)
class Granted:
    """This call made the reservation."""


@dataclass(frozen=True)
class AlreadyHeld:
    """The request holds its slot already: a redelivery, or an earlier call whose answer was lost."""


@dataclass(frozen=True)
class Full:
    """Nobody is admitted until a slot is given back."""


@dataclass(frozen=True)
class Paused:
    """Nobody is admitted until an operator lifts the pause."""


@dataclass(frozen=True)
class Cancelled:
    """An operator has cancelled the request. `since` is in seconds since the epoch; `by` is empty if nobody said."""

    since: int
    by: str


@dataclass(frozen=True)
class UnknownProcess:
    """There is no item for the process. Not the same as full: waiting would never end."""


@dataclass(frozen=True)
class Misconfigured:
    """The item is not what this page says, so conditions on it mean nothing (a limit that is a string, say)."""

    reason: str


Reservation = Granted | AlreadyHeld | Full | Paused | Cancelled | UnknownProcess | Misconfigured


class Registration(Enum):
    """What became of a refused delivery's registration."""

    REGISTERED = auto()
    RESERVE_AGAIN = auto()  # a reserve would be answered otherwise by now: a slot is free, or the process is removed
    SUPERSEDED = auto()  # a newer delivery is registered already


@dataclass(frozen=True)
class WaitingRequest:
    """The message that a wake would make visible."""

    receipt_handle: str
    sequence: str
    receives: int


class Slots:
    """The steps of the protocol against one table. Errors of DynamoDB itself pass through as ClientError.

    Args:
        large: processes that are known to have many holders.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, *, large: Iterable[str] = ()) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self._is_large = dict.fromkeys(large, True)  # by the last refusal or look

    def reserve(self, process: str, execution: str, now: float) -> Reservation:
        """Takes a slot for an execution that is about to start."""
        try:
            return self._precheck(process, execution) or self._reserve(process, execution, now)
        except ClientError as error:
            # Holders that are a list or a text have a size, and then no place for a holder.
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            reservation = self._why_refused(process, execution, {})
            if not isinstance(reservation, Misconfigured):
                raise
            return reservation

    def _precheck(self, process: str, execution: str) -> Full | Paused | None:
        """The refusal of a large process that a read can tell; None if a write has to. Only a write admits anybody."""
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

    def wait(self, process: str, execution: str, delivery: Delivery) -> Registration:
        """Registers a refused delivery to be woken. It has waited since it was sent, however often it was refused."""
        sequence = {"S": delivery.sortable_sequence}
        receives = {"N": str(delivery.receives)}
        waiting = {
            "receipt_handle": {"S": delivery.receipt_handle},
            "sequence": sequence,
            "receives": receives,
            "since": {"N": str(int(delivery.sent_at))},
            "execution": {"S": execution},
        }
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
        """Gives back a slot whose holder has not changed since the caller looked; False if it has.

        Args:
            seen: the holder's map as it was read, in DynamoDB's own form.
        """
        return self._give_back(
            process, execution, f"{RELEASE_CONDITION} AND {UNCHANGED_CONDITION}", {":seen": {"M": seen}}
        )

    def adopt(self, process: str, execution: str, since: float, job: str) -> bool:
        """Gives a running execution that stands nowhere the place that it takes; False if it holds a slot already.

        For after the table was restored or written by hand. It asks for no room: the execution runs, whether the limit
        allows it or not, and above the limit nobody else is admitted.
        """
        holder = {"state": {"S": "RUNNING"}, "since": {"N": str(int(since))}, "job": {"S": job}}
        condition = "attribute_exists(process_name) AND attribute_not_exists(holders.#me)"
        values = {":one": {"N": "1"}, ":entry": {"M": holder}}
        return self._table.update(process, RESERVE_UPDATE, condition, values, {"#me": execution}).held

    def cancel(self, process: str, execution: str) -> bool:
        """Gives back a slot that is still RESERVED; False if it is not: confirmed since, or gone."""
        return self._give_back(process, execution, CANCEL_CONDITION, {":reserved": {"S": "RESERVED"}})

    def mark_quiet(self, process: str, execution: str, seen: Mapping[str, Any], now: float | None) -> bool:
        """Notes on a holder since when no Glue run of it was seen alive, or with None that one was.

        The janitor's second look needs to know of the first, and the release must fail if anything has changed between
        them: both follow from keeping the note in the holder itself.
        """
        names = {"#me": execution}
        values: dict[str, Any] = {":seen": {"M": seen}}
        if now is None:
            update = "REMOVE holders.#me.quiet_since"
        else:
            update = "SET holders.#me.quiet_since = :now"
            # Rounded up: the gap to the second check must not be shorter than it looks.
            values[":now"] = {"N": str(math.ceil(now))}
        return self._table.update(process, update, UNCHANGED_CONDITION, values, names).held

    def remove_registration(self, process: str, receipt_handle: str) -> bool:
        """Removes a registration whose receipt handle SQS has rejected; False if another stands there by now.

        Nothing makes such a handle valid again, so no wake is lost. A message that was received since then is
        registered under its new handle before it is hidden, whether or not there is a registration before it.
        """
        values = {":handle": {"S": receipt_handle}}
        return self._table.update(process, "REMOVE waiting", "waiting.receipt_handle = :handle", values).held

    def waiting_at_free_slot(self, process: str) -> WaitingRequest | None:
        """Who waits, if there is room; the read half of a wake."""
        item = Attributes(self._table.read(process, ProjectionExpression=WAKE_PROJECTION))
        try:
            waiting = item.map("waiting", None)
            is_full = item.number("slots_in_use") >= item.number("slot_limit")
            if waiting is None or is_full or item.flag("paused", False):
                return None
            return WaitingRequest(waiting.text("receipt_handle"), waiting.text("sequence"), waiting.whole("receives"))
        except MalformedAttribute:
            return None  # the step that freed a slot must not fail over it: the janitor reports the item

    def can_proceed(self, process: str, execution: str) -> bool:
        """A consistent read of whether a reserve would be answered otherwise, or nothing would wake the request.

        Nothing but a removal of the process takes a registration away. So an item without one was removed and added
        again since `wait`, and a release there does not know of the request.
        """
        seen = self.read(process)
        if seen is None or seen.waiting_handle is None:
            return True
        return seen.has_free_slot or execution in seen.cancelled

    def read(self, process: str) -> Process | None:
        """The process's item, read consistently.

        Raises:
            MalformedProcess: the item's attributes are not of the documented types.
        """
        return self._parse(process, {})

    def _give_back(self, process: str, execution: str, condition: str, values: Mapping[str, Any]) -> bool:
        names = {"#me": execution} | ({"#state": "state"} if "#state" in condition else {})
        return self._table.update(process, RELEASE_UPDATE, condition, {":one": {"N": "1"}, **values}, names).held

    def _parse(self, process: str, item: Item) -> Process | None:
        # A refusal returns the item only if there is one, and from some engines never: so read before judging.
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
