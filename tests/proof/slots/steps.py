"""The writes of each step on a process's item, as the product's own code makes them for numbers of any value."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from z3 import Int

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots import grants, lease_protocol, processes, protocol, request_table, returns
from slotkeeper.slots.grants import Grants
from slotkeeper.slots.lease_protocol import LeaseSteps, LeaseTerm
from slotkeeper.slots.plan import PlannedStart, _Free
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import Slots
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request_table import Leaving, RequestTable
from slotkeeper.slots.returns import Requeues
from tests.proof.slots.symbols import Search

WORKFLOW = Path(__file__).parents[3] / "statemachines" / "slot_workflow.asl.json"
NOW = 1_800_000_000
LEASE = LeaseTerm(NOW + 60, "own")
ROWS = "requests"
_HELD = (("a", 2), ("b", 3))  # names and weights of the holders of an item that is repaired


class Recorder:
    """A DynamoDB client that accepts each write of SlotTable and keeps it, and the functions that led to it."""

    def __init__(self) -> None:
        self.writes: list[dict[str, Any]] = []
        self.callers: set[str] = set()

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        def call(**request: Any) -> dict[str, Any]:
            parts = [part["Update"] for part in request.get("TransactItems", ()) if "Update" in part]
            found = [part for part in (request, *parts) if "ConditionExpression" in part]
            if of_slots := [part for part in found if part["TableName"] != ROWS]:
                self.writes += of_slots
                frame = sys._getframe(1)
                while frame.f_back:
                    self.callers.add(frame.f_code.co_qualname)
                    frame = frame.f_back
            return {"Attributes": {"process_name": {"S": "p"}}, "Item": {}}

        return call


@dataclass(frozen=True)
class AsRead(Process):
    """A process as a step has read it before its write, with holders of any weight."""

    held: Any = 0
    of_keys: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # key -> the weight that it holds, its limit

    @property
    def held_weight(self) -> int:
        return self.held

    @property
    def held_by_key(self) -> dict[str, int]:
        return {key: held for key, (held, _) in self.of_keys.items()}

    def limit_of(self, key: str) -> Any:
        return self.of_keys.get(key, (0, None))[1]


@dataclass(frozen=True)
class AnyRate(Rate):
    """A rate of any interval and burst."""

    interval: Any = 0  # type: ignore[assignment]
    lead: Any = 0  # type: ignore[assignment]


def as_read(search: Search, *, paced: bool = False, target: str = "job", keys: Iterable[str] = ()) -> AsRead:
    names = ("limit", "in use", "held", "default", "grants", "interval", "lead", "next start")
    limit, in_use, held, default, grants, *of_rate, next_start = (search.integer(f"{name} read") for name in names)
    rate = AnyRate(1, 1, 1, *of_rate) if paced else None
    of_keys = {key: tuple(search.integer(f"{what} of {key!r} read") for what in ("held", "limit")) for key in keys}
    given = {"held": held, "rate": rate, "next_start": next_start, "grants": grants, "of_keys": of_keys}
    return AsRead("p", limit, in_use, {}, False, target, default, **given)


# What holds for every number that a step reads or is given.
PREMISES = (
    *(Int(f"{name} read") >= 0 for name in ("limit", "held", "lead")),
    *(Int(name) >= 1 for name in ("default read", "weight", "interval read")),
    *(Int(f"weight {number}") >= 1 for number in range(3)),
)


Step = Callable[[Recorder, Search], Any]


def _slots(recorder: Recorder) -> Slots:
    return Slots(recorder, "table")  # type: ignore[arg-type]


def _leases(recorder: Recorder) -> LeaseSteps:
    return LeaseSteps(recorder, "table")  # type: ignore[arg-type]


def _take(weight: Any, *, target: str = NO_TARGET, reads_first: bool = False, paced: bool = False) -> Step:
    """A lease. Without a rate also one that its plan would refuse, since the condition alone must be enough."""

    def make(recorder: Recorder, search: Search) -> Any:
        of = search.integer("weight") if weight == "any" else weight
        seen, steps = as_read(search, paced=paced, target=target), _leases(recorder)
        steps._grants.read = lambda _: seen  # type: ignore[method-assign]
        steps.refusal = lambda *_: None  # type: ignore[method-assign]
        if reads_first or paced:
            steps._read_first.add("p")
        if paced and _Free(seen, NOW).refuses(of or seen.default_weight):
            return None
        return steps.take("p", "me", of, LEASE, NOW)

    return make


# Requests of a queue that one write concerns. The expression of more of them has more equal terms.
_QUEUED = ("me", "second", "third")


def _weights(search: Search, count: int, weight: Any) -> list[Any]:
    return [search.integer(f"weight {number}") if weight == "any" else weight for number in range(count)]


def _grant(count: int, weight: Any = "any", *, paced: bool = False, keys: tuple[str, ...] = ()) -> Step:
    """A grant of so many starts. Of rate and keys the plan must be right, otherwise the condition alone is enough.

    Args:
        keys: those of the starts.
    """

    def make(recorder: Recorder, search: Search) -> Any:
        seen = as_read(search, paced=paced, keys=keys)
        given = zip(_QUEUED, _weights(search, count, weight), keys or ("",) * count, strict=False)
        starts = [PlannedStart(*each) for each in given]
        free = _Free(seen, NOW)
        for start in starts if paced or keys else ():
            if free.refuses_key(start.key, start.weight) or (paced and free.refuses(start.weight)):
                return None
            free.take(start.key, start.weight)
        return _of(Grants, recorder).grant(seen, starts, free.next_start, NOW)

    return make


def _remove_reservations(name: str, weight: Any) -> Step:
    return lambda recorder, search: getattr(_of(Grants, recorder), name)(
        "p", dict(zip(_QUEUED, _weights(search, len(_QUEUED), weight), strict=False))
    )


def _expire(recorder: Recorder, _: Search) -> Any:
    lease = Holder("LEASED", NOW - 90, "", None, {}, weight=2, until=NOW - 60, code="of x")
    return _of(Grants, recorder).expire(Process("p", 9, 2, {"x": lease}, False, "job"), "x")


def _rows(recorder: Recorder) -> RequestTable:
    return RequestTable(recorder, ROWS, "table")  # type: ignore[arg-type]


def _set_key_limit(limit: int | None, key: str = "") -> Step:
    return lambda recorder, _: _of(Processes, recorder).set_key_limit("p", limit, key)


class _OfRow(Recorder):
    """One that reads the row of a request, and the item of its process."""

    def get_item(self, **request: Any) -> dict[str, Any]:
        """The answer to GetItem."""
        texts = {"state": "STARTED", "placed": "1", "body": "{}", "request_id": "a", "process_name": "p"}
        row = {name: {"S": text} for name, text in {**texts, "execution": "me"}.items()}
        numbers = {"attempt": {"N": "1"}, "sent": {"N": "1"}}
        return {"Item": {**row, **numbers} if request["TableName"] == ROWS else {"grants": {"N": "7"}}}


def _give_back(recorder: Recorder, _: Search) -> Any:
    of_row = _OfRow()
    of_row.writes, of_row.callers = recorder.writes, recorder.callers
    return Requeues(of_row, ROWS, "table", 86400).give_back("p", "me", NOW)  # type: ignore[arg-type]


_LEAVINGS = [Leaving(name, "CANCELLED", "", "") for name in _QUEUED]


def _repair_counter(recorder: Recorder, search: Search) -> Any:
    held = {name: Holder("RUNNING", NOW, "job", None, {"weight": {"N": str(weight)}}, weight) for name, weight in _HELD}
    seen = Process("p", 9, 4, held, False, "job")
    return _of(Processes, recorder).repair_counter(seen)


def _repair(recorder: Recorder, search: Search) -> Any:
    held = {name: {"M": {"weight": {"N": str(weight)}}} for name, weight in _HELD}
    seen = {"slots_in_use": {"S": "4"}, "paused": {"S": "x"}, "holders": {"M": held}}
    repaired = {**seen, "slots_in_use": {"N": "5"}, "paused": {"BOOL": False}}
    return _of(Processes, recorder).repair("p", seen, repaired)


def _repair_key_limit(recorder: Recorder, search: Search) -> Any:
    seen = {"key_limit": {"S": "2"}, "grants": {"N": "7"}}
    return _of(Processes, recorder).repair("p", seen, {**seen, "key_limit": {"N": "2"}})


def _states() -> Iterator[tuple[str, dict[str, Any]]]:
    """The writes of the workflow, by the name of the state."""

    def find(node: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(node, list):
            for each in node:
                yield from find(each, name)
        elif isinstance(node, dict):
            if "UpdateExpression" in node and node["TableName"] == "${SlotTableName}":
                yield name, node
            for key, value in node.items():
                yield from find(value, key if isinstance(value, dict) and "Type" in value else name)

    return find(json.loads(WORKFLOW.read_text()), "")


def _of(kind: type[Any], recorder: Recorder) -> Any:
    return kind(recorder, "table")


_SEEN = {"state": {"S": "RUNNING"}, "weight": {"N": "2"}}

# Every step but the grants: it adds no weight.
OTHERS: dict[str, Step] = {
    "free": lambda recorder, _: _slots(recorder).free("p", "me", _SEEN),
    "note an end": lambda recorder, _: _slots(recorder).note_end("p"),
    "mark quiet": lambda recorder, _: _slots(recorder).mark_quiet("p", "me", _SEEN, NOW),
    "mark alive": lambda recorder, _: _slots(recorder).mark_quiet("p", "me", _SEEN, None),
    "extend a lease": lambda recorder, _: _leases(recorder).extend("p", "me", LEASE),
    "release a lease": lambda recorder, _: _leases(recorder).release("p", "me", "own"),
    **{
        f"{name}, weight {weight}": _remove_reservations(name, weight)
        for name in ("put_back", "drop")
        for weight in (1, "any")
    },
    "expire": _expire,
    "note a ring": lambda recorder, _: _of(Grants, recorder).note_ring("p", NOW),
    "refuse": lambda recorder, _: _rows(recorder).refuse("p", _LEAVINGS[0], NOW),
    "leave": lambda recorder, _: _rows(recorder).leave("p", _LEAVINGS, NOW),
    "end without a target": lambda recorder, _: _rows(recorder).end_homeless("p", _LEAVINGS, NOW, exists=True),
    "give back": _give_back,
    "set the limit": lambda recorder, _: _of(Processes, recorder).set_limit("p", 7),
    "set the limit of each key": _set_key_limit(1),
    "remove the limit of each key": _set_key_limit(None),
    "set the limit of a key": _set_key_limit(1, "k"),
    "repair the limit of each key": _repair_key_limit,
    "remove the limit of a key": _set_key_limit(None, "k"),
    "change the target": lambda recorder, _: _of(Processes, recorder).change_target("p", "job", "other"),
    "pause": lambda recorder, _: _of(Processes, recorder).pause("p"),
    "resume": lambda recorder, _: _of(Processes, recorder).resume("p"),
    **{
        f"the workflow's {name}": lambda recorder, _, write=write: recorder.update_item(**write)
        for name, write in _states()
    },
}

# The steps that take slots, by how they may be called.
GRANTS: dict[str, Step] = {
    **{f"lease, weight {weight}": _take(weight) for weight in (None, 1, "any")},
    **{f"lease, weight {weight}, reads first": _take(weight, reads_first=True) for weight in (None, 1)},
    **{
        f"lease behind requests, weight {weight}": _take(weight, target="job", reads_first=True)
        for weight in (1, "any")
    },
    "grant, 2 starts of weight 1": _grant(2, 1),
    **{f"grant, {count} starts": _grant(count) for count in (1, 2, 3)},
}

# Grants of requests with keys. The keys of three starts differ, or are the same, in each way that matters.
KEYED: dict[str, Step] = {
    f"grant, keys {keys}": _grant(len(keys), keys=keys)
    for keys in (("k",), ("",), ("k", "k"), ("k", "", "k"), ("k", "m", ""), ("m", "m", "m"))
}

# The same for a process that was read with a rate.
PACED: dict[str, Step] = {
    **{f"lease, weight {weight}, with a rate": _take(weight, paced=True) for weight in (1, "any")},
    "lease behind requests, with a rate": _take("any", target="job", paced=True),
    **{f"grant, {count} starts, with a rate": _grant(count, paced=True) for count in (1, 3)},
}
GRANTS |= PACED | KEYED

# The writes that begin a new count.
SET_RATE: dict[str, Step] = {
    "set the rate": lambda recorder, _: _of(Processes, recorder).set_rate("p", Rate(10, 60)),
    "remove the rate": lambda recorder, _: _of(Processes, recorder).set_rate("p", None),
}

# The writes that make the counter the sum of the weights.
REPAIRS: dict[str, Step] = {"repair the counter": _repair_counter, "repair": _repair}

# An operator's, which ignores the limit.
ADOPT: dict[str, Step] = {
    "adopt": lambda recorder, search: _slots(recorder).adopt("p", "me", NOW, "job", search.integer("weight"), key="k")
}


def writing_functions() -> set[str]:
    """The functions of the product that update an item of SlotTable."""
    modules = (protocol, lease_protocol, processes, grants, request_table, returns)
    found = {
        f"{owner.name}.{function.name}"
        for module in modules
        for owner in ast.parse(inspect.getsource(module)).body
        if isinstance(owner, ast.ClassDef)
        for function in owner.body
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("self._table.update", "self._table.update_and_read", "transact")
    }
    of_rows = ("RequestTable.mark_started", "RequestTable.note_put_back", "Requeues._redrive", "Requeues.discard")
    return found.difference(of_rows)
