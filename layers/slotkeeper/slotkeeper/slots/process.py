"""A process: the item of SlotTable as a type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast, get_args

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots.rate import LAST_SECOND, Rate, instant, milliseconds, read_rate
from slotkeeper.slots.request import MAX_WEIGHT, PRIORITIES, Position, Priority

# In the unit of the limit: slots, or for example DPUs if requests have weights.
MAX_SLOT_LIMIT = MAX_WEIGHT
# Each holder adds up to 200 bytes to the item, and so to the price of each write.
MAX_HOLDERS = 500
# Bytes of the task tokens of a process's holders. With them an item stays below DynamoDB's 400 KB with the most of all
# other attributes, so that no confirm, cancellation or pause is refused because of the item's size.
MAX_TOKEN_BYTES = 131_072
# Expired leases that one call removes or takes over. Further ones are left to the next call.
MAX_REMOVALS = 20
# Seconds for which a turn delays the wakes of lower priorities, unless the process has its own `turn_seconds`. A longer
# turn keeps the order better in a burst of free slots, and leaves slots free for longer if no request follows.
TURN_SECONDS = 1
MAX_TURN_SECONDS = 60
# For which a refused message is hidden at most. SQS would refuse more than 12 hours, as it refuses an outdated handle
# (SQS API Reference, ChangeMessageVisibility).
MAX_HIDE_SECONDS = 1800
# Of RequestQueue, in seconds (template.yaml, MessageRetentionPeriod).
RETENTION_SECONDS = 14 * 86400
# One day more, for clock differences.
KEEP_SECONDS = RETENTION_SECONDS + 86400
# After a message should have come back, and between a note and its report. The queue's visibility timeout, after which
# a message comes back whose starter died, is 180 s. SQS's counts of messages lag by a minute (SQS API Reference,
# GetQueueAttributes), and DescribeExecution by seconds.
SETTLED_SECONDS = 300
PROCESS_NAME = re.compile(r"[A-Za-z0-9_-]{1,47}")


class MalformedProcess(ValueError):
    """An attribute is missing or has the wrong type. The message names it. `process`: its name, empty if unknown."""

    def __init__(self, message: str, process: str = "") -> None:
        super().__init__(message)
        self.process = process


HolderState = Literal["RESERVED", "RUNNING", "LEASED"]


@dataclass(frozen=True)
class Holder:
    """An execution that holds a slot, or a lease (LEASED). `target` is what it runs, empty until it is confirmed.

    `weight` is in the limit's unit. `raw` is the map in DynamoDB's format, for write conditions that the holder is
    unchanged. `task_token`: of the caller that waits for the answer, empty if none waits. `redriven`: its child
    execution was redriven manually, and the janitor adopted it. Only a lease has an end, `until`, and a `code`, which
    its holder alone knows.
    """

    state: HolderState
    since: int
    target: str
    quiet_since: int | None
    raw: Mapping[str, Any] = field(repr=False)  # it contains the token
    weight: int = 1
    task_token: str = field(default="", repr=False)
    redriven: bool = False
    until: int | None = None
    code: str = ""

    @property
    def is_lease(self) -> bool:
        return self.state == "LEASED"

    @property
    def removable_from(self) -> int | None:
        """The time from which a lease may be removed by any caller; None for an execution, which never expires."""
        return None if self.until is None else self.until + CLOCK_SKEW_SECONDS

    def has_expired(self, now: float) -> bool:
        """Whether this is a lease that any caller may remove. `now` is in seconds since the epoch."""
        return self.removable_from is not None and now >= self.removable_from


@dataclass(frozen=True)
class WaitingRequest:
    """A registration: the head of a message group that was refused a slot.

    `sequence` and `receives` order the deliveries of a group (Delivery). `since`: when the message was sent, in seconds
    since the epoch. The receipt handle may be outdated, if the message was received again or is gone.
    `token_bytes`: the size of the request's task token, 0 without one. `hidden_until`: when the message comes back and
    registers again, unless a wake makes it visible earlier. `start_before`: the time from which it does not start any
    more, in seconds since the epoch; None if it states none.
    """

    priority: Priority
    receipt_handle: str
    sequence: str
    receives: int
    weight: int
    since: int
    execution: str
    request_id: str
    hidden_until: int
    token_bytes: int = 0
    start_before: int | None = None

    def is_above(self, slot_limit: float) -> bool:
        """Whether its weight is above a limit."""
        return self.weight > slot_limit

    @property
    def position(self) -> Position:
        return self.sequence, self.receives

    @property
    def back_at(self) -> int:
        return self.hidden_until


@dataclass(frozen=True)
class Cleared:
    """The tombstone of a registration whose receipt handle SQS rejected. It names the request, for which no wake comes.

    The request's message is visible, is being received, or is lost. When it is received, its grant, its registration or
    its dead letter replaces this. `since`: when it was sent. `cleared`: when SQS rejected the handle, and a turn of the
    priority began. Both are in seconds since the epoch.
    """

    priority: Priority
    sequence: str
    receives: int
    since: int
    execution: str
    request_id: str
    cleared: int

    @property
    def position(self) -> Position:
        return self.sequence, self.receives

    @property
    def back_at(self) -> int:
        return self.cleared


@dataclass(frozen=True)
class Cancellation:
    """A cancelled request. `since`: seconds since the epoch. `by`: the operator, empty if unknown."""

    since: int
    by: str = ""

    def is_expired(self, now: float) -> bool:
        """Whether no queue can still hold a message of the request."""
        return now >= self.since + KEEP_SECONDS


@dataclass(frozen=True)
class Lost:
    """A request that waited and has no message. Times are seconds since the epoch.

    Attributes:
        request_id: may be empty.
        since: when its message was sent.
        noted: when its message was missed.
        reported: when the janitor reported it. None: not yet; it may still find that the request has run.
    """

    request_id: str
    priority: Priority
    since: int
    noted: int
    reported: int | None = None


@dataclass(frozen=True)
class Process:
    """One item of SlotTable. Times are seconds since the epoch, weights in the unit of the limit.

    Attributes:
        waiting: the registered head of each priority's message group.
        tombstones: for a priority without a registration, the position of its last one.
        cleared: the tombstones that name a request, whose message may be lost.
        lost: execution name -> a request without a message, which nothing will start.
        timeout_minutes: minutes after which the workflow ends the work. None: the stack's parameter.
        settle_seconds: seconds for which a slot is kept after its child execution was aborted or has timed out.
        queue_url: of the queue in which its requests wait. Empty: unknown.
        turns: when the last turn of each priority began, in milliseconds since the epoch.
        turn_seconds: for how long a turn delays the wakes of lower priorities.
        rate: how many requests and leases may start in a time. None: any number.
        next_start: of the rate (rate.py), in milliseconds since the epoch.
        grants: changes with every write after which a plan of who starts next may be wrong (grants.py).
        ring_at: when the next timed doorbell is due, in seconds since the epoch; 0: none was sent.
    """

    name: str
    slot_limit: int
    slots_in_use: int
    holders: Mapping[str, Holder]
    paused: bool
    target: str
    default_weight: int = 1
    waiting: Mapping[Priority, WaitingRequest] = field(default_factory=dict)
    tombstones: Mapping[Priority, Position] = field(default_factory=dict)
    cleared: Mapping[Priority, Cleared] = field(default_factory=dict)
    cancelled: Mapping[str, Cancellation] = field(default_factory=dict)
    lost: Mapping[str, Lost] = field(default_factory=dict)
    timeout_minutes: int | None = None
    settle_seconds: int = 0
    queue_url: str = ""
    turns: Mapping[Priority, int] = field(default_factory=dict)
    turn_seconds: int = TURN_SECONDS
    rate: Rate | None = None
    next_start: int = 0
    grants: int = 0
    ring_at: float = 0

    @property
    def due(self) -> int:
        """When the rate permits the next start, in milliseconds since the epoch; 0 without a rate."""
        return self.next_start - self.rate.lead if self.rate else 0

    def is_due(self, now: float) -> bool:
        """Whether the rate permits a start. `now` is in seconds since the epoch."""
        return self.rate is None or not self.due > milliseconds(now)

    def seconds_until_due(self, now: float) -> float:
        """The seconds until the rate permits a start; 0.0 if it does now, and without a rate."""
        return 0.0 if self.is_due(now) else (self.due - milliseconds(now)) / 1000

    @property
    def held_weight(self) -> int:
        """The sum of the holders' weights, which slots_in_use should be."""
        return sum(holder.weight for holder in self.holders.values())

    def expired_leases(self, now: float) -> dict[str, Holder]:
        """The leases that any caller may remove. `now` is in seconds since the epoch."""
        return {name: holder for name, holder in self.holders.items() if holder.has_expired(now)}

    @property
    def next_expiry(self) -> int | None:
        """The first time from which a lease may be removed, unless it is extended; None without leases."""
        times = (holder.removable_from for holder in self.holders.values())
        return min((time for time in times if time is not None), default=None)

    def without(self, name: str) -> Process:
        """The process after this holder's slot is freed."""
        holders = {each: holder for each, holder in self.holders.items() if each != name}
        return replace(self, holders=holders, slots_in_use=self.slots_in_use - self.holders[name].weight)

    @property
    def has_drifted(self) -> bool:
        return self.slots_in_use != self.held_weight

    @property
    def token_bytes(self) -> int:
        """The bytes of the holders' task tokens."""
        return sum(len(holder.task_token.encode()) for holder in self.holders.values())

    def takes_token(self, token_bytes: int) -> bool:
        """Whether a task token of this size fits into the item. A request without one, of size 0, always does."""
        return not token_bytes or self.token_bytes + token_bytes <= MAX_TOKEN_BYTES

    def fits(self, weight: int, token_bytes: int = 0) -> bool:
        """Whether a request of this weight, with a task token of this size, fits now."""
        in_use = max(self.slots_in_use, self.held_weight)
        has_slot = in_use + weight <= self.slot_limit and len(self.holders) < MAX_HOLDERS
        return not self.paused and has_slot and self.takes_token(token_bytes)

    def is_blocked(self, waiting: WaitingRequest) -> bool:
        """Whether a waiting request cannot start before the limit is raised. It keeps no other request out."""
        return waiting.is_above(self.slot_limit)

    @property
    def blocked(self) -> list[WaitingRequest]:
        """The waiting requests that cannot start before the limit is raised, without those that were cancelled.

        None if the limit is 0: an operator has stopped the process.
        """
        if self.slot_limit == 0:
            return []
        registered = (each for each in self.waiting.values() if each.execution not in self.cancelled)
        return [each for each in registered if self.is_blocked(each)]

    @property
    def first(self) -> WaitingRequest | None:
        """The waiting request whose turn it is: the highest priority that is not blocked."""
        return next(self._counting(PRIORITIES), None)

    @property
    def to_wake(self) -> WaitingRequest | None:
        """The waiting request whose turn it is, if it fits now, or else a cancelled one, which is dead-lettered."""
        first = next_to_wake(self._counting(PRIORITIES), lambda each: self.fits(each.weight, each.token_bytes))
        return first or next((each for each in self.waiting.values() if each.execution in self.cancelled), None)

    @property
    def named(self) -> dict[Priority, WaitingRequest | Cleared]:
        """The waiting requests that the item names, whether or not their messages still exist."""
        return {**self.waiting, **self.cleared}

    def vanished_before(self, priority: Priority, position: Position | None) -> WaitingRequest | Cleared | None:
        """The request that has no message any more, because a later one of its group was delivered at this position."""
        named = self.named.get(priority)
        return named if named and position and named.sequence < position[0] else None

    def overdue(self, now: float) -> list[WaitingRequest | Cleared]:
        """The requests whose messages should have been received again some minutes ago."""
        return [each for each in self.named.values() if now >= each.back_at + SETTLED_SECONDS]

    def wake_delay(self, priority: Priority, now: float) -> int:
        """The seconds after which a wake of this priority makes its message visible."""
        return wake_delay(priority, self.turns, self.turn_seconds, self.rate, self.next_start, now)

    def admits(self, weight: int, priority: Priority, position: Position | None, token_bytes: int = 0) -> bool:
        """Whether a reserve would succeed when the rate permits a start, for the item that was read.

        Args:
            position: of the request's delivery. None: a request without a message, which waits for all others.
        """
        fits = self.fits(weight, token_bytes)
        if position is None:
            return fits and self.first is None
        own = self.waiting.get(priority)
        is_next = own is None or own.position <= position
        return fits and is_next and not any(self._counting(higher(priority)))

    def _counting(self, priorities: Iterable[Priority]) -> Iterator[WaitingRequest]:
        return _unblocked((self.waiting[each] for each in priorities if each in self.waiting), self.slot_limit)


