"""The slot protocol: one DynamoDB item per process, one conditional UpdateItem per step.

    process_name   S, key
    slot_limit     N, 0..100000: the limit, in slots or in the unit of the requests' weights, such as DPUs
    slots_in_use   N: always the sum of the holders' weights
    holders        M: execution name -> {state: RESERVED or RUNNING, since, weight, job, quiet_since, task_token,
                   redriven}, or name of a lease -> {state: LEASED, since, until, code, weight}; no weight means 1;
                   job: the target, copied by confirm; short, because each write is paid by the size of all holders
    waiting        M: priority -> the last refused head of its message group, {sequence, receives, receipt_handle,
                   priority, weight, since, execution, request_id, token_bytes, hidden_until, start_before}, or a
                   tombstone, {sequence, receives}; that of a waker names the request: {since, execution, request_id}
                   too
    turn_high, turn_normal, turn_low
                   N, optional: when the last turn of a priority began, in milliseconds since the epoch
    turn_seconds   N, optional, 0..60: for how long a turn delays the wakes of lower priorities; 1 without it
    rate           M, optional: {count, seconds, burst}: at most `count` starts in `seconds` (see rate.py)
    next_start     N, with a rate: when the next start is due at the latest, in milliseconds since the epoch
    cancelled      M, optional: execution name of a cancelled request -> {since, by} (see Cancellations)
    lost           M, optional: execution name of a request without a message -> {request_id, priority, since,
                   noted, reported} (see lost_requests.py)
    paused         BOOL: true refuses every reserve
    target         S: what runs in a slot: a Glue job's name, or the ARN of a state machine; "none": no request does
    run_settings   M: {timeout_minutes, settle_seconds}, each optional; the workflow's confirm returns it
    queue_url      S, optional: the queue in which the process's requests wait
    default_weight N, optional: the weight of a request that states none

    reserve   starter            takes a slot, if the request fits and no higher priority waits
    wait      starter            registers the message, so that the next wake can make it visible
    lose      starter, janitor   moves the name of a request that has lost its message from `waiting` to `lost`
    confirm   workflow           RESERVED -> RUNNING; the Glue job starts only after it
    release   workflow, janitor  frees the slot
    cancel    starter, janitor   frees the slot while it is still RESERVED
    wake      after each release makes the message of the waiting request visible whose turn it is, if it fits

The head of the queue is the first request of a message group; a process has one group per priority. The registered head
of the highest priority has its turn. A head whose weight is above the limit is blocked: it is skipped until the limit
is raised. After an operator raises a limit or lifts a pause, the operator command wakes too.

A registration keeps lower priorities out, so each end of its message replaces it by a tombstone: the grant does so in
the same write, the starter before it dead-letters the message, and each waker whose receipt handle SQS rejects. A
tombstone refuses a late or repeated `wait` of the same receive. A waker's one names the request until its message is
received again, because the message may be lost.

After such an end the next request of the priority is not registered before it has been received, and if slots are
free, it never is. So the priority has a turn: the write of a grant notes it, if the request had waited, and so does a
waker with its tombstone. A wake of a lower priority during a turn makes its message visible when the turn ends, and not
immediately. Without turns, the order is lost when many slots become free:

1. Fifty slots become free. A release wakes the head of high priority, which is granted one.
2. Its grant, or another release, finds no registration of high priority, and wakes the head of low priority.
3. Both groups start requests until no slot is free, although more of high priority wait behind their head.

No condition contains a turn. It only delays wakes, and SQS is the timer, so no wake is lost.

The workflow performs confirm, release and wake itself (statemachines/slot_workflow.asl.json). Their expressions are
repeated here, and a test compares the two. The weight in use never exceeds the limit because of write conditions alone;
no clock is part of that argument. Times are whole seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from slotkeeper.aws.dynamodb import Item, MalformedAttribute, Table, Write, number
from slotkeeper.slots.lost_requests import LostRequests
from slotkeeper.slots.process import (
    MAX_HOLDERS,
    MAX_TOKEN_BYTES,
    WAKE_PROJECTION,
    MalformedProcess,
    Process,
    WaitingRequest,
    Wake,
    higher,
    read_process,
    read_wake,
)
from slotkeeper.slots.rate import TOO_EARLY, as_seen, milliseconds, start
from slotkeeper.slots.request import (
    DEFAULT_PRIORITY,
    MAX_TOKEN_CHARACTERS,
    PRIORITIES,
    Delivery,
    Position,
    Priority,
    Request,
)
from slotkeeper.slots.targets import NO_TARGET

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class LeaseTerm(NamedTuple):
    """A lease's end, by the time of day (seconds since the epoch) and by the monotonic clock, and its random code.

    Only the lease's holder knows the code.
    """

    end: float
    code: str
    monotonic_end: float = math.inf

    @property
    def until(self) -> int:
        """What the table contains: rounded up, since rounding must not let another caller remove the lease early."""
        return math.ceil(self.end)

    def remaining(self, clock: float, monotonic: float) -> float:
        """Return the seconds left at these times, 0.0 after the end.

        The monotonic clock is not affected by corrections. The time of day is an upper bound, because the monotonic
        clock does not count the time for which a machine was suspended (Python documentation, time.CLOCK_BOOTTIME).
        """
        return max(0.0, min(self.monotonic_end - monotonic, self.end - clock))


@dataclass(frozen=True)
class Candidate:
    """A request that asks for a slot, and the delivery of its message, or a lease.

    Attributes:
        weight: None means the process's default weight.
        delivery: None for a caller without a message: it is refused while any request waits.
        request_id: for the operator command. An execution's name is a hash, which does not contain it.
        task_token: stored with the slot, for the answer to the caller that waits.
        start_before: from when on the request does not start any more, for the operator command; epoch seconds.
        lease: for a block of code that asks for a slot; None for an execution.
    """

    process: str
    execution: str
    weight: int | None = None
    priority: Priority = DEFAULT_PRIORITY
    delivery: Delivery | None = None
    request_id: str = ""
    task_token: str = field(default="", repr=False)
    start_before: float | None = None
    lease: LeaseTerm | None = None

    @classmethod
    def of(cls, request: Request, delivery: Delivery) -> Candidate:
        """The candidate of a request that was delivered."""
        execution, id_ = request.execution_name, request.request_id
        token = request.task_token
        return cls(request.process, execution, request.weight, request.priority, delivery, id_, token, request.deadline)

    @property
    def position(self) -> Position | None:
        return self.delivery.position if self.delivery else None

    def new_holder(self, now: float) -> Item:
        """The holder that a grant adds, in DynamoDB's format, without its weight."""
        since = {"N": str(int(now))}
        if self.lease is None:
            return {"state": {"S": "RESERVED"}, "since": since}
        until, code = {"N": str(self.lease.until)}, {"S": self.lease.code}
        return {"state": {"S": "LEASED"}, "since": since, "until": until, "code": code}

    @property
    def token_bytes(self) -> int:
        return len(self.task_token.encode())

    def weight_in(self, process: Process) -> int:
        """The weight that it takes of a process's limit."""
        return self.weight or process.default_weight

    def is_admitted_by(self, process: Process) -> bool:
        """Whether a reserve would succeed when the rate permits a start, for the item as it was read."""
        is_known = self.execution in process.holders or self.execution in process.cancelled
        return not is_known and process.admits(self.weight_in(process), self.priority, self.position, self.token_bytes)


