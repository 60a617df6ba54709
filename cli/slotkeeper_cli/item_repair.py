"""Decide how the malformed attributes of a process's item are repaired: the value, and its source.

No value is invented that could admit more than the limit, or free the slot of work that runs. The functions are pure:
the facts of the stack are an argument (`Sources`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute
from slotkeeper.slots.executions import Execution
from slotkeeper.slots.leases import MAX_LEASE_SECONDS
from slotkeeper.slots.process import MAX_SLOT_LIMIT, find_faults, read_process
from slotkeeper.slots.processes import MAX_REPLACED
from slotkeeper.slots.rate import milliseconds, read_rate
from slotkeeper.slots.targets import MAX_SETTLE_SECONDS, MAX_TIMEOUT_MINUTES, check_target

Keys = tuple[str, ...]  # the path of an attribute in its item
Value = Mapping[str, Any]  # an attribute in DynamoDB's format

# Operators and deployments choose these: --set may replace the value of another source.
SETTINGS = ("slot_limit", "target", "default_weight", "rate", "run_settings")
_RANGES = {
    ("slot_limit",): (0, MAX_SLOT_LIMIT),
    ("run_settings", "timeout_minutes"): (1, MAX_TIMEOUT_MINUTES),
    ("run_settings", "settle_seconds"): (0, MAX_SETTLE_SECONDS),
}
_ITSELF = "the value itself"


class Stated(NamedTuple):
    """The value of a setting that a source states; None: the process has no such attribute."""

    value: Value | None
    source: str


@dataclass(frozen=True)
class Sources:
    """The facts about a process that are not in its item.

    Attributes:
        executions: of the malformed holders, by name; None if Step Functions knows none.
        targets: those that these executions have confirmed, by name, as their histories state them.
        weights: those that the rows of the malformed holders state, by name.
        settings: those that the audit log and the stack's parameters state, by path.
        has_log: whether the audit log could be read.
    """

    executions: Mapping[str, Execution | None] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[Keys, Stated] = field(default_factory=dict)
    has_log: bool = True


class Choice(NamedTuple):
    """A value for a path, and its source; `value` None: remove the attribute."""

    keys: Keys
    value: Value | None
    source: str


@dataclass(frozen=True)
class RepairPlan:
    """The writes of a repair.

    Attributes:
        faults: the malformed attributes of the item as it was read.
        choices: in order; an attribute that is not malformed is among them if a repaired one requires it.
        open: the malformed attributes for which no source states a safe value.
        repaired: the item after the choices.
        is_partial: more attributes are malformed than one write replaces.
    """

    faults: Sequence[MalformedAttribute]
    choices: Sequence[Choice]
    open: Sequence[MalformedAttribute]
    repaired: Item
    is_partial: bool


def plan_repair(item: Item, sources: Sources, given: Mapping[Keys, str], now: float) -> RepairPlan:
    """Choose a value for each malformed attribute of an item.

    Args:
        given: values of the operator, by path.
        now: seconds since the epoch, before the item was read.

    Raises:
        ValueError: a value of the operator is not valid, or is for an attribute that needs none.
    """
    repaired, choices, opened = deepcopy(item), list[Choice](), list[MalformedAttribute]()
    asked, unused = set[Keys](), dict(given)
    while len(choices) < MAX_REPLACED - 2:
        fault = next((one for one in find_faults(repaired) if one.keys not in asked), None)
        if fault is None:
            break
        asked.add(fault.keys)
        if fault.keys == ("slots_in_use",):
            continue
        text = unused.get(fault.keys)
        valid = (one for one in _choices(fault, repaired, sources, now) if not _problem(repaired, one))
        choice = None if text is not None and fault.keys[0] in SETTINGS else next(valid, None)
        if choice is None and text is not None:
            choice = _given(fault, text, repaired)
            del unused[fault.keys]
        if choice is None:
            opened.append(fault)
            continue
        for one in (choice, *_required(choice)):
            choices.append(one)
            _write(repaired, one)
    if unused:
        raise ValueError(f"{_joined(unused)}: it is not malformed, or another source states it")
    faults = find_faults(item)
    choices += _counter(repaired) if faults else []
    return RepairPlan(faults, choices, opened, repaired, bool(find_faults(repaired)) and not opened)


def value_at(item: Mapping[str, Any], keys: Keys) -> Value | None:
    """The attribute at a path; None if it is missing, or a map above it is."""
    value: Any = {"M": item}
    for key in keys:
        maps = value.get("M") if value else None
        value = maps.get(key) if isinstance(maps, Mapping) else None
    return value  # type: ignore[no-any-return]


def _joined(paths: Mapping[Keys, str]) -> str:
    return ", ".join(".".join(keys) for keys in paths)


def _write(item: Item, choice: Choice) -> None:
    within = item
    for key in choice.keys[:-1]:
        within = within[key]["M"]
    if choice.value is None:
        within.pop(choice.keys[-1], None)
    else:
        within[choice.keys[-1]] = choice.value


def _problem(item: Item, choice: Choice) -> str:
    """Why the item would still be malformed at a choice's path; empty if it would not."""
    after = deepcopy(item)
    _write(after, choice)
    for fault in find_faults(after):
        if fault.keys[: len(choice.keys)] == choice.keys:
            return str(fault)
    if choice.value is None:
        return ""
    if choice.keys == ("target",):
        try:
            check_target(choice.value["S"])
        except ValueError as error:
            return str(error)
    least, most = _RANGES.get(choice.keys, (0, 0))
    if most and not least <= int(choice.value["N"]) <= most:
        return f"{'.'.join(choice.keys)} must be a whole number from {least} to {most}, got {choice.value['N']}"
    return ""


