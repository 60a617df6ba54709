"""How many requests of a process can start each second: by the write units of its item, and by its message groups.

A write consumes a unit for each KB of the whole item, however little it changes. All holders of a process are in one
item, one item is in one partition, and a partition serves 1,000 write units a second. SQS delivers the next message of
a group only after the starter has deleted the one before. Both bound how many slots a process can reserve each second,
and so how short jobs can be if they are to keep all slots busy.

Sources, pages of the DynamoDB developer guide: "DynamoDB item sizes and formats" (sizes), "DynamoDB read and write
operations" (units; a write whose condition fails consumes as many), "Quotas in Amazon DynamoDB" (a partition).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slotkeeper.slots.process import MAX_TOKEN_BYTES, Process
from slotkeeper.slots.protocol import PRECHECK_FROM_HOLDERS
from slotkeeper.slots.request import DEFAULT_PRIORITY, execution_name

KB = 1024
PARTITION_UNITS = 1000  # write units a second
CYCLE_WRITES = 3  # reserve, confirm, release
QUEUED_WRITES = 5  # of a request that waited: also a refused reserve and a registration
# With PRECHECK_FROM_HOLDERS or a default weight: a read takes the place of the refused reserve.
LARGE_QUEUED_WRITES = 4
# Starts of one message group a second, one after the other, in a model in which a delivery takes 20 to 100 ms and a
# call 5 to 15 ms; with 50 to 200 ms and 10 to 30 ms it is 6.
GROUP_STARTS = 12.0
USUAL_JOB = 60.0  # seconds: Glue bills at least a minute (AWS Glue pricing), so most runs take longer

# Characters of a FIFO queue's receipt handle, as observed. The API allows 1,024.
RECEIPT_HANDLE = 412
_REQUEST_ID = 36  # characters of a UUID
_SEQUENCE = 40  # characters, as Delivery.sortable_sequence writes it
_QUEUE_URL = 94  # characters, with a queue's name as CloudFormation makes it
_MILLISECONDS = 13  # digits of a time since the epoch
_A_TIME = {"N": "1789999999"}  # seconds since the epoch; zeros at the end would make it smaller


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size of an item in DynamoDB's own form, in bytes. The guide calls the size of numbers an approximation."""
    return sum(_text(name) + _value(value) for name, value in item.items())


def write_units(before: int, after: int) -> int:
    """The units of a write to an item, from the larger of its sizes before and after; 0 if there is no item.

    A write in a transaction consumes twice as many.
    """
    return max(1, -(-max(before, after) // KB))


def process_item(
    process: str, target: str, holders: int, *, queued: bool, weight: int = 1, token_bytes: int = 0
) -> dict[str, Any]:
    """The item of a process whose slots are all in use, in DynamoDB's own form.

    All holders are confirmed, which makes them larger than reservations.

    Args:
        queued: a request waits.
        weight: of each holder, the default weight of the process.
        token_bytes: of each holder's task token; 0 without callers that wait.
    """
    weights = {} if weight == 1 else {"weight": {"N": str(weight)}}
    token = {"task_token": {"S": "t" * token_bytes}} if token_bytes else {}
    holder = {"M": {"state": {"S": "RUNNING"}, "since": _A_TIME, "job": {"S": target}, **weights, **token}}
    names = [execution_name(process, str(number), 1) for number in range(holders)]
    item: dict[str, Any] = {
        "process_name": {"S": process},
        "slot_limit": {"N": str(holders * weight)},
        "slots_in_use": {"N": str(holders * weight)},
        "holders": {"M": dict.fromkeys(names, holder)},
        "target": {"S": target},
        "run_settings": {"M": {}},
        "queue_url": {"S": "u" * _QUEUE_URL},
        "waiting": {"M": {}},
        f"turn_{DEFAULT_PRIORITY}": {"N": "1" * _MILLISECONDS},
    }
    if weights:
        item["default_weight"] = weights["weight"]
    if queued:
        item["waiting"] |= {
            "M": {
                DEFAULT_PRIORITY: {
                    "M": {
                        "receipt_handle": {"S": "h" * RECEIPT_HANDLE},
                        "sequence": {"S": "0" * _SEQUENCE},
                        "receives": {"N": "1"},
                        "priority": {"S": DEFAULT_PRIORITY},
                        "weight": {"N": "1"},
                        "since": _A_TIME,
                        "execution": {"S": execution_name(process, "", 1)},
                        "request_id": {"S": "i" * _REQUEST_ID},
                        "hidden_until": _A_TIME,
                    }
                }
            }
        }
    return item


@dataclass(frozen=True)
class Demand:
    """The write units of a process whose slots are all in use while requests wait.

    Args:
        bytes: size of its item.
        cycle_units: units of a request that is admitted immediately.
        queued_units: units of a request that waited.
        starts_a_second: maximum of the item's partition, for requests that waited.
        group_starts: the same for requests of one priority.
        shortest_job: seconds. Jobs that take less cannot keep all slots busy with requests of one priority.
    """

    slots: int
    bytes: int
    cycle_units: int
    queued_units: int
    starts_a_second: float
    group_starts: float
    shortest_job: float


def demand(process: str, target: str, slots: int, weight: int = 1, token_bytes: int = 0) -> Demand:
    """The demand of a process with these names, this number of holders, default weight and bytes of task tokens."""
    size = item_bytes(process_item(process, target, slots, queued=True, weight=weight, token_bytes=token_bytes))
    units = write_units(size, size)
    reads_first = slots >= PRECHECK_FROM_HOLDERS or weight > 1
    queued = (LARGE_QUEUED_WRITES if reads_first else QUEUED_WRITES) * units
    starts = PARTITION_UNITS / queued
    of_group = min(starts, GROUP_STARTS)
    return Demand(slots, size, CYCLE_WRITES * units, queued, starts, of_group, slots / of_group)


def size_problems(process: Process, slots: int, run_seconds: float | None = None) -> list[str]:
    """Why the process's jobs cannot keep all of its slots busy, and what to do; empty if they can.

    Args:
        slots: the most holders that it may have.
        run_seconds: how long its jobs usually take. None: not known, so a minute.
    """
    token_bytes = max((len(holder.task_token) for holder in process.holders.values()), default=0)
    fitting = MAX_TOKEN_BYTES // token_bytes if token_bytes else slots
    problems = []
    if fitting < slots:
        problems.append(
            f"process {process.name} has {slots} slots, but the task tokens of only {fitting} callers fit into its "
            f"item if each has {token_bytes:,} bytes; the requests of further callers wait: for more callers divide it "
            "into processes of fewer slots"
        )
    tokens = min(token_bytes, MAX_TOKEN_BYTES // max(1, slots))
    needed = demand(process.name, process.target, slots, process.default_weight, tokens)
    if needed.shortest_job <= (USUAL_JOB if run_seconds is None else run_seconds):
        return problems
    bound = f"is an item of {needed.bytes / KB:.0f} KB, which DynamoDB can write for"
    if needed.group_starts < needed.starts_a_second:
        bound = "has requests of one priority start one after the other,"
    known = "" if run_seconds is None else f" (they usually take {run_seconds:.0f} s)"
    return [
        *problems,
        f"process {process.name} with {slots} holders {bound} at most {needed.group_starts:.1f} starts a second, so "
        f"jobs under {needed.shortest_job:.0f} s{known} cannot keep all its slots busy: for such jobs divide it into "
        "processes of fewer slots",
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
