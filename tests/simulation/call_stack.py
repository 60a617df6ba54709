"""The stack of running code, with its variables, as a value that can be compared."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Hashable
from datetime import datetime
from functools import cache
from typing import Any

from tests.simulation.frozen import Record

# Types of which no object equals an object of another type, and the other scalars.
_DISTINCT = frozenset((str, bytes, datetime, type(None)))
_NUMBERS = frozenset((int, float, bool))


class Constant:
    """Base of immutable objects that are compared by identity."""

    __slots__ = ()


# Types whose objects are compared by identity.
_CONSTANTS = (Constant, Record, type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)


def stack_below(
    caller: types.CodeType, outside: tuple[type, ...], written_only: tuple[type, ...], unread: frozenset[str]
) -> Hashable:
    """The frames below the caller's, as (code, instruction, variables).

    Args:
        outside: types whose methods ask the questions; they hold no state of the code.
        written_only: types whose objects the code never reads.
        unread: names of variables and attributes that do not affect the code.
    """
    frames = []
    walk = _Walk((*outside, *written_only), unread)
    frame = sys._getframe(1)
    while frame.f_code is not caller:
        variables = frame.f_locals
        if not isinstance(variables.get("self"), outside):
            seen = [(name, walk.value(variable)) for name, variable in variables.items() if name not in unread]
            frames.append((frame.f_code, frame.f_lasti, tuple(seen)))
        assert frame.f_back is not None
        frame = frame.f_back
    return tuple(frames)


class _Walk:
    """Converts the objects in variables, each once. A further reference to an object becomes its number."""

    def __init__(self, outsiders: tuple[type, ...], unread: frozenset[str]) -> None:
        self._converters = _converters(outsiders)
        self._outsiders = outsiders
        self._unread = unread
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the same id

    def value(self, result: Any) -> Hashable:
        kind = type(result)
        if kind in _DISTINCT:
            return result  # type: ignore[no-any-return]
        if kind in _NUMBERS:
            return (kind, result)
        convert = self._converters.get(kind)
        if convert is None:
            convert = self._converters[kind] = _converter(kind, self._outsiders)
        if convert is _itself:
            return result  # type: ignore[no-any-return]
        if convert is _its_type:
            return kind  # type: ignore[return-value]
        number = self._numbers.setdefault(id(result), len(self._kept))
        if number < len(self._kept):
            return number
        self._kept.append(result)
        return (kind, convert(self, result))

    def _of_dict(self, result: dict[Any, Any]) -> Hashable:
        value, unread = self.value, self._unread
        # Names and texts are most of what there is: they are their own values, without a call.
        return tuple(
            [
                (k if type(k) is str else value(k), v if type(v) in _DISTINCT else value(v))
                for k, v in result.items()
                if k not in unread
            ]
        )

    def _of_sequence(self, result: list[Any] | tuple[Any, ...]) -> Hashable:
        return tuple([part if type(part) in _DISTINCT else self.value(part) for part in result])

    def _of_set(self, result: set[Any] | frozenset[Any]) -> Hashable:
        return frozenset([self.value(part) for part in result])

    def _of_method(self, result: types.MethodType) -> Hashable:
        return (result.__func__, self.value(result.__self__))

    def _of_function(self, result: types.FunctionType) -> Hashable:
        """An inner function is a new object in each call."""
        cells = [self.value(cell.cell_contents) for cell in result.__closure__ or ()]
        return (result.__code__, self.value(result.__defaults__), tuple(cells))

    def _of_object(self, result: object) -> Hashable:
        state = result.__getstate__()
        return self._of_dict(state) if type(state) is dict else self.value(state)


def _itself(_walk: _Walk, result: Any) -> Hashable:
    return result  # type: ignore[no-any-return]


def _its_type(_walk: _Walk, result: Any) -> Hashable:
    return type(result)  # type: ignore[return-value]


_Converter = Callable[[_Walk, Any], Hashable]


@cache
def _converters(outsiders: tuple[type, ...]) -> dict[type, _Converter]:
    """The converters of the types that were met with these outsiders."""
    return {}


def _converter(kind: type, outsiders: tuple[type, ...]) -> _Converter:
    by_base: tuple[tuple[type | tuple[type, ...], _Converter], ...] = (
        (outsiders, _its_type),
        (_CONSTANTS, _itself),
        (dict, _Walk._of_dict),
        ((list, tuple), _Walk._of_sequence),
        ((set, frozenset), _Walk._of_set),
        (types.MethodType, _Walk._of_method),
        (types.FunctionType, _Walk._of_function),
    )
    return next((convert for base, convert in by_base if issubclass(kind, base)), _Walk._of_object)