def higher(priority: Priority) -> tuple[Priority, ...]:
    """The priorities that come before this one."""
    return PRIORITIES[: PRIORITIES.index(priority)]


WAKE_PROJECTION = "waiting, slot_limit, slots_in_use, paused, turn_high, turn_normal, turn_seconds, rate, next_start"


class Wake(NamedTuple):
    """The waiting request to wake, and the seconds after which its message becomes visible."""

    waiting: WaitingRequest
    delay: int


def next_to_wake(counting: Iterator[WaitingRequest], fits: Callable[[WaitingRequest], bool]) -> WaitingRequest | None:
    """Return the waiting request that a wake makes visible: the one whose turn it is, if it fits.

    If that one does not fit, no other one is woken: it would take the slots for which the first one waits. The
    workflow's ReadWaiting contains the same rule, and a test compares the two.

    Args:
        counting: the registered requests that are not blocked, the highest priority first.
        fits: whether a request fits, as far as the caller has read the item. If it does not after all, it is refused
            again.
    """
    first = next(counting, None)
    return first if first is not None and fits(first) else None


def read_wake(item: Mapping[str, Any], now: float) -> Wake | None:
    """Parse the attributes of WAKE_PROJECTION, and return the wake that is due, by the counter alone.

    The holders and cancellations are not read: a request that they refuse registers again, and a cancelled one that
    does not fit is woken by the operator command, or by the janitor, which reads the whole item. Entries of lower
    priorities than the one that is woken are not parsed, as in the workflow.

    Raises:
        MalformedAttribute: an attribute that decides does not have the documented type.
    """
    attributes = Attributes(item)
    limit, in_use = attributes.number("slot_limit"), attributes.number("slots_in_use")
    if attributes.flag("paused", False):
        return None
    entries = attributes.map("waiting", Attributes({}))
    registered = (
        _read_registration(priority, entry)
        for priority in PRIORITIES
        if "receipt_handle" in (entry := entries.map(priority, Attributes({}))).raw
    )
    first = next_to_wake(_unblocked(registered, limit), lambda each: in_use + each.weight <= limit)
    if first is None:
        return None
    turns, turn_seconds = _read_turns(attributes), _read_turn_seconds(attributes)
    return Wake(first, wake_delay(first.priority, turns, turn_seconds, *read_rate(attributes), now))


