"""Requests to DynamoDB that Hypothesis generates: short expressions with a few attributes, by the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.simulation.frozen import freeze
from tests.simulation.transcript import Question

Item = dict[str, Any]
TABLE, KEY = "slots", "k"  # of the only item
_KEY_ATTRIBUTE = "process_name"
_COMPARATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])

_n = st.sampled_from(
    [{"N": number} for number in ("10", "9", "2", "0", "-1", "-2", "1.50", "1e2", "98765432109876543210")]
)
_s = st.sampled_from([{"S": text} for text in ("a", "ab", "b", "2", "\u00e9", "\U0001f600")])
_bool = st.sampled_from([{"BOOL": True}, {"BOOL": False}])
_ss = st.sampled_from([{"SS": ["a"]}, {"SS": ["b", "a"]}, {"SS": ["ab", "c", "a"]}])
_ns = st.sampled_from([{"NS": ["1"]}, {"NS": ["2", "1.0"]}])
_l = st.lists(st.one_of(_n, _s), max_size=2).map(lambda parts: {"L": parts})
_deep = st.fixed_dictionaries({}, optional={"x": _n}).map(lambda members: {"M": members})
_m = st.fixed_dictionaries({}, optional={"x": _n, "y": _s, "deep": _deep}).map(lambda members: {"M": members})
_BY_TYPE = {
    "n": _n,
    "n2": _n,
    "s": _s,
    "s2": _s,
    "b": _bool,
    "m": _m,
    "l": _l,
    "ss": _ss,
    "ns": _ns,
    "bin": st.just({"B": b"ab"}),
}
_ALIKE = {**_BY_TYPE, "m.x": _n, "m.y": _s}
_ATTRIBUTES = [*_BY_TYPE, *_BY_TYPE, *["m.x"] * 3, "m.y", "m.deep", *["m.deep.x"] * 3, "absent", "absent.x", "n.x"]

_VALUES = st.one_of(*_BY_TYPE.values())


def _changed(item: Item, changes: Item) -> Item:
    return {name: value for name, value in (item | changes).items() if value is not None}


# Up to two attributes are missing or have another type.
ITEMS = st.builds(
    _changed,
    st.fixed_dictionaries(_BY_TYPE),
    st.dictionaries(st.sampled_from(list(_BY_TYPE)), st.none() | _VALUES, max_size=2),
)
_ORDERED = st.one_of(_n, _s, _n, _s, _VALUES)


class _Writer:
    """Writes the expressions of one request, with a placeholder for every value."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self.names: dict[str, str] = {}
        self.values: Item = {}
        self._changed: set[str] = set()  # by the update; DynamoDB refuses a second change, so it should be rare

    def _one_of(self, *rules: Callable[[], str]) -> str:
        rule: Callable[[], str] = self._draw(st.sampled_from(rules))
        return rule()

    def path(self) -> str:
        """A path, sometimes with a placeholder for its last name."""
        return self._written(st.sampled_from([*_ATTRIBUTES, _KEY_ATTRIBUTE]))

    def target(self) -> str:
        """A path to change; not the key, since DynamoDB Local evaluates the condition before it refuses that."""
        free = [path for path in _ATTRIBUTES if path.partition(".")[0] not in self._changed]
        path = self._written(st.sampled_from(_ATTRIBUTES if not free or self._draw(st.integers(0, 9)) == 9 else free))
        self._changed.add(path.strip("#").partition(".")[0])
        return path

    def _written(self, paths: st.SearchStrategy[str]) -> str:
        path: str = self._draw(paths)
        if self._draw(st.integers(0, 3)):
            return path
        *before, last = path.split(".")
        name = f"#{last}"
        self.names[name] = last
        return ".".join([*before, name])

    def value(self, of: st.SearchStrategy[Item] = _VALUES) -> str:
        name = f":v{len(self.values)}"
        self.values[name] = self._draw(of)
        return name

    def size(self) -> str:
        return f"size({self.path()})"

    def operand(self, of: st.SearchStrategy[Item] = _VALUES) -> str:
        return self._one_of(self.path, lambda: self.value(of), self.size)

    # Conditions

    def condition(self, depth: int = 2) -> str:
        rules = [self._comparison, self._alike, self._between, self._in, self._exists]
        if depth:
            rules += [lambda: self._joined(depth), lambda: self._joined(depth), lambda: f"NOT {self._part(depth)}"]
        return self._one_of(*rules)

    def _part(self, depth: int) -> str:
        part = self.condition(depth - 1)
        return self._one_of(lambda: part, lambda: f"({part})")

    def _joined(self, depth: int) -> str:
        return f"{self._part(depth)} {self._draw(st.sampled_from(['AND', 'OR']))} {self._part(depth)}"

    def _comparison(self) -> str:
        comparator = self._draw(_COMPARATORS)
        of = _VALUES if comparator in {"=", "<>"} else _ORDERED
        return f"{self.operand(of)} {comparator} {self.operand(of)}"

    def _alike(self) -> str:
        """A comparison, usually of the same types."""
        name = self._draw(st.sampled_from(["n", "s", "n2", "s2", "bin", "m.x", "m.y"]))
        return f"{name} {self._draw(_COMPARATORS)} {self.value(_ALIKE[name])}"

    def _between(self) -> str:
        name = self._draw(st.sampled_from(["n", "s", "m.x"]))
        of = _ALIKE[name]
        return f"{name} BETWEEN {self.value(of)} AND {self._one_of(self.path, lambda: self.value(of))}"

    def _in(self) -> str:
        return f"{self.operand()} IN ({self.operand()}, {self.operand()})"

    def _exists(self) -> str:
        return f"attribute_{self._draw(st.sampled_from(['exists', 'not_exists']))}({self.path()})"

    # Updates

    def update(self) -> str:
        clauses = self._draw(st.lists(st.sampled_from(["SET", "SET", "REMOVE"]), min_size=1, max_size=2, unique=True))
        return " ".join(self._clause(clause) for clause in clauses)

    def _clause(self, clause: str) -> str:
        if clause == "SET" and not self._draw(st.integers(0, 3)):
            return self._exchange()
        number = self._draw(st.integers(1, 2))
        actions = (f"{self.target()} = {self._result()}" if clause == "SET" else self.target() for _ in range(number))
        return f"{clause} {', '.join(actions)}"

    def _exchange(self) -> str:
        """Each action takes the other's old value."""
        first, second = self.target(), self.target()
        return f"SET {first} = {second}, {second} = {first}"

    def _result(self) -> str:
        return self._one_of(
            self._term, lambda: f"{self._number()} {self._draw(st.sampled_from('+-'))} {self._number()}"
        )

    def _term(self) -> str:
        return self._one_of(
            self.path, self.value, lambda: f"if_not_exists({self.path()}, {self._one_of(self.path, self.value)})"
        )

    def _number(self) -> str:
        return self._one_of(lambda: "n", lambda: "n2", lambda: "m.x", lambda: self.value(_n), self._term)


