"""Whole numbers of any value, with which the product's code computes, and a search through the paths that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from z3 import And, ArithRef, BoolRef, Int, Not, Solver, sat


class Symbol:
    """An integer of any value. The search answers a comparison, so the code sees an ordinary bool."""

    def __init__(self, value: ArithRef, search: Search) -> None:
        self.value = value
        self._search = search

    def __add__(self, other: Symbol | int) -> Symbol:
        return Symbol(self.value + _value(other), self._search)

    __radd__ = __add__

    def __sub__(self, other: Symbol | int) -> Symbol:
        return Symbol(self.value - _value(other), self._search)

    def __lt__(self, other: Symbol | int) -> bool:
        return self._search.decide(self.value < _value(other))

    def __le__(self, other: Symbol | int) -> bool:
        return self._search.decide(self.value <= _value(other))

    def __gt__(self, other: Symbol | int) -> bool:
        return self._search.decide(self.value > _value(other))

    def __bool__(self) -> bool:
        return self._search.decide(self.value != 0)

    def __str__(self) -> str:
        """A text that `Search.number` finds again: the product writes numbers as texts."""
        text = f"<{self.value}>"
        self._search.written[text] = self.value
        return text


class Search:
    """Runs code on each path that it can take.

    Args:
        premises: what is known of the symbols.
    """

    def __init__(self, *premises: BoolRef) -> None:
        self.premises = premises
        self.written: dict[str, ArithRef] = {}
        self._assumed: list[BoolRef] = []
        self._answers: list[bool] = []
        self._others: list[list[bool]] = []  # the answers of the paths that are left

    def integer(self, name: str) -> Any:
        """A symbol. The product's code takes it for an int."""
        return Symbol(Int(name), self)

    def number(self, text: str) -> ArithRef | int:
        """The number that the product has written as this text."""
        return self.written[text] if text in self.written else int(text)

    def paths[T](self, code: Callable[[], T]) -> Iterator[tuple[T, list[BoolRef]]]:
        """The result of the code on each path, and what the path assumes."""
        self._others = [[]]
        while self._others:
            self._assumed, self._answers = [], self._others.pop()
            yield code(), list(self._assumed)

    def decide(self, test: BoolRef) -> bool:
        taken = len(self._assumed)
        if taken < len(self._answers):
            answer = self._answers[taken]
        else:
            answer = self._can_be(test)
            if answer and self._can_be(Not(test)):
                self._others.append([*self._answers, False])
            self._answers = [*self._answers, answer]
        self._assumed.append(test if answer else Not(test))
        return answer

    def _can_be(self, test: BoolRef) -> bool:
        solver = Solver()
        solver.add(*self.premises, *self._assumed, test)
        return bool(solver.check() == sat)


def _value(number: Symbol | int) -> ArithRef | int:
    return number.value if isinstance(number, Symbol) else number


def counterexample(claim: BoolRef, *known: BoolRef) -> dict[str, str]:
    """The values for which the claim is false although all else is true; empty if there are none."""
    solver = Solver()
    solver.add(And(*known), Not(claim))
    if solver.check() != sat:
        return {}
    model = solver.model()
    return {str(name): str(model[name]) for name in sorted(model.decls(), key=str)}