@dataclass(frozen=True)
class Granted:
    """This call reserved the slot."""


@dataclass(frozen=True)
class AlreadyHeld:
    """The request already holds its slot: the message was redelivered, or the answer of an earlier call was lost."""


@dataclass(frozen=True)
class HeldByAnother:
    """Another request with this id holds a slot, since its weight is not this one's. Its slot may be too small."""

    weight: int


@dataclass(frozen=True)
class Full:
    """The request or its task token does not fit, another one has its turn, or the rate permits no start yet.

    `seen`: the process's item as it was at the refusal.
    """

    seen: Process = field(compare=False, repr=False)


@dataclass(frozen=True)
class Paused:
    """The process is paused. Requests are admitted again after an operator lifts the pause. `seen`: as in `Full`."""

    seen: Process = field(compare=False, repr=False)


@dataclass(frozen=True)
class Cancelled:
    """An operator has cancelled the request. `since`: seconds since the epoch. `by`: the operator, empty if unknown."""

    since: int
    by: str


@dataclass(frozen=True)
class UnknownProcess:
    """No item exists for the process. Unlike `Full`, waiting would never end."""


@dataclass(frozen=True)
class LeasesOnly:
    """The process has no target, so it runs no request. Unlike `Full`, waiting would never end."""


@dataclass(frozen=True)
class Misconfigured:
    """The item does not have the documented types, so conditions on it mean nothing. Example: a limit as a string."""

    reason: str


