"""A malformed item is reported with its attribute, and all of its malformed attributes are found at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.process import MalformedProcess, find_faults, read_process
from slotkeeper.slots.rate import Rate

VALID: dict[str, Any] = {
    "process_name": {"S": "p"},
    "slot_limit": {"N": "3"},
    "slots_in_use": {"N": "1"},
    "holders": {"M": {"p.1": {"M": {"state": {"S": "RUNNING"}, "since": {"N": "1"}}}}},
    "target": {"S": "job"},
    "grants": {"N": "7"},
    "rate": Rate(10, 60).item,
    "next_start": {"N": "0"},
}
RATE = VALID["rate"]["M"]


YEAR_10000 = "253402300800"  # Python has no such date
RUNS = {"state": {"S": "RUNNING"}, "since": {"N": "1"}}
LEASED = {"state": {"S": "LEASED"}, "since": {"N": "1"}, "until": {"N": "2"}, "code": {"S": "c"}}


def _holder(of: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The attribute `holders` with one holder, without the fields that are None."""
    return {"M": {"p-1": {"M": {name: value for name, value in (of | changes).items() if value is not None}}}}


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("slot_limit", {"N": "2.5"}, "slot_limit must be"),
        ("slots_in_use", {"N": "0.5"}, "slots_in_use must be"),
        ("holders", _holder(RUNS, since={"N": "1.5"}), r"holders\.p-1\.since must be"),
        ("holders", _holder(RUNS, state=None), r"holders\.p-1\.state must be"),
        ("holders", _holder(RUNS, weight={"N": "1.5"}), r"holders\.p-1\.weight must be"),
        ("holders", {"M": {"p-1": {"S": "RUNNING"}}}, r"holders\.p-1 must be"),
        ("holders", _holder(LEASED, until=None), r"holders\.p-1\.until must be of DynamoDB type N, got None"),
        ("holders", _holder(LEASED, until={"S": "1"}), r"holders\.p-1\.until must be of DynamoDB type N"),
        ("holders", _holder(LEASED, until={"N": "1.5"}), r"holders\.p-1\.until must be a valid number, got 1\.5"),
        ("holders", _holder(LEASED, until={"N": "9999999999999"}), "until must be a valid number"),
        ("holders", _holder(LEASED, code=None), r"holders\.p-1\.code must be of DynamoDB type S"),
        ("holders", _holder(LEASED, state={"S": "HELD"}), "state must be one of RESERVED, RUNNING, LEASED, got 'HELD'"),
        ("holders", _holder(RUNS, since={"N": YEAR_10000}), r"holders\.p-1\.since must be a valid number"),
        ("grants", None, "grants must be of DynamoDB type N"),
        ("grants", {"N": "1.5"}, "grants must be a whole number"),
        ("ring_at", {"S": "soon"}, "ring_at must be of DynamoDB type N"),
        ("run_settings", {"M": {"settle_seconds": {"S": "5"}}}, r"run_settings\.settle_seconds must be"),
        ("default_weight", {"N": "0"}, "default_weight must be"),
        ("target", {"S": ""}, "target must not be empty"),
        ("paused", {"S": "yes"}, "paused must be"),
        ("rate", {"S": "10/minute"}, "rate must be of DynamoDB type M"),
        ("rate", {"M": {}}, r"rate\.count must be of DynamoDB type N"),
        ("rate", {"M": RATE | {"count": {"N": "0"}}}, "rate must have a whole number above 0 as count"),
        ("rate", {"M": RATE | {"count": {"S": "10"}}}, r"rate\.count must be of DynamoDB type N"),
        ("rate", {"M": RATE | {"burst": {"N": "11"}}}, "rate must have a burst of at most its count"),
        ("rate", {"M": RATE | {"per": {"S": "minute"}}}, "rate must have count, seconds and burst alone, got per"),
        ("next_start", {"S": "0"}, "next_start must be of DynamoDB type N"),
        ("next_start", None, "next_start must be of DynamoDB type N"),
        ("key_limit", {"N": "1.5"}, "key_limit must be a whole number, got 1.5"),
        ("key_limits", {"L": []}, "key_limits must be of DynamoDB type M"),
        ("key_limits", {"M": {"acme": {"S": "1"}}}, r"key_limits\.acme must be of DynamoDB type N"),
        ("after_keys", {"M": {"1": {"N": "1"}}}, r"after_keys\.1 must be of DynamoDB type S"),
        ("holders", _holder(RUNS, key={"N": "1"}), r"holders\.p-1\.key must be of DynamoDB type S"),
    ],
)
def test_a_malformed_item_is_reported_with_its_attribute(attribute: str, value: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedProcess, match=message):
        read_process(VALID | {attribute: value})


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
        "holders": {"M": {"p.1": {"M": {"state": {"S": "HELD"}, "key": {"N": "1"}}}, "p.2": {"S": "x"}}},
        "key_limits": {"M": {"acme": {"S": "1"}, "b": {"N": "1"}}},
        "after_keys": {"M": {"1": {"N": "1"}}},
        "run_settings": {"M": {"timeout_minutes": {"S": "5"}}},
        "grants": {"S": "1"},
    }

    assert _paths(**broken) == [
        ("after_keys", "1"),
        ("grants",),
        ("holders", "p.1", "key"),
        ("holders", "p.1", "since"),
        ("holders", "p.1", "state"),
        ("holders", "p.2"),
        ("key_limits", "acme"),
        ("paused",),
        ("run_settings", "timeout_minutes"),
        ("slot_limit",),
        ("slots_in_use",),
    ]


@pytest.mark.parametrize("name", ["holders", "run_settings", "key_limits", "after_keys"])
def test_of_a_malformed_map_only_the_map_is_found(name: str) -> None:
    assert _paths(**{name: {"L": []}}) == [(name,)]


def test_a_fault_has_the_expected_type() -> None:
    (fault,) = find_faults(VALID | {"slot_limit": {"S": "3"}})

    assert (fault.kind, str(fault)) == ("N", "slot_limit must be of DynamoDB type N, got {'S': '3'}")