def _unblocked(registered: Iterable[WaitingRequest], slot_limit: float) -> Iterator[WaitingRequest]:
    return (each for each in registered if not each.is_above(slot_limit))


def read_process(item: Mapping[str, Any]) -> Process:
    """Parse an item in DynamoDB's format.

    Raises:
        MalformedProcess: an attribute is missing or has another type. Example: a limit stored as a string. Comparisons
            across types are never true, so the process would always look full.
    """
    try:
        return _parse(Attributes(item))
    except MalformedAttribute as error:
        raise MalformedProcess(str(error)) from None


def find_faults(item: Mapping[str, Any]) -> list[MalformedAttribute]:
    """All malformed attributes of an item in DynamoDB's format, each once; none if `read_process` accepts it.

    Of a map that is malformed itself, only the map.
    """
    faults: list[MalformedAttribute] = []
    _parse(Attributes(item, faults=faults))
    return list({fault.keys: fault for fault in faults}.values())


def _parse(attributes: Attributes) -> Process:
    turns = _read_turns(attributes)
    waiting, tombstones, cleared = _read_waiting(attributes.map("waiting"), turns)
    settings = attributes.map("run_settings", Attributes({}))
    rate, next_start = read_rate(attributes)
    return Process(
        name=attributes.text("process_name"),
        slot_limit=attributes.whole("slot_limit"),
        slots_in_use=attributes.whole("slots_in_use"),
        holders={name: _read_holder(holder) for name, holder in attributes.map("holders").maps()},
        paused=attributes.flag("paused", False),
        target=attributes.parsed("target", _target),
        default_weight=attributes.parsed_number("default_weight", _weight, 1),
        waiting=waiting,
        tombstones=tombstones,
        cleared=cleared,
        lost={name: _read_lost(note) for name, note in attributes.map("lost", Attributes({})).maps()},
        cancelled={name: _read_cancellation(note) for name, note in attributes.map("cancelled", Attributes({})).maps()},
        timeout_minutes=settings.whole("timeout_minutes", None),
        settle_seconds=settings.whole("settle_seconds", 0),
        queue_url=attributes.text("queue_url", ""),
        turns=turns,
        turn_seconds=_read_turn_seconds(attributes),
        rate=rate,
        next_start=next_start,
        grants=attributes.whole("grants", 0),
        ring_at=attributes.number("ring_at", 0),
    )