Reservation = (
    Granted | AlreadyHeld | HeldByAnother | Full | Paused | Cancelled | UnknownProcess | LeasesOnly | Misconfigured
)


class Registration(Enum):
    """The result of registering a refused delivery."""

    REGISTERED = auto()
    RESERVE_AGAIN = auto()  # a reserve may now have another outcome: a slot is free, or the process was removed
    SUPERSEDED = auto()  # a newer receive is already registered, or was granted
    SPENT = auto()  # a waker found this receive's handle outdated; only a further receive of the message can register


# Both counts, because a counter that has drifted must refuse rather than admit: slots_in_use may be wrong, the map not.
# `<`, not `<>`: after an operator lowers the limit below slots_in_use, `<>` would admit every request.
ONE_SLOT_FREE = "slots_in_use < slot_limit AND size(holders) < slot_limit AND size(holders) < :most"
# A condition cannot add, so the room is computed from a read, and a changed limit refuses.
WEIGHT_FITS = "slots_in_use <= :counted AND size(holders) <= :room AND size(holders) < :most AND slot_limit = :limit"
# The tokens of so many holders fit into the item, however long they are. A condition cannot measure a map, so with more
# holders a request with a task token reads first. Between the read and the write another request may take the space:
# one of each message group, which is why MAX_TOKEN_BYTES leaves some.
ALWAYS_FIT = MAX_TOKEN_BYTES // MAX_TOKEN_CHARACTERS
SAME_DEFAULT_WEIGHT = "default_weight = :weight"
NO_DEFAULT_WEIGHT = f"(attribute_not_exists(default_weight) OR {SAME_DEFAULT_WEIGHT})"
# Of a request. Without it, a process for leases alone would lose a slot to a workflow that has nothing to start.
HAS_TARGET = "target <> :no_target"
RESERVE_UPDATE = "SET slots_in_use = slots_in_use + :weight, holders.#me = :entry"
RESERVE_CONDITION = (
    "attribute_not_exists(holders.#me) AND attribute_not_exists(cancelled.#me) "
    "AND (attribute_not_exists(paused) OR paused = :false)"
)
NOT_REGISTERED = "(attribute_not_exists(waiting.{0}.receipt_handle) OR waiting.{0}.weight > slot_limit)"
NOT_NEWER = (
    "(waiting.{0}.#sequence < :sequence OR (waiting.{0}.#sequence = :sequence AND waiting.{0}.receives <= :receives))"
)
# The registration of a later message, or of a later receive of this one, must not be lost to a slow starter:
# 1. A wake makes the message visible before its starter hides it. A second starter receives, registers and hides it.
# 2. The first starter is granted a slot, and replaces the registration of the second receive by its tombstone.
# 3. SQS rejects its delete, which has the first handle. The message stays hidden, and its group waits behind it.
NO_NEWER_REGISTRATION = f"(attribute_not_exists(waiting.{{0}}.receipt_handle) OR {NOT_NEWER})"
# The name of an earlier request, which has no message since a later one of its group was delivered, is first moved.
NOTHING_VANISHED = "(attribute_not_exists(waiting.{0}.execution) OR waiting.{0}.#sequence >= :sequence)"
ENTRY_UPDATE = "SET waiting.{0} = :entry"  # a registration or a tombstone
GRANTED_UPDATE = ", waiting.{0} = :tombstone"
TURN_UPDATE = ", turn_{0} = :turn"  # with a grant, or with the tombstone of a waker

