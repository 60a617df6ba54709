"""The writes by which operators and deployments add and change processes.

A process is data. Adding one, or changing its limit, is a conditional write and needs no deployment. Operations are the
commands on a process in use: after each that may allow a start, a dispatch follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Item, Table
from slotkeeper.settings import MAX_WEIGHT, NO_TARGET
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.process import (
    MAX_SLOT_LIMIT,
    PROCESS_NAME,
    MalformedProcess,
    Process,
    read_process,
)
from slotkeeper.slots.rate import Rate, check_rate, milliseconds
from slotkeeper.slots.request import check_key
from slotkeeper.slots.targets import check_settle_seconds, check_target, check_timeout

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_EXISTS = "attribute_exists(process_name)"
KEY_LIMIT_UPDATE = "SET grants = grants + :one"
OWN_LIMIT_CONDITION = "attribute_exists(key_limits.#key) OR size(key_limits) < :most"
# Each adds up to 70 bytes to the item, and so to the price of each write.
MAX_KEY_LIMITS = 100
# Entries and attributes that one repair replaces. An expression has at most 4 KB and 300 operators (DynamoDB guide,
# "Service, account, and table quotas").
MAX_REPLACED = 50


def check_settings(
    name: str,
    slot_limit: int,
    target: str,
    default_weight: int = 1,
    *,
    timeout_minutes: int | None = None,
    settle_seconds: int = 0,
    rate: Rate | None = None,
    key_limit: int | None = None,
    key_limits: Mapping[str, int] | None = None,
) -> None:
    """Raise ValueError if a setting of a process is not valid. The message names the setting and the valid values."""
    if not PROCESS_NAME.fullmatch(name):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {name!r}")
    if not _is_limit(slot_limit):
        raise ValueError(f"slot limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {slot_limit!r}")
    if isinstance(default_weight, bool) or not isinstance(default_weight, int) or not 1 <= default_weight <= MAX_WEIGHT:
        raise ValueError(f"default weight must be a whole number from 1 to {MAX_WEIGHT}, got {default_weight!r}")
    for limit in [*([] if key_limit is None else [key_limit]), *(key_limits or {}).values()]:
        if not _is_limit(limit):
            raise ValueError(f"limit of a key must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {limit!r}")
    for key in key_limits or ():
        try:
            check_key(key)
        except ValueError as error:
            raise ValueError(f"key {error}") from error
    if rate is not None:
        try:
            check_rate(rate)
        except ValueError as error:
            raise ValueError(f"rate {error}") from error
    check_target(target)
    check_timeout(timeout_minutes)
    check_settle_seconds(settle_seconds, target)


def _is_limit(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SLOT_LIMIT


class Processes:
    """Adds and changes processes, without a dispatch; Operations ring afterwards.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, clock: Callable[[], float] = time.time) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self._clock = clock

    def create(
        self,
        name: str,
        slot_limit: int,
        target: str = NO_TARGET,
        paused: bool = False,
        default_weight: int = 1,
        *,
        timeout_minutes: int | None = None,
        settle_seconds: int = 0,
        rate: Rate | None = None,
        key_limit: int | None = None,
        key_limits: Mapping[str, int] | None = None,
    ) -> bool:
        """Add a process; return False and change nothing if it exists.

        The put is conditional, because overwriting a live item would lose its holders and admit as many again.

        Args:
            target: a Glue job's name, or a state machine's ARN. By default the process is for leases alone.
            timeout_minutes: minutes after which the workflow ends the work. None: the stack's parameter.
            settle_seconds: for state machines: seconds for which a slot is kept after a child execution was aborted or
                has timed out, because the work that the child started may outlive it.
            rate: how many requests and leases may start in a time. None: any number.
            key_limit: the limit of each key, in the unit of `slot_limit`. None: only `slot_limit` applies.
            key_limits: key -> its own limit.

        Raises:
            ValueError: a setting is not valid.
        """
        check_settings(
            name,
            slot_limit,
            target,
            default_weight,
            timeout_minutes=timeout_minutes,
            settle_seconds=settle_seconds,
            rate=rate,
            key_limit=key_limit,
            key_limits=key_limits,
        )
        run_settings = {"timeout_minutes": timeout_minutes, "settle_seconds": settle_seconds}
        item: dict[str, Any] = {
            "process_name": {"S": name},
            "slot_limit": {"N": str(slot_limit)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            # Not 0: a dispatch may still have a plan of an earlier process of this name.
            "grants": {"N": str(milliseconds(self._clock()))},
            "target": {"S": target},
            # Always: the workflow's confirm reads it, and returns only attributes that it sets.
            "run_settings": {"M": {key: {"N": str(value)} for key, value in run_settings.items() if value}},
        }
        if default_weight != 1:
            item["default_weight"] = {"N": str(default_weight)}
        if key_limit is not None:
            item["key_limit"] = {"N": str(key_limit)}
        if key_limits:
            item["key_limits"] = {"M": {key: {"N": str(limit)} for key, limit in key_limits.items()}}
        if rate:
            item |= {"rate": rate.item, "next_start": {"N": "0"}}
        if paused:
            item["paused"] = {"BOOL": True}
        return self._table.put(item, "attribute_not_exists(process_name)").held

    def remove(self, name: str) -> bool:
        """Remove a process that is paused and has no holder; False, without effect, for any other one."""
        values = {":true": {"BOOL": True}, ":none": {"N": "0"}}
        return self._table.delete(name, "paused = :true AND size(holders) = :none", values).held

    def set_limit(self, name: str, slot_limit: int) -> None:
        """Change the limit. Below slots_in_use, no request starts until enough holders release.

        A request whose weight is above the limit is blocked until it is raised.

        Raises:
            ValueError: the limit is not valid.
            LookupError: the process does not exist.
        """
        check_settings(name, slot_limit, "unchanged")
        self._change_existing(name, "SET slot_limit = :limit", {":limit": {"N": str(slot_limit)}})

    def set_key_limit(self, name: str, key_limit: int | None, key: str = "") -> None:
        """Change the limit of each key, or of one.

        It changes `grants`, because a grant that was planned with the limit before may be too much for this one.

        Args:
            key_limit: None: only the process's limit applies, or to one key the limit of each key.
            key: the key whose own limit this is. By default it is the limit of all keys that have none.

        Raises:
            ValueError: the limit or the key is not valid, or MAX_KEY_LIMITS keys have a limit of their own.
            LookupError: the process does not exist.
        """
        own = {key: key_limit or 0} if key else {}
        check_settings(name, 0, "unchanged", key_limit=key_limit, key_limits=own)
        one, limit = {":one": {"N": "1"}}, {":limit": {"N": str(key_limit)}}
        if not key:
            changed, given = (" REMOVE key_limit", {}) if key_limit is None else (", key_limit = :limit", limit)
            self._change_existing(name, f"{KEY_LIMIT_UPDATE}{changed}", {**one, **given})
            return
        # The first key needs a map.
        map_exists = f"{KEY_LIMIT_UPDATE}, key_limits = if_not_exists(key_limits, :none)"
        self._change_existing(name, map_exists, {**one, ":none": {"M": {}}})
        if key_limit is None:
            self._change_existing(name, f"{KEY_LIMIT_UPDATE} REMOVE key_limits.#key", one, {"#key": key})
            return
        values = {**one, **limit, ":most": {"N": str(MAX_KEY_LIMITS)}}
        update = f"{KEY_LIMIT_UPDATE}, key_limits.#key = :limit"
        if not self._table.update(name, update, OWN_LIMIT_CONDITION, values, {"#key": key}).held:
            raise ValueError(
                f"{MAX_KEY_LIMITS} keys of process {name!r} have a limit of their own, which is the most. Give "
                "this key the limit of all keys, or remove the limit of another one"
            )

    def set_rate(self, name: str, rate: Rate | None) -> None:
        """Change how many requests and leases may start in a time; None: any number. The count begins anew.

        Raises:
            ValueError: the rate is not valid.
            LookupError: the process does not exist.
        """
        check_settings(name, 0, "unchanged", rate=rate)
        if rate is None:
            self._change_existing(name, "REMOVE rate, next_start")
        else:
            values = {":rate": rate.item, ":zero": {"N": "0"}}
            self._change_existing(name, "SET rate = :rate, next_start = :zero", values)

    def change_target(self, name: str, target: str, before: str) -> bool:
        """Change the process's target from `before` to `target`; False if its target is not `before`."""
        check_settings(name, 0, target)
        values = {":target": {"S": target}, ":before": {"S": before}}
        return self._table.update(name, "SET target = :target", f"{_EXISTS} AND target = :before", values).held

    def pause(self, name: str) -> None:
        """Start no further request. Running workflows continue. Raises LookupError."""
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

    def read_item(self, name: str) -> Item:
        """Read a process's item consistently, in DynamoDB's format, also if it is malformed; empty if there is none."""
        return self._table.read(name)

    def repair(self, name: str, seen: Item, repaired: Item) -> bool:
        """Replace what differs between two items; False, without effect, if any of it is not as in `seen` any more.

        A new slots_in_use also requires that the holders, whose sum it is, are those of `seen`. At most MAX_REPLACED
        entries and attributes may differ. `grants` changes, because a key may have another limit or holder now.
        """
        conditions, sets, removed = [_EXISTS], list[str](), list[str]()
        names, values = dict[str, str](), dict[str, Any]()
        for number, (path, before, after) in enumerate(_differences(seen, repaired)):
            names |= {f"#{number}_{depth}": key for depth, key in enumerate(path)}
            place = ".".join(f"#{number}_{depth}" for depth in range(len(path)))
            if before is None:
                conditions.append(f"attribute_not_exists({place})")
            else:
                conditions.append(f"{place} = :seen{number}")
                values[f":seen{number}"] = before
            if after is None:
                removed.append(place)
            else:
                sets.append(f"{place} = :new{number}")
                values[f":new{number}"] = after
            if path == ("slots_in_use",) and "holders" in seen:
                conditions.append("holders = :holders")
                values[":holders"] = seen["holders"]
        if "N" in seen.get("grants", {}) and seen["grants"] == repaired.get("grants"):
            sets.append("grants = grants + :one")
            values[":one"] = {"N": "1"}
        parts = [("SET", sets), ("REMOVE", removed)]
        update = " ".join(f"{verb} {', '.join(places)}" for verb, places in parts if places)
        return self._table.update(name, update, " AND ".join(conditions), values, names).held

    def all(self) -> Iterator[Process | MalformedProcess]:
        """Read every process consistently. A malformed item is yielded as its MalformedProcess error."""
        for page in self._table.dynamodb.get_paginator("scan").paginate(
            TableName=self._table.name, ConsistentRead=True
        ):
            for item in page["Items"]:
                try:
                    yield read_process(item)
                except MalformedProcess as error:
                    name = item["process_name"]["S"]
                    yield MalformedProcess(f"process {name}: {error}", name)

    def _change_existing(
        self, name: str, update: str, values: Mapping[str, Any] | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        if not self._table.update(name, update, _EXISTS, values, names).held:
            raise LookupError(f"process {name!r} does not exist in table {self._table.name}")


def _differences(before: Item, after: Item) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The path of each attribute that differs, with both values; None for a missing one.

    Holders are compared one by one, so that a change of another one does not refuse the write.
    """
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key == "holders" and old and new and "M" in old and "M" in new:
            entries = sorted(old["M"].keys() | new["M"].keys())
            pairs = ((entry, old["M"].get(entry), new["M"].get(entry)) for entry in entries)
            yield from (((key, entry), *values) for entry, *values in pairs if values[0] != values[1])
        else:
            yield (key,), old, new


@dataclass(frozen=True)
class Operations:
    """Changes processes while they are in use. A change applies to the next grant; running workflows continue.

    Each method raises LookupError if the process does not exist. After the write it rings, so that what may start now
    does; if the ring fails, ClientError or BotoCoreError passes through, and the janitor's next run does the same.
    """

    processes: Processes
    doorbell: Doorbell

    def set_limit(self, process: str, slot_limit: int) -> None:
        """Change the limit (Processes.set_limit). Raises ValueError if it is not valid."""
        self.processes.set_limit(process, slot_limit)
        self.doorbell.ring(Bell(process))

    def set_key_limit(self, process: str, key_limit: int | None, key: str = "") -> None:
        """Change the limit of each key, or of one (Processes.set_key_limit). Raises ValueError if it is not valid."""
        self.processes.set_key_limit(process, key_limit, key)
        self.doorbell.ring(Bell(process))

    def set_rate(self, process: str, rate: Rate | None) -> None:
        """Change the rate. Raises ValueError if it is not valid."""
        self.processes.set_rate(process, rate)
        self.doorbell.ring(Bell(process))

    def pause(self, process: str) -> None:
        """Start no request until `resume`."""
        self.processes.pause(process)

    def resume(self, process: str) -> None:
        """Lift the pause."""
        self.processes.resume(process)
        self.doorbell.ring(Bell(process))

    def repair(self, process: str, seen: Item, repaired: Item) -> bool:
        """Replace the malformed attributes of an item; False, without effect, if any has changed (Processes.repair)."""
        is_repaired = self.processes.repair(process, seen, repaired)
        if is_repaired:
            self.doorbell.ring(Bell(process))
        return is_repaired

    def remove(self, process: str) -> bool:
        """Remove a paused process without holders; False, without effect, for any other process.

        Its queued requests end as REJECTED, with the code UnknownProcess. No run of the janitor visits a process that
        is gone, so a repeated command rings too.
        """
        is_removed = self.processes.remove(process)
        self.doorbell.ring(Bell(process))
        return is_removed
