"""The writes by which operators and deployments add and change processes, and cancel requests.

A process is data. Adding one, or changing its limit, is a conditional write and needs no deployment. Operations are the
commands on a process in use: one that frees a slot also wakes the waiting request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Item, Table
from slotkeeper.slots.process import (
    MAX_SLOT_LIMIT,
    MAX_TURN_SECONDS,
    PROCESS_NAME,
    TURN_SECONDS,
    Cancellation,
    MalformedProcess,
    Process,
    read_process,
)
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.queues import RequestQueue, wake_next
from slotkeeper.slots.rate import Rate, check_rate
from slotkeeper.slots.request import MAX_WEIGHT
from slotkeeper.slots.targets import NO_TARGET, check_settle_seconds, check_target, check_timeout

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_EXISTS = "attribute_exists(process_name)"
# The maps whose entries are replaced one by one, so that a change of another entry does not refuse the write.
_MAPS = ("holders", "waiting", "cancelled", "lost")
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
    turn_seconds: int = TURN_SECONDS,
    rate: Rate | None = None,
) -> None:
    """Raise ValueError if a setting of a process is not valid. The message names the setting and the valid values."""
    if not PROCESS_NAME.fullmatch(name):
        raise ValueError(f"process name must be 1 to 47 characters of A-Z a-z 0-9 _ -, got {name!r}")
    if isinstance(slot_limit, bool) or not isinstance(slot_limit, int) or not 0 <= slot_limit <= MAX_SLOT_LIMIT:
        raise ValueError(f"slot limit must be a whole number from 0 to {MAX_SLOT_LIMIT}, got {slot_limit!r}")
    if isinstance(default_weight, bool) or not isinstance(default_weight, int) or not 1 <= default_weight <= MAX_WEIGHT:
        raise ValueError(f"default weight must be a whole number from 1 to {MAX_WEIGHT}, got {default_weight!r}")
    if isinstance(turn_seconds, bool) or not isinstance(turn_seconds, int) or not 0 <= turn_seconds <= MAX_TURN_SECONDS:
        raise ValueError(f"turn must be a whole number of seconds from 0 to {MAX_TURN_SECONDS}, got {turn_seconds!r}")
    if rate is not None:
        try:
            check_rate(rate)
        except ValueError as error:
            raise ValueError(f"rate {error}") from error
    check_target(target)
    check_timeout(timeout_minutes)
    check_settle_seconds(settle_seconds, target)


class Processes:
    """Adds and changes processes. Changes that free a slot do not wake a waiting request here; `operations` does."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self.cancellations = Cancellations(dynamodb, table_name)

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
        turn_seconds: int = TURN_SECONDS,
        rate: Rate | None = None,
        queue_url: str = "",
    ) -> bool:
        """Add a process; return False and change nothing if it exists.

        The put is conditional, because overwriting a live item would lose its holders and admit as many again.

        Args:
            target: a Glue job's name, or a state machine's ARN. By default the process is for leases alone.
            timeout_minutes: minutes after which the workflow ends the work. None: the stack's parameter.
            settle_seconds: for state machines: seconds for which a slot is kept after a child execution was aborted or
                has timed out, because the work that the child started may outlive it.
            turn_seconds: for how long a turn delays the wakes of lower priorities. 0: never.
            rate: how many requests and leases may start in a time. None: any number.
            queue_url: of the queue in which the process's requests wait.

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
            turn_seconds=turn_seconds,
            rate=rate,
        )
        run_settings = {"timeout_minutes": timeout_minutes, "settle_seconds": settle_seconds}
        item: dict[str, Any] = {
            "process_name": {"S": name},
            "slot_limit": {"N": str(slot_limit)},
            "slots_in_use": {"N": "0"},
            "holders": {"M": {}},
            "waiting": {"M": {}},
            "target": {"S": target},
            # Always: the workflow's confirm reads it, and returns only attributes that it sets.
            "run_settings": {"M": {key: {"N": str(value)} for key, value in run_settings.items() if value}},
        }
        if queue_url:
            item["queue_url"] = {"S": queue_url}
        if default_weight != 1:
            item["default_weight"] = {"N": str(default_weight)}
        if turn_seconds != TURN_SECONDS:
            item["turn_seconds"] = {"N": str(turn_seconds)}
        if rate:
            item |= {"rate": rate.item, "next_start": {"N": "0"}}
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

    def set_turn(self, name: str, seconds: int) -> None:
        """Change for how long a turn delays the wakes of lower priorities; 0 switches turns off.

        Raises:
            ValueError: the number of seconds is not valid.
            LookupError: the process does not exist.
        """
        check_settings(name, 0, "unchanged", turn_seconds=seconds)
        self._change_existing(name, "SET turn_seconds = :seconds", {":seconds": {"N": str(seconds)}})

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

    def read_item(self, name: str) -> Item:
        """Read a process's item consistently, in DynamoDB's format, also if it is malformed; empty if there is none."""
        return self._table.read(name)

    def repair(self, name: str, seen: Item, repaired: Item) -> bool:
        """Replace what differs between two items; False, without effect, if any of it is not as in `seen` any more.

        A new slots_in_use also requires that the holders, whose sum it is, are those of `seen`. At most MAX_REPLACED
        entries and attributes may differ.
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
        parts = [("SET", sets), ("REMOVE", removed)]
        update = " ".join(f"{verb} {', '.join(places)}" for verb, places in parts if places)
        return self._table.update(name, update, " AND ".join(conditions), values, names).held

    def all(self) -> Iterator[Process | MalformedProcess]:
        """Read every process consistently. A malformed item is yielded as its MalformedProcess error."""
        for page in self._pages():
            for item in page["Items"]:
                try:
                    yield read_process(item)
                except MalformedProcess as error:
                    name = item["process_name"]["S"]
                    yield MalformedProcess(f"process {name}: {error}", name)

    def _pages(self) -> Iterator[Mapping[str, Any]]:
        yield from self._table.dynamodb.get_paginator("scan").paginate(TableName=self._table.name, ConsistentRead=True)

    def _change_existing(self, name: str, update: str, values: Mapping[str, Any] | None = None) -> None:
        if not self._table.update(name, update, _EXISTS, values).held:
            raise LookupError(f"process {name!r} does not exist in table {self._table.name}")


