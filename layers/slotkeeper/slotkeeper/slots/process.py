"""A process: the item of SlotTable as a type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute, Table
from slotkeeper.settings import CLOCK_SKEW_SECONDS, MAX_WEIGHT
from slotkeeper.slots.rate import LAST_SECOND, Rate, read_rate

# In the unit of the limit: slots, or for example DPUs if requests have weights.
MAX_SLOT_LIMIT = MAX_WEIGHT
# Each holder adds up to 200 bytes to the item, and so to the price of each write.
MAX_HOLDERS = 500
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
    unchanged. `key`: of its request, "" for none; a lease has none. `redriven`: its child execution was redriven
    manually, and the janitor adopted it. Only a lease has an end, `until`, and a `code`, which its holder alone knows.
    """

    state: HolderState
    since: int
    target: str
    quiet_since: int | None
    raw: Mapping[str, Any] = field(repr=False)
    weight: int = 1
    key: str = ""
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
class Process:
    """One item of SlotTable. Times are seconds since the epoch, weights in the unit of the limit.

    Attributes:
        timeout_minutes: minutes after which the workflow ends the work. None: the stack's parameter.
        settle_seconds: seconds for which a slot is kept after its child execution was aborted or has timed out.
        rate: how many requests and leases may start in a time. None: any number.
        next_start: of the rate (rate.py), in milliseconds since the epoch.
        grants: changes with every write after which a plan of who starts next may be wrong (grants.py).
        ring_at: when the next timed doorbell is due, in seconds since the epoch; 0: none was sent.
        key_limit: the limit of each key that has none of its own. None: only the process's limit applies.
        key_limits: key -> its own limit.
        after_keys: rank of a priority -> the key whose turn was last in it. Without one, the first key has the next.
    """

    name: str
    slot_limit: int
    slots_in_use: int
    holders: Mapping[str, Holder]
    paused: bool
    target: str
    default_weight: int = 1
    timeout_minutes: int | None = None
    settle_seconds: int = 0
    rate: Rate | None = None
    next_start: int = 0
    grants: int = 0
    ring_at: float = 0
    key_limit: int | None = None
    key_limits: Mapping[str, int] = field(default_factory=dict)
    after_keys: Mapping[str, str] = field(default_factory=dict)

    def limit_of(self, key: str) -> int | None:
        """The limit of a key; "" is that of all requests without one. None: only the process's limit applies."""
        return self.key_limits.get(key, self.key_limit)

    @property
    def held_by_key(self) -> dict[str, int]:
        """Key -> the sum of the weights of its requests that hold slots. Leases have no key, and belong to none."""
        held: Counter[str] = Counter()
        for holder in self.holders.values():
            if not holder.is_lease:
                held[holder.key] += holder.weight
        return dict(held)

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

    @property
    def room(self) -> int:
        """The free part of the limit; below 0 after the limit was lowered. A counter that has drifted frees nothing."""
        return self.slot_limit - max(self.slots_in_use, self.held_weight)

    @property
    def missing(self) -> int:
        """What slots_in_use lacks of the held weight. Each step of the protocol keeps the difference."""
        return max(0, self.held_weight - self.slots_in_use)

    @property
    def has_drifted(self) -> bool:
        return self.slots_in_use != self.held_weight


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


def read_from(table: Table, name: str) -> Process | None:
    """Read a process's item consistently from SlotTable; None if it does not exist. Raises MalformedProcess."""
    item = table.read(name)
    return read_process(item) if item else None


def find_faults(item: Mapping[str, Any]) -> list[MalformedAttribute]:
    """All malformed attributes of an item in DynamoDB's format, each once; none if `read_process` accepts it.

    Of a map that is malformed itself, only the map.
    """
    faults: list[MalformedAttribute] = []
    _parse(Attributes(item, faults=faults))
    return list({fault.keys: fault for fault in faults}.values())


def _parse(attributes: Attributes) -> Process:
    settings = attributes.map("run_settings", Attributes({}))
    rate, next_start = read_rate(attributes)
    limits, turns = (attributes.map(name, Attributes({})) for name in ("key_limits", "after_keys"))
    return Process(
        name=attributes.text("process_name"),
        slot_limit=attributes.whole("slot_limit"),
        slots_in_use=attributes.whole("slots_in_use"),
        holders={name: _read_holder(holder) for name, holder in attributes.map("holders").maps()},
        paused=attributes.flag("paused", False),
        target=attributes.parsed("target", _target),
        default_weight=attributes.parsed_number("default_weight", _weight, 1),
        timeout_minutes=settings.whole("timeout_minutes", None),
        settle_seconds=settings.whole("settle_seconds", 0),
        rate=rate,
        next_start=next_start,
        grants=attributes.whole("grants"),
        ring_at=attributes.number("ring_at", 0),
        key_limit=attributes.whole("key_limit", None),
        key_limits={key: limits.whole(key) for key in limits.raw},
        after_keys={rank: turns.text(rank) for rank in turns.raw},
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
        key=holder.text("key", ""),
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
