"""How many requests of a process can start each second, by the write units of its item.

A write consumes a unit for each KB of the whole item, however little it changes. All holders of a process are in one
item, one item is in one partition, and a partition serves 1,000 write units a second. This bounds how many slots a
process can reserve each second, and so how short jobs can be if they are to keep all slots busy.

Sources, pages of the DynamoDB developer guide: "DynamoDB item sizes and formats" (sizes), "DynamoDB read and write
operations" (units; a write whose condition fails consumes as many), "Quotas in Amazon DynamoDB" (a partition).
"""

from __future__ import annotations

from dataclasses import dataclass

from slotkeeper.slots.process import Process

KB = 1024
PARTITION_UNITS = 1000  # write units a second
# Grant, confirm, release. One grant may be that of many requests.
CYCLE_WRITES = 3
USUAL_JOB = 60.0  # seconds: Glue bills at least a minute (AWS Glue pricing), so most runs take longer
# Bytes without the names of the process and of its target: of an item without numbers, and of a holder in it that is
# confirmed, which makes it larger than a reservation.
_ITEM, _HOLDER = 79, 66


@dataclass(frozen=True)
class Demand:
    """The write units of a process whose slots are all in use.

    Args:
        bytes: size of its item.
        cycle_units: units of a request, at most.
        starts_a_second: maximum of the item's partition.
        shortest_job: seconds. Jobs that take less cannot keep all slots busy.
    """

    bytes: int
    cycle_units: int
    starts_a_second: float
    shortest_job: float


def demand(process: str, target: str, slots: int, weight: int = 1, key_bytes: int = 0) -> Demand:
    """The demand of a process with these names, this number of holders, this default weight and keys of this size."""
    names = len(process) + len(target)
    size = _ITEM + names + 2 * _number(slots * weight) + slots * (_HOLDER + names)
    if weight > 1:
        size += len("default_weight") + _number(weight) + slots * (1 + len("weight") + _number(weight))
    if key_bytes:
        size += slots * (1 + len("key") + key_bytes)
    units = CYCLE_WRITES * max(1, -(-size // KB))
    starts = PARTITION_UNITS / units
    return Demand(size, units, starts, slots / starts)


def key_bytes(process: Process) -> int:
    """The size of the longest key that a process has now."""
    return max((len(key.encode()) for key in {*process.held_by_key, *process.key_limits}), default=0)


def size_problems(process: Process, slots: int, run_seconds: float | None = None) -> list[str]:
    """Why the process's jobs cannot keep all of its slots busy, and what to do; empty if they can.

    Args:
        slots: the most holders that it may have.
        run_seconds: how long its jobs usually take. None: not known, so a minute.
    """
    needed = demand(process.name, process.target, slots, process.default_weight, key_bytes(process))
    if needed.shortest_job <= (USUAL_JOB if run_seconds is None else run_seconds):
        return []
    known = "" if run_seconds is None else f" (they usually take {run_seconds:.0f} s)"
    return [
        f"process {process.name} with {slots} holders is an item of {needed.bytes / KB:.0f} KB, which DynamoDB can "
        f"write for at most {needed.starts_a_second:.1f} starts a second, so jobs under {needed.shortest_job:.0f} s"
        f"{known} cannot keep all its slots busy: for such jobs divide it into processes of fewer slots"
    ]


def _number(number: int) -> int:
    """The size of a number: a byte, and one for each two significant digits, without zeros at the end."""
    return 1 + -(-len(str(number).rstrip("0")) // 2)
