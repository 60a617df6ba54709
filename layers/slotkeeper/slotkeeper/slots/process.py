"""A process: the item of SlotTable as a type, and the steps by which operators and deployments change it.

A process is data. Making one, or changing its limit, is a conditional write here and never a deployment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from botocore.exceptions import ClientError

from slotkeeper.slots.cancellation import Cancellation, Cancellations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_SLOT_LIMIT = 500
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
    def has_room(self) -> bool:
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
    waiting = _typed(item, "waiting", "M", default={})
    if waiting:
        # By these a later delivery takes its place, and a wake finds its message: else nobody is woken any more.
        _typed(waiting, "sequence", "S", path="waiting.")
        _whole(waiting, "receives", "waiting.")
    return Process(
        name=_typed(item, "process_name", "S"),
        slot_limit=_whole(item, "slot_limit"),
        slots_in_use=_whole(item, "slots_in_use"),
        holders={name: _read_holder(name, value) for name, value in _typed(item, "holders", "M").items()},
        paused=bool(_typed(item, "paused", "BOOL", default=False)),
        job_name=_typed(item, "job_name", "S"),
        waiting_since=_whole(waiting, "since", "waiting.") if waiting else None,
        waiting_execution=_typed(waiting, "execution", "S", default="", path="waiting.") or None,
        waiting_handle=_typed(waiting, "receipt_handle", "S", path="waiting.") if waiting else None,
        cancelled={
            name: _read_cancellation(name, value) for name, value in _typed(item, "cancelled", "M", default={}).items()
        },
    )


def _read_holder(name: str, value: Mapping[str, Any]) -> Holder:
    path = f"holders.{name}"
    raw = _typed({path: value}, path, "M")
    state = _typed(raw, "state", "S", path=f"{path}.")
    if state not in ("RESERVED", "RUNNING"):
        raise MalformedProcess(f"{path}.state must be RESERVED or RUNNING, got {state!r}")
    return Holder(
        state=state,
        since=_whole(raw, "since", f"{path}."),
        job=_typed(raw, "job", "S", default="", path=f"{path}."),
        quiet_since=_whole(raw, "quiet_since", f"{path}.") if "quiet_since" in raw else None,
        raw=raw,
    )


def _read_cancellation(name: str, value: Mapping[str, Any]) -> Cancellation:
    path = f"cancelled.{name}"
    raw = _typed({path: value}, path, "M")
    since = _whole(raw, "since", f"{path}.")
    if not 0 <= since <= _LAST_SECOND:  # people are told it as a date
        raise MalformedProcess(f"{path}.since must be seconds since the epoch, got {since}")
    return Cancellation(since, _typed(raw, "by", "S", default="", path=f"{path}."))


def _typed(item: Mapping[str, Any], attribute: str, kind: str, default: Any = None, path: str = "") -> Any:
    value = item.get(attribute)
    if value is None and default is not None:
        return default
    if value is None or kind not in value:
        raise MalformedProcess(f"{path}{attribute} must be of DynamoDB type {kind}, got {value!r}")
    return value[kind]


def _whole(item: Mapping[str, Any], attribute: str, path: str = "") -> int:
    number = _typed(item, attribute, "N", path=path)
    if not number.lstrip("-").isdecimal():
        raise MalformedProcess(f"{path}{attribute} must be a whole number, got {number}")
    return int(number)


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
        self._dynamodb = dynamodb
        self._table_name = table_name
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
        try:
            self._dynamodb.put_item(
                TableName=self._table_name, Item=item, ConditionExpression="attribute_not_exists(process_name)"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True

    def remove(self, name: str) -> Mapping[str, Any] | None:
        """Removes a process that is paused and of which nobody holds a slot; returns the item that it was.

        None, and nothing done, if it is not so.

        """
        try:
            answer = self._dynamodb.delete_item(
                TableName=self._table_name,
                Key={"process_name": {"S": name}},
                ConditionExpression="paused = :true AND size(holders) = :none",
                ExpressionAttributeValues={":true": {"BOOL": True}, ":none": {"N": "0"}},
                ReturnValues="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return None
        return answer["Attributes"]

    def set_limit(self, name: str, slot_limit: int) -> None:
        """Changes the limit. Lowered below the holders, it admits nobody until enough of them are done."""
        check_settings(name, slot_limit, "unchanged")
        self._change(name, "SET slot_limit = :limit", {":limit": {"N": str(slot_limit)}})

    def change_job(self, name: str, job_name: str, before: str) -> bool:
        """Gives the process another Glue job, if it has still the one that the caller knows; False if not."""
        check_settings(name, 0, job_name)
        names_as_known = {":job": {"S": job_name}, ":before": {"S": before}}
        try:
            self._change(name, "SET job_name = :job", names_as_known, " AND job_name = :before")
        except LookupError:
            return False
        return True

    def pause(self, name: str) -> None:
        """Admits nobody from now on; those who run go on."""
        self._change(name, "SET paused = :true", {":true": {"BOOL": True}})

    def resume(self, name: str) -> None:
        """Lifts the pause."""
        self._change(name, "REMOVE paused", {})

    def repair_counter(self, seen: Process) -> bool:
        """Sets slots_in_use to the number of holders, unless either has changed since `seen` was read."""
        try:
            self._change(
                seen.name,
                "SET slots_in_use = :held",
                {":held": {"N": str(len(seen.holders))}, ":counted": {"N": str(seen.slots_in_use)}},
                " AND slots_in_use = :counted AND size(holders) = :held",
            )
        except LookupError:
            return False
        return True

    def all(self) -> Iterator[Process | MalformedProcess]:
        """Every process, read consistently; one that cannot be read comes as the error that says why."""
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._table_name, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                try:
                    yield read_process(item)
                except MalformedProcess as error:
                    yield MalformedProcess(f"process {item['process_name'].get('S')}: {error}")

    def _change(self, name: str, update: str, values: Mapping[str, Any], and_only_if: str = "") -> None:
        request: dict[str, Any] = {
            "TableName": self._table_name,
            "Key": {"process_name": {"S": name}},
            "UpdateExpression": update,
            "ConditionExpression": f"attribute_exists(process_name){and_only_if}",
        }
        if values:
            request["ExpressionAttributeValues"] = values
        try:
            self._dynamodb.update_item(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            raise LookupError(f"there is no process {name!r} in table {self._table_name}") from error