def _differences(before: Item, after: Item) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The path of each attribute that differs, or of each entry of _MAPS, with both values; None for a missing one."""
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if key in _MAPS and old and new and "M" in old and "M" in new:
            entries = sorted(old["M"].keys() | new["M"].keys())
            pairs = ((entry, old["M"].get(entry), new["M"].get(entry)) for entry in entries)
            yield from (((key, entry), *values) for entry, *values in pairs if values[0] != values[1])
        else:
            yield (key,), old, new


# Each cancellation adds up to 200 bytes to the item, and so to the price of each write.
MAX_CANCELLATIONS = 100
_LONGEST_BY = 64

CANCEL_UPDATE = "SET cancelled.#me = :entry"
# A holder is no longer queued: its workflow has started, or is about to start.
CANCEL_CONDITION = (
    "attribute_exists(process_name) AND attribute_not_exists(holders.#me) "
    "AND (attribute_exists(cancelled.#me) OR size(cancelled) < :most)"
)


class CancelOutcome(Enum):
    """The result of cancelling a request."""

    CANCELLED = auto()
    HOLDS_SLOT = auto()
    TOO_MANY = auto()  # the process has MAX_CANCELLATIONS already


class Cancellations:
    """Cancels requests while they are on RequestQueue. Errors of DynamoDB itself pass through as ClientError.

    SQS has no call that removes a message from the middle of a FIFO queue, and receiving it manually would invalidate
    the receipt handle that wakes it. Draining the queue and sending the rest again would change the order and lose
    messages in flight. So the message stays, and a cancellation is recorded in its process's item: `cancelled`,
    execution name -> {since, by}. It makes every reserve of the request fail (protocol.py), and the starter then
    dead-letters the message.

    The janitor removes a cancellation only when the queue can no longer hold the message. With an earlier removal, a
    cancelled request could start:

    1. The starter sends the message to the dead-letter queue and dies before it deletes the original.
    2. The cancellation is removed.
    3. SQS delivers the original again, and the request starts. A redrive of the dead-letter message may start it twice.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def add(self, process: str, execution: str, now: float, by: str = "") -> tuple[CancelOutcome, Item]:
        """Record that a request is cancelled, and return the outcome and the item after the write. Safe to repeat.

        Raises:
            LookupError: the process does not exist.
        """
        # Two updates: DynamoDB cannot set a key of a map that does not exist, and an item has no map at first.
        add_map = "SET cancelled = if_not_exists(cancelled, :none)"
        self._table.update(process, add_map, "attribute_exists(process_name)", {":none": {"M": {}}})
        entry = {"since": {"N": str(int(now))}} | ({"by": {"S": by[:_LONGEST_BY]}} if by else {})
        values = {":entry": {"M": entry}, ":most": {"N": str(MAX_CANCELLATIONS)}}
        names = {"#me": execution}
        added, item, _ = self._table.update_and_read(process, CANCEL_UPDATE, CANCEL_CONDITION, values, names)
        if added:
            return CancelOutcome.CANCELLED, item
        if not item:
            raise LookupError(f"process {process!r} does not exist in table {self._table.name}")
        is_holder = execution in item.get("holders", {}).get("M", {})
        return (CancelOutcome.HOLDS_SLOT if is_holder else CancelOutcome.TOO_MANY), item

    def drop_expired(self, process: str, cancellations: Mapping[str, Cancellation], now: float) -> int:
        """Remove those of these cancellations whose messages no queue holds any more; return how many."""
        expired = [(execution, each) for execution, each in cancellations.items() if each.is_expired(now)]
        return sum(self.drop(process, execution, each) for execution, each in expired)

    def drop(self, process: str, execution: str, seen: Cancellation) -> bool:
        """Remove a cancellation; False if it was repeated since it was read.

        Before it expires, call this only if an execution with the name exists: no message can start a second one.
        """
        names = {"#me": execution, "#since": "since"}
        values = {":since": {"N": str(seen.since)}}
        return self._table.update(process, "REMOVE cancelled.#me", "cancelled.#me.#since = :since", values, names).held


