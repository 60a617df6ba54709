"""What the designs ask of DynamoDB, from the sizes of their items. Pure; units, bytes, seconds, US dollars.

A transaction writes each item twice, to prepare it and to commit it (DynamoDB guide, "DynamoDB Transactions: How it
works"); the other rules are write_units'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from slotkeeper.slots.names import execution_name
from slotkeeper_cli.write_units import (
    KB,
    LARGE_QUEUED_WRITES,
    QUEUED_WRITES,
    demand,
    item_bytes,
    process_item,
    write_units,
)

Names = tuple[str, str]  # of a process and of its job

SHORT: Names = ("sample", "sample")
LONG: Names = ("p" * 47, "j" * 47)
HEARTBEAT = 5.0  # seconds between two writes by which python-dynamodb-lock keeps a lock, its default
# Of a million, on demand, in us-east-1: docs/costs.md.
WRITE_DOLLARS, READ_DOLLARS = 0.625, 0.125
_MOMENT = "2026-11-22T12:00:00.000Z"


@cache
def ours(names: Names, holders: int) -> int:
    """Write units of our cycle, beside so many who hold a slot all the time."""
    before = process_item(*names, holders, queued=False)
    after = process_item(*names, holders + 1, queued=False)
    reserved = {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1789999999"}}}
    held = {**before["holders"]["M"], execution_name(names[0], "me", 1): reserved}
    sizes = [item_bytes(item) for item in (before, {**after, "holders": {"M": held}}, after)]
    return write_units(sizes[0], sizes[1]) + write_units(sizes[1], sizes[2]) + write_units(sizes[2], sizes[0])


@dataclass(frozen=True)
class Sizes:
    """Of a process's item, and the units of a write and of a consistent read of it."""

    bytes: int
    write: int
    read: int


@cache
def sizes(names: Names, holders: int) -> Sizes:
    """With so many holders, and somebody who waits."""
    size = demand(*names, holders).bytes
    return Sizes(size, write_units(size, size), -(-size // (4 * KB)))


@cache
def counter(names: Names, holders: int) -> int:
    """Write units of the sample's cycle, if its owners' names were as short as ours; it confirms nothing."""
    before, after = (_counter_bytes(names, owners) for owners in (holders, holders + 1))
    return 2 * write_units(before, after)


def counter_look(names: Names, holders: int) -> float:
    """Read units of the sample's look after a refusal, which is not a consistent one: half of those."""
    return -(-_counter_bytes(names, holders) // (4 * KB)) / 2


def transaction(names: Names, _: int) -> int:
    """Write units of a cycle of two transactions and an update, whatever the number of holders."""
    count = write_units(item_bytes({"process_name": {"S": names[0]}, "slots_in_use": {"N": "500"}}), 0)
    held = {"process_name": {"S": execution_name(names[0], "me", 1)}, "job": {"S": names[1]}}
    holder = write_units(item_bytes(held), 0)
    return 2 * (count + holder) + holder + 2 * (count + holder)


def lock_client(job_seconds: float) -> float:
    """Write units of a lock that is taken, kept alive while a job runs, and given back. Each try reads, too."""
    return 2 + job_seconds // HEARTBEAT


def dearer_than(units: Callable[[Names, int], float], names: Names, bound: float, most: int = 500) -> int | None:
    """From how many holders on a cycle takes more units than `bound`; None if not up to `most`."""
    return next((holders for holders in range(most + 1) if units(names, holders) > bound), None)


@dataclass(frozen=True)
class Looking:
    """A request that had to wait once, at a process all of whose slots are taken, both ways.

    In both it is refused, registered, reserved, confirmed and released; the read after the hide and the one of the wake
    are left out, since they are the same.

    Args:
        written: write units where the refusal is a write.
        looked: write units where it is a read.
        read: read units of the two looks of `looked`, the one that refuses and the one before the reserve.
    """

    written: int
    looked: int
    read: int

    @property
    def dollars(self) -> tuple[float, float]:
        """Of a million such requests, both ways."""
        return self.written * WRITE_DOLLARS, self.looked * WRITE_DOLLARS + self.read * READ_DOLLARS


def looking(names: Names, slots: int) -> Looking:
    """What looking before writing is worth."""
    item = sizes(names, slots)
    return Looking(QUEUED_WRITES * item.write, LARGE_QUEUED_WRITES * item.write, 2 * item.read)


def _counter_bytes(names: Names, owners: int) -> int:
    item = {"LockName": {"S": names[0]}, "currentlockcount": {"N": str(owners)}}
    return item_bytes(item) + owners * item_bytes({execution_name(names[0], "me", 1): {"S": _MOMENT}})