@st.composite
def requests(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Question:
    """One request about the item KEY."""
    writer = _Writer(draw)
    operation = draw(st.sampled_from([*["update_item"] * 4, "put_item", "delete_item", "get_item"]))
    request: Item = {"TableName": TABLE}
    if operation == "put_item":
        request["Item"] = {_KEY_ATTRIBUTE: {"S": KEY}, **draw(ITEMS)}
    else:
        request["Key"] = {_KEY_ATTRIBUTE: {"S": KEY}}
    if operation == "get_item":
        request["ProjectionExpression"] = ", ".join(writer.path() for _ in range(draw(st.integers(1, 3))))
    else:
        request |= _write(draw, writer, operation)
    for parameter, given in (("ExpressionAttributeNames", writer.names), ("ExpressionAttributeValues", writer.values)):
        if given:
            request[parameter] = given
    return Question("dynamodb", operation, freeze(request))


def _write(draw: Callable[[st.SearchStrategy[Any]], Any], writer: _Writer, operation: str) -> Item:
    request: Item = {}
    if draw(st.booleans()):
        condition = writer.condition()
        # A generated condition seldom holds, so half of them are negated.
        request["ConditionExpression"] = f"NOT ({condition})" if draw(st.booleans()) else condition
        if draw(st.booleans()):
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    returned = ["NONE", "ALL_OLD"]
    if operation == "update_item":
        request["UpdateExpression"] = writer.update()
        returned += ["ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"]
    request["ReturnValues"] = draw(st.sampled_from(returned))
    return request
