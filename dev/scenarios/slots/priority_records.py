"""Records of `make run PRIORITIES=yes`: those of `make run`, the item's versions, the starter's log, the operator."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from dev.judge.slot_item import Item
from slotkeeper_cli.intervals import Interval, weighted_steps

from .priority_requests import Mix
from .slot_records import Execution, Records
from .slot_requests import SentRequest
from .turns import Asking, Turn, turns


@dataclass(frozen=True)
class Refusal:
    """The starter's log line of a request that it refused, written after it had registered and hidden it."""

    request_id: str
    at: float


@dataclass(frozen=True)
class PriorityRecords:
    """All records of one run. Times are seconds since the epoch.

    Args:
        limit: before it was raised.
        raised: from the operator's call that raised it to the call's answer; None if it was not called.
        cancel_was_late: the request that was to be cancelled held its slots already.
        changes: the process's item after each write, in the order of the writes.
    """

    sent: Sequence[SentRequest]
    mix: Mix
    limit: int
    records: Records
    changes: Sequence[Item]
    refusals: Sequence[Refusal]
    raised: Interval | None
    cancel_was_late: bool = False

    @cached_property
    def last(self) -> dict[str, Execution]:
        """The last workflow of each request that started, by request id, in the order of the sending."""
        last: dict[str, Execution] = {}
        for execution in sorted(self.records.executions, key=lambda e: -e.attempt):
            last.setdefault(execution.request_id, execution)
        ids = [each.request.request_id for each in self.sent]
        return {request_id: last[request_id] for request_id in ids if request_id in last}

    @cached_property
    def dead_at(self) -> dict[str, float]:
        """When each dead-lettered request was."""
        return {str(message.request_id): message.at for message in self.records.dead}

    @property
    def limits(self) -> list[tuple[float, int]]:
        """The limit counts as raised when the operator's call has returned."""
        return [(-math.inf, self.limit), *([(self.raised[1], self.mix.raised)] if self.raised else [])]

    @property
    def loads(self) -> Mapping[str, list[tuple[float, int]]]:
        """The weight at the same time, by Glue's runs, by the states that run them, and by the slots held.

        A workflow surely holds its slots between its start and its entry into ReleaseSlot.
        """
        weights = {e.name: e.weight for e in self.records.executions}
        runs = [((r.started, _end(r.completed)), weights.get(r.execution or "", 1)) for r in self.records.glue_runs]
        return {
            "glue_runs": weighted_steps(runs),
            "glue_states": weighted_steps(self._between("RunGlueJob", "RunGlueJob")),
            "held": weighted_steps(
                ((e.started, _end(e.entered("ReleaseSlot") or e.stopped)), e.weight) for e in self.records.executions
            ),
        }

    def _between(self, entered: str, exited: str) -> list[tuple[Interval, int]]:
        return [
            ((start, _end(e.exited(exited) or e.stopped)), e.weight)
            for e in self.records.executions
            if (start := e.entered(entered)) is not None
        ]

    @cached_property
    def asking(self) -> list[Asking]:
        """Each request from its sending to its start."""
        return [
            Asking(
                name=each.request.request_id,
                priority=each.request.priority,
                weight=each.request.weight,
                sequence=each.sequence,
                sent=each.at,
                until=self._ended_waiting(each.request.request_id),
                started=each.request.request_id in self.last,
            )
            for each in self.sent
        ]

    @cached_property
    def turns(self) -> list[Turn]:
        """When each request had the turn and fitted. Slots count as held until the exit from ReleaseSlot."""
        held = [((e.started, _end(e.exited("ReleaseSlot") or e.stopped)), e.weight) for e in self.records.executions]
        return turns(self.asking, weighted_steps(held), self.limits)

    def _ended_waiting(self, request_id: str) -> float:
        started = self.last.get(request_id)
        return started.started if started else self.dead_at.get(request_id, math.inf)


def _end(instant: float | None) -> float:
    return math.inf if instant is None else instant


def read_refusals(log: Path) -> list[Refusal]:
    """The refusals in the engine's log, which contains the log lines of all functions."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and '"because":' in line:
            entry = json.loads(line)
            if entry["because"] != "contended":  # then it was not registered, but made visible again
                at = datetime.strptime(entry["timestamp"], "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
                found.append(Refusal(entry["request_id"], at))
    return found
