"""The writes that reach the simulated DynamoDB: who sends them, what a mutation would change, the mutation."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest

from slotkeeper.aws import dynamodb as product
from slotkeeper.slots import request_table, returns
from tests.guards.mutations import mutated, mutations
from tests.simulation.aws import dynamodb
from tests.simulation.aws.attributes import Invalid
from tests.simulation.frozen import Record, record
from tests.simulation.transcript import Answer
from tests.workflow.definition import states

Patch = pytest.MonkeyPatch
Result = tuple[Record, Answer]
Work = Callable[[Record, Record], Result]


class Write(NamedTuple):
    """A write without its names and values."""

    condition: str
    update: str


class Weaker(NamedTuple):
    """A write, and the name of one of its mutations."""

    write: Write
    name: str


senders: dict[Write, set[str]] = defaultdict(set)


def note_senders() -> None:
    """From now on, note in `senders` which function of the layer sends which write."""
    write, transact = product.Table._write, product.transact

    def noted_write(self: Any, call: Any, condition: Any, values: Any, names: Any, request: Any) -> Any:
        _note({**request, "ConditionExpression": condition})
        return write(self, call, condition, values, names, request)

    def noted_transact(client: Any, parts: Any) -> Any:
        for part in parts:
            _note(*part.values())
        return transact(client, parts)

    product.Table._write = noted_write  # type: ignore[method-assign]
    for module in (request_table, returns):
        module.transact = noted_transact  # type: ignore[attr-defined]


def _note(request: dict[str, Any]) -> None:
    frame = sys._getframe(2)
    while frame.f_code.co_name.startswith("_") or frame.f_globals["__name__"] == product.__name__:
        assert frame.f_back
        frame = frame.f_back
    senders[write_of(request)].add(frame.f_code.co_qualname)


def sender(write: Write) -> str:
    """The functions of the layer and the states of the workflow that send a write; empty for one of a test."""
    of_workflow = {name for name, each in _of_workflow().items() if write.update and each(write)}
    return ", ".join(sorted(senders.get(write, set()) | of_workflow))


@cache
def _of_workflow() -> dict[str, Callable[[Write], bool]]:
    """The states of the workflow that write, each with a test for its write. The update of a state may be computed."""

    def sends(arguments: Mapping[str, str], write: Write) -> bool:
        update = arguments["UpdateExpression"]
        return arguments["ConditionExpression"] == write.condition and (update == write.update or update[:2] == "{%")

    given = {
        name: state["Arguments"] for name, state in states().items() if "UpdateExpression" in state.get("Arguments", "")
    }
    return {name: lambda write, arguments=arguments: sends(arguments, write) for name, arguments in given.items()}


def write_of(request: Any) -> Write:
    return Write(request.get("ConditionExpression") or "", request.get("UpdateExpression") or "")


def _each_write(patch: Patch, changed: Callable[[str, Work, Record, Record], Result]) -> None:
    """Let `changed` perform each write, and each part of a transaction."""
    for kind in ("put_item", "update_item", "delete_item"):
        known, work = dynamodb._OPERATIONS[kind]
        patch.setitem(dynamodb._OPERATIONS, kind, (known, lambda *given, k=kind, w=work: changed(k, w, *given)))
    for kind, work in dynamodb._PARTS.items():
        patch.setitem(dynamodb._PARTS, kind, lambda *given, k=kind, w=work: changed(k, w, *given))


def _result(kind: str, work: Work, state: Record, request: Record, names: Collection[str]) -> Result:
    changed = mutated(kind, request, frozenset(names))
    return (state, Answer(record({}))) if changed is None else work(state, changed)


def mutate(patch: Patch, writes: Collection[Write], *names: str) -> None:
    """Let the simulated DynamoDB receive these writes with the mutations of these names."""

    def perform(kind: str, work: Work, state: Record, request: Record) -> Result:
        if write_of(request) not in writes:
            return work(state, request)
        return _result(kind, work, state, request, names)

    _each_write(patch, perform)


def watch(patch: Patch, seen: dict[Weaker, bool]) -> None:
    """Note the mutations of each write, and whether one would have changed the effect or the answer of any."""

    def perform(kind: str, work: Work, state: Record, request: Record) -> Result:
        made = work(state, request)
        write = write_of(request)
        for name in mutations(kind, *write) if write.condition else ():
            weaker = Weaker(write, name)
            if not seen.get(weaker):
                seen[weaker] = _differs(made, lambda name=name: _result(kind, work, state, request, [name]))
        return made

    _each_write(patch, perform)


def _differs(made: Result, other: Callable[[], Result]) -> bool:
    try:
        return other() != made
    except Invalid:
        return True