def _given(fault: MalformedAttribute, text: str, item: Item) -> Choice:
    value = {"S": text} if fault.kind == "S" else _converted(fault.kind, {"S": text})
    if value is None:
        raise ValueError(f"{'.'.join(fault.keys)}={text}: {_EXPECTED.get(fault.kind, 'it cannot be set')}")
    choice = Choice(fault.keys, value, "--set")
    if problem := _problem(item, choice):
        raise ValueError(problem)
    return choice


_EXPECTED = {"N": "it must be a whole number", "BOOL": "it must be true or false"}


def _converted(kind: str, value: Value | None) -> Value | None:
    """A text as a whole number, or a text or number as true or false; None for any other value."""
    text = str((value or {}).get("S", (value or {}).get("N", ""))).strip().lower()
    if kind == "N" and re.fullmatch(r"[0-9]{1,15}", text):
        return {"N": str(int(text))}
    if kind == "BOOL" and text in ("true", "false", "1", "0"):
        return {"BOOL": text in ("true", "1")}
    return None


_NO_RATE = "no source states it; without it the process is paused"
# Values for attributes that no source states: none admits more, or frees a slot earlier.
_SAFE: Mapping[str, tuple[Value | None, str]] = {
    "ring_at": (None, "the next dispatch rings again, if it must"),
    "paused": ({"BOOL": True}, "no source states it; slotkeeper process resume admits requests again"),
    "holders": ({"M": {}}, "no holder can be read; slotkeeper stack reconcile adopts what runs"),
}
_SAFE_OF_HOLDER: Mapping[str, tuple[Value | None, str]] = {
    "quiet_since": (None, "the janitor begins its two checks again"),
    "redriven": ({"BOOL": True}, "no source states it; the janitor does not stop its child execution"),
    "code": ({"S": "unknown"}, "no source has it: its user receives SlotLost; the slot is kept to its end"),
}


def _choices(fault: MalformedAttribute, item: Item, sources: Sources, now: float) -> Iterator[Choice]:
    """The values for a malformed attribute, the best source first."""
    keys = fault.keys
    match keys:
        case ("holders", _):
            yield from _rebuilt_holder(fault, item, sources, now)
        case ("holders", _, _):
            yield from _holder_choices(fault, item, sources, now)
        case ("grants",):
            yield Choice(keys, _number(milliseconds(now)), "the time, which no plan of a dispatch contains")
        case ("rate" | "next_start", *_):
            yield from _rate_choices(fault, item, sources, now)
        case _:
            yield from _itself(fault, item)
            if stated := sources.settings.get(keys):
                yield Choice(keys, *stated)
            if safe := _SAFE.get(keys[0]):
                yield Choice(keys, *safe)


def _rate_choices(fault: MalformedAttribute, item: Item, sources: Sources, now: float) -> Iterator[Choice]:
    if fault.keys == ("next_start",):
        rate, at = read_rate(Attributes({"rate": item["rate"], "next_start": _number(milliseconds(now))}))
        if rate:
            yield Choice(fault.keys, _number(at + rate.lead + rate.interval), "as if a burst had just started")
        return
    if fault.keys != ("rate",):
        yield from _itself(fault, item)
    if stated := sources.settings.get(("rate",)):
        yield Choice(("rate",), *stated)
    yield Choice(("rate",), None, _NO_RATE)


def _itself(fault: MalformedAttribute, item: Item) -> Iterator[Choice]:
    if converted := _converted(fault.kind, value_at(item, fault.keys)):
        yield Choice(fault.keys, converted, _ITSELF)


def _required(choice: Choice) -> Iterator[Choice]:
    """Further writes. Without its holders a process must not admit requests before those that run are adopted."""
    if choice.keys == ("holders",):
        yield Choice(("paused",), {"BOOL": True}, "until what runs has been adopted: then slotkeeper process resume")
    if choice.keys == ("rate",) and choice.source == _NO_RATE:
        yield Choice(("paused",), {"BOOL": True}, "until slotkeeper process set-rate: then slotkeeper process resume")


