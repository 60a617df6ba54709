"""Every version of a process's item in the slot table, from the engine's journal. Times are seconds since the epoch.

The journal has the order of the writes, which no other record has: one write reserves a slot, and Step Functions lists
the start of the workflow some milliseconds later. It is parsed here without the product's code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Registration:
    """A registered head of a message group."""

    execution: str
    weight: int


@dataclass(frozen=True)
class Change:
    """An item of the slot table after a write.

    Args:
        holders: name -> state.
        weights: name -> weight, of the holders that do not have weight 1.
        waiting: priority -> its registration, without tombstones.
    """

    at: float
    process: str
    limit: int
    count: int
    holders: Mapping[str, str]
    paused: bool
    weights: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Registration] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """The sum of the holders' weights."""
        return sum(self.weights.get(name, 1) for name in self.holders)

    @property
    def registered(self) -> set[str]:
        """The executions of the waiting requests."""
        return {each.execution for each in self.waiting.values()}


class Journal:
    """Reads the changes of the slot table from the engine's journal."""

    def __init__(self, file: Path, table: str) -> None:
        self._file = file
        self._table = table
        self._offset = 0
        self._newest: dict[str, Change] = {}
        self.changes: list[Change] = []

    def read(self) -> dict[str, Change]:
        """Read the new entries; the newest state of every process."""
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith(b"\n"):
                    self._offset += len(line)
                    entry = json.loads(line)
                    if entry["table"] == self._table:
                        change = parse_change(entry["at"], entry["item"])
                        self.changes.append(change)
                        self._newest[change.process] = change
        return self._newest


def parse_change(at: float, item: Mapping[str, Any]) -> Change:
    """An item in DynamoDB's JSON."""
    holders = {name: entry["M"] for name, entry in item["holders"]["M"].items()}
    waiting = {priority: entry["M"] for priority, entry in item.get("waiting", {}).get("M", {}).items()}
    return Change(
        at=at,
        process=item["process_name"]["S"],
        limit=int(item["slot_limit"]["N"]),
        count=int(item["slots_in_use"]["N"]),
        holders={name: holder["state"]["S"] for name, holder in holders.items()},
        paused=item.get("paused", {}).get("BOOL", False),
        weights={name: int(holder["weight"]["N"]) for name, holder in holders.items() if "weight" in holder},
        waiting={
            priority: Registration(entry["execution"]["S"], int(entry["weight"]["N"]))
            for priority, entry in waiting.items()
            if "receipt_handle" in entry
        },
    )
