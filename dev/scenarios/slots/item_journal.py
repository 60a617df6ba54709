"""Every version of a process's item in the slot table, from the engine's journal.

The journal has the order of the writes, which no other record has: one write reserves a slot, and Step Functions lists
the start of the workflow some milliseconds later.
"""

from __future__ import annotations

import json
from pathlib import Path

from dev.judge.slot_item import Item


class Journal:
    """Reads the versions of the items in the slot table from the engine's journal."""

    def __init__(self, file: Path, table: str) -> None:
        self._file = file
        self._table = table
        self._offset = 0
        self._newest: dict[str, Item] = {}
        self.changes: list[Item] = []

    def read(self) -> dict[str, Item]:
        """Read the new entries; the newest state of every process."""
        if self._file.exists():
            with self._file.open("rb") as lines:
                lines.seek(self._offset)
                while (line := lines.readline()).endswith(b"\n"):
                    self._offset += len(line)
                    entry = json.loads(line)
                    if entry["table"] == self._table:
                        change = Item.read(entry["item"], entry["at"])
                        self.changes.append(change)
                        self._newest[change.process] = change
        return self._newest