def _read_waiting(
    attributes: Attributes, turns: Mapping[Priority, int]
) -> tuple[dict[Priority, WaitingRequest], dict[Priority, Position], dict[Priority, Cleared]]:
    waiting: dict[Priority, WaitingRequest] = {}
    tombstones: dict[Priority, Position] = {}
    cleared: dict[Priority, Cleared] = {}
    for priority in PRIORITIES:
        entry = attributes.map(priority, None)
        if entry is None:
            continue
        # Without these two, no later delivery can replace the entry.
        sequence, receives = entry.text("sequence"), entry.whole("receives")
        if "receipt_handle" in entry.raw:
            waiting[priority] = _read_registration(priority, entry)
        else:
            tombstones[priority] = (sequence, receives)
            if "execution" in entry.raw:
                cleared[priority] = _read_cleared(priority, entry, turns)
    return waiting, tombstones, cleared


def wake_delay(
    priority: Priority,
    turns: Mapping[Priority, int],
    turn_seconds: int,
    rate: Rate | None,
    next_start: int,
    now: float,
) -> int:
    """The seconds after which a wake makes a message visible, for which SQS is the timer.

    That is when the turns of higher priorities have ended, rounded up: at most `turn_seconds`, although the clock that
    wrote a turn may be ahead. And it is when the rate permits the next start, rounded down, since the starter waits for
    the rest of a second. If a higher priority had the last start, its turn lasts for `turn_seconds` after that moment:
    otherwise each of its starts would cost the message of the lower one a receive.
    """
    began = max((turns[each] for each in higher(priority) if each in turns), default=None)
    turn = 0 if began is None else max(0, turn_seconds + min(0, math.ceil(began / 1000 - now)))
    due = next_start - rate.lead if rate else 0
    left = (due - milliseconds(now)) / 1000
    if rate is None or left <= 0:
        return turn
    if began is not None and began >= due - rate.interval:
        return min(math.ceil(left) + turn_seconds, MAX_HIDE_SECONDS)
    return min(max(turn, math.floor(left)), MAX_HIDE_SECONDS)


