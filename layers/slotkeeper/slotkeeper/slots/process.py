"""A process: the item of SlotTable as a type, and the writes by which operators and deployments change it.

A process is data. Adding one, or changing its limit, is a conditional write and needs no deployment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table
from slotkeeper.slots.cancellation import Cancellation, Cancellations
from slotkeeper.slots.request import MAX_WEIGHT, PRIORITIES, Position, Priority

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# In the unit of the limit: slots, or for example DPUs if requests have weights.
MAX_SLOT_LIMIT = MAX_WEIGHT
# Each holder adds up to 200 bytes to the item, and so to the price of each write.
MAX_HOLDERS = 500
_EXISTS = "attribute_exists(process_name)"
_LAST_SECOND = 253_402_300_799  # of the year 9999, the last of Python's dates
PROCESS_NAME = re.compile(r"[A-Za-z0-9_-]{1,47}")


class MalformedProcess(ValueError):
    """An attribute is missing or has the wrong type. The message names it."""


@dataclass(frozen=True)
class Holder:
    """An execution that holds a slot. `job` is empty until the workflow has confirmed the slot.

    `weight` is in the limit's unit. `raw` is the map in DynamoDB's format, for write conditions that the holder is
    unchanged.
    """

    state: Literal["RESERVED", "RUNNING"]
    since: int
    job: str
    quiet_since: int | None
    raw: Mapping[str, Any]
    weight: int = 1


@dataclass(frozen=True)
class WaitingRequest:
    """A registration: the head of a message group that was refused a slot.

    `sequence` and `receives` order the deliveries of a group (Delivery). `since`: when the message was sent, in seconds
    since the epoch. The receipt handle may be outdated, if the message was received again or is gone.
    """

    priority: Priority
    receipt_handle: str
    sequence: str
    receives: int
    weight: int
    since: int
    execution: str
    request_id: str

    @property
    def position(self) -> Position:
        return self.sequence, self.receives


@dataclass(frozen=True)
class Process:
    """One item of SlotTable. Times are seconds since the epoch, weights in the unit of the limit.

    Attributes:
        waiting: the registered head of each priority's message group.
        tombstones: for a priority without a registration, the position of its last one.
    """

    name: str
    slot_limit: int
    slots_in_use: int
    holders: Mapping[str, Holder]
    paused: bool
    job_name: str
    default_weight: int = 1
    waiting: Mapping[Priority, WaitingRequest] = field(default_factory=dict)
    tombstones: Mapping[Priority, Position] = field(default_factory=dict)
    cancelled: Mapping[str, Cancellation] = field(default_factory=dict)

    @property
    def held_weight(self) -> int:
        """The sum of the holders' weights, which slots_in_use should be."""
        return sum(holder.weight for holder in self.holders.values())

    @property
    def has_drifted(self) -> bool:
        return self.slots_in_use != self.held_weight

    @property
    def has_free_slot(self) -> bool:
        """Whether a request of weight 1 fits now."""
        return self.fits(1)

    def fits(self, weight: int) -> bool:
        """Whether a request of this weight fits now."""
        in_use = max(self.slots_in_use, self.held_weight)
        return not self.paused and in_use + weight <= self.slot_limit and len(self.holders) < MAX_HOLDERS

    def is_blocked(self, waiting: WaitingRequest) -> bool:
        """Whether a waiting request cannot start before the limit is raised. It keeps no other request out."""
        return waiting.weight > self.slot_limit

    @property
    def blocked(self) -> list[WaitingRequest]:
        """The waiting requests that cannot start before the limit is raised, without those that were cancelled.

        None if the limit is 0: an operator has stopped the process.
        """
        if self.slot_limit == 0:
            return []
        registered = (each for each in self.waiting.values() if each.execution not in self.cancelled)
        return [each for each in registered if self.is_blocked(each)]

    @property
    def first(self) -> WaitingRequest | None:
        """The waiting request whose turn it is: the highest priority that is not blocked."""
        return next((each for each in self._counting(PRIORITIES)), None)

    @property
    def to_wake(self) -> WaitingRequest | None:
        """The waiting request whose turn it is, if it fits now, or else a cancelled one, which is dead-lettered."""
        first = self.first
        if first is not None and self.fits(first.weight):
            return first
        return next((each for each in self.waiting.values() if each.execution in self.cancelled), None)

    def admits(self, weight: int, priority: Priority, position: Position | None) -> bool:
        """Whether a reserve would succeed: the condition of `reserve`, applied to the item that was read.

        Args:
            position: of the request's delivery. None: a request without a message, which waits for all others.
        """
        if position is None:
            return self.fits(weight) and self.first is None
        own = self.waiting.get(priority)
        is_next = own is None or own.position <= position
        return self.fits(weight) and is_next and not any(self._counting(higher(priority)))

    def _counting(self, priorities: Iterable[Priority]) -> Iterator[WaitingRequest]:
        registered = (self.waiting[each] for each in priorities if each in self.waiting)
        return (each for each in registered if not self.is_blocked(each))