NO_SLOT_FREE = "((slots_in_use > :counted OR size(holders) > :room) AND slot_limit = :limit)"
WAIT_CONDITION = "({refused}) AND attribute_not_exists(holders.#me) AND {newer}"
REGISTERED = "(attribute_exists(waiting.{0}.receipt_handle) AND waiting.{0}.weight <= slot_limit)"
# Only a newer receive registers: a slow duplicate must not replace the receipt handle of the receive after it, and a
# repeated call must not register a message that has been granted since.
NEWER_RECEIVE = (
    "(attribute_not_exists(waiting.{0}.#sequence) OR waiting.{0}.#sequence < :sequence "
    "OR (waiting.{0}.#sequence = :sequence AND waiting.{0}.receives < :receives))"
)
SAME_HANDLE = "waiting.{0}.receipt_handle = :handle"
# Also a waker's tombstone, which names the request. Not that of an earlier message: that one is lost.
OWN_NAME = (
    "attribute_exists(waiting.{0}.execution) AND waiting.{0}.#sequence = :sequence "
    "AND waiting.{0}.receives <= :receives"
)

CONFIRM_UPDATE = (
    "SET holders.#me.#state = :running, holders.#me.job = target, run_settings = if_not_exists(run_settings, :none)"
)
CONFIRM_CONDITION = "attribute_exists(holders.#me)"

# The operand is the weight before the removal: an update reads the item as it was (verified on DynamoDB Local).
RELEASE_UPDATE = "SET slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one) REMOVE holders.#me"
RELEASE_CONDITION = "attribute_exists(holders.#me)"
CANCEL_CONDITION = "holders.#me.#state = :reserved"
UNCHANGED_CONDITION = "holders.#me = :seen"

# The number of holders from which a reserve reads before it writes. DynamoDB charges a refused write like a successful
# one, one write unit per KB of the item. A read costs one read unit per 4 KB, at a fifth of the price, and uses none of
# the 1,000 write units per second of one item (DynamoDB guide, "DynamoDB read and write operations"). With fewer
# holders the extra call would save almost nothing.
PRECHECK_FROM_HOLDERS = 30
# Writes of a reserve. A further one is needed only if the limit, or the default weight, changed after the read.
_MAX_WRITES = 3