def _read_turn_seconds(attributes: Attributes) -> int:
    """Parse the length of a turn. Raises MalformedAttribute."""
    return attributes.parsed_number("turn_seconds", _turn_seconds, TURN_SECONDS)


def _turn_seconds(number: str) -> int:
    seconds = int(number)
    if not 0 <= seconds <= MAX_TURN_SECONDS:
        raise ValueError
    return seconds


def _read_turns(attributes: Attributes) -> dict[Priority, int]:
    """Parse the turns in an item. Raises MalformedAttribute."""
    turns = {priority: attributes.parsed_number(f"turn_{priority}", instant, None) for priority in PRIORITIES}
    return {priority: began for priority, began in turns.items() if began is not None}


def _read_registration(priority: Priority, entry: Attributes) -> WaitingRequest:
    """Parse a registration. Raises MalformedAttribute."""
    return WaitingRequest(
        priority=priority,
        receipt_handle=entry.text("receipt_handle"),
        sequence=entry.text("sequence"),
        receives=entry.whole("receives"),
        weight=entry.parsed_number("weight", _weight),
        since=entry.parsed_number("since", _second),
        execution=entry.text("execution"),
        request_id=entry.text("request_id", ""),
        token_bytes=entry.whole("token_bytes", 0),
        hidden_until=entry.parsed_number("hidden_until", _second),
        start_before=entry.parsed_number("start_before", _second, None),
    )


