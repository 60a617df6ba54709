"""Where code stands and what its variables hold, as a value that can be compared."""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

from tests.simulation.frozen import Record

_SCALARS = frozenset((str, bytes, int, float, bool, type(None)))


class Constant:
    """Base of what never changes and is the same wherever it is named: told apart by identity."""

    __slots__ = ()


# Types whose objects are told apart by identity.
_CONSTANTS = (Constant, Record, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def stack_of(error: BaseException, outside: tuple[type, ...], written_only: tuple[type, ...]) -> Hashable:
    """The frames that an exception has left, as (code, place in it, variables).

    Args:
        outside: types whose methods ask the questions; they hold nothing that the code has learnt.
        written_only: types whose objects the code never reads.
    """
    frames = []
    trace = error.__traceback__
    assert trace is not None
    trace = trace.tb_next  # the first frame is the caller's
    outsiders = (*outside, *written_only)
    while trace is not None and not isinstance(trace.tb_frame.f_locals.get("self"), outside):
        frame = trace.tb_frame
        variables = tuple((name, _value(found, outsiders, ())) for name, found in sorted(frame.f_locals.items()))
        frames.append((frame.f_code, trace.tb_lasti, variables))
        trace = trace.tb_next
    return tuple(frames)


def _value(found: Any, outsiders: tuple[type, ...], above: tuple[int, ...]) -> Hashable:
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
    if isinstance(found, dict):
        return (kind, tuple([(_value(k, outsiders, above), _value(v, outsiders, above)) for k, v in found.items()]))
    if isinstance(found, list | tuple):
        return (kind, tuple([_value(part, outsiders, above) for part in found]))
    if isinstance(found, set | frozenset):
        return (kind, frozenset([_value(part, outsiders, above) for part in found]))
    if isinstance(found, types.MethodType):
        return (found.__func__, _value(found.__self__, outsiders, above))
    return (kind, _value(found.__getstate__(), outsiders, above))
