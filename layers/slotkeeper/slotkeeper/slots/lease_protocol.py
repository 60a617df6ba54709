"""The steps of a lease: conditional writes on the item of its process, next to the steps of protocol.py.

A lease is a holder without an execution: {state: LEASED, since, until, code, weight}. No service knows whether its code
still runs, so it is judged by its end alone: CLOCK_SKEW_SECONDS seconds after `until` any caller may remove it.

    take      takes a slot, if one is free, the process is not paused, and no request waits that could start
    extend    moves `until` later
    release   frees the slot
    expire    frees the slot of an expired lease: janitor, dispatches, refused callers (grants.py)

Extend and release require the lease's code, and expire requires its end as it was read. So of an extension and a
removal at the same time one is refused, and a late exit frees no slot of another lease:

1. The block of lease A ends late. Its lease was removed, and lease B has its slot.
2. A's release finds no entry with A's code. It changes nothing, and its caller raises SlotLost.

In a process with a target a lease is planned as if it was the last of the queue, and its write requires the value of
`grants` of the plan. A process for leases alone has no queue, and needs no such order: the limit alone decides. Each
step that frees a slot of a process with a target also rings.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import Item, Table, Write, number
from slotkeeper.settings import MAX_WEIGHT, NO_TARGET
from slotkeeper.slots.doorbell import Bell, Doorbell
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.plan import Behind, HoldsBack, Reason, plan, plan_queue
from slotkeeper.slots.process import MAX_HOLDERS, Process, read_process
from slotkeeper.slots.protocol import RELEASE_UPDATE
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rate import start
from slotkeeper.slots.request_table import RequestTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TAKE_UPDATE = "SET slots_in_use = slots_in_use + :weight, holders.#me = :entry, grants = grants + :one"
# Of a lease of weight 1 in a process for leases alone, which was not read.
# Both counts, because a counter that has drifted must refuse rather than admit: slots_in_use may be wrong, the map not.
# `<`, not `<>`: after an operator lowers the limit below slots_in_use, `<>` would admit every lease.
UNREAD_CONDITION = (
    "attribute_not_exists(holders.#me) AND (attribute_not_exists(paused) OR paused = :false) AND target = :none "
    "AND slots_in_use < slot_limit AND size(holders) < slot_limit AND size(holders) < :most "
    "AND (attribute_not_exists(default_weight) OR default_weight = :weight) AND attribute_not_exists(rate)"
)
# A condition cannot add, so the room is computed from a read, and a changed limit refuses.
TAKE_CONDITION = (
    "attribute_not_exists(holders.#me) AND (attribute_not_exists(paused) OR paused = :false) AND target = :target "
    "AND slots_in_use <= :counted AND size(holders) <= :room AND slot_limit = :limit"
)
# Since the read a request may have come, or a start been planned.
SAME_QUEUE = "grants = :seen"
# Since the read the process may have been removed, and added again with another default weight.
SAME_DEFAULT_WEIGHT = "default_weight = :weight"
NO_DEFAULT_WEIGHT = "(attribute_not_exists(default_weight) OR default_weight = :weight)"

OWN_LEASE = "holders.#me.code = :code"
EXTEND_UPDATE = "SET holders.#me.#until = :until"
# A call that arrives late, after its repetition and the next extension, must not move the end back:
# 1. extend(60) loses its answer, and botocore repeats it. A minute later extend(60) moves the end again.
# 2. The first call arrives. The holder relies on the later end, and another caller would remove the lease before it.
ONLY_LATER = "holders.#me.#until < :until"

# Writes of one attempt to take a slot, and expired leases that it removes. Another attempt follows for a caller that
# waits.
MAX_TRIES = 20

logger = logging.getLogger(__name__)


class LeaseTerm(NamedTuple):
    """A lease's end, by the time of day (seconds since the epoch) and by the monotonic clock, and its random code.

    Only the lease's holder knows the code.
    """

    end: float
    code: str
    monotonic_end: float = math.inf

    @property
    def until(self) -> int:
        """The value in the table: rounded up, since rounding must not let another caller remove the lease early."""
        return math.ceil(self.end)

    def remaining(self, clock: float, monotonic: float) -> float:
        """Return the seconds left at these times, 0.0 after the end.

        The monotonic clock is not affected by corrections. The time of day is an upper bound, because the monotonic
        clock does not count the time for which a machine was suspended (Python documentation, time.CLOCK_BOOTTIME).
        """
        return max(0.0, min(self.monotonic_end - monotonic, self.end - clock))


@dataclass(frozen=True)
class Taken:
    """The slot is held."""


@dataclass(frozen=True)
class LeaseRefused:
    """No slot was taken. `seen`: the process as it was read last. `reason`: None if only other callers came first."""

    seen: Process = field(compare=False, repr=False)
    reason: Reason | None


@dataclass(frozen=True)
class UnknownProcess:
    """No item exists for the process. Unlike `LeaseRefused`, waiting would never end."""


class LeaseSteps:
    """The steps of leases against one table. Errors of DynamoDB itself pass through as ClientError.

    Args:
        requests: the queue of the table's processes; None in a table whose processes are for leases alone.
        doorbell: creates the doorbell when the first ring is due; it returns None if there is none.
        ring_skipped: receives the name of a process whose doorbell could not be rung after a slot was freed. The
            janitor dispatches it within a minute.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        requests: RequestTable | None = None,
        doorbell: Callable[[], Doorbell | None] = lambda: None,
        ring_skipped: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self._grants = Grants(dynamodb, table_name)
        self._requests, self._doorbell, self._ring_skipped = requests, doorbell, ring_skipped
        self._clock = clock
        self._read_first: set[str] = set()

    def take(
        self, process: str, name: str, weight: int | None, term: LeaseTerm, now: float
    ) -> Taken | LeaseRefused | UnknownProcess:
        """Take a slot, after expired leases are removed. `now` is in seconds since the epoch.

        Args:
            name: of the holder, which no other one has.
            weight: None means the process's default weight.

        Raises:
            MalformedProcess: the item's attributes are not of the documented types.
            LookupError: the process has a target, and its queue is not known.
        """
        seen: Process | None = None
        if weight not in (None, 1) or process in self._read_first:
            seen = self._grants.read(process)
            if seen is None:
                return UnknownProcess()
        reason: Reason | None = None
        for _ in range(MAX_TRIES):
            if seen is not None:
                if expired := next(iter(seen.expired_leases(now)), None):
                    self.expire(seen, expired)
                    seen = self._grants.read(process)
                    if seen is None:
                        break
                    continue
                self._remember(seen)
                if reason := self.refusal(seen, name, weight, now):
                    self._read_first.add(process)
                    return LeaseRefused(seen, reason)
            write = self._write(process, name, weight, term, seen, now)
            if write.held:
                return Taken()
            item = write.item or self._table.read(process)
            if not item:
                break
            # After a lost answer botocore repeats the call, and its own first write refuses the repetition.
            if _code_in(item, name) == term.code:
                return Taken()
            seen = read_process(item)
        return LeaseRefused(seen, reason) if seen else UnknownProcess()

    def refusal(self, seen: Process, name: str, weight: int | None, now: float) -> Reason | None:
        """Why a lease would be refused now; None if it would be granted. Raises LookupError, as `take`."""
        own = Queued(name, "", weight)
        if seen.target != NO_TARGET:
            if self._requests is None:
                raise LookupError(
                    f"process {seen.name!r} runs requests, which come before leases, and their table is not known. Set "
                    "REQUEST_TABLE_NAME and DISPATCH_QUEUE_URL. Nothing was taken"
                )
            planned, _ = plan_queue(partial(self._requests.queue, seen.name, seen.slot_limit), seen, now, age=math.inf)
            if planned.starts:
                return Behind(planned.starts[0].execution)
            if first := next((name for name, at in planned.waits.items() if isinstance(at.reason, HoldsBack)), ""):
                return Behind(first)
            if planned.unread:  # one of the rest may be first
                return Behind("")
        # The limits of keys are for requests.
        wait = plan(replace(seen, key_limit=None), [own], now, age=math.inf).waits.get(name)
        return wait.reason if wait else None

    def _remember(self, seen: Process) -> None:
        """Whether the next lease of the process reads it first: a refused write costs the item's size."""
        is_plain = seen.target == NO_TARGET and seen.default_weight == 1 and seen.rate is None
        (self._read_first.discard if is_plain else self._read_first.add)(seen.name)

    def _write(
        self, process: str, name: str, weight: int | None, term: LeaseTerm, seen: Process | None, now: float
    ) -> Write:
        weighs = weight or (seen.default_weight if seen else 1)
        entry: Item = {
            "state": {"S": "LEASED"},
            "since": number(int(now)),
            "until": number(term.until),
            "code": {"S": term.code},
        }
        if weighs > 1:
            entry["weight"] = number(weighs)
        values: Item = {":one": number(1), ":weight": number(weighs), ":entry": {"M": entry}, ":false": {"BOOL": False}}
        if seen is None:
            values |= {":none": {"S": NO_TARGET}, ":most": number(MAX_HOLDERS)}
            return self._table.update(process, TAKE_UPDATE, UNREAD_CONDITION, values, {"#me": name})
        paced, as_read, of_rate = start(seen, now)
        values |= {
            ":target": {"S": seen.target},
            ":counted": number(seen.slot_limit - weighs - seen.missing),
            ":room": number(min(seen.slot_limit - weighs, MAX_HOLDERS - 1)),
            ":limit": number(seen.slot_limit),
            **of_rate,
        }
        conditions = [TAKE_CONDITION, as_read]
        if seen.target != NO_TARGET:
            conditions.append(SAME_QUEUE)
            values[":seen"] = number(seen.grants)
        elif weight is None:
            conditions.append(NO_DEFAULT_WEIGHT if weighs == 1 else SAME_DEFAULT_WEIGHT)
        condition = " AND ".join(conditions)
        return self._table.update(process, TAKE_UPDATE + paced, condition, values, {"#me": name})

    def extend(self, process: str, name: str, term: LeaseTerm) -> bool:
        """Move the end to `term.until`, never to an earlier time; False if the lease was lost."""
        condition = f"{OWN_LEASE} AND {ONLY_LATER}"
        values = {":code": {"S": term.code}, ":until": {"N": str(term.until)}}
        write = self._table.update(process, EXTEND_UPDATE, condition, values, {"#me": name, "#until": "until"})
        return write.held or _code_in(write.item or self._table.read(process), name) == term.code

    def release(self, process: str, name: str, code: str, *, overran: bool = False) -> bool:
        """Free the lease's slot and ring; False if the lease was lost.

        Args:
            overran: whether other callers may have removed the lease.
        """
        values = {":code": {"S": code}, ":one": {"N": "1"}}
        write = self._table.update_and_read(process, RELEASE_UPDATE, OWN_LEASE, values, {"#me": name})
        # The call before a repeated one may have freed the slot. Then nothing is known of the item at that time.
        is_released = write.held or (write.retried and not overran and _code_in(write.item, name) is None)
        if is_released:
            self._ring(process, write.item.get("target", {}).get("S"))
        return is_released

    def expire(self, seen: Process, name: str) -> None:
        """Free the slot of an expired lease, if it is unchanged, and ring.

        The ring does not depend on the answer: botocore may have repeated the call after it was effective.
        """
        self._grants.expire(seen, name)
        self._ring(seen.name, seen.target)

    def _ring(self, process: str, target: str | None) -> None:
        """Ring, if a request waits. A failure is reported and not raised: the slot is free, and the block has ended.

        A request that comes after this read has a dispatch of its own. So a lease of milliseconds costs a read.
        """
        if target in (None, NO_TARGET):
            return
        try:
            waits = self._requests is None or bool(self._requests.queue(process, MAX_WEIGHT, most=1).requests)
            doorbell = self._doorbell() if waits else None
            if doorbell:
                doorbell.ring(Bell(process))
            if doorbell or not waits:
                return
            reason = "DISPATCH_QUEUE_URL is not set"
        except (ClientError, BotoCoreError) as error:
            reason = f"{type(error).__name__}: {error}"
        logger.warning("Freed a slot of %s without a dispatch: %s", process, reason)
        self._ring_skipped(process)


def _code_in(item: Item, name: str) -> str | None:
    """The code of a lease in an item, "" for another holder of this name, None without one."""
    holder = item.get("holders", {}).get("M", {}).get(name)
    return None if holder is None else holder.get("M", {}).get("code", {}).get("S", "")
