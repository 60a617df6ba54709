"""The limit of a process over time, from the present item and the operators' audit lines. Makes no call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slotkeeper_cli.work_history import OperatorAct, WorkHistory

_CHANGES = ("process set-limit", "process add", "process remove", "process repair", "stack restore")
# Their lines do not state the limit, which is then as the next line or the present item states.
_WITHOUT_LIMIT = ("process repair", "stack restore")
_RESUMES = ("process resume", "process add", "process repair", "process remove", "stack restore")


@dataclass(frozen=True)
class LimitSteps:
    """(instant, limit from then on), by time; the first is -inf. None: the limit is not known."""

    steps: Sequence[tuple[float, int | None]]

    def values(self, start: float, end: float) -> list[int | None]:
        """The limits in force at some instant of [start, end]."""
        ends = [*(at for at, _ in self.steps[1:]), math.inf]
        return [value for (at, value), until in zip(self.steps, ends, strict=True) if at <= end and until > start]

    def most(self, start: float, end: float) -> int | None:
        """The highest limit in a time; None if one in it is not known."""
        known = self.values(start, end)
        return max((each for each in known if each is not None), default=0) if None not in known else None

    def least(self, start: float, end: float) -> int | None:
        """The lowest limit in a time; None if one in it is not known."""
        known = self.values(start, end)
        return min((each for each in known if each is not None), default=0) if None not in known else None


def limit_steps(history: WorkHistory, name: str) -> LimitSteps:
    """The limit of a process over time.

    An audit line is written before its change, and does not prove it. The next line's `before`, or the present item,
    does. A limit that follows from neither is not known. While an operator's pause is in force the limit is 0, because
    nothing is admitted; that is known only of a pause that lasts until now. The versions of the item state it exactly.
    """
    if versions := history.versions_of(name):
        changes = [(b.at, b.limit) for a, b in pairwise(versions) if a.limit != b.limit]
        return LimitSteps([(-math.inf, versions[0].limit), *changes])
    process = history.processes.get(name)
    if history.lacks("AuditLogGroup"):
        return LimitSteps([(-math.inf, None)])
    acts = [each for each in acts_of(history, name) if each.action in _CHANGES]
    known = [*(_before(each) for each in acts), process.slot_limit if process else None]
    steps: list[tuple[float, int | None]] = [(-math.inf, known[0])]
    for act, value in zip(acts, known[1:], strict=True):
        is_known = act.action in _WITHOUT_LIMIT or value in (_before(act), _after(act))
        steps.append((act.at, value if is_known else None))
    if process is not None and process.paused and (paused := _paused_since(history, name)) is not None:
        steps = [each for each in steps if each[0] < paused] + [(paused, 0)]
    return LimitSteps(steps)


def acts_of(history: WorkHistory, name: str) -> list[OperatorAct]:
    """The audit lines that concern a process, in order."""
    concern = (each for each in history.acts if each.process == name or each.action.startswith("stack "))
    return sorted(concern, key=lambda each: each.at)


def _paused_since(history: WorkHistory, name: str) -> float | None:
    """When the pause began that lasts until now; None if no line states it."""
    since = None
    for act in acts_of(history, name):
        if act.action == "process pause" and since is None:
            since = act.at
        elif act.action in _RESUMES:
            since = None
    return since


def _before(act: OperatorAct) -> int | None:
    return _whole(act.fields.get("before")) if act.action == "process set-limit" else None


def _after(act: OperatorAct) -> int | None:
    return _whole(act.fields.get({"process set-limit": "after", "process add": "limit"}.get(act.action, "")))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