class Slots:
    """The steps of the protocol against one table. Errors of DynamoDB itself pass through as ClientError.

    Args:
        large: processes that are known to have at least PRECHECK_FROM_HOLDERS holders.
    """

    def __init__(self, dynamodb: DynamoDBClient, table_name: str, *, large: Iterable[str] = ()) -> None:
        self._table = Table(dynamodb, table_name, "process_name")
        self.lost = LostRequests(dynamodb, table_name)
        self._reads_first = dict.fromkeys(large, True)  # as of the last refusal or read

    def reserve(self, candidate: Candidate, now: float) -> Reservation:
        """Take a slot for an execution that is about to start. `now` is in seconds since the epoch.

        A request of weight 1 takes one call. Another weight, and a process with a default weight, with a rate or with
        many holders, takes a read before the write.
        """
        try:
            return self._reserve(candidate, now)
        except ClientError as error:
            # `holders` as a list or a string has a size, so the condition holds, but the update cannot add an entry.
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            try:
                self.read(candidate.process)
            except MalformedProcess as malformed:
                return Misconfigured(str(malformed))
            raise

    def _reserve(self, candidate: Candidate, now: float) -> Reservation:
        seen: Process | None = None
        if (candidate.weight or 1) > 1 or self._reads_first.get(candidate.process):
            try:
                seen = self.read(candidate.process)
            except MalformedProcess as error:
                return Misconfigured(str(error))
            if seen is None:
                return UnknownProcess()
            if refused := self._refusal(candidate, seen, now):
                return refused
        for _ in range(_MAX_WRITES):
            write = self._write_reservation(candidate, seen, now)
            if write.held:
                return Granted()
            try:
                seen = self._parse(candidate.process, write.item)
            except MalformedProcess as error:
                return Misconfigured(str(error))
            if seen is None:
                return UnknownProcess()
            if refused := self._refusal(candidate, seen, now):
                return refused
        return Full(seen) if seen else UnknownProcess()

    def _refusal(
        self, candidate: Candidate, seen: Process, now: float
    ) -> AlreadyHeld | HeldByAnother | Cancelled | LeasesOnly | Full | Paused | None:
        """Return why a reserve would be refused, after the name of a request that has vanished was moved."""
        if gone := seen.vanished_before(candidate.priority, candidate.position):
            self.lost.lose(seen, gone, now)
        return refusal(candidate, seen, now)

    def _write_reservation(self, candidate: Candidate, seen: Process | None, now: float) -> Write:
        weight = candidate.weight_in(seen) if seen else 1
        entry = candidate.new_holder(now)
        conditions = [RESERVE_CONDITION]
        update, names = RESERVE_UPDATE, {"#me": candidate.execution}
        most = ALWAYS_FIT if candidate.task_token and not seen else MAX_HOLDERS
        values: Item = {":weight": number(weight), ":false": {"BOOL": False}, ":most": number(most)}
        if seen and weight > 1:
            entry["weight"] = number(weight)
            # Since the read the process may have been removed, and added again with another default weight.
            conditions += [WEIGHT_FITS] if candidate.weight else [WEIGHT_FITS, SAME_DEFAULT_WEIGHT]
            values |= _room(weight, seen)
        else:
            conditions += [ONE_SLOT_FREE] if candidate.weight else [ONE_SLOT_FREE, NO_DEFAULT_WEIGHT]
        if candidate.task_token:
            entry["task_token"] = {"S": candidate.task_token}
        values[":entry"] = {"M": entry}
        earlier = PRIORITIES
        if delivery := candidate.delivery:
            earlier = higher(candidate.priority)
            own = (NO_NEWER_REGISTRATION, NOTHING_VANISHED)
            conditions += [HAS_TARGET, *(text.format(candidate.priority) for text in own)]
            update += GRANTED_UPDATE.format(candidate.priority)
            names["#sequence"] = "sequence"
            values |= {**_compared(delivery), ":tombstone": _tombstone(delivery)}
            values[":no_target"] = {"S": NO_TARGET}
            # A request that did not wait has no backlog behind it. If it began a turn, frequent ones that each find a
            # free slot would keep a lower request out although further slots are free.
            if delivery.has_waited(now):
                update += TURN_UPDATE.format(candidate.priority)
                values[":turn"] = _turn(now)
        conditions += [NOT_REGISTERED.format(priority) for priority in earlier]
        paced, as_read, numbers = start(seen, now)
        conditions.append(as_read)
        return self._table.update(candidate.process, update + paced, " AND ".join(conditions), values | numbers, names)

    def wait(self, candidate: Candidate, seen: Process, hidden_until: float, *, is_early: bool = False) -> Registration:
        """Register a refused delivery, so that the next wake makes its message visible.

        `since` is the time at which the message was sent, however often the request was refused.

        Args:
            seen: the process's item at the refusal (Full, Paused).
            hidden_until: when the message will come back without a wake, in seconds since the epoch.
            is_early: whether only the rate refused it.
        """
        delivery, weight = candidate.delivery, candidate.weight_in(seen)
        if delivery is None:
            raise ValueError("a candidate without a message cannot wait")
        refused = [NO_SLOT_FREE, "size(holders) >= :most", "paused = :true"]
        refused += [REGISTERED.format(priority) for priority in higher(candidate.priority)]
        newer = f"{NEWER_RECEIVE} AND {NOTHING_VANISHED}".format(candidate.priority)
        entry = {
            **_position(delivery),
            "receipt_handle": {"S": delivery.receipt_handle},
            "priority": {"S": candidate.priority},
            "weight": number(weight),
            "since": number(int(delivery.sent_at)),
            "execution": {"S": candidate.execution},
            "hidden_until": number(math.ceil(hidden_until)),
        } | ({"request_id": {"S": candidate.request_id}} if candidate.request_id else {})
        if candidate.task_token:
            entry["token_bytes"] = number(candidate.token_bytes)
        if candidate.start_before is not None:
            entry["start_before"] = number(int(candidate.start_before))
        # A task token that does not fit is refused until there are fewer holders.
        most = MAX_HOLDERS if seen.takes_token(candidate.token_bytes) else len(seen.holders)
        values = {
            **_room(weight, seen),
            ":entry": {"M": entry},
            **_compared(delivery),
            ":most": number(most),
            ":true": {"BOOL": True},
        }
        if is_early and seen.rate:
            refused.append(TOO_EARLY)
            values |= as_seen(seen.rate, seen.next_start)
        condition = WAIT_CONDITION.format(refused=" OR ".join(refused), newer=newer)
        names = {"#me": candidate.execution, "#sequence": "sequence"}
        update = ENTRY_UPDATE.format(candidate.priority)
        write = self._table.update(candidate.process, update, condition, values, names)
        if write.held:
            return Registration.REGISTERED
        now = self._parse(candidate.process, write.item)
        registered = now.waiting.get(candidate.priority) if now else None
        # It registered when the process was full. Since then a slot was freed, and the rate permits no start yet.
        if is_early and registered and registered.position == delivery.position:
            return Registration.REGISTERED
        if now is None or candidate.execution in now.holders or candidate.is_admitted_by(now):
            return Registration.RESERVE_AGAIN
        if now.tombstones.get(candidate.priority) == delivery.position:
            return Registration.SPENT
        newest = registered.position if registered else now.tombstones.get(candidate.priority)
        is_newer = newest is None or newest < delivery.position
        return Registration.RESERVE_AGAIN if is_newer else Registration.SUPERSEDED

    def release(self, process: str, execution: str, seen: Mapping[str, Any]) -> bool:
        """Free a slot whose holder has not changed since the caller read it; False if it has changed.

        Args:
            seen: the holder's map as it was read, in DynamoDB's format.
        """
        return self._give_back(
            process, execution, f"{RELEASE_CONDITION} AND {UNCHANGED_CONDITION}", {":seen": {"M": seen}}
        )

    def adopt(
        self, process: str, execution: str, since: float, target: str, weight: int = 1, *, redriven: bool = False
    ) -> bool:
        """Adopt a running execution: record it as a holder; False if it already holds a slot.

        For use after the table was restored or edited manually, and for a child execution that was redriven manually.
        Adopting ignores the limit, because the execution runs anyway. While the holders exceed the limit, no request is
        admitted.

        Args:
            redriven: the child execution was redriven, so that the janitor frees its slot without stopping it.
        """
        holder: Item = {"state": {"S": "RUNNING"}, "since": number(int(since)), "job": {"S": target}}
        if redriven:
            holder["redriven"] = {"BOOL": True}
        if weight > 1:
            holder["weight"] = number(weight)
        condition = "attribute_exists(process_name) AND attribute_not_exists(holders.#me)"
        values = {":weight": number(weight), ":entry": {"M": holder}}
        return self._table.update(process, RESERVE_UPDATE, condition, values, {"#me": execution}).held

    def cancel(self, process: str, execution: str) -> bool:
        """Free a slot that is still RESERVED; False if the workflow has confirmed it, or the slot was freed."""
        return self._give_back(process, execution, CANCEL_CONDITION, {":reserved": {"S": "RESERVED"}})

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
            values[":now"] = {"N": str(math.ceil(now))}
        return self._table.update(process, update, UNCHANGED_CONDITION, values, names).held

    def clear(self, process: str, waiting: WaitingRequest, now: float) -> bool:
        """Replace a registration whose receipt handle SQS has rejected by its tombstone; False if it has changed.

        The tombstone names the request, because the message may be lost (lost_requests.py).
        A rejected handle never becomes valid again, so no wake is lost. A message that was received since then is
        registered with its new handle before the starter hides it. Until then its priority has its turn: the wakes of
        lower ones, which no registration keeps out any more, are delayed.
        """
        tombstone = {
            "sequence": {"S": waiting.sequence},
            "receives": number(waiting.receives),
            "since": number(waiting.since),
            "execution": {"S": waiting.execution},
        } | ({"request_id": {"S": waiting.request_id}} if waiting.request_id else {})
        values = {":entry": {"M": tombstone}, ":handle": {"S": waiting.receipt_handle}, ":turn": _turn(now)}
        update, condition = (text.format(waiting.priority) for text in (ENTRY_UPDATE + TURN_UPDATE, SAME_HANDLE))
        return self._table.update(process, update, condition, values).held

    def end_wait(self, candidate: Candidate) -> bool:
        """Replace what names a message that is about to be dead-lettered by its tombstone; False if nothing does."""
        delivery = candidate.delivery
        if delivery is None:
            return False
        values = {":entry": _tombstone(delivery), **_compared(delivery)}
        update, condition = (text.format(candidate.priority) for text in (ENTRY_UPDATE, OWN_NAME))
        return self._table.update(candidate.process, update, condition, values, {"#sequence": "sequence"}).held

    def to_wake(self, process: str, now: float) -> Wake | None:
        """Return the waiting request that is next, if it fits: the read that precedes a wake."""
        try:
            return read_wake(self._table.read(process, ProjectionExpression=WAKE_PROJECTION), now)
        except MalformedAttribute:
            return None  # the step that freed a slot must not fail because of it; the janitor reports the item

    def can_proceed(self, candidate: Candidate, hidden_until: float) -> bool:
        """Read consistently whether a new reserve is needed: its outcome would differ, or no wake would come.

        With a rate it is needed if a start is due before the message comes back, at `hidden_until`: a wake that set the
        earlier time may have come before the hide.

        No wake comes without a registration. After `wait`, it is missing if the process was removed and added again,
        and a tombstone if a waker found the message visible, before the starter hid it.
        """
        seen, delivery = self.read(candidate.process), candidate.delivery
        if seen is None or candidate.execution in seen.cancelled or delivery is None:
            return True
        waiting = seen.waiting.get(candidate.priority)
        if waiting is None:
            return seen.tombstones.get(candidate.priority, delivery.position) <= delivery.position
        return candidate.is_admitted_by(seen) and seen.due < milliseconds(hidden_until)

    def read(self, process: str) -> Process | None:
        """Read the process's item consistently; None if it does not exist.

        Raises:
            MalformedProcess: the item's attributes are not of the documented types.
        """
        return self._parse(process, {})

    def _give_back(self, process: str, execution: str, condition: str, values: Mapping[str, Any]) -> bool:
        names = {"#me": execution} | ({"#state": "state"} if "#state" in condition else {})
        return self._table.update(process, RELEASE_UPDATE, condition, {":one": {"N": "1"}, **values}, names).held

    def _parse(self, process: str, item: Item) -> Process | None:
        # A refused write returns the item only if one exists, and some local engines never return it.
        item = item or self._table.read(process)
        if not item:
            return None
        seen = read_process(item)
        self._reads_first[process] = len(seen.holders) >= PRECHECK_FROM_HOLDERS or seen.default_weight > 1
        self._reads_first[process] |= seen.rate is not None
        return seen


