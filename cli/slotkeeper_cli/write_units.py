"""How many requests of a process can start each second, by the write units of its item.

A write consumes a unit for each KB of the whole item, however little it changes. All holders of a process are in one
item, one item is in one partition, and a partition serves 1,000 write units a second. This bounds how many slots a
process can reserve each second, and so how short jobs can be if they are to keep all slots busy.

Sources, pages of the DynamoDB developer guide: "DynamoDB item sizes and formats" (sizes), "DynamoDB read and write
operations" (units; a write whose condition fails consumes as many), "Quotas in Amazon DynamoDB" (a partition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slotkeeper.slots.process import Process
from slotkeeper.slots.request import execution_name

KB = 1024
PARTITION_UNITS = 1000  # write units a second
# Grant, confirm, release. One grant may be that of many requests.
CYCLE_WRITES = 3
USUAL_JOB = 60.0  # seconds: Glue bills at least a minute (AWS Glue pricing), so most runs take longer

_MILLISECONDS = 13  # digits of `grants`
_A_TIME = {"N": "1789999999"}  # seconds since the epoch; zeros at the end would make it smaller


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in DynamoDB's own form, in bytes. The guide calls the size of numbers an approximation."""
    return sum(_text(name) + _value(value) for name, value in item.items())


def write_units(before: int, after: int) -> int:
    """The units of a write to an item, from the larger of its sizes before and after; 0 if there is no item.

    A write in a transaction consumes twice as many.
    """
    return max(1, -(-max(before, after) // KB))


def process_item(process: str, target: str, holders: int, *, weight: int = 1) -> dict[str, Any]:
    """The item of a process whose slots are all in use, in DynamoDB's own form.

    All holders are confirmed, which makes them larger than reservations.

    Args:
        weight: of each holder, the default weight of the process.
    """
    weights = {} if weight == 1 else {"weight": {"N": str(weight)}}
    holder = {"M": {"state": {"S": "RUNNING"}, "since": _A_TIME, "job": {"S": target}, **weights}}
    names = [execution_name(process, str(number), 1) for number in range(holders)]
    item: dict[str, Any] = {
        "process_name": {"S": process},
        "slot_limit": {"N": str(holders * weight)},
        "slots_in_use": {"N": str(holders * weight)},
        "holders": {"M": dict.fromkeys(names, holder)},
        "target": {"S": target},
        "run_settings": {"M": {}},
        "grants": {"N": "1" * _MILLISECONDS},
    }
    return item | ({"default_weight": weights["weight"]} if weights else {})


@dataclass(frozen=True)
class Demand:
    """The write units of a process whose slots are all in use.

    Args:
        bytes: size of its item.
        cycle_units: units of a request, at most.
        starts_a_second: maximum of the item's partition.
        shortest_job: seconds. Jobs that take less cannot keep all slots busy.
    """

    slots: int
    bytes: int
    cycle_units: int
    starts_a_second: float
    shortest_job: float


def demand(process: str, target: str, slots: int, weight: int = 1) -> Demand:
    """The demand of a process with these names, this number of holders and this default weight."""
    size = item_bytes(process_item(process, target, slots, weight=weight))
    units = CYCLE_WRITES * write_units(size, size)
    starts = PARTITION_UNITS / units
    return Demand(slots, size, units, starts, slots / starts)


def size_problems(process: Process, slots: int, run_seconds: float | None = None) -> list[str]:
    """Why the process's jobs cannot keep all of its slots busy, and what to do; empty if they can.

    Args:
        slots: the most holders that it may have.
        run_seconds: how long its jobs usually take. None: not known, so a minute.
    """
    needed = demand(process.name, process.target, slots, process.default_weight)
    if needed.shortest_job <= (USUAL_JOB if run_seconds is None else run_seconds):
        return []
    known = "" if run_seconds is None else f" (they usually take {run_seconds:.0f} s)"
    return [
        f"process {process.name} with {slots} holders is an item of {needed.bytes / KB:.0f} KB, which DynamoDB can "
        f"write for at most {needed.starts_a_second:.1f} starts a second, so jobs under {needed.shortest_job:.0f} s"
        f"{known} cannot keep all its slots busy: for such jobs divide it into processes of fewer slots"
    ]


def _value(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _text(content)
        case "N":
            return _number(content)
        case "BOOL":
            return 1
        case "M":
            return 3 + sum(1 + _text(name) + _value(each) for name, each in content.items())
        case _:
            raise ValueError(f"an item of SlotTable has no type {kind!r}")


def _text(text: str) -> int:
    return len(text.encode())


def _number(text: str) -> int:
    """One byte, one for each two significant digits (without zeros at either end), and one for a minus sign."""
    number = Decimal(text).normalize()
    digits = len(number.as_tuple().digits) if number else 0
    return 1 + -(-digits // 2) + number.is_signed()
