"""The settings of downstreams in the policy document: defaults, bounds, inheritance, and the fallback."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from slotkeeper.retry.downstream.health import (
    BREAKER_ERRORS,
    THROTTLE_ERRORS,
    BreakerSettings,
    BudgetSettings,
    ConcurrencySettings,
    DownstreamSettings,
)
from slotkeeper.retry.policy import (
    BUILT_IN,
    SCHEMA_FILE,
    InvalidPolicy,
    parse_policy,
)

SCHEMA = json.loads(SCHEMA_FILE.read_text())
PARTS = {"breaker": BreakerSettings, "concurrency": ConcurrencySettings, "budget": BudgetSettings}


def parsed(**parts: Any) -> DownstreamSettings:
    return parse_policy(json.dumps({"downstream": parts})).downstream


def test_the_built_in_settings_are_as_documented() -> None:
    assert BUILT_IN.downstream == DownstreamSettings(
        BreakerSettings(True, 18, 18, 10.0, BREAKER_ERRORS),
        ConcurrencySettings(True, 2.0, None, THROTTLE_ERRORS),
        BudgetSettings(True, 20, 100.0, 60.0),
    )
    assert BUILT_IN.downstream_settings("any") == BUILT_IN.downstream


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"downstream": {}},
        {"downstream": {"breaker": {}, "concurrency": {}, "budget": {}}},
        {"downstream": {"concurrency": {"slow_seconds": None}}},
    ],
)
def test_omitted_fields_have_the_built_in_values(document: Any) -> None:
    assert parse_policy(json.dumps(document)) == BUILT_IN


def test_a_named_downstream_inherits_from_the_documents_downstream() -> None:
    document = {
        "downstream": {"breaker": {"failure_threshold": 9.0, "errors": ["Down"]}, "budget": {"capacity": 3}},
        "downstreams": {"mail": {"breaker": {"recovery_seconds": 5}, "concurrency": {"enabled": False}}},
    }
    policy = parse_policy(json.dumps(document))
    default = DownstreamSettings(
        BreakerSettings(failure_threshold=9, errors=("Down",)), budget=BudgetSettings(capacity=3)
    )
    assert policy.downstream_settings("other") == default
    assert policy.downstream_settings("mail") == DownstreamSettings(
        replace(default.breaker, recovery=5), ConcurrencySettings(enabled=False), default.budget
    )
    assert isinstance(policy.downstream.breaker.failure_threshold, int)


BOUNDS = [
    ("breaker", "failure_threshold", 1, 100),
    ("breaker", "window_calls", 1, 100),
    ("breaker", "recovery_seconds", 1, 3600),
    ("concurrency", "window_seconds", 1, 3600),
    ("concurrency", "slow_seconds", 0.001, 900),
    ("budget", "percent", 0, 1000),
    ("budget", "capacity", 1, 100_000),
    ("budget", "window_seconds", 1, 3600),
]


@pytest.mark.parametrize(("part", "name", "least", "most"), BOUNDS)
def test_a_number_within_its_bounds_is_read_and_one_beyond_is_refused(
    part: str, name: str, least: float, most: float
) -> None:
    for value in (least, most):
        assert getattr(getattr(parsed(**{part: {name: value}}), part), name.removesuffix("_seconds")) == value
    for value in (least - 1, most + 1, "1", True):
        with pytest.raises(InvalidPolicy, match=rf"downstream\.{part}\.{name} must be"):
            parsed(**{part: {name: value}})


@pytest.mark.parametrize(
    ("part", "name"), [("breaker", "failure_threshold"), ("breaker", "window_calls"), ("budget", "capacity")]
)
def test_a_count_is_a_whole_number(part: str, name: str) -> None:
    with pytest.raises(InvalidPolicy, match=f"{name} must be integer"):
        parsed(**{part: {name: 2.5}})


@pytest.mark.parametrize("part", ["breaker", "concurrency"])
@pytest.mark.parametrize("errors", [["x"] * 101, [""], [3], "Down", None])
def test_the_names_of_errors_are_at_most_a_hundred_texts(part: str, errors: Any) -> None:
    assert len(getattr(parsed(**{part: {"errors": ["x"] * 100}}), part).errors) == 100
    with pytest.raises(InvalidPolicy, match=rf"downstream\.{part}\.errors"):
        parsed(**{part: {"errors": errors}})


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_disabled_and_has_no_other_fields(part: str) -> None:
    assert getattr(parsed(**{part: {"enabled": False}}), part) == PARTS[part](enabled=False)
    for bad in ({"enabled": 1}, {"treshold": 3}, []):
        with pytest.raises(InvalidPolicy, match=rf"downstream\.{part}"):
            parsed(**{part: bad})


def test_the_schema_has_each_setting_and_describes_it() -> None:
    parts = SCHEMA["definitions"]["downstream"]["properties"]
    assert parts.keys() == PARTS.keys()
    for part, kind in PARTS.items():
        properties = parts[part]["properties"]
        assert {name.removesuffix("_seconds") for name in properties} == {each.name for each in fields(kind)}
        assert all(each["description"] for each in properties.values())


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "é"])
def test_a_downstreams_name_in_the_document_is_one_that_a_worker_can_use(name: str) -> None:
    with pytest.raises(InvalidPolicy, match="downstreams"):
        parse_policy(json.dumps({"downstreams": {name: {}}}))