@dataclass(frozen=True)
class Repaired:
    """An item was repaired. `woken`: whether a waiting request was woken."""

    woken: bool


@dataclass(frozen=True)
class Operations:
    """Changes processes while they are in use. A change applies to the next reserve; running workflows continue.

    Each method raises LookupError if the process does not exist.

    Args:
        clock: seconds since the epoch.
    """

    processes: Processes
    slots: Slots
    queue: RequestQueue
    clock: Callable[[], float] = time.time

    def set_limit(self, process: str, slot_limit: int) -> bool:
        """Change the limit; True if that woke a waiting request. Raises ValueError if the limit is not valid.

        Below slots_in_use, no request is admitted until enough holders release. A waiting request whose weight is above
        the limit is blocked until it is raised.
        """
        self.processes.set_limit(process, slot_limit)
        return wake_next(self.slots, self.queue, process, self.clock())

    def set_rate(self, process: str, rate: Rate | None) -> bool:
        """Change the rate; True if that woke a waiting request. Raises ValueError if the rate is not valid."""
        self.processes.set_rate(process, rate)
        return wake_next(self.slots, self.queue, process, self.clock())

    def pause(self, process: str) -> None:
        """Admit no request until `resume`."""
        self.processes.pause(process)

    def resume(self, process: str) -> bool:
        """Lift the pause; True if that woke a waiting request."""
        self.processes.resume(process)
        return wake_next(self.slots, self.queue, process, self.clock())

    def repair(self, process: str, seen: Item, repaired: Item) -> Repaired | None:
        """Replace the malformed attributes of an item; None, without effect, if any has changed (Processes.repair).

        The message of a registration that is replaced becomes visible, so that it registers again.
        """
        if not self.processes.repair(process, seen, repaired):
            return None
        replaced = _handles(seen).items() - _handles(repaired).items()
        visible = [self.queue.make_visible(handle) for _, handle in sorted(replaced)]
        return Repaired(wake_next(self.slots, self.queue, process, self.clock()) or any(visible))

    def remove(self, process: str) -> bool:
        """Remove a paused process without holders; return False, without effect, for any other process.

        Its queued requests are dead-lettered as UnknownProcess: the heads immediately, since they are woken.
        """
        item = self.processes.remove(process)
        if item is not None:
            self._wake_to_dead_letter(item)
        return item is not None

    def cancel_request(self, process: str, execution: str, now: float, by: str = "") -> CancelOutcome:
        """Cancel a queued request. The starter dead-letters its message with the time and the operator's name.

        It does so immediately if the request is the head of the queue, else when those before it have started. Safe to
        repeat.
        """
        outcome, item = self.processes.cancellations.add(process, execution, now, by)
        if outcome is CancelOutcome.CANCELLED:
            self._wake_to_dead_letter(item, execution)
        return outcome

    def _wake_to_dead_letter(self, item: Mapping[str, Any], execution: str | None = None) -> None:
        """Wake the registered requests, or one of them, whether or not it fits: the starter dead-letters it."""
        for handle in _handles(item, execution).values():
            self.queue.make_visible(handle)


def _handles(item: Mapping[str, Any], execution: str | None = None) -> dict[str, str]:
    """The receipt handle of each registration of an item, or of one execution's, by priority. It may be malformed."""
    handles = {}
    for priority, entry in item.get("waiting", {}).get("M", {}).items():
        registration = entry.get("M", {})
        handle, registered = (registration.get(name, {}).get("S") for name in ("receipt_handle", "execution"))
        if handle and execution in (None, registered):
            handles[priority] = handle
    return handles
