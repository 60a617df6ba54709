"""Compares why a request waits, as the operator command explains it, with the states that a world reaches.

In an item of a process, for each registered request and a new one of each priority, the starter's own write decides:

- It is granted if no condition is listed.
- It is refused if any condition is listed, also if all others are ended: each is necessary.
- It is granted when all listed conditions are ended: together they are sufficient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from slotkeeper.slots.process import Process, WaitingRequest, read_process
from slotkeeper.slots.protocol import Candidate, Granted, LeaseTerm, Slots
from slotkeeper.slots.request import PRIORITIES, Delivery, Priority, message_group
from slotkeeper_cli.conditions import Condition, failing, of_waiting
from slotkeeper_cli.explanation import lease_conditions
from tests.simulation.aws import dynamodb
from tests.simulation.frozen import Record, thaw
from tests.simulation.slots_properties import SlotsProperties
from tests.simulation.transcript import Outside, Question
from tests.simulation.workflow import SLOTS

Item = dict[str, Any]
NOW = 1_000.0


class _Table(Outside):
    """The simulated DynamoDB with one item."""

    def __init__(self, item: Item) -> None:
        super().__init__(())
        self._state = dynamodb.tables(**{SLOTS: [item]})

    def ask(self, question: Question) -> Any:
        self._state, answer = dynamodb.perform(self._state, question.operation, question.parameters)
        return Outside((answer,)).ask(question)


def note_items(patch: pytest.MonkeyPatch) -> Iterable[Record]:
    """The items of processes that worlds write from now on."""
    items: dict[Record, None] = {}
    check = SlotsProperties._check_process

    def note(self: SlotsProperties, item: Record, before: Record) -> None:
        if "process_name" in item:  # otherwise the process was removed
            items[item] = None
        check(self, item, before)

    patch.setattr(SlotsProperties, "_check_process", note)
    return items


def _asked(process: Process) -> Iterator[tuple[Candidate, list[Condition]]]:
    """What may ask for a slot: the registered requests, a request of each priority that comes next, and a lease."""
    for waiting in process.waiting.values():
        yield _registered(process, waiting), of_waiting(process, waiting, NOW)
    for priority in PRIORITIES:
        delivery = _delivery(process, priority, "9" * 20, 1)
        found = failing(process, process.default_weight, priority, execution="p-new", now=NOW)
        yield Candidate(process.name, "p-new", None, priority, delivery, "new"), found
    lease = Candidate(process.name, "p-lease", 1, lease=LeaseTerm(int(NOW) + 60, "code"))
    yield lease, lease_conditions(process, 1, NOW)


def _registered(process: Process, waiting: WaitingRequest) -> Candidate:
    delivery = _delivery(process, waiting.priority, waiting.sequence, waiting.receives)
    token = "t" * waiting.token_bytes
    name = waiting.execution
    return Candidate(process.name, name, waiting.weight, waiting.priority, delivery, waiting.request_id, token)


def _delivery(process: Process, priority: Priority, sequence: str, receives: int) -> Delivery:
    return Delivery("m", "", message_group(process.name, priority), "handle", sequence, receives, NOW)


def _is_granted(item: Item, candidate: Candidate) -> bool:
    delivery, registered = candidate.delivery, item["waiting"]["M"].get(candidate.priority, {"M": {}})["M"]
    if delivery and "receipt_handle" in registered and registered["sequence"]["S"] < delivery.sortable_sequence:
        return False  # SQS delivers no later message of a group while an earlier one is hidden
    return isinstance(Slots(_Table(item).client("dynamodb"), SLOTS).reserve(candidate, NOW), Granted)


def _ended(item: Item, candidate: Candidate, condition: Condition) -> Item:
    """The item after a condition has ended, by an operator or by itself."""
    process = read_process(item)
    match condition.name:
        case "cancelled":
            cancelled = {name: note for name, note in item["cancelled"]["M"].items() if name != candidate.execution}
            return item | {"cancelled": {"M": cancelled}}
        case "target":
            return item | {"target": {"S": "job"}}
        case "pause":
            return item | {"paused": {"BOOL": False}}
        case "limit":
            # Above the holders too, whose own condition is listed only below the limit.
            weight = candidate.weight_in(process) + max(process.slots_in_use, process.held_weight)
            return item | {"slot_limit": {"N": str(weight)}}
        case "slots":
            return item | {"holders": {"M": {}}, "slots_in_use": {"N": "0"}}
        case "priority" | "queue":
            ahead = condition.values["ahead"]
            left = {key: each for key, each in item["waiting"]["M"].items() if _id_of(each) not in ahead}
            return item | {"waiting": {"M": left}}
    raise AssertionError(condition.name)


def _id_of(registration: Mapping[str, Any]) -> str:
    return str(registration["M"].get("request_id", {}).get("S", ""))


def wrong_explanations(items: Iterable[Record]) -> Iterator[str]:
    """What the explanations of these items state wrongly."""
    for item in map(thaw, items):
        for candidate, found in _asked(read_process(item)):
            if candidate.execution in item["holders"]["M"]:
                continue  # it does not wait: the registration of a message that was delivered twice
            for spared in [None, *found]:
                ended = item
                for condition in found:
                    if condition is not spared:
                        ended = _ended(ended, candidate, condition)
                if _is_granted(ended, candidate) != (spared is None):
                    yield f"{candidate.execution} with {spared} of {found} in {item}"
