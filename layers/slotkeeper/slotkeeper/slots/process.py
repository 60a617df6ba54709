"""A process: the item of SlotTable as a type, and the writes by which operators and deployments change it.

A process is data. Adding one, or changing its limit, is a conditional write and needs no deployment.
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
    """An attribute is missing or has the wrong type. The message names it."""


@dataclass(frozen=True)
class Holder:
    """An execution that holds a slot. `job` is empty until the workflow has confirmed the slot.

    `raw` is the map in DynamoDB's format, for write conditions that the holder is unchanged.
    """

    state: Literal["RESERVED", "RUNNING"]
    since: int
    job: str
    quiet_since: int | None
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Process:
    """One item of SlotTable. Times are seconds since the epoch.

    `waiting_execution` and `waiting_request_id` are those of the last refused head of the queue. Each is None also if a
    starter of an earlier version registered it. `waiting_handle` is the receipt handle of its message, which may be
    outdated: a registration remains after its request has started, was cancelled or has expired.
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
    waiting_request_id: str | None = None
    cancelled: Mapping[str, Cancellation] = field(default_factory=dict)

    @property
    def has_free_slot(self) -> bool:
        """Whether a reserve would succeed: the condition of `reserve`, applied to the item that was read."""
        return not self.paused and max(self.slots_in_use, len(self.holders)) < self.slot_limit

    @property
    def has_drifted(self) -> bool:
        return self.slots_in_use != len(self.holders)


def read_process(item: Mapping[str, Any]) -> Process:
    """Parse an item in DynamoDB's format.

    Raises:
        MalformedProcess: an attribute is missing or has another type. Example: a limit stored as a string. Comparisons
            across types are never true, so the process would always look full.
    """
    attributes = Attributes(item)
    try:
        since, execution, handle, request_id = _read_waiting(attributes.map("waiting", Attributes({})))
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
            waiting_request_id=request_id,
            cancelled={
                name: _read_cancellation(name, note)
                for name, note in attributes.map("cancelled", Attributes({})).maps()
            },
        )
    except MalformedAttribute as error:
        raise MalformedProcess(str(error)) from None


def _read_waiting(waiting: Attributes) -> tuple[int | None, str | None, str | None, str | None]:
    if not waiting.raw:
        return None, None, None, None
    # Without these two, no later delivery can replace the registration, and no wake finds its message.
    waiting.text("sequence")
    waiting.whole("receives")
    execution, request_id = (waiting.text(name, "") or None for name in ("execution", "request_id"))
    return waiting.whole("since"), execution, waiting.text("receipt_handle"), request_id


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
    """Raise ValueError if a setting of a process is not valid. The message names the setting and the valid values."""
    if not PROCESS_NAME.fullmatch(name):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {name!r}")
    if isinstance(slot_limit, bool) or not isinstance(slot_limit, int) or not 0 <= slot_limit <= MAX_SLOT_LIMIT:
        raise ValueError(f"slot limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {slot_limit!r}")
    if not 1 <= len(job_name) <= 255:
        raise ValueError(f"job name must be 1 to 255 characters, got {job_name!r}")


class Processes:
    """Adds and changes processes. Changes that free a slot do not wake a waiting request here; `operations` does."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self.cancellations = Cancellations(dynamodb, table_name)

    def create(self, name: str, slot_limit: int, job_name: str, paused: bool = False) -> bool:
        """Add a process; return False and change nothing if it exists.

        The put is conditional, because overwriting a live item would lose its holders and admit as many again.

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
        """Remove a process that is paused and has no holder; return the removed item.

        Returns None and changes nothing if the process is not paused or has a holder.
        """
        values = {":true": {"BOOL": True}, ":none": {"N": "0"}}
        deleted = self._table.delete(name, "paused = :true AND size(holders) = :none", values)
        return deleted.item if deleted.held else None

    def set_limit(self, name: str, slot_limit: int) -> None:
        """Change the limit. Below the number of holders, no request is admitted until enough holders release.

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
        """Set slots_in_use to the number of holders; False if either has changed since `seen` was read."""
        values = {":held": {"N": str(len(seen.holders))}, ":counted": {"N": str(seen.slots_in_use)}}
        condition = f"{_EXISTS} AND slots_in_use = :counted AND size(holders) = :held"
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