def higher(priority: Priority) -> tuple[Priority, ...]:
    """The priorities that come before this one."""
    return PRIORITIES[: PRIORITIES.index(priority)]


def read_process(item: Mapping[str, Any]) -> Process:
    """Parse an item in DynamoDB's format.

    Raises:
        MalformedProcess: an attribute is missing or has another type. Example: a limit stored as a string. Comparisons
            across types are never true, so the process would always look full.
    """
    attributes = Attributes(item)
    try:
        waiting, tombstones = _read_waiting(attributes.map("waiting", Attributes({})))
        return Process(
            name=attributes.text("process_name"),
            slot_limit=attributes.whole("slot_limit"),
            slots_in_use=attributes.whole("slots_in_use"),
            holders={name: _read_holder(holder) for name, holder in attributes.map("holders").maps()},
            paused=attributes.flag("paused", False),
            job_name=attributes.text("job_name"),
            default_weight=attributes.parsed_number("default_weight", _weight, 1),
            waiting=waiting,
            tombstones=tombstones,
            cancelled={
                name: _read_cancellation(name, note)
                for name, note in attributes.map("cancelled", Attributes({})).maps()
            },
        )
    except MalformedAttribute as error:
        raise MalformedProcess(str(error)) from None


def _read_waiting(
    attributes: Attributes,
) -> tuple[dict[Priority, WaitingRequest], dict[Priority, Position]]:
    waiting: dict[Priority, WaitingRequest] = {}
    tombstones: dict[Priority, Position] = {}
    for priority in PRIORITIES:
        entry = attributes.map(priority, None)
        if entry is None:
            continue
        # Without these two, no later delivery can replace the entry.
        sequence, receives = entry.text("sequence"), entry.whole("receives")
        if "receipt_handle" in entry.raw:
            waiting[priority] = read_registration(priority, entry)
        else:
            tombstones[priority] = (sequence, receives)
    return waiting, tombstones


def read_registration(priority: Priority, entry: Attributes) -> WaitingRequest:
    """Parse a registration. Raises MalformedAttribute."""
    return WaitingRequest(
        priority=priority,
        receipt_handle=entry.text("receipt_handle"),
        sequence=entry.text("sequence"),
        receives=entry.whole("receives"),
        weight=entry.parsed_number("weight", _weight),
        since=entry.whole("since"),
        execution=entry.text("execution"),
        request_id=entry.text("request_id", ""),
    )


def _weight(number: str) -> int:
    weight = int(number)
    if not 1 <= weight <= MAX_WEIGHT:
        raise ValueError
    return weight


def _read_holder(holder: Attributes) -> Holder:
    return Holder(
        state=holder.parsed("state", _holder_state),
        since=holder.whole("since"),
        job=holder.text("job", ""),
        quiet_since=holder.whole("quiet_since", None),
        raw=holder.raw,
        weight=holder.parsed_number("weight", _weight, 1),
    )


def _holder_state(text: str) -> Literal["RESERVED", "RUNNING"]:
    if text not in ("RESERVED", "RUNNING"):
        raise ValueError(f"must be RESERVED or RUNNING, got {text!r}")
    return cast(Literal["RESERVED", "RUNNING"], text)


def _read_cancellation(name: str, note: Attributes) -> Cancellation:
    since = note.whole("since")
    if not 0 <= since <= _LAST_SECOND:  # commands show it as a date
        raise MalformedAttribute(f"cancelled.{name}.since", f"must be seconds since the epoch, got {since}")
    return Cancellation(since, note.text("by", ""))


