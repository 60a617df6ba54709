"""The stack of running code, with its variables, as a value that can be compared."""

from __future__ import annotations

import sys
import types
from collections.abc import Hashable
from datetime import datetime
from typing import Any

from tests.simulation.frozen import Record

_SCALARS = frozenset((str, bytes, int, float, bool, datetime, type(None)))


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
            seen = [(name, walk.value(variables[name])) for name in sorted(variables) if name not in unread]
            frames.append((frame.f_code, frame.f_lasti, tuple(seen)))
        assert frame.f_back is not None
        frame = frame.f_back
    return tuple(frames)


class _Walk:
    """Converts the objects in variables, each once. A further reference to an object becomes its number."""

    def __init__(self, outsiders: tuple[type, ...], unread: frozenset[str]) -> None:
        self._outsiders = outsiders
        self._unread = unread
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the same id

    def value(self, result: Any) -> Hashable:
        kind = type(result)
        if kind in _SCALARS:
            return (kind, result)
        if isinstance(result, self._outsiders):
            return kind
        if isinstance(result, _CONSTANTS):
            return result  # type: ignore[no-any-return]
        number = self._numbers.setdefault(id(result), len(self._kept))
        if number < len(self._kept):
            return number
        self._kept.append(result)
        value = self.value
        if isinstance(result, dict):
            return (kind, tuple([(value(k), value(v)) for k, v in result.items() if k not in self._unread]))
        if isinstance(result, list | tuple):
            return (kind, tuple([value(part) for part in result]))
        if isinstance(result, set | frozenset):
            return (kind, frozenset([value(part) for part in result]))
        if isinstance(result, types.MethodType):
            return (result.__func__, value(result.__self__))
        if isinstance(result, types.FunctionType):  # an inner function is a new object in each call
            cells = [value(cell.cell_contents) for cell in result.__closure__ or ()]
            return (result.__code__, value(result.__defaults__), tuple(cells))
        return (kind, value(result.__getstate__()))