def refusal(
    candidate: Candidate, seen: Process, now: float
) -> AlreadyHeld | HeldByAnother | Cancelled | LeasesOnly | Full | Paused | None:
    """Return why a reserve would be refused now, for the item as it was read; None if it would succeed."""
    if holder := seen.holders.get(candidate.execution):
        # The work would start in a slot of another size:
        # 1. The starter reserves a slot of weight 1 for a request, and dies before it starts the workflow.
        # 2. Another request with the same id, of weight 50, would start in that slot, above the limit.
        is_same = holder.weight == candidate.weight_in(seen) or candidate.lease is not None
        return AlreadyHeld() if is_same else HeldByAnother(holder.weight)
    if cancelled := seen.cancelled.get(candidate.execution):
        return Cancelled(cancelled.since, cancelled.by)
    if candidate.delivery and seen.target == NO_TARGET:
        return LeasesOnly()
    if candidate.is_admitted_by(seen) and seen.is_due(now):
        return None
    return Paused(seen) if seen.paused else Full(seen)


def _room(weight: int, seen: Process) -> Item:
    """The most that may be in use for a request of this weight to fit, and the limit for which that is so.

    For the counter, the amount by which it has drifted below the holders is subtracted: each step of the protocol keeps
    this difference.
    """
    room, missing = seen.slot_limit - weight, max(0, seen.held_weight - seen.slots_in_use)
    return {":room": number(room), ":counted": number(room - missing), ":limit": number(seen.slot_limit)}


def _compared(delivery: Delivery) -> Item:
    return {":sequence": {"S": delivery.sortable_sequence}, ":receives": number(delivery.receives)}


def _position(delivery: Delivery) -> Item:
    return {"sequence": {"S": delivery.sortable_sequence}, "receives": number(delivery.receives)}


def _tombstone(delivery: Delivery) -> Item:
    return {"M": _position(delivery)}


def _turn(now: float) -> Item:
    """The beginning of a turn, in milliseconds: in whole seconds, a turn of one second would last half of one."""
    return number(milliseconds(now))
