"""The computed figures of the page on performance."""

from __future__ import annotations

import re

from dev.emulator.environment import ROOT
from slotkeeper_cli.write_units import demand

PAGE = (ROOT / "docs" / "performance.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)


def test_the_table_of_slots_has_the_operator_commands_figures() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 7
    for slots, size, cycle, queued, starts, of_group, seconds in rows:
        asked = demand("orders", "orders-job", int(slots))
        assert (asked.bytes, asked.cycle_units, asked.queued_units) == (int(size), int(cycle), int(queued))
        assert (f"{asked.starts_a_second:.1f}", f"{asked.group_starts:.1f}") == (starts, of_group)
        assert f"{asked.shortest_job:.1f}" == seconds