def check_settings(name: str, slot_limit: int, job_name: str, default_weight: int = 1) -> None:
    """Raise ValueError if a setting of a process is not valid. The message names the setting and the valid values."""
    if not PROCESS_NAME.fullmatch(name):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {name!r}")
    if isinstance(slot_limit, bool) or not isinstance(slot_limit, int) or not 0 <= slot_limit <= MAX_SLOT_LIMIT:
        raise ValueError(f"slot limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {slot_limit!r}")
    if isinstance(default_weight, bool) or not isinstance(default_weight, int) or not 1 <= default_weight <= MAX_WEIGHT:
        raise ValueError(f"default weight must be a whole number from 1 to {MAX_WEIGHT}, got {default_weight!r}")
    if not 1 <= len(job_name) <= 255:
        raise ValueError(f"job name must be 1 to 255 characters, got {job_name!r}")


class Processes:
    """Adds and changes processes. Changes that free a slot do not wake a waiting request here; `operations` does."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self.cancellations = Cancellations(dynamodb, table_name)

    def create(self, name: str, slot_limit: int, job_name: str, paused: bool = False, default_weight: int = 1) -> bool:
        """Add a process; return False and change nothing if it exists.

        The put is conditional, because overwriting a live item would lose its holders and admit as many again.

        Raises:
            ValueError: a setting is not valid.
        """
        check_settings(name, slot_limit, job_name, default_weight)
        item: dict[str, Any] = {
            "process_name": {"S": name},
            "slot_limit": {"N": str(slot_limit)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            "waiting": {"M": {}},
            "job_name": {"S": job_name},
        }
        if default_weight != 1:
            item["default_weight"] = {"N": str(default_weight)}
        if paused:
            item["paused"] = {"BOOL": True}
        return self._table.put(item, "attribute_not_exists(process_name)").held

    def remove(self, name: str) -> Mapping[str, Any] | None:
        """Remove a process that is paused and has no holder; return the removed item.

        Returns None and changes nothing if the process is not paused or has a holder.
        """
        values = {":true": {"BOOL": True}, ":none": {"N": "0"}}
        deleted = self._table.delete(name, "paused = :true AND size(holders) = :none", values)
        return deleted.item if deleted.held else None

    def set_limit(self, name: str, slot_limit: int) -> None:
        """Change the limit. Below slots_in_use, no request is admitted until enough holders release.

        Raises:
            ValueError: the limit is not valid.
            LookupError: the process does not exist.
        """
        check_settings(name, slot_limit, "unchanged")
        self._change_existing(name, "SET slot_limit = :limit", {":limit": {"N": str(slot_limit)}})

    def change_job(self, name: str, job_name: str, before: str) -> bool:
        """Change the process's Glue job from `before` to `job_name`; False if its job is not `before`."""
        check_settings(name, 0, job_name)
        values = {":job": {"S": job_name}, ":before": {"S": before}}
        return self._table.update(name, "SET job_name = :job", f"{_EXISTS} AND job_name = :before", values).held

    def pause(self, name: str) -> None:
        """Admit no further request. Running workflows continue. Raises LookupError."""
        self._change_existing(name, "SET paused = :true", {":true": {"BOOL": True}})

    def resume(self, name: str) -> None:
        """Lift the pause. Raises LookupError."""
        self._change_existing(name, "REMOVE paused")

    def repair_counter(self, seen: Process) -> bool:
        """Set slots_in_use to the sum of the holders' weights; False if either has changed since `seen` was read."""
        values = {
            ":held": {"N": str(seen.held_weight)},
            ":counted": {"N": str(seen.slots_in_use)},
            ":holders": {"M": {name: {"M": holder.raw} for name, holder in seen.holders.items()}},
        }
        # The holders themselves: their number and the counter may be the same again with other weights.
        condition = f"{_EXISTS} AND slots_in_use = :counted AND holders = :holders"
        return self._table.update(seen.name, "SET slots_in_use = :held", condition, values).held

    def all(self) -> Iterator[Process | MalformedProcess]:
        """Read every process consistently. A malformed item is yielded as its MalformedProcess error."""
        pages = self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    yield read_process(item)
                except MalformedProcess as error:
                    yield MalformedProcess(f"process {item['process_name'].get('S')}: {error}")

    def _change_existing(self, name: str, update: str, values: Mapping[str, Any] | None = None) -> None:
        if not self._table.update(name, update, _EXISTS, values).held:
            raise LookupError(f"process {name!r} does not exist in table {self._table.name}")
