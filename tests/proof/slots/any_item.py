"""A process's item with any number of holders, any limit and any weights, and the effect of a write on it.

An expression is parsed by the grammar of the simulated DynamoDB. Of the holders the item has their number, the sum of
their weights and of those of one key, which is any key, and those that the write names, each with `weight`, `key`,
`until` and `code`. A test of anything else may be true or false: then more writes succeed than in DynamoDB, so what is
proved holds there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from z3 import And, ArithRef, Bool, BoolRef, BoolVal, If, Implies, Int, IntVal, Not, Or, Sum

from tests.proof.slots.symbols import Search
from tests.simulation.aws import conditions
from tests.simulation.aws.expressions import Operand, Path, Size, Value
from tests.simulation.aws.updates import Action, Term, update

# Numbers of a holder. One without a weight has weight 1.
NUMBERS = ("weight", "key", "until", "code")
# Stands for a lease in place of a key.
NO_KEY = -1
_COMPARED = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass
class Holder:
    """A holder that a write names: whether the item has it, and its numbers."""

    is_there: BoolRef
    numbers: dict[str, ArithRef]

    def weight_of(self, key: ArithRef) -> ArithRef:
        """Its weight if it is of this key, otherwise 0."""
        return If(And(self.is_there, self.numbers["key"] == key), self.numbers["weight"], 0)


class AnyItem:
    """The item before a write. The names of its variables are those that a counterexample shows.

    Attributes:
        count: the number of holders.
        held: the sum of their weights.
        drift: by how much `slots_in_use` is below that sum, 0 unless another writer has changed the item.
        key, held_of_key, limit_of_key: any key, the sum of the weights of its requests, and its limit.
        has_rate, is_as_read: whether it has a rate, and the one that the step has read.
    """

    def __init__(self) -> None:
        self.limit, self.in_use = Int("slot_limit"), Int("slots_in_use")
        self.count, self.held = Int("holders"), Int("their weights")
        self.drift = self.held - self.in_use
        self.next_start, self.grants = Int("next_start"), Int("grants")
        self.key, self.held_of_key, self.limit_of_key = Int("key"), Int("their weights of the key"), Int("its limit")
        self.has_rate, self.is_as_read = Bool("rate exists"), Bool("rate as read")
        self.named: dict[str, Holder] = {}

    def holder(self, name: str) -> Holder:
        if name not in self.named:
            numbers = {number: Int(f"{number} of {name}") for number in NUMBERS}
            self.named[name] = Holder(Bool(f"{name} is there"), numbers)
        return self.named[name]

    @property
    def is_possible(self) -> BoolRef:
        """What each item fulfils: a weight is at least 1, so the sum is at least the number of holders."""
        there = [If(each.is_there, 1, 0) for each in self.named.values()]
        weights = [If(each.is_there, each.numbers["weight"], 0) for each in self.named.values()]
        others, their_weights = self.count - Sum(there), self.held - Sum(weights)
        at_least_one = [each.numbers["weight"] >= 1 for each in self.named.values()]
        alone = Implies(others == 0, their_weights == 0)
        of_key = self.held_of_key - Sum([each.weight_of(self.key) for each in self.named.values()])
        of_keys = And(self.key >= 0, of_key >= 0, of_key <= their_weights)
        return And(self.limit >= 0, others >= 0, their_weights >= others, alone, of_keys, *at_least_one)


@dataclass(frozen=True)
class Effect:
    """When a write happens, and the item after it. `named`: the holders that the write names."""

    happens: BoolRef
    limit: ArithRef
    in_use: ArithRef
    count: ArithRef
    held: ArithRef
    named: dict[str, Holder]
    next_start: ArithRef
    keeps_rate: bool
    grants: ArithRef
    held_of_key: ArithRef
    keeps_key_limits: bool

    @property
    def drift(self) -> ArithRef:
        return self.held - self.in_use


def text_number(text: str) -> ArithRef:
    """A number that stands for this text alone."""
    return IntVal(int.from_bytes(text.encode()))


class Unknown(Exception):
    """A write does something that is not modelled."""


def effect(item: AnyItem, request: Mapping[str, Any], search: Search) -> Effect:
    """The effect of an UpdateItem request. Raises Unknown."""
    return _Write(item, request, search).effect()


class _Write:
    def __init__(self, item: AnyItem, request: Mapping[str, Any], search: Search) -> None:
        self._item = item
        self._search = search
        self._names = request.get("ExpressionAttributeNames", {})
        self._values = request.get("ExpressionAttributeValues", {})
        condition, change = (request.get(f"{kind}Expression") for kind in ("Condition", "Update"))
        self._actions = update(change).actions if change else []
        self._test = conditions.condition(condition).test if condition else None

    def effect(self) -> Effect:
        before, requires = self._item, [self._holds(self._test)] if self._test else []
        numbers = {
            "slot_limit": before.limit,
            "slots_in_use": before.in_use,
            "next_start": before.next_start,
            "grants": before.grants,
        }
        after: dict[str, Holder] = {}
        changed_places = {self._place(action.path)[0] for action in self._actions}
        for action in self._actions:
            place = self._place(action.path)
            match place:
                case ("slot_limit" | "slots_in_use" | "next_start" | "grants",) if action.term:
                    numbers[place[0]] = self._sum(action)
                case ("holders", name):
                    after[name] = self._entry(action)
                case ("holders", name, number):
                    requires.append(before.holder(name).is_there)  # else DynamoDB refuses the path
                    if number in ("weight", "key"):
                        raise Unknown(f"{place} is changed")
                    if number in NUMBERS and action.term:
                        changed = before.holder(name).numbers | {number: self._sum(action)}
                        after[name] = Holder(before.holder(name).is_there, changed)
                case ("slot_limit" | "slots_in_use" | "grants" | "holders" | "process_name", *_):
                    raise Unknown(f"{place} is changed")
                case (computed, *_) if computed.startswith("{%") and not computed.startswith("{% 'turn_'"):
                    raise Unknown(f"{computed} is changed, which may be any attribute")
        count, held, held_of_key = before.count, before.held, before.held_of_key
        for name, entry in after.items():
            old = before.holder(name)
            count += If(entry.is_there, 1, 0) - If(old.is_there, 1, 0)
            held_of_key += entry.weight_of(before.key) - old.weight_of(before.key)
            held += If(entry.is_there, entry.numbers["weight"], 0) - If(old.is_there, old.numbers["weight"], 0)
        happens = And(*requires) if requires else BoolVal(True)
        limit, in_use = numbers["slot_limit"], numbers["slots_in_use"]
        return Effect(
            happens,
            limit,
            in_use,
            count,
            held,
            dict(before.named) | after,
            numbers["next_start"],
            "rate" not in changed_places,
            numbers["grants"],
            held_of_key,
            not changed_places & {"key_limit", "key_limits"},
        )

    def _entry(self, action: Action) -> Holder:
        if action.term is None:
            return Holder(BoolVal(False), dict.fromkeys(NUMBERS, IntVal(1)))
        if not isinstance(action.term.operand, Value) or action.term.path or action.second:
            raise Unknown("a holder is set to something else than a value")
        return Holder(BoolVal(True), self._numbers_in(self._values[action.term.operand.name]["M"]))

    def _numbers_in(self, entry: Mapping[str, Any]) -> dict[str, ArithRef]:
        of_lease = {"key": {"N": str(NO_KEY)}} if entry.get("state") == {"S": "LEASED"} else {}
        given = {"key": {"S": ""}, **entry, **of_lease}
        return {number: self._number(given.get(number, {"N": "1"})) for number in NUMBERS}

    def _number(self, value: Mapping[str, str]) -> Any:
        """The number of an attribute; of a text one that no other text has."""
        return self._search.number(value["N"]) if "N" in value else text_number(value["S"])

    def _sum(self, action: Action) -> ArithRef:
        assert action.term
        first = self._term(action.term)
        if action.second is None:
            return first
        second = self._term(action.second)
        return first + second if action.sign == "+" else first - second

    def _term(self, term: Term) -> ArithRef:
        operand = self._operand(term.operand)
        if operand is None:
            raise Unknown(f"{term.operand} is not modelled")
        if term.path is None:
            return operand
        match self._place(term.path):
            case ("holders", name, "weight"):
                return If(self._has_weight(name), self._item.holder(name).numbers["weight"], operand)
        raise Unknown(f"if_not_exists of {term.path}")

    def _has_weight(self, name: str) -> BoolRef:
        holder = self._item.holder(name)
        return And(holder.is_there, Not(And(Bool(f"{name} has no weight"), holder.numbers["weight"] == 1)))

    def _holds(self, test: conditions.Test) -> BoolRef:
        match test:
            case conditions.Or(first, second):
                return Or(self._holds(first), self._holds(second))
            case conditions.And(first, second):
                return And(self._holds(first), self._holds(second))
            case conditions.Not(inner):
                return Not(self._holds(inner))
            case conditions.Exists(path, expected):
                exists = self._exists(self._place(path))
                return exists if expected else Not(exists)
            case conditions.Comparison(left, comparator, right):
                return self._compared(left, comparator, right)
        return Bool(str(test))

    def _exists(self, place: tuple[str, ...]) -> BoolRef:
        match place:
            case ("slot_limit" | "slots_in_use" | "holders" | "process_name",):
                return BoolVal(True)
            case ("holders", name):
                return self._item.holder(name).is_there
            case ("holders", name, "weight"):
                return self._has_weight(name)
            case ("holders", name, *_):
                return And(self._item.holder(name).is_there, Bool(f"{'.'.join(place)} exists"))
        return Bool(f"{'.'.join(place)} exists")

    def _compared(self, left: Operand, comparator: str, right: Operand) -> BoolRef:
        if isinstance(left, Path) and self._place(left) == ("rate",) and comparator == "=":
            return And(self._item.has_rate, self._item.is_as_read)
        numbers = self._operand(left), self._operand(right)
        places = [self._place(each) for each in (left, right) if isinstance(each, Path)]
        there = [self._item.holder(place[1]).is_there for place in places if place[:1] == ("holders",) and place[1:]]
        if comparator == "<>" and there:
            raise Unknown("a holder is compared by <>, which a missing one fulfils")
        if None not in numbers:
            return And(_COMPARED[comparator](*numbers), *there)
        match places, right:
            case [("holders", name)], Value(value) if comparator == "=":
                holder, seen = self._item.holder(name), self._numbers_in(self._values[value]["M"])
                return And(holder.is_there, *(holder.numbers[each] == seen[each] for each in NUMBERS))
            case [("holders",)], Value(value) if comparator == "=":
                entries = [self._numbers_in(entry["M"]) for entry in self._values[value]["M"].values()]
                total = sum(entry["weight"] for entry in entries)
                return And(self._item.count == len(entries), self._item.held == total)
        return And(Bool(f"{left} {comparator} {right}"), *there)

    def _operand(self, operand: Operand) -> Any:
        """A number of the item, or of the request; None if it is not modelled."""
        match operand:
            case Size(path) if self._place(path) == ("holders",):
                return self._item.count
            case Value(name):
                value = self._values[name]  # in the workflow it may be a JSONata expression
                return self._number(value) if isinstance(value, dict) and value.keys() & {"N", "S"} else None
            case Path():
                match self._place(operand):
                    case ("slot_limit",):
                        return self._item.limit
                    case ("slots_in_use",):
                        return self._item.in_use
                    case ("next_start",):
                        return self._item.next_start
                    case ("grants",):
                        return self._item.grants
                    case ("holders", name, number) if number in NUMBERS:
                        return self._item.holder(name).numbers[number]
        return None

    def _place(self, path: Path) -> tuple[str, ...]:
        return tuple(self._names[part] if part.startswith("#") else part for part in path.parts)
