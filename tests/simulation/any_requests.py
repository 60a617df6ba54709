"""Requests to DynamoDB that Hypothesis generates: short expressions with a few attributes, by the grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.simulation.frozen import freeze
from tests.simulation.transcript import Question

Item = dict[str, Any]
TABLE, KEY = "slots", "k"  # of the only item
_KEY_ATTRIBUTE = "process_name"

_n = st.sampled_from(
    [{"N": number} for number in ("10", "9", "2", "0", "-1", "-2", "1.50", "1e2", "98765432109876543210")]
)
_s = st.sampled_from([{"S": text} for text in ("a", "ab", "b", "2", "\u00e9", "\U0001f600")])
_deep = st.fixed_dictionaries({}, optional={"x": _n}).map(lambda members: {"M": members})
_BY_NAME = {
    "n": _n,
    "n2": _n,
    "s": _s,
    "s2": _s,
    "b": st.sampled_from([{"BOOL": True}, {"BOOL": False}]),
    "m": st.fixed_dictionaries({}, optional={"x": _n, "y": _s, "deep": _deep}).map(lambda members: {"M": members}),
    "l": st.lists(st.one_of(_n, _s), max_size=2).map(lambda parts: {"L": parts}),
    "ss": st.sampled_from([{"SS": ["a"]}, {"SS": ["b", "a"]}, {"SS": ["ab", "c", "a"]}]),
    "ns": st.sampled_from([{"NS": ["1"]}, {"NS": ["2", "1.0"]}]),
    "bin": st.just({"B": b"ab"}),
}
_SAME_TYPE = {"n": _n, "s": _s, "n2": _n, "s2": _s, "bin": _BY_NAME["bin"], "m.x": _n, "m.y": _s}
_PATHS = [*_BY_NAME, *_BY_NAME, *["m.x"] * 3, "m.y", "m.deep", *["m.deep.x"] * 3, "absent", "absent.x", "n.x"]
_VALUES = st.one_of(*_BY_NAME.values())
_ORDERED = st.one_of(_n, _s, _n, _s, _VALUES)


def _changed(item: Item, changes: Item) -> Item:
    return {name: value for name, value in (item | changes).items() if value is not None}


# Up to two attributes are missing or have another type.
ITEMS = st.builds(
    _changed,
    st.fixed_dictionaries(_BY_NAME),
    st.dictionaries(st.sampled_from(list(_BY_NAME)), st.none() | _VALUES, max_size=2),
)


class _Writer:
    """Writes the expressions of one request, with a placeholder for every value."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.names: dict[str, str] = {}
        self.values: Item = {}
        self._changed: set[str] = set()  # by the update; DynamoDB refuses a second change, so it should be rare

    def one_of(self, given: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(given))

    def path(self, paths: Sequence[str] = (*_PATHS, _KEY_ATTRIBUTE)) -> str:
        """A path, sometimes with a placeholder for its last name."""
        path: str = self.one_of(paths)
        if self.one_of([True, True, True, False]):
            return path
        *before, last = path.split(".")
        self.names[f"#{last}"] = last
        return ".".join([*before, f"#{last}"])

    def target(self) -> str:
        """A path to change; not the key, since DynamoDB Local evaluates the condition before it refuses that."""
        free = [path for path in _PATHS if path.partition(".")[0] not in self._changed]
        path = self.path(_PATHS if not free or self.one_of(range(10)) == 9 else free)
        self._changed.add(path.strip("#").partition(".")[0])
        return path

    def value(self, of: st.SearchStrategy[Item] = _VALUES) -> str:
        name = f":v{len(self.values)}"
        self.values[name] = self.draw(of)
        return name

    def operand(self, of: st.SearchStrategy[Item] = _VALUES) -> str:
        kind = self.one_of(["path", "value", "size"])
        return self.path() if kind == "path" else self.value(of) if kind == "value" else f"size({self.path()})"

    def condition(self, depth: int = 2) -> str:
        match self.one_of(["any", "same type", "between", "in", "exists", *["joined", "joined", "not"] * bool(depth)]):
            case "any":
                comparator = self.one_of(["=", "<>", "<", "<=", ">", ">="])
                of = _VALUES if comparator in {"=", "<>"} else _ORDERED
                return f"{self.operand(of)} {comparator} {self.operand(of)}"
            case "same type":
                name = self.one_of(list(_SAME_TYPE))
                return f"{name} {self.one_of(['=', '<>', '<', '<=', '>', '>='])} {self.value(_SAME_TYPE[name])}"
            case "between":
                name = self.one_of(["n", "s", "m.x"])
                of = _SAME_TYPE[name]
                return f"{name} BETWEEN {self.value(of)} AND {self.path() if self.one_of([0, 1]) else self.value(of)}"
            case "in":
                return f"{self.operand()} IN ({self.operand()}, {self.operand()})"
            case "exists":
                return f"attribute_{self.one_of(['exists', 'not_exists'])}({self.path()})"
            case "joined":
                return f"{self._part(depth)} {self.one_of(['AND', 'OR'])} {self._part(depth)}"
        return f"NOT {self._part(depth)}"

    def _part(self, depth: int) -> str:
        part = self.condition(depth - 1)
        return self.one_of([part, f"({part})"])

    def update(self) -> str:
        clauses = self.draw(st.lists(st.sampled_from(["SET", "SET", "REMOVE"]), min_size=1, max_size=2, unique=True))
        return " ".join(f"{clause} {', '.join(self._actions(clause))}" for clause in clauses)

    def _actions(self, clause: str) -> list[str]:
        targets = [self.target() for _ in range(self.one_of([1, 2]))]
        if clause == "REMOVE":
            return targets
        if len(targets) == 2 and self.one_of([True, False]):  # each takes the other's old value
            return [f"{targets[0]} = {targets[1]}", f"{targets[1]} = {targets[0]}"]
        return [f"{target} = {self._result()}" for target in targets]

    def _result(self) -> str:
        if self.one_of([True, False]):
            return self._term()
        return f"{self._number()} {self.one_of('+-')} {self._number()}"

    def _term(self) -> str:
        either = self.path() if self.one_of([True, False]) else self.value()
        return either if self.one_of([True, True, False]) else f"if_not_exists({self.path()}, {either})"

    def _number(self) -> str:
        given = self.one_of(["n", "n2", "m.x", "value", "term"])
        return self.value(_n) if given == "value" else self._term() if given == "term" else str(given)


