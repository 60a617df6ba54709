"""Propose values for the malformed attributes of a process's item: pure.

No proposal could admit more than the limit, or free the slot of work that runs. What only an operator knows, such as
the limit, has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.leases import MAX_LEASE_SECONDS
from slotkeeper.slots.process import find_faults, read_process
from slotkeeper.slots.processes import MAX_REPLACED, check_settings
from slotkeeper.slots.rate import milliseconds, read_rate
from slotkeeper.slots.targets import check_settle_seconds

Keys = tuple[str, ...]  # the path of an attribute in its item
Value = Mapping[str, Any]  # an attribute in DynamoDB's format

_TEXTS = {"target", "job", "state", "code", "key"}
_FLAGS = {"paused", "redriven"}
# Values that admit no more and free no slot earlier; None: without the attribute.
_SAFE: Mapping[str, tuple[Value | None, str]] = {
    "ring_at": (None, "the next dispatch rings again, if it must"),
    "paused": ({"BOOL": True}, "slotkeeper process resume admits requests again"),
    "holders": ({"M": {}}, "no holder can be read; slotkeeper stack reconcile adopts what runs"),
    "after_keys": (None, "the turns of the keys begin again with the first one"),
    "key_limit": ({"N": "0"}, "no request that it applies to starts until slotkeeper process set-key-limit"),
    "key_limits": ({"M": {}}, "it is paused until slotkeeper process set-key-limit"),
    "rate": (None, "without it the process is paused until slotkeeper process set-rate"),
}
_SAFE_OF_HOLDER: Mapping[str, tuple[Value | None, str]] = {
    "quiet_since": (None, "the janitor begins its two checks again"),
    "redriven": ({"BOOL": True}, "the janitor does not stop its child execution"),
    "code": ({"S": "unknown"}, "its user receives SlotLost; the slot is kept to its end"),
}


@dataclass(frozen=True)
class Known:
    """The facts of a holder outside of the item.

    Attributes:
        started: when its execution started, in seconds since the epoch; None if there is no such execution.
        target: what its execution has confirmed that it runs; empty if its history does not state it.
        weight: that of its request; None if it has none, or its row was not found.
        key: that of its request, "" for none; None if its row was not found.
    """

    started: float | None = None
    target: str = ""
    weight: int | None = None
    key: str | None = None


class Repair(NamedTuple):
    """A value for a path, and why it is right or safe; `value` None: remove the attribute."""

    keys: Keys
    value: Value | None
    source: str


@dataclass(frozen=True)
class RepairPlan:
    """The writes of a repair.

    Attributes:
        faults: the malformed attributes of the item as it was read.
        changes: in order; of an item with more faults than one write replaces, those of the first.
        open: the malformed attributes without a proposal, which the operator must state.
        repaired: the item after the changes.
    """

    faults: Sequence[MalformedAttribute]
    changes: Sequence[Repair]
    open: Sequence[MalformedAttribute]
    repaired: Item


def plan_repair(item: Item, known: Mapping[str, Known], given: Mapping[Keys, str], now: float) -> RepairPlan:
    """Choose a value for each malformed attribute of an item: the operator's, or else the first safe one.

    Args:
        known: of the malformed holders, by name.
        given: values of the operator, by path.
        now: seconds since the epoch, before the item was read.

    Raises:
        ValueError: a value of the operator is not valid, or is for an attribute that is not malformed.
    """
    faults = find_faults(item)
    repaired, changes, opened = item, list[Repair](), list[MalformedAttribute]()
    for fault in faults[: MAX_REPLACED - 2]:
        keys = fault.keys
        is_replaced = any(one.keys == keys[: len(one.keys)] for one in changes)
        removed = {one.keys[0] for one in changes if one.value is None}
        if keys == ("slots_in_use",) or is_replaced or (keys == ("next_start",) and "rate" in removed):
            continue
        own = [Repair(path, _stated(path, text), "--set") for path, text in given.items() if path[: len(keys)] == keys]
        made = own if any(one.keys == keys for one in own) else [*_proposals(fault, item, known, now), *own]
        if own and made == own and own[0].keys != keys:
            made = [Repair(keys, {"M": {}}, "--set"), *own]
        after = _after(repaired, made)
        left = [one for one in find_faults(after) if one.keys[: len(keys)] == keys]
        if left and own:
            raise ValueError(str(left[0]))
        if left:
            opened.append(fault)
        else:
            repaired, changes = after, changes + made
    if wrong := given.keys() - {one.keys for one in changes}:
        raise ValueError(f"{', '.join('.'.join(keys) for keys in wrong)}: it is not malformed")
    for written in _consequences(repaired, changes):
        repaired, changes = _after(repaired, [written]), [*changes, written]
    return RepairPlan(faults, changes, opened, repaired)


def _after(item: Item, changes: Sequence[Repair]) -> Item:
    """The item after changes."""
    changed = deepcopy(item)
    for change in changes:
        within = changed
        for key in change.keys[:-1]:
            within = within[key]["M"]
        within.pop(change.keys[-1], None)
        if change.value is not None:
            within[change.keys[-1]] = change.value
    return changed


def _consequences(repaired: Item, changes: Sequence[Repair]) -> Iterator[Repair]:
    """What changes require: a pause, and the counter. Raises ValueError if a setting that they write is not valid."""
    values = {change.keys: change.value for change in changes}
    if {("holders",), ("key_limits",)} & values.keys() or values.get(("rate",), "kept") is None:
        yield Repair(("paused",), {"BOOL": True}, "until an operator has done the steps below")
    left = {fault.keys for fault in find_faults(repaired)}
    if (not changes and not left) or left - {("slots_in_use",)}:
        return
    process = read_process(repaired | {"slots_in_use": {"N": "0"}})
    check_settings(
        "valid",
        process.slot_limit if ("slot_limit",) in values else 0,
        process.target if ("target",) in values else NO_TARGET,
        process.default_weight,
        key_limit=process.key_limit if ("key_limit",) in values else None,
        timeout_minutes=process.timeout_minutes if ("run_settings", "timeout_minutes") in values else None,
    )
    if ("run_settings", "settle_seconds") in values:
        check_settle_seconds(process.settle_seconds, process.target)
    if left or int(repaired["slots_in_use"]["N"]) < process.held_weight:
        yield Repair(("slots_in_use",), _number(process.held_weight), "the sum of the holders' weights")


def value_at(item: Mapping[str, Any], keys: Keys) -> Value | None:
    """The attribute at a path; None if it is missing, or a map above it is."""
    value: Any = {"M": item}
    for key in keys:
        maps = value.get("M") if value else None
        value = maps.get(key) if isinstance(maps, Mapping) else None
    return value  # type: ignore[no-any-return]


def _stated(keys: Keys, text: str) -> Value:
    name = _attribute(keys)
    value = {"S": text} if name in _TEXTS and text else _converted(keys, {"S": text})
    if value is None:
        kind = "true or false" if name in _FLAGS else "a text" if name in _TEXTS else "a whole number"
        raise ValueError(f"{'.'.join(keys)} must be {kind}, got {text!r}")
    return value


def _attribute(keys: Keys) -> str:
    return keys[0] if keys[0] == "key_limits" else keys[-1]


def _converted(keys: Keys, value: Value | None) -> Value | None:
    """A text as a whole number, or a text or number as true or false; None if it is neither."""
    text = str((value or {}).get("S", (value or {}).get("N", ""))).strip().lower()
    if _attribute(keys) in _FLAGS:
        return {"BOOL": text in ("true", "1")} if text in ("true", "false", "1", "0") else None
    return {"N": str(int(text))} if _attribute(keys) not in _TEXTS and re.fullmatch(r"[0-9]{1,15}", text) else None


def _proposals(fault: MalformedAttribute, item: Item, known: Mapping[str, Known], now: float) -> Iterator[Repair]:
    """The values for a malformed attribute, the best one first."""
    keys = fault.keys
    has_no_own = fault.kind == "M" or keys[0] in ("rate", "grants", "after_keys")
    itself = None if has_no_own else _converted(keys, value_at(item, keys))
    match keys:
        case ("holders", name):
            yield Repair(keys, {"M": _rebuilt(item, known[name], now)}, _rebuilt_why(known[name]))
        case ("holders", name, _):
            yield from _of_holder(keys, item["holders"]["M"][name]["M"], known[name], itself, item, now)
        case ("grants",):
            yield Repair(keys, _number(milliseconds(now)), "the time, which no plan of a dispatch contains")
        case ("next_start",):
            rate, _ = read_rate(Attributes({"rate": item["rate"], "next_start": {"N": "0"}}))
            if rate:
                after = milliseconds(now) + rate.lead + rate.interval
                yield Repair(keys, _number(after), "as if a burst had just started")
        case ("key_limits", _) if itself is None:
            yield Repair(keys, *_SAFE["key_limit"])
        case (name, *_):
            if itself is not None:
                yield Repair(keys, itself, "the value itself")
            elif name in _SAFE:
                yield Repair((name,), *_SAFE[name])


def _of_holder(
    keys: Keys, raw: Mapping[str, Any], known: Known, itself: Value | None, item: Item, now: float
) -> Iterator[Repair]:
    match keys[-1]:
        case "state" if "until" in raw or "code" in raw:
            yield Repair(keys, {"S": "LEASED"}, "it has the attributes of a lease")
        case "state":
            yield Repair(keys, {"S": "RUNNING"}, "its slot is freed only after its execution and its work have ended")
        case "since" if known.started is not None:
            yield Repair(keys, _number(known.started), "the start of its execution")
        case "since" if itself is None or int(itself["N"]) > now:
            yield Repair(keys, _number(now), "now: it has no execution")
        case "weight" if known.weight:
            yield Repair(keys, _number(known.weight), "its request")
        case "weight" if itself is None or itself == {"N": "0"}:
            yield Repair(keys, _whole_limit(item), "the whole limit, since its request states none")
        case "job" if known.target:
            yield Repair(keys, {"S": known.target}, "the history of its execution")
        case "job" if raw.get("state") == {"S": "RESERVED"}:
            yield Repair(keys, None, "its workflow writes it when it confirms the slot")
        case "key" if known.key is not None or raw.get("state") == {"S": "LEASED"}:
            own = {"S": known.key} if known.key else None
            yield Repair(keys, own, "a lease has none" if known.key is None else "its request")
        case "until" if itself is None:
            yield Repair(keys, _number(now + MAX_LEASE_SECONDS), "the longest that a lease can still last")
        case _ if itself is not None:
            yield Repair(keys, itself, "the value itself")
        case attribute if attribute in _SAFE_OF_HOLDER:
            yield Repair(keys, *_SAFE_OF_HOLDER[attribute])


def _rebuilt(item: Item, known: Known, now: float) -> dict[str, Any]:
    """A holder that is no map, as `stack reconcile` would adopt it: RUNNING, so that its work is checked first."""
    holder: dict[str, Any] = {"state": {"S": "RUNNING"}, "since": _number(known.started or now)}
    holder |= {name: {"S": text} for name, text in (("job", known.target), ("key", known.key)) if text}
    return holder | {"weight": _number(known.weight) if known.weight else _whole_limit(item)}


def _rebuilt_why(known: Known) -> str:
    since = "its execution" if known.started else "no execution of its name exists, so its age begins now"
    return f"{since}; its weight: {'its request' if known.weight else 'the whole limit'}"


def _whole_limit(item: Item) -> Value:
    limit = _converted(("slot_limit",), item.get("slot_limit"))
    return {"N": "1"} if limit in (None, {"N": "0"}) else limit or {}


def _number(value: float) -> Value:
    return {"N": str(int(value))}
