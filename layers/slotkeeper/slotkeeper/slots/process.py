"""A process: the item of SlotTable as a type, and the steps by which operators and deployments change it.

A process is data. Making one, or changing its limit, is a conditional write here and never a deployment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table
from slotkeeper.slots.cancellation import Cancellation, Cancellations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_SLOT_LIMIT = 500
_EXISTS = "attribute_exists(process_name)"
_LAST_SECOND = 253_402_300_799  # of the year 9999, the last of Python's dates
PROCESS_NAME = re.compile(r"[A-Za-z0-9_-]{1,47}")


class MalformedProcess(ValueError):
    """An attribute is missing or not of its type: the text names it."""


@dataclass(frozen=True)
class Holder:
    """Who holds a slot. `job` is empty until the workflow has confirmed it.

    `raw` is the map as DynamoDB keeps it, for conditions on "unchanged since".
    """

    state: Literal["RESERVED", "RUNNING"]
    since: int
    job: str
    quiet_since: int | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Process:
    """One item of SlotTable. Times are seconds since the epoch.

    `waiting_execution` is the name of who waits first; None too where a starter of an earlier version registered it.
    `waiting_handle` is the receipt handle by which it is woken, or would have been: nothing removes a registration.
    """

    name: str
    slot_limit: int
    slots_in_use: int
    holders: Mapping[str, Holder]
    paused: bool
    job_name: str
    waiting_since: int | None
    waiting_execution: str | None = None
    waiting_handle: str | None = None
    cancelled: Mapping[str, Cancellation] = field(default_factory=dict)

    @property
    def has_free_slot(self) -> bool:
        """The condition of reserve, on an item that was read."""
        return not self.paused and max(self.slots_in_use, len(self.holders)) < self.slot_limit

    @property
    def has_drifted(self) -> bool:
        return self.slots_in_use != len(self.holders)


def read_process(item: Mapping[str, Any]) -> Process:
    """An item in DynamoDB's own form as a Process.

    Raises:
        MalformedProcess: an attribute is missing or of another type. A limit stored as a string is the classic: no
            comparison across types is ever true, so the process would look full for ever.
    """
    attributes = Attributes(item)
    try:
        since, execution, handle = _read_waiting(attributes.map("waiting", Attributes({})))
        return Process(
            name=attributes.text("process_name"),
            slot_limit=attributes.whole("slot_limit"),
            slots_in_use=attributes.whole("slots_in_use"),
            holders={name: _read_holder(holder) for name, holder in attributes.map("holders").maps()},
            paused=attributes.flag("paused", False),
            job_name=attributes.text("job_name"),
            waiting_since=since,
            waiting_execution=execution,
            waiting_handle=handle,
            cancelled={
                name: _read_cancellation(name, note)
                for name, note in attributes.map("cancelled", Attributes({})).maps()
            },
        )
    except MalformedAttribute as error:
        raise MalformedProcess(str(error)) from None


def _read_waiting(waiting: Attributes) -> tuple[int | None, str | None, str | None]:
    if not waiting.raw:
        return None, None, None
    # Without these no later delivery replaces it, and no wake finds its message.
    waiting.text("sequence")
    waiting.whole("receives")
    return waiting.whole("since"), waiting.text("execution", "") or None, waiting.text("receipt_handle")


def _read_holder(holder: Attributes) -> Holder:
    return Holder(
        state=holder.parsed("state", _holder_state),
        since=holder.whole("since"),
        job=holder.text("job", ""),
        quiet_since=holder.whole("quiet_since", None),
        raw=holder.raw,
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


def check_settings(name: str, slot_limit: int, job_name: str) -> None:
    """Raises ValueError if a process of these settings could not work; the text says which and why."""
    if not PROCESS_NAME.fullmatch(name):
        raise ValueError(f"process name must be 1 to 47 of A-Z a-z 0-9 _ -, got {name!r}")
    if isinstance(slot_limit, bool) or not isinstance(slot_limit, int) or not 0 <= slot_limit <= MAX_SLOT_LIMIT:
        raise ValueError(f"slot limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {slot_limit!r}")
    if not 1 <= len(job_name) <= 255:
        raise ValueError(f"job name must be 1 to 255 characters, got {job_name!r}")


class Processes:
    """Makes and changes processes. Making room is half of it: `operations` adds the wake."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self.cancellations = Cancellations(dynamodb, table_name)

    def create(self, name: str, slot_limit: int, job_name: str, paused: bool = False) -> bool:
        """Makes a process, or leaves the one there is untouched and returns False.

        Conditional, because a put over a live item would forget its holders and admit as many again.

        Raises:
            ValueError: a setting is not valid.
        """
        check_settings(name, slot_limit, job_name)
        item: dict[str, Any] = {
            "process_name": {"S": name},
            "slot_limit": {"N": str(slot_limit)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            "job_name": {"S": job_name},
        }
        if paused:
            item["paused"] = {"BOOL": True}
        return self._table.put(item, "attribute_not_exists(process_name)").held

    def remove(self, name: str) -> Mapping[str, Any] | None:
        """Removes a process that is paused and of which nobody holds a slot; returns the item that it was.

        None, and nothing done, if it is not so.
        """
        values = {":true": {"BOOL": True}, ":none": {"N": "0"}}
        deleted = self._table.delete(name, "paused = :true AND size(holders) = :none", values)
        return deleted.item if deleted.held else None

    def set_limit(self, name: str, slot_limit: int) -> None:
        """Changes the limit. Lowered below the holders, it admits nobody until enough of them are done."""
        check_settings(name, slot_limit, "unchanged")
        self._change_existing(name, "SET slot_limit = :limit", {":limit": {"N": str(slot_limit)}})

    def change_job(self, name: str, job_name: str, before: str) -> bool:
        """Gives the process another Glue job, if it has still the one that the caller knows; False if not."""
        check_settings(name, 0, job_name)
        values = {":job": {"S": job_name}, ":before": {"S": before}}
        return self._table.update(name, "SET job_name = :job", f"{_EXISTS} AND job_name = :before", values).held

    def pause(self, name: str) -> None:
        """Admits nobody from now on; those who run go on."""
        self._change_existing(name, "SET paused = :true", {":true": {"BOOL": True}})

    def resume(self, name: str) -> None:
        """Lifts the pause."""
        self._change_existing(name, "REMOVE paused")

    def repair_counter(self, seen: Process) -> bool:
        """Sets slots_in_use to the number of holders, unless either has changed since `seen` was read."""
        values = {":held": {"N": str(len(seen.holders))}, ":counted": {"N": str(seen.slots_in_use)}}
        condition = f"{_EXISTS} AND slots_in_use = :counted AND size(holders) = :held"
        return self._table.update(seen.name, "SET slots_in_use = :held", condition, values).held

    def all(self) -> Iterator[Process | MalformedProcess]:
        """Every process, read consistently; one that cannot be read comes as the error that says why."""
        pages = self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    yield read_process(item)
                except MalformedProcess as error:
                    yield MalformedProcess(f"process {item['process_name'].get('S')}: {error}")

    def _change_existing(self, name: str, update: str, values: Mapping[str, Any] | None = None) -> None:
        if not self._table.update(name, update, _EXISTS, values).held:
            raise LookupError(f"there is no process {name!r} in table {self._table.name}")