@st.composite
def requests(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Question:
    """One request about the item KEY."""
    writer = _Writer(draw)
    operation = writer.one_of([*["update_item"] * 4, "put_item", "delete_item", "get_item"])
    request: Item = {"TableName": TABLE}
    if operation == "put_item":
        request["Item"] = {_KEY_ATTRIBUTE: {"S": KEY}, **draw(ITEMS)}
    else:
        request["Key"] = {_KEY_ATTRIBUTE: {"S": KEY}}
    if operation == "get_item":
        request["ProjectionExpression"] = ", ".join(writer.path() for _ in range(writer.one_of([1, 2, 3])))
    else:
        returned = ["NONE", "ALL_OLD"] + ["ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"] * (operation == "update_item")
        request["ReturnValues"] = writer.one_of(returned)
        if writer.one_of([True, False]):
            condition = writer.condition()
            # A generated condition seldom holds, so half of them are negated.
            request["ConditionExpression"] = writer.one_of([condition, f"NOT ({condition})"])
            if writer.one_of([True, False]):
                request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if operation == "update_item":
        request["UpdateExpression"] = writer.update()
    for parameter, given in (("ExpressionAttributeNames", writer.names), ("ExpressionAttributeValues", writer.values)):
        if given:
            request[parameter] = given
    return Question("dynamodb", operation, freeze(request))
