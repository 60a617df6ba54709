"""The writes of a dispatch to a process's item: a grant, and what takes one back.

    grants   N: a plan of who starts next was made from one value of it, and its grant requires that value

Every write after which a plan may be wrong changes `grants`: a grant, an exit from the queue without a start, a
reservation that is removed from a request that stays queued, a lease, an adoption, another limit of a key. So grants
are serialized, and each was planned on a queue that was read after the grant before it:

1. Dispatch A reads `grants` 7, then the queue, and plans to start b.
2. An operator cancels b: one transaction ends its row and sets `grants` to 8.
3. A's grant requires 7, and is refused. A reads again, and b is no longer queued.

A new or restored item begins at the time in milliseconds, so that a value never comes again.

The process's limit rests on the condition alone, and on no plan. `slots_in_use` is the counter, and the holders are
what it counts. The weight must fit by both, because a counter that has drifted must refuse rather than admit.

The limit of a key rests on `grants`: while it is as read, no holder was added and no key's limit was changed, so a key
has at most the weight that the plan has counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotkeeper.aws.dynamodb import Attributes, Item, Table, Write, number
from slotkeeper.slots.process import MAX_HOLDERS, Process, read_from, read_process
from slotkeeper.slots.rate import NO_RATE, SAME_START, START_UPDATE, as_seen

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from slotkeeper.slots.plan import PlannedStart

# Of as many holders as the grant has: {holders} and {absent} are joined from the two lines below.
GRANT_UPDATE = "SET grants = grants + :one, slots_in_use = slots_in_use + :weight, {holders}"
GRANT_HOLDER = "holders.#n{0} = :h{0}"
GRANT_CONDITION = (
    "grants = :seen AND slot_limit = :limit AND slots_in_use <= :counted AND size(holders) <= :room "
    "AND (attribute_not_exists(paused) OR paused = :false) AND {absent} AND {rate}"
)
# Whose turn was last, if that changes.
GRANT_TURNS = ", after_keys = :after_keys"
GRANT_ABSENT = "attribute_not_exists(holders.#n{0})"

PUT_BACK_UPDATE = "SET grants = grants + :one, slots_in_use = slots_in_use - :weight REMOVE {holders}"
DROP_UPDATE = "SET slots_in_use = slots_in_use - :weight REMOVE {holders}"
STILL_RESERVED = "holders.#n{0}.#state = :reserved AND {1}"
# It may have been freed, and granted again with another default weight.
OF_WEIGHT = "holders.#n{0}.weight = :w{0}"
OF_WEIGHT_ONE = "(attribute_not_exists(holders.#n{0}.weight) OR holders.#n{0}.weight = :w{0})"

# Of what takes reservations back. Each refusal means that another write came between.
MAX_TRIES = 20

EXPIRE_UPDATE = "SET slots_in_use = slots_in_use - if_not_exists(holders.#n.weight, :one) REMOVE holders.#n"
EXPIRE_CONDITION = "holders.#n.#until = :until"


@dataclass(frozen=True)
class GrantMade:
    """The holders were added. `grants`: its value after the write."""

    grants: int


@dataclass(frozen=True)
class GrantRefused:
    """The write was refused: something has changed since the read.

    Attributes:
        seen: the process as it is; None if it was removed.
        unsure: requests that may have been granted all the same, by a first try whose answer was lost.
    """

    seen: Process | None
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removed:
    """Reservations that were removed: execution -> weight. `grants`: its value after the write; 0 if none was."""

    weights: Mapping[str, int]
    grants: int = 0


class Grants:
    """SlotTable, for dispatches. Errors of DynamoDB pass through as ClientError or BotoCoreError."""

    def __init__(self, dynamodb: DynamoDBClient, table_name: str) -> None:
        self._table = Table(dynamodb, table_name, "process_name")

    def read(self, process: str) -> Process | None:
        """Read the process's item consistently; None if it does not exist. Raises MalformedProcess."""
        return read_from(self._table, process)

    def grant(
        self,
        seen: Process,
        starts: Sequence[PlannedStart],
        next_start: int,
        now: float,
        after_keys: Mapping[str, str] | None = None,
    ) -> GrantMade | GrantRefused:
        """Reserve a slot for each request that a plan starts, in one write: all or none.

        Args:
            seen: the process's item from which the plan was made.
            next_start: of the rate, after these starts, in milliseconds since the epoch.
            now: seconds since the epoch.
            after_keys: rank of a priority -> the key of its last start, after these; by default as it is.
        """
        weight = sum(start.weight for start in starts)
        values: Item = {
            ":one": number(1),
            ":weight": number(weight),
            ":seen": number(seen.grants),
            ":limit": number(seen.slot_limit),
            ":counted": number(seen.slot_limit - weight - seen.missing),
            ":room": number(min(seen.slot_limit - weight, MAX_HOLDERS - len(starts))),
            ":false": {"BOOL": False},
        }
        values |= {f":h{at}": _reservation(start, now) for at, start in enumerate(starts)}
        update = GRANT_UPDATE.format(holders=_joined(GRANT_HOLDER, starts, ", "))
        if after_keys is not None and after_keys != seen.after_keys:
            update += GRANT_TURNS
            values[":after_keys"] = {"M": {rank: {"S": key} for rank, key in after_keys.items()}}
        if seen.rate:
            update += START_UPDATE
            values |= {**as_seen(seen.rate, seen.next_start), ":next_start": number(next_start)}
        condition = GRANT_CONDITION.format(
            absent=_joined(GRANT_ABSENT, starts, " AND "), rate=SAME_START if seen.rate else NO_RATE
        )
        names = {f"#n{at}": start.execution for at, start in enumerate(starts)}
        write = self._table.update(seen.name, update, condition, values, names)
        if write.held:
            return GrantMade(seen.grants + 1)
        changed = self._current(seen.name, write)
        if not write.retried or changed is None or any(start.execution not in changed.holders for start in starts):
            return GrantRefused(changed)
        # The first try may have written them. If no other write came after it, it has.
        own = tuple(start.execution for start in starts)
        return GrantMade(changed.grants) if changed.grants == seen.grants + 1 else GrantRefused(changed, own)

    def put_back(self, process: str, reserved: Mapping[str, int]) -> Removed:
        """Remove reservations of requests that stay queued: for them no start was made.

        What has been confirmed or freed meanwhile is left as it is.

        Args:
            reserved: execution -> the weight that its reservation has.
        """
        return self._remove(PUT_BACK_UPDATE, process, reserved)

    def drop(self, process: str, reserved: Mapping[str, int]) -> Removed:
        """Remove reservations of requests that have ended, as `put_back`. No plan can still contain these requests."""
        return self._remove(DROP_UPDATE, process, reserved)

    def _remove(self, update: str, process: str, reserved: Mapping[str, int]) -> Removed:
        left = dict(reserved)
        for _ in range(MAX_TRIES):
            if not left:
                return Removed({})
            values: Item = {":weight": number(sum(left.values())), ":reserved": {"S": "RESERVED"}}
            if ":one" in update:
                values[":one"] = number(1)
            values |= {f":w{at}": number(weight) for at, weight in enumerate(left.values())}
            names = {f"#n{at}": name for at, name in enumerate(left)} | {"#state": "state"}
            removed = _joined("holders.#n{0}", left, ", ")
            condition = " AND ".join(
                STILL_RESERVED.format(at, (OF_WEIGHT_ONE if weight == 1 else OF_WEIGHT).format(at))
                for at, weight in enumerate(left.values())
            )
            update_of = update.format(holders=removed)
            write = self._table.update(process, update_of, condition, values, names, ReturnValues="UPDATED_NEW")
            if write.held:
                return Removed(left, Attributes(write.item).whole("grants", 0))
            now = self._current(process, write)
            holders = now.holders if now else {}
            reserved_now = {name: each.weight for name, each in holders.items() if each.state == "RESERVED"}
            # All of them, if they were granted again in between.
            left = {name: weight for name, weight in left.items() if reserved_now.get(name) == weight}
        raise TimeoutError(f"reservations of process {process!r} changed during {MAX_TRIES} writes in a row")

    def expire(self, seen: Process, lease: str) -> bool:
        """Remove a lease that has expired; False if it was released, extended or removed meanwhile."""
        values = {":one": number(1), ":until": number(seen.holders[lease].until or 0)}
        names = {"#n": lease, "#until": "until"}
        return self._table.update(seen.name, EXPIRE_UPDATE, EXPIRE_CONDITION, values, names).held

    def note_ring(self, process: str, at: float) -> None:
        """Note when the next timed doorbell is due, after it was sent. A removed process needs none."""
        self._table.update(process, "SET ring_at = :at", "attribute_exists(process_name)", {":at": number(at)})

    def _current(self, process: str, write: Write) -> Process | None:
        """The process after a refused write. Some local engines do not return the item with a refusal."""
        return read_process(write.item) if write.item else self.read(process)


def _reservation(start: PlannedStart, now: float) -> Item:
    holder: Item = {"state": {"S": "RESERVED"}, "since": number(int(now))}
    if start.weight != 1:
        holder["weight"] = number(start.weight)
    if start.key:
        holder["key"] = {"S": start.key}
    return {"M": holder}


def _joined(part: str, listed: Sequence[object] | Mapping[str, object], between: str) -> str:
    """The part of an expression for each element of a list, with its number."""
    return between.join(part.format(at) for at in range(len(listed)))
