"""The example of docs/your-functions.md: slots in another table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Account

ROOT = Path(__file__).parents[2]
(SLOTS,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your-functions.md").read_text(), re.DOTALL)


def _run(account: Account, request_id: str, work: Any) -> None:
    exec(SLOTS, {"table_name": account.slot_table, "request_id": request_id, "work": work})


def test_no_more_callers_work_than_there_are_slots(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    worked: list[str] = []

    def third() -> None:
        worked.append("third")

    def second() -> None:
        worked.append("second")
        _run(account, "third", third)

    _run(account, "first", lambda: _run(account, "second", second))

    assert worked == ["second"]
    assert capsys.readouterr().out == "not now: Full()\n"
    assert account.item("licence").slots_in_use == 0


def test_a_repeated_execution_name_has_one_slot(account: Account) -> None:
    taken: list[int] = []
    _run(account, "first", lambda: _run(account, "first", lambda: taken.append(account.item("licence").slots_in_use)))

    assert taken == [1]


def test_failed_work_releases_its_slot(account: Account) -> None:
    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        _run(account, "first", fail)

    assert account.item("licence").slots_in_use == 0
