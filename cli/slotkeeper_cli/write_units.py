"""What a process costs DynamoDB to write: a write is paid by the size of the whole item, however little it changes.

All holders of a process stand in one item, so a write of it uses a unit for each KB that they fill. One item lies in
one partition, and a partition serves 1,000 write units a second: together they bound how often a process's slots can
change hands, and so how short the jobs may be that shall fill them all.

Sources, pages of the DynamoDB developer guide: "DynamoDB item sizes and formats" (sizes), "DynamoDB read and write
operations" (units; a refused write is paid as one that was made), "Quotas in Amazon DynamoDB" (a partition).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS
from slotkeeper.slots.request import execution_name

KB = 1024
PARTITION_UNITS = 1000  # write units a second
CYCLE_WRITES = 3  # reserve, confirm, release
QUEUED_WRITES = 5  # where others wait: a reserve that is refused and a registration too
LARGE_QUEUED_WRITES = 4  # at a process with so many holders that a read refuses
USUAL_JOB = 60.0  # seconds: Glue bills a minute at least (AWS Glue pricing), so most runs take longer

# Of a FIFO queue, as SQS makes them: its API allows 1,024 characters, and those that it hands out have some 400.
RECEIPT_HANDLE = 412
_SEQUENCE = 40  # characters, as Delivery.sortable_sequence writes it
_A_TIME = {"N": "1789999999"}  # seconds since the epoch without a zero at the end, which would take less room


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in DynamoDB's own form, in bytes, as its writes are paid.

    The guide calls the size of numbers an approximation.
    """
    return sum(_text(name) + _value(value) for name, value in item.items())


def write_units(before: int, after: int) -> int:
    """The units of a write to an item of so many bytes before and after it; 0 stands for no item.

    The larger of the two counts. A transaction's write of the item uses twice as many.
    """
    return max(1, -(-max(before, after) // KB))


def process_item(process: str, job: str, holders: int, *, queued: bool) -> dict[str, Any]:
    """The item of a process with so many holders, in DynamoDB's own form. All are confirmed, which makes them larger.

    Args:
        queued: somebody has waited, and is still registered, as the last one always is.
    """
    holder = {"M": {"state": {"S": "RUNNING"}, "since": _A_TIME, "job": {"S": job}}}
    names = [execution_name(process, str(number), 1) for number in range(holders)]
    item: dict[str, Any] = {
        "process_name": {"S": process},
        "slot_limit": {"N": str(holders)},
        "slots_in_use": {"N": str(holders)},
        "holders": {"M": dict.fromkeys(names, holder)},
        "job_name": {"S": job},
    }
    if queued:
        item["waiting"] = {
            "M": {
                "receipt_handle": {"S": "h" * RECEIPT_HANDLE},
                "sequence": {"S": "0" * _SEQUENCE},
                "receives": {"N": "1"},
                "since": _A_TIME,
                "execution": {"S": execution_name(process, "", 1)},
            }
        }
    return item


@dataclass(frozen=True)
class Demand:
    """What a process asks of DynamoDB when all its slots are taken and others wait.

    Args:
        bytes: of its item.
        cycle_units: of a request that is admitted at once.
        queued_units: of a request that had to wait.
        starts_a_second: the most that the item's partition serves, each after a wait.
        shortest_job: seconds. Of jobs that take less, the slots cannot all be kept busy: writes are throttled.
    """

    slots: int
    bytes: int
    cycle_units: int
    queued_units: int
    starts_a_second: float
    shortest_job: float


def demand(process: str, job: str, slots: int) -> Demand:
    """The demand of a process by its names and its limit. Without slots it asks for nothing of what counts here."""
    size = item_bytes(process_item(process, job, slots, queued=True))
    units = write_units(size, size)
    queued = (LARGE_QUEUED_WRITES if slots >= PRECHECK_FROM_HOLDERS else QUEUED_WRITES) * units
    starts = PARTITION_UNITS / queued
    return Demand(slots, size, CYCLE_WRITES * units, queued, starts, slots / starts)


def size_problems(process: str, job: str, slots: int) -> list[str]:
    """Why a process may not be able to keep all of its slots busy, and what to do; nothing if usual jobs can."""
    asked = demand(process, job, slots)
    if asked.shortest_job <= USUAL_JOB:
        return []
    return [
        f"process {process} with {slots} slots is an item of {asked.bytes / KB:.0f} KB, of which DynamoDB makes "
        f"{asked.starts_a_second:.1f} starts a second at most, so jobs of less than {asked.shortest_job:.0f} s cannot "
        "keep all its slots busy: for such jobs divide it into processes of fewer slots"
    ]


def _value(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _text(content)
        case "N":
            return _number(content)
        case "B":
            return _binary(content)
        case "BOOL" | "NULL":
            return 1
        case "M":
            return 3 + sum(1 + _text(name) + _value(each) for name, each in content.items())
        case "L":
            return 3 + sum(1 + _value(each) for each in content)
        case "SS" | "NS" | "BS":
            return sum(_value({kind[0]: each}) for each in content)
        case _:
            raise ValueError(f"DynamoDB has no type {kind!r}")


def _text(text: str) -> int:
    return len(text.encode())


def _number(text: str) -> int:
    """A byte, and one for two significant digits: zeros at both ends are none. A minus takes one more."""
    number = Decimal(text).normalize()
    digits = len(number.as_tuple().digits) if number else 0
    return 1 + -(-digits // 2) + number.is_signed()


def _binary(content: bytes | str) -> int:
    return len(content if isinstance(content, bytes) else b64decode(content))
