"""Reading every version of a process's item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dev.scenarios.slots.item_journal import Journal

ITEM: dict[str, Any] = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "3"},
    "slots_in_use": {"N": "0"},
    "holders": {"M": {}},
    "target": {"S": "job"},
}


def test_the_journal_is_read_incrementally_and_in_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    lines = [
        json.dumps({"at": at, "table": table, "item": ITEM}) for at, table in ((1, "slots"), (2, "other"), (3, "slots"))
    ]
    journal = Journal(file, "slots")
    assert journal.read() == {}
    file.write_text(lines[0] + "\n" + lines[1] + "\n" + lines[2][:20])
    assert [change.at for change in journal.read().values()] == [1]
    with file.open("a") as more:
        more.write(lines[2][20:] + "\n")
    assert [change.at for change in journal.read().values()] == [3]
    assert [change.at for change in journal.changes] == [1, 3]
