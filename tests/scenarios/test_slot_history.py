"""Reading every version of a process's item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dev.scenarios.slots.slot_history import Journal, Registration, parse_change

ITEM: dict[str, Any] = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "3"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"p-1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
}


def test_an_item_of_the_slot_table_is_parsed() -> None:
    change = parse_change(5.0, ITEM | {"paused": {"BOOL": True}})
    assert (change.process, change.limit, change.count, change.holders) == ("p", 3, 1, {"p-1": "RUNNING"})
    assert (change.paused, parse_change(5.0, ITEM).paused) == (True, False)


def test_the_weights_of_holders_and_the_waiting_requests_are_parsed_without_tombstones() -> None:
    heavy = {"p-2": {"M": {"state": {"S": "RESERVED"}, "since": {"N": "1"}, "weight": {"N": "2"}}}}
    registration = {"M": {"receipt_handle": {"S": "h"}, "execution": {"S": "p-3"}, "weight": {"N": "5"}}}
    waiting = {"high": registration, "low": {"M": {"sequence": {"S": "1"}, "receives": {"N": "1"}}}}
    change = parse_change(5.0, ITEM | {"holders": {"M": ITEM["holders"]["M"] | heavy}, "waiting": {"M": waiting}})
    assert (change.held, change.waiting) == (3, {"high": Registration("p-3", 5)})
    assert (parse_change(5.0, ITEM).held, parse_change(5.0, ITEM).registered, change.registered) == (1, set(), {"p-3"})


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
