"""The plan of `slotkeeper process repair` for any item of the slot table."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given

from slotkeeper.slots.process import find_faults, read_process
from slotkeeper_cli.item_repair import Known, plan_repair, value_at
from tests.unit.fuzz.test_fuzz_slot_items import OTHERS, VALID

NOW = 1_790_000_000.0
RUNS = Known(NOW - 60, "job", 2)


@given(item=OTHERS)
@example(item=VALID | {"slots_in_use": {"S": "3"}, "holders": {"M": {"p-1": {"S": "x"}}}})
@example(item=VALID | {"slot_limit": None} | {"holders": {"M": {"p-9": {"NULL": True}}}})
def test_a_plan_drops_no_holder_and_admits_no_more(item: dict[str, Any]) -> None:
    item = {name: value for name, value in item.items() if value is not None}
    faults = find_faults(item)
    names = {fault.keys[1] for fault in faults if fault.keys[0] == "holders" and len(fault.keys) > 1}

    try:
        plan = plan_repair(item, {name: RUNS if name == "p-1" else Known() for name in names}, {}, NOW)
    except ValueError:
        return  # the value itself is not one that `process add` accepts: nothing is written

    repaired, opened = plan.repaired, {fault.keys for fault in plan.open}
    assert {fault.keys for fault in find_faults(repaired)} <= opened | ({("slots_in_use",)} if opened else set())
    if not faults:
        assert (list(plan.changes), repaired) == ([], item)
    written = {change.keys for change in plan.changes}
    malformed = {fault.keys for fault in faults}
    # Nothing else is written: only a malformed attribute, the counter, and the pause that a rebuilt map requires.
    for keys in written - malformed - {("slots_in_use",), ("paused",)}:
        assert value_at(repaired, keys[:-1]) is not None
    before, after = (value_at(each, ("holders",)) or {} for each in (item, repaired))
    assert before.get("M", {}).keys() <= after.get("M", {}).keys()
    if not opened:
        process = read_process(repaired)
        assert process.slots_in_use >= process.held_weight or not faults
        assert process.paused or ("holders",) not in written
        if ("slot_limit",) in malformed:
            text = item.get("slot_limit", {}).get("S", "")
            assert process.slot_limit == int(text)
