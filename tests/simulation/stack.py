"""Where code stands and what its variables hold, as a value that can be compared."""

from __future__ import annotations

import types
from collections.abc import Hashable
from datetime import datetime
from typing import Any

from tests.simulation.frozen import Record

_SCALARS = frozenset((str, bytes, int, float, bool, datetime, type(None)))


class Constant:
    """Base of what never changes and is the same wherever it is named: told apart by identity."""

    __slots__ = ()


# Types whose objects are told apart by identity.
_CONSTANTS = (Constant, Record, type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)


def stack_of(
    error: BaseException,
    outside: tuple[type, ...],
    written_only: tuple[type, ...],
    unread: frozenset[str] = frozenset(),
) -> Hashable:
    """The frames that an exception has left, as (code, place in it, variables).

    Args:
        outside: types whose methods ask the questions; they hold nothing that the code has learnt.
        written_only: types whose objects the code never reads.
        unread: names of variables and attributes that make no difference to what the code does.
    """
    frames = []
    trace = error.__traceback__
    assert trace is not None
    trace = trace.tb_next  # the first frame is the caller's
    outsiders = (*outside, *written_only)
    while trace is not None and not isinstance(trace.tb_frame.f_locals.get("self"), outside):
        frame = trace.tb_frame
        variables = tuple(
            [
                (name, _value(found, outsiders, unread, ()))
                for name, found in sorted(frame.f_locals.items())
                if name not in unread
            ]
        )
        frames.append((frame.f_code, trace.tb_lasti, variables))
        trace = trace.tb_next
    return tuple(frames)


def _value(found: Any, outsiders: tuple[type, ...], unread: frozenset[str], above: tuple[int, ...]) -> Hashable:
    kind = type(found)
    if kind in _SCALARS:
        return (kind, found)
    if isinstance(found, outsiders):
        return kind
    if isinstance(found, _CONSTANTS):
        return found  # type: ignore[no-any-return]
    if id(found) in above:
        return ("above", above.index(id(found)))
    above = (*above, id(found))

    def value(part: Any) -> Hashable:
        return _value(part, outsiders, unread, above)

    if isinstance(found, dict):
        return (kind, tuple([(value(k), value(v)) for k, v in found.items() if k not in unread]))
    if isinstance(found, list | tuple):
        return (kind, tuple([value(part) for part in found]))
    if isinstance(found, set | frozenset):
        return (kind, frozenset([value(part) for part in found]))
    if isinstance(found, types.MethodType):
        return (found.__func__, value(found.__self__))
    if isinstance(found, types.FunctionType):  # made anew each time, if it is a function in a function
        cells = [value(cell.cell_contents) for cell in found.__closure__ or ()]
        return (found.__code__, value(found.__defaults__), tuple(cells))
    return (kind, value(found.__getstate__()))
