"""The slot protocol: one DynamoDB item per process, one conditional UpdateItem per step.

    process_name   S, key
    slot_limit     N, 0..100000: the limit, in slots or in the unit of the requests' weights, such as DPUs
    key_limit      N, optional: the limit of each key, in the unit of slot_limit
    key_limits     M, optional: key -> its own limit
    after_keys     M, optional: rank of a priority -> the key whose turn was last in it (see plan.py)
    slots_in_use   N: always the sum of the holders' weights
    holders        M: execution name -> {state: RESERVED or RUNNING, since, weight, key, job, quiet_since, redriven}, or
                   name of a lease -> {state: LEASED, since, until, code, weight}; no weight means 1, no key that the
                   request has none; job: the target, copied by confirm; short, because each write is paid by the size
                   of all holders
    paused         BOOL: true refuses every grant
    target         S: what runs in a slot: a Glue job's name, or the ARN of a state machine; "none": no request does
    run_settings   M: {timeout_minutes, settle_seconds}, each optional; the workflow's confirm returns it
    default_weight N, optional: the weight of a request that states none
    rate           M, optional: {count, seconds, burst}: at most `count` starts in `seconds` (see rate.py)
    next_start     N, with a rate: when the next start is due at the latest, in milliseconds since the epoch
    grants         N: changes with every write after which a plan of who starts next may be wrong (see grants.py)
    ring_at        N, optional: when the next timed doorbell is due

    grant     dispatch           reserves a slot for each request that starts (grants.py)
    confirm   workflow           RESERVED -> RUNNING; the Glue job starts only after it
    release   workflow           frees the slot, after the request's outcome is recorded
    free      janitor, operator  frees the slot of an execution that does not free it itself
    take      lease              takes a slot for a block of code (lease_protocol.py)

The workflow performs confirm and release itself (statemachines/slot_workflow.asl.json). Their expressions are repeated
here, and a test compares the two. The weight in use never exceeds the limit because of write conditions alone; no clock
is part of that argument. Times are whole seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slotkeeper.aws.dynamodb import Item, Table, number
from slotkeeper.slots.process import Process, read_from

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONFIRM_UPDATE = (
    "SET holders.#me.#state = :running, holders.#me.job = target, run_settings = if_not_exists(run_settings, :none)"
)
CONFIRM_CONDITION = "attribute_exists(holders.#me)"

# The operand is the weight before the removal: an update reads the item as it was (verified on DynamoDB Local).
RELEASE_UPDATE = "SET slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one) REMOVE holders.#me"
RELEASE_CONDITION = "attribute_exists(holders.#me)"

# With `grants`, since the request may still be in the queue that a dispatch has read: its end may be younger than that.
FREE_UPDATE = (
    "SET slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one), grants = grants + :one "
    "REMOVE holders.#me"
)
UNCHANGED_CONDITION = "holders.#me = :seen"
# If the holder of an ended execution was removed: a dispatch may have read the queue after that, and before the end.
NOTE_END_UPDATE = "SET grants = grants + :one"

ADOPT_UPDATE = "SET slots_in_use = slots_in_use + :weight, holders.#me = :entry, grants = grants + :one"
ADOPT_CONDITION = "attribute_exists(process_name) AND attribute_not_exists(holders.#me)"


class Slots:
    """The steps of the janitor and of operators against one table. Errors of DynamoDB pass through as ClientError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def read(self, process: str) -> Process | None:
        """Read the process's item consistently; None if it does not exist. Raises MalformedProcess."""
        return read_from(self._table, process)

    def free(self, process: str, execution: str, seen: Mapping[str, Any]) -> bool:
        """Free a slot whose holder has not changed since the caller read it; False if it has changed.

        Args:
            seen: the holder's map as it was read, in DynamoDB's format.
        """
        values = {":one": number(1), ":seen": {"M": seen}}
        return self._table.update(process, FREE_UPDATE, UNCHANGED_CONDITION, values, {"#me": execution}).held

    def note_end(self, process: str) -> None:
        """Refuse each grant that was planned before the end of an execution was recorded, if the process exists."""
        self._table.update(process, NOTE_END_UPDATE, "attribute_exists(process_name)", {":one": number(1)})

    def adopt(
        self,
        process: str,
        execution: str,
        since: float,
        target: str,
        weight: int = 1,
        *,
        key: str = "",
        redriven: bool = False,
    ) -> bool:
        """Adopt a running execution: record it as a holder; False if it already holds a slot.

        For use after the table was restored or edited manually, and for a child execution that was redriven manually.
        Adopting ignores the limits, because the execution runs anyway. While the holders exceed the limit, no request
        is granted a slot; while those of its key exceed that of the key, no request of the key is.

        Args:
            key: of its request; "" for none.
            redriven: the child execution was redriven, so that the janitor frees its slot without stopping it.
        """
        holder: Item = {"state": {"S": "RUNNING"}, "since": number(int(since)), "job": {"S": target}}
        if redriven:
            holder["redriven"] = {"BOOL": True}
        if weight > 1:
            holder["weight"] = number(weight)
        if key:
            holder["key"] = {"S": key}
        values: Item = {":weight": number(weight), ":entry": {"M": holder}, ":one": number(1)}
        return self._table.update(process, ADOPT_UPDATE, ADOPT_CONDITION, values, {"#me": execution}).held

    def mark_quiet(self, process: str, execution: str, seen: Mapping[str, Any], now: float | None) -> bool:
        """Record in a holder when a check first found no live Glue run of it; with None, remove the record.

        The record is part of the holder for two reasons: the janitor's second check reads the time of the first, and a
        release fails if the holder has changed between the two.
        """
        names = {"#me": execution}
        values: dict[str, Any] = {":seen": {"M": seen}}
        if now is None:
            update = "REMOVE holders.#me.quiet_since"
        else:
            update = "SET holders.#me.quiet_since = :now"
            # Rounded up: rounding must not shorten the gap to the second check.
            values[":now"] = number(math.ceil(now))
        return self._table.update(process, update, UNCHANGED_CONDITION, values, names).held
