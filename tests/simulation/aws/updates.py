"""DynamoDB's SET and REMOVE, the clauses that the product uses. Each action uses the item as it was before all of them.

Amazon DynamoDB Developer Guide, "Using update expressions in DynamoDB".
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tests.simulation.aws.attributes import Invalid, kind_of, total
from tests.simulation.aws.expressions import Operand, Path, Reader, Scope, Used, refuse_overlaps, with_value
from tests.simulation.frozen import Record


class Term(NamedTuple):
    """An operand of SET: the value of a path, or a value. `path`: of if_not_exists, whose value comes first."""

    operand: Operand
    path: Path | None = None

    def of(self, scope: Scope) -> Record:
        """The value. Raises Invalid if it is missing, also for an unused operand of if_not_exists."""
        value = _existing(self.operand.of(scope))
        first = self.path.of(scope) if self.path else None
        return value if first is None else first


class Action(NamedTuple):
    """A path and the term that it is set to, with a sign and a second term if it is a sum; without a term: removed."""

    path: Path
    term: Term | None = None
    sign: str = ""
    second: Term | None = None

    def becomes(self, scope: Scope) -> Record | None:
        """The new value; None removes it. Raises Invalid."""
        if self.term is None or self.second is None:
            return self.term and self.term.of(scope)
        left, right = (_of_kind("N", term.of(scope)) for term in (self.term, self.second))
        return total(left, self.sign, right)


class Update(NamedTuple):
    """A parsed UpdateExpression."""

    used: Used
    actions: list[Action]

    @property
    def paths(self) -> list[Path]:
        return [action.path for action in self.actions]

    def apply(self, scope: Scope) -> Record:
        """The item after the update. Raises Invalid."""
        item = scope.item
        for path, value in [(action.path, action.becomes(scope)) for action in self.actions]:
            item = with_value(item, path.names(scope), value)
        return item


@cache
def update(text: str) -> Update:
    """Parse an UpdateExpression. Raises ExpressionError."""
    reader = _Updates(text)
    made = Update(reader.used, reader.clauses())
    reader.used.checks.append(lambda scope: refuse_overlaps(made.paths, scope))
    return made


class _Updates(Reader):
    def clauses(self) -> list[Action]:
        rules = {"SET": self._set, "REMOVE": self._remove}
        actions: list[Action] = []
        while rules and (self.next or not actions):
            actions += self.several(rules.pop(self.take(*rules)))
        self.finish()
        return actions

    def _set(self) -> Action:
        path = self.path()
        self.take("=")
        first = self._term()
        if self.next not in ("+", "-"):
            return Action(path, first)
        sign = self.take()
        return Action(path, first, sign, self._term(of_sum=True))

    def _term(self, of_sum: bool = False) -> Term:
        if self.calls("if_not_exists"):
            path, other = self.arguments(self.path, self.path_or_value)
            self.check_distinct(path, other)
            return Term(other, path)
        operand = self.path_or_value()
        if of_sum or self.next in ("+", "-"):
            self.check_kind(operand, "N")
        return Term(operand)

    def _remove(self) -> Action:
        return Action(self.path())


def _existing(value: Record | None) -> Record:
    if value is None:
        raise Invalid("The provided expression refers to an attribute that does not exist in the item")
    return value


def _of_kind(kind: str, value: Record) -> Record:
    if kind_of(value) != kind:
        raise Invalid("An operand in the update expression has an incorrect data type")
    return value