def _rebuilt_holder(fault: MalformedAttribute, item: Item, sources: Sources, now: float) -> Iterator[Choice]:
    """A holder that is no map, as `stack reconcile` would adopt it: RUNNING, so that its work is checked first."""
    execution, target = sources.executions.get(fault.keys[1]), sources.targets.get(fault.keys[1], "")
    started = execution.started_at if execution else None
    weight = next(_weights(fault, item, sources), None) or _whole_limit(item)
    holder: dict[str, Any] = {"state": {"S": "RUNNING"}, "since": _number(now if started is None else started)}
    holder |= {"job": {"S": target}} if target else {}
    holder |= {} if weight.value == {"N": "1"} else {"weight": weight.value}
    which = "its execution" if execution else "there is no execution of its name, so its age begins now"
    yield Choice(fault.keys, {"M": holder}, f"{which}; its weight: {weight.source}")


def _holder_choices(fault: MalformedAttribute, item: Item, sources: Sources, now: float) -> Iterator[Choice]:
    """The values for an attribute of a holder, the best source first."""
    keys = fault.keys
    _, name, attribute = keys
    raw = item["holders"]["M"][name]["M"]
    execution, target = sources.executions.get(name), sources.targets.get(name, "")
    match attribute:
        case "state" if "until" in raw or "code" in raw:
            yield Choice(keys, {"S": "LEASED"}, "it has the attributes of a lease")
        case "state":
            yield Choice(keys, {"S": "RUNNING"}, "its slot is freed only after its execution and its work have ended")
        case "since":
            if execution and execution.started_at is not None:
                yield Choice(keys, _number(execution.started_at), "the start of its execution")
            yield from (each for each in _itself(fault, item) if each.value and int(each.value["N"]) <= now)
            yield Choice(keys, _number(now), "now: it has no execution")
        case "weight":
            yield from (Choice(keys, *stated) for stated in _weights(fault, item, sources))
        case "job" if target:
            yield Choice(keys, {"S": target}, "the history of its execution")
        case "job" if raw.get("state") == {"S": "RESERVED"}:
            yield Choice(keys, None, "its workflow writes it when it confirms the slot")
        case "until":
            yield from _itself(fault, item)
            yield Choice(keys, _number(now + MAX_LEASE_SECONDS), "the longest that a lease can still last")
        case _ if safe := _SAFE_OF_HOLDER.get(attribute):
            yield from _itself(fault, item) if attribute == "redriven" else ()
            yield Choice(keys, *safe)


def _weights(fault: MalformedAttribute, item: Item, sources: Sources) -> Iterator[Stated]:
    """The weights that sources state for a holder, the best source first."""
    name = fault.keys[1]
    execution = sources.executions.get(name)
    if weight := sources.weights.get(name):
        yield Stated(_number(weight), "its request")
    yield from (Stated(each.value, each.source) for each in _itself(fault, item))
    others = {each: entry for each, entry in item["holders"]["M"].items() if each != name}
    held, counted = _held_weight(others), item.get("slots_in_use", {}).get("N", "")
    if held is not None and counted.isdigit() and int(counted) > held:
        yield Stated(_number(int(counted) - held), "slots_in_use without the other holders")
    if execution and (default := item.get("default_weight", {"N": "1"}).get("N")):
        yield Stated({"N": default}, "the process's default weight: its request states none")


def _whole_limit(item: Item) -> Stated:
    limit = item["slot_limit"].get("N", "1")
    return Stated({"N": limit if limit.isdigit() and limit != "0" else "1"}, "no source states it; the whole limit")


def _held_weight(holders: Mapping[str, Any]) -> int | None:
    """The sum of holders' weights; None if one of them is malformed."""
    item = {"process_name": {"S": ""}, "slot_limit": {"N": "0"}, "slots_in_use": {"N": "0"}, "target": {"S": "any"}}
    whole = {**item, "holders": {"M": holders}, "grants": {"N": "0"}}
    return None if find_faults(whole) else read_process(whole).held_weight


def _counter(item: Item) -> list[Choice]:
    """The counter, if it is malformed, or below the weights of the repaired holders. Written into the item."""
    holders, counted = item.get("holders", {}).get("M"), item.get("slots_in_use", {}).get("N", "")
    held = None if holders is None else _held_weight(holders)
    is_valid = not any(fault.keys == ("slots_in_use",) for fault in find_faults(item))
    if held is None or (is_valid and int(counted) >= held):
        return []
    choice = Choice(("slots_in_use",), _number(held), "the sum of the holders' weights")
    _write(item, choice)
    return [choice]


def _number(value: float) -> Value:
    return {"N": str(int(value))}
