"""All malformed attributes of an item are found at the same time, by the parser that reads it."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.process import find_faults

VALID: dict[str, Any] = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "3"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"p.1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
    "target": {"S": "job"},
}


def _paths(**changes: Any) -> list[tuple[str, ...]]:
    item = {name: value for name, value in (VALID | changes).items() if value is not None}
    return sorted(fault.keys for fault in find_faults(item))


def test_a_valid_item_has_no_faults() -> None:
    assert _paths() == []


def test_every_fault_is_found_with_its_path() -> None:
    broken = {
        "slot_limit": {"S": "3"},
        "slots_in_use": None,
        "paused": {"S": "no"},
        "holders": {"M": {"p.1": {"M": {"state": {"S": "HELD"}}}, "p.2": {"S": "x"}}},
        "waiting": {"M": {"high": {"S": "x"}, "low": {"M": {"receipt_handle": {"S": "h"}, "receives": {"S": "1"}}}}},
        "cancelled": {"M": {"p.3": {"M": {"since": {"N": "-1"}}}}},
        "run_settings": {"M": {"timeout_minutes": {"S": "5"}}},
        "turn_low": {"S": "1"},
    }

    assert _paths(**broken) == [
        ("cancelled", "p.3", "since"),
        ("holders", "p.1", "since"),
        ("holders", "p.1", "state"),
        ("holders", "p.2"),
        ("paused",),
        ("run_settings", "timeout_minutes"),
        ("slot_limit",),
        ("slots_in_use",),
        ("turn_low",),
        ("waiting", "high"),
        *(
            ("waiting", "low", name)
            for name in ("execution", "hidden_until", "receives", "sequence", "since", "weight")
        ),
    ]


@pytest.mark.parametrize("name", ["holders", "waiting", "cancelled", "run_settings"])
def test_of_a_malformed_map_only_the_map_is_found(name: str) -> None:
    assert _paths(**{name: {"L": []}}) == [(name,)]


def test_a_fault_has_the_expected_type() -> None:
    (fault,) = find_faults(VALID | {"slot_limit": {"S": "3"}})

    assert (fault.kind, str(fault)) == ("N", "slot_limit must be of DynamoDB type N, got {'S': '3'}")
