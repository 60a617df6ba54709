"""The item of a downstream: compare-and-set, lost answers, and items of another version or format."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.retry.downstream import downstreams
from slotkeeper.retry.downstream.downstreams import (
    DAY,
    KEPT_DAYS,
    MAX_ROUNDS,
    PAUSE_SECONDS,
    ROUNDS_WITHOUT_PAUSE,
    DownstreamTable,
    MalformedHealth,
    NotRead,
    TooManyWriters,
)
from slotkeeper.retry.downstream.health import FAILURE, Breaker, Budget, Change, Concurrency, Health, State
from slotkeeper.retry.downstream.rules import MAX_CHANGES, force_closed, force_open, set_limit
from tests.simulation.account.boundary import Calls

NAME = "billing"
TABLE = "downstreams"
STORED = {"state": "CLOSED", "changes": [], "permits": {}}


@pytest.fixture
def table(dynamodb: Any) -> DownstreamTable:
    return DownstreamTable(dynamodb, TABLE)


def item(dynamodb: Any) -> dict[str, Any]:
    return dict(dynamodb.get_item(TableName=TABLE, Key={"downstream": {"S": NAME}}).get("Item", {}))


def put(dynamodb: Any, fields: Any = MappingProxyType({}), **attributes: Any) -> None:
    """Store an item with these fields of the health, and these attributes; None leaves an attribute out."""
    text = json.dumps(STORED | dict(fields))
    stored = {"downstream": {"S": NAME}, "version": {"N": "1"}, "writer": {"S": "other"}, "health": {"S": text}}
    dynamodb.put_item(TableName=TABLE, Item={k: v for k, v in (stored | attributes).items() if v})


def count_failure(health: Health) -> tuple[Health, int]:
    after = Health(replace(health.breaker, outcomes=health.breaker.outcomes + FAILURE))
    return after, after.breaker.failures


def test_each_write_has_the_next_version(table: DownstreamTable, dynamodb: Any) -> None:
    assert (table.read(NAME), table.read_all()) == (Health(), {})
    for version in ("1", "2", "3"):
        assert table.change(NAME, count_failure)[2] == int(version)
        assert item(dynamodb)["version"] == {"N": version}


def test_an_equal_health_is_not_written(table: DownstreamTable, dynamodb: Any) -> None:
    calls = Calls(dynamodb)
    assert table.change(NAME, lambda health: (health, "asked")) == (Health(), Health(), "asked")
    assert calls.made == ["GetItem"]
    assert item(dynamodb) == {}


@pytest.mark.parametrize("existed", [False, True])
def test_a_change_that_meets_another_write_is_decided_again_on_its_item(
    table: DownstreamTable, dynamodb: Any, existed: bool
) -> None:
    if existed:
        put(dynamodb)
    decided: list[Health] = []

    def decide(health: Health) -> tuple[Health, int]:
        decided.append(health)
        if len(decided) == 1:
            DownstreamTable(dynamodb, TABLE).change(NAME, count_failure)
        return count_failure(health)

    before, after, failures = table.change(NAME, decide)
    assert [health.breaker.failures for health in decided] == [0, 1]
    assert (before.breaker.failures, after.breaker.failures, failures) == (1, 2, 2)
    assert table.read(NAME) == after


@pytest.mark.parametrize("existed", [False, True])
def test_a_write_whose_answer_was_lost_is_not_made_twice(table: DownstreamTable, dynamodb: Any, existed: bool) -> None:
    """botocore makes the put again, which then fails on the item that the first one has written."""
    if existed:
        put(dynamodb)
    puts: list[Any] = []

    def make_twice(params: Any, **_: Any) -> None:
        puts.append(dict(params))
        if len(puts) == 1:
            dynamodb.put_item(**puts[0])

    dynamodb.meta.events.register("before-parameter-build.dynamodb.PutItem", make_twice)
    _, after, failures = table.change(NAME, count_failure)
    assert (after.breaker.failures, failures, len(puts)) == (1, 1, 2)
    assert table.read(NAME) == after


def test_a_container_that_always_meets_another_write_pauses_and_ends_after_its_rounds(
    table: DownstreamTable, dynamodb: Any
) -> None:
    pauses: list[float] = []
    rounds = itertools.count(1)

    def decide(health: Health) -> tuple[Health, int]:
        next(rounds)
        put(dynamodb, {"outcomes": health.breaker.outcomes + FAILURE}, version={"N": str(health.breaker.failures + 2)})
        return count_failure(health)

    with pytest.raises(TooManyWriters, match=rf"'{NAME}' was changed in each of {MAX_ROUNDS} rounds"):
        DownstreamTable(dynamodb, TABLE, sleep=pauses.append).change(NAME, decide)
    assert next(rounds) == MAX_ROUNDS + 1
    assert len(set(pauses)) == MAX_ROUNDS - ROUNDS_WITHOUT_PAUSE
    assert all(0 <= pause <= PAUSE_SECONDS * MAX_ROUNDS for pause in pauses)
    assert item(dynamodb)["writer"] == {"S": "other"}


def test_fields_of_another_version_are_ignored_or_have_their_defaults(table: DownstreamTable, dynamodb: Any) -> None:
    """During a deployment, containers of two versions share the item."""
    change = {"at": 5, "to": "CLOSED", "why": "repaired", "later": 1}
    put(dynamodb, {"changes": [change], "epoch": 3, "later": {"a": 1}})
    assert table.read(NAME) == Health(Breaker(epoch=3, changes=(Change(5, "CLOSED", "repaired"),)))


MALFORMED = {
    "no version": {"version": None},
    "a version that is no number": {"version": {"S": "1"}},
    "no writer": {"writer": None},
    "no health": {"health": None},
    "not JSON": {"health": {"S": "{"}},
    "not an object": {"health": {"S": "[]"}},
    "an unknown state": {"health": {"S": json.dumps(STORED | {"state": "AJAR"})}},
    "no state": {"health": {"S": "{}"}},
    "a change without a time": {"health": {"S": json.dumps(STORED | {"changes": [{"to": "OPEN"}]})}},
    "permits that are no map": {"health": {"S": json.dumps(STORED | {"permits": 5})}},
    "a permit without a time": {"health": {"S": json.dumps(STORED | {"permits": {"a": ["b", 1]}})}},
    "a permit without an epoch": {"health": {"S": json.dumps(STORED | {"permits": {"a": 5}})}},
    "outcomes that are no text": {"health": {"S": json.dumps(STORED | {"outcomes": 5})}},
    "a number that is text": {"health": {"S": json.dumps(STORED | {"spent": "3"})}},
}


@pytest.mark.parametrize("attributes", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_item_names_the_attribute_and_what_to_do(
    table: DownstreamTable, dynamodb: Any, attributes: dict[str, Any]
) -> None:
    put(dynamodb, **attributes)
    (attribute,) = attributes
    expected = rf"item '{NAME}' of the downstream table: {attribute} is missing or .* Delete the item"
    for act in (lambda: table.read(NAME), lambda: table.change(NAME, count_failure)):
        with pytest.raises(MalformedHealth, match=expected):
            act()


def test_a_malformed_item_does_not_hide_the_others(table: DownstreamTable, dynamodb: Any) -> None:
    put(dynamodb, {"state": "AJAR"})
    table.change("mail", count_failure)
    healths = table.read_all()
    assert isinstance(healths[NAME], MalformedHealth)
    assert healths["mail"] == Health(Breaker(outcomes=FAILURE))


TIMES = st.floats(0, 4e9)
CHANGES = st.builds(Change, TIMES, st.sampled_from(State), st.text(max_size=9))
HEALTHS = st.builds(
    Health,
    st.builds(
        Breaker,
        st.sampled_from(State),
        st.integers(0, 10**9),
        TIMES,
        forced=st.booleans(),
        healthy=st.booleans(),
        outcomes=st.text("sf", max_size=16),
        probe_at=TIMES,
        changes=st.lists(CHANGES, max_size=MAX_CHANGES).map(tuple),
    ),
    st.builds(
        Concurrency,
        st.integers(0, 1000),
        limit_set=st.none() | st.integers(1, 1000),
        cut=TIMES | st.just(-1.0),
        seconds=TIMES,
    ),
    st.builds(Budget, st.floats(0, 100), TIMES),
    permits=st.dictionaries(st.text(max_size=4), st.tuples(TIMES, st.integers(0, 9)), max_size=4),
)


@given(HEALTHS)
def test_a_health_is_read_as_it_was_written(health: Health) -> None:
    assert downstreams._health(downstreams._to_json(health)) == health


@pytest.mark.parametrize(
    ("change", "expires"),
    [
        pytest.param(count_failure, True, id="written by a worker"),
        pytest.param(lambda health: (force_open(health, 7.0, "planned"), None), False, id="opened by an operator"),
        pytest.param(lambda health: (set_limit(health, 3), None), False, id="limited by an operator"),
    ],
)
def test_an_item_that_no_operator_has_set_expires(
    table: DownstreamTable, dynamodb: Any, change: Callable[[Health], Any], expires: bool
) -> None:
    before = time.time()
    table.change(NAME, change)
    expiry = item(dynamodb).get("expires_at")
    assert (expiry is not None) is expires
    assert expiry is None or abs(int(expiry["N"]) - before - KEPT_DAYS * DAY) <= 2 * DAY
    table.change(NAME, lambda health: (set_limit(force_closed(health, 8.0, "done"), None), None))
    assert "expires_at" in item(dynamodb)


def test_downstreams_beyond_a_number_are_not_read_and_that_is_stated(
    table: DownstreamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        table.change(name, count_failure)
    monkeypatch.setattr(downstreams, "MOST_READ", 2)
    assert list(table.read_all()) == ["a", "b", "c"]  # one page, which has all
    items = table._table.dynamodb.scan(TableName=TABLE)["Items"]
    scan = [{"Items": items[:2], "LastEvaluatedKey": {}}, {"Items": items[2:]}]
    monkeypatch.setattr(
        table._table, "dynamodb", SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=lambda **_: scan))
    )
    found = table.read_all()
    assert (len(found), str(found[""])) == (3, "the downstreams after the first 2 of downstreams are not read")
    assert isinstance(found[""], NotRead)