def _read_cleared(priority: Priority, entry: Attributes, turns: Mapping[Priority, int]) -> Cleared:
    since = entry.parsed_number("since", _second)
    return Cleared(
        priority=priority,
        sequence=entry.text("sequence"),
        receives=entry.whole("receives"),
        since=since,
        execution=entry.text("execution"),
        request_id=entry.text("request_id", ""),
        cleared=max(since, turns.get(priority, 0) // 1000),  # of a repaired item the turn may be an earlier one
    )


def _target(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _weight(number: str) -> int:
    weight = int(number)
    if not 1 <= weight <= MAX_WEIGHT:
        raise ValueError
    return weight


def _read_holder(holder: Attributes) -> Holder:
    state = holder.parsed("state", _holder_state)
    is_lease = state == "LEASED"
    return Holder(
        state=state,
        since=holder.parsed_number("since", _second),
        target=holder.text("job", ""),
        quiet_since=holder.whole("quiet_since", None),
        raw=holder.raw,
        weight=holder.parsed_number("weight", _weight, 1),
        task_token=holder.text("task_token", ""),
        redriven=holder.flag("redriven", False),
        # Of a lease both are required: without them, its slot would never be free again.
        until=holder.parsed_number("until", _second) if is_lease else None,
        code=holder.text("code") if is_lease else "",
    )


def _holder_state(text: str) -> HolderState:
    states = get_args(HolderState)
    if text not in states:
        raise ValueError(f"must be one of {', '.join(states)}, got {text!r}")
    return cast(HolderState, text)


def _second(number: str) -> int:
    second = int(number)
    if not 0 <= second <= LAST_SECOND:
        raise ValueError
    return second


def _read_cancellation(note: Attributes) -> Cancellation:
    return Cancellation(note.parsed_number("since", _second), note.text("by", ""))


def _read_lost(note: Attributes) -> Lost:
    return Lost(
        request_id=note.text("request_id", ""),
        priority=note.parsed("priority", _priority),
        since=note.parsed_number("since", _second),
        noted=note.parsed_number("noted", _second),
        reported=note.parsed_number("reported", _second, None),
    )


def _priority(text: str) -> Priority:
    if text not in PRIORITIES:
        raise ValueError(f"must be one of {', '.join(PRIORITIES)}, got {text!r}")
    return text
