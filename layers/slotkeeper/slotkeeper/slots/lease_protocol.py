"""The steps of a lease: conditional writes on the item of its process, next to the steps of protocol.py.

A lease is a holder without an execution: {state: LEASED, since, until, code, weight}. No service knows whether its code
still runs, so it is judged by its end alone: CLOCK_SKEW_SECONDS seconds after `until` any caller may remove it.

    take      takes a slot, if one is free, the process is not paused, and no registered request counts
    take over removes an expired lease and adds one's own in one write, if the expired one is unchanged
    extend    moves `until` later
    release   frees the slot
    remove    frees the slot of an expired lease without taking it: janitor, starter, refused callers

Extend and release require the lease's code, and remove and take over require the entry as it was read. So of an
extension and a removal at the same time one is refused, and a late exit frees no slot of another lease:

1. The block of lease A ends late. Lease B has taken over A's slot.
2. A's release finds no entry with A's code. It changes nothing, and its caller raises SlotLost.

Each step that frees a slot without taking it also wakes the next request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.aws.dynamodb import Table
from slotkeeper.slots.process import MAX_HOLDERS, MAX_REMOVALS, Holder, MalformedProcess, Process, read_process
from slotkeeper.slots.protocol import (
    NOT_REGISTERED,
    RELEASE_UPDATE,
    RESERVE_CONDITION,
    WEIGHT_FITS,
    AlreadyHeld,
    Candidate,
    Full,
    Granted,
    LeaseTerm,
    Misconfigured,
    Paused,
    Reservation,
    Slots,
    UnknownProcess,
    refusal,
)
from slotkeeper.slots.queues import RequestQueue
from slotkeeper.slots.rate import start
from slotkeeper.slots.request import PRIORITIES

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

TAKE_OVER_UPDATE = "REMOVE holders.#expired SET slots_in_use = slots_in_use + :more, holders.#me = :entry"
STILL_EXPIRED = "holders.#expired = :expired"
OWN_LEASE = "holders.#me.code = :code"
EXTEND_UPDATE = "SET holders.#me.#until = :until"
# A call that arrives late, after its repetition and the next extension, must not move the end back:
# 1. extend(60) loses its answer, and botocore repeats it. A minute later extend(60) moves the end again.
# 2. The first call arrives. The holder relies on the later end, and another caller would remove the lease before it.
ONLY_LATER = "holders.#me.#until < :until"

logger = logging.getLogger(__name__)


class LeaseSteps:
    """The steps of leases against one table. Errors of DynamoDB itself pass through as ClientError.

    Args:
        sqs: creates the client that wakes, when the first wake is due.
        wake_skipped: receives the name of a process whose next request could not be woken after a slot was freed. In a
            stack the janitor repeats the wake within a minute.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        dynamodb: DynamoDBClient,
        table_name: str,
        sqs: Callable[[], SQSClient],
        wake_skipped: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.slots = Slots(dynamodb, table_name)
        self._table = Table(dynamodb, table_name, "process_name")
        self._sqs = sqs
        self._wake_skipped = wake_skipped
        self._clock = clock

    def take(self, candidate: Candidate, now: float) -> Reservation:
        """Take a slot, also that of an expired lease. `now` is in seconds since the epoch.

        AlreadyHeld means that another lease has the candidate's name.
        """
        reservation = self.slots.reserve(candidate, now)
        for _ in range(MAX_REMOVALS):
            match reservation:
                case Full(seen) | Paused(seen) if expired := seen.expired_leases(now):
                    reservation = self._use_expired(candidate, seen, expired, now)
                case _:
                    break
        return self._granted_before(candidate) if isinstance(reservation, AlreadyHeld) else reservation

    def extend(self, process: str, name: str, term: LeaseTerm) -> bool:
        """Move the end to `term.until`, never to an earlier time; False if the lease was lost."""
        condition = f"{OWN_LEASE} AND {ONLY_LATER}"
        values = {":code": {"S": term.code}, ":until": {"N": str(term.until)}}
        write = self._table.update(process, EXTEND_UPDATE, condition, values, {"#me": name, "#until": "until"})
        return write.held or _code_in(write.item or self._table.read(process), name) == term.code

    def release(self, process: str, name: str, code: str, *, overran: bool = False) -> bool:
        """Free the lease's slot and wake the next request; False if the lease was lost.

        Args:
            overran: whether other callers may have removed the lease.
        """
        values = {":code": {"S": code}, ":one": {"N": "1"}}
        write = self._table.update_and_read(process, RELEASE_UPDATE, OWN_LEASE, values, {"#me": name})
        # The call before a repeated one may have freed the slot. Then nothing is known of the item at that time.
        is_released = write.held or (write.retried and not overran and _code_in(write.item, name) is None)
        if is_released:
            try:
                after = read_process(write.item)
            except MalformedProcess as error:
                logger.warning("Released a lease, but could not wake the next request: %s", error)
                return True
            if after.to_wake:
                self._wake(process, after.queue_url)
        return is_released

    def _use_expired(self, candidate: Candidate, seen: Process, expired: dict[str, Holder], now: float) -> Reservation:
        """Take over an expired lease whose slot is enough, or else remove one and reserve again."""
        for name, holder in expired.items():
            if candidate.is_admitted_by(seen.without(name)) and seen.is_due(now):
                return self._take_over(candidate, seen, name, holder, now)
        name, holder = next(iter(expired.items()))
        self.remove(seen, name, holder)
        return self.slots.reserve(candidate, now)

    def _take_over(self, candidate: Candidate, seen: Process, name: str, holder: Holder, now: float) -> Reservation:
        weight = candidate.weight_in(seen)
        entry = candidate.new_holder(now) | ({"weight": {"N": str(weight)}} if weight > 1 else {})
        paced, as_read, of_rate = start(seen, now)
        conditions = [RESERVE_CONDITION, STILL_EXPIRED, WEIGHT_FITS, as_read]
        conditions += [NOT_REGISTERED.format(priority) for priority in PRIORITIES]
        # As for a reserve of this weight, but for the item without the expired lease. A counter that has drifted below
        # the holders keeps its difference.
        missing = max(0, seen.held_weight - seen.slots_in_use)
        numbers = {
            ":more": weight - holder.weight,
            ":counted": seen.slot_limit - weight + holder.weight - missing,
            ":room": seen.slot_limit - weight + 1,
            ":most": MAX_HOLDERS + 1,
            ":limit": seen.slot_limit,
        }
        values: dict[str, Any] = {key: {"N": str(number)} for key, number in numbers.items()}
        values |= {":entry": {"M": entry}, ":expired": {"M": holder.raw}, ":false": {"BOOL": False}, **of_rate}
        names = {"#me": candidate.execution, "#expired": name}
        write = self._table.update(candidate.process, TAKE_OVER_UPDATE + paced, " AND ".join(conditions), values, names)
        if write.held:
            return Granted()
        item = write.item or self._table.read(candidate.process)
        if not item:
            return UnknownProcess()
        try:
            return refusal(candidate, read_process(item), now) or self.slots.reserve(candidate, now)
        except MalformedProcess as error:
            return Misconfigured(str(error))

    def remove(self, seen: Process, name: str, holder: Holder) -> None:
        """Free the slot of an expired lease, if it is unchanged, and wake the next request.

        The wake does not depend on the answer: botocore may have repeated the call after it was effective.
        """
        self.slots.release(seen.name, name, holder.raw)
        self._wake(seen.name, seen.queue_url)

    def _granted_before(self, candidate: Candidate) -> Reservation:
        """The answer of an earlier call was lost, if the holder of this name has the candidate's code."""
        seen = self.slots.read(candidate.process)
        holder = seen.holders.get(candidate.execution) if seen else None
        is_own = holder and candidate.lease and holder.code == candidate.lease.code
        return Granted() if is_own else AlreadyHeld()

    def _wake(self, process: str, queue_url: str) -> None:
        """Wake the next request. A failure is reported and not raised: the slot is free, and the block has ended.

        Unlike wake_next this keeps a registration whose receipt handle is outdated. Leases end in quick succession:

        1. Lease A ends, and the registered head becomes visible.
        2. Lease B ends before the head is delivered. SQS rejects the handle. If the registration was cleared,
        3. callers that poll would take both slots, and the head would wait again, until it has been received too often.

        If the message has ended, the next wake of a workflow or of the janitor clears its registration.
        """
        try:
            due = self.slots.to_wake(process, self._clock())
            if due is None:
                return
            if queue_url:
                RequestQueue(self._sqs(), queue_url).make_visible(due.waiting.receipt_handle, due.delay)
                return
            reason = "the process's item has no queue_url"
        except (ClientError, BotoCoreError) as error:
            reason = f"{type(error).__name__}: {error}"
        logger.warning("Freed a slot of %s without waking the next request: %s", process, reason)
        self._wake_skipped(process)


def _code_in(item: dict[str, Any], name: str) -> str | None:
    """The code of a lease in an item, "" for another holder of this name, None without one."""
    holder = item.get("holders", {}).get("M", {}).get(name)
    return None if holder is None else holder.get("M", {}).get("code", {}).get("S", "")
