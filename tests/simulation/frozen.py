"""Immutable values of which equal ones are identical, so that states of a world are compared quickly.

Requests, answers, items and queues are frozen. So results can be cached by state and request, and the real code runs
only in new states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple


class Record:
    """A frozen mapping, made by `freeze` and `record` only. Never change `fields`."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def with_fields(self, **changed: Any) -> Record:
        """A copy with these fields changed; their values must be frozen."""
        return record(self.fields | changed)

    def without(self, *names: str) -> Record:
        """A copy without these fields."""
        return record({name: value for name, value in self.fields.items() if name not in names})

    def __repr__(self) -> str:
        return repr(thaw(self))

    def __lt__(self, other: Record) -> bool:
        return repr(self) < repr(other)


class Moment(NamedTuple):
    """A time that an AWS API returns as a datetime; seconds since the epoch."""

    seconds: float


_UNCHANGED = frozenset((str, int, float, bool, type(None), Record, Moment))  # types whose values are frozen
_known: dict[Any, Record] = {}


def record(fields: dict[str, Any]) -> Record:
    """The only Record with these fields; their values must be frozen."""
    key = frozenset(fields.items())
    known = _known.get(key)
    if known is None:
        known = _known[key] = Record(dict(sorted(fields.items(), key=_by_name)))  # one order for all callers
    return known


def freeze(value: Any) -> Any:
    """The frozen form of boto3's values: mappings, lists, datetimes and scalars."""
    kind = type(value)
    if kind in _UNCHANGED:
        return value
    if kind is dict:
        return record({name: freeze(part) for name, part in value.items()})
    if kind is list or kind is tuple:
        return tuple([freeze(part) for part in value])
    if isinstance(value, datetime):
        return Moment(value.timestamp())
    if isinstance(value, Mapping):
        return record({name: freeze(part) for name, part in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple([freeze(part) for part in value])
    return value


def thaw(value: Any) -> Any:
    """A new mutable copy in boto3's form."""
    kind = type(value)
    if kind is Record:
        return {name: thaw(part) for name, part in value.fields.items()}
    if kind is Moment:
        return datetime.fromtimestamp(value.seconds, UTC)
    if kind is tuple:
        return [thaw(part) for part in value]
    return value


def known() -> int:
    """The number of Records."""
    return len(_known)


def cleared[T: Callable[[], object]](clear: T) -> T:
    """Let `forget` call this, too."""
    _clearing.append(clear)
    return clear


def remembered[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """`functools.cache` until `forget`."""
    known = cache(function)
    cleared(known.cache_clear)
    return known  # type: ignore[return-value]


def table() -> dict[Any, Any]:
    """A dictionary for a cache, which `forget` clears."""
    made: dict[Any, Any] = {}
    cleared(made.clear)
    return made


def forget() -> None:
    """Clear all caches of actors, services and values, because the code has changed, or to bound memory.

    Callers must drop their Records, too, except the empty one.
    """
    empty = record({})
    for clear in _clearing:
        clear()
    _known.clear()
    _known[frozenset()] = empty


_clearing: list[Callable[[], object]] = []


def _by_name(pair: tuple[str, Any]) -> str:
    return pair[0]
