"""What the part `token` of the benchmark reckons and says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from dev.benchmarks.token import part, reckoned, tables
from dev.benchmarks.token.crowds import Invalidation, losers
from dev.benchmarks.token.idle import Asked
from dev.benchmarks.token.thin_client import ThinDynamoDb
from dev.benchmarks.token.ways import LOCK, NAME, NOTHING, TABLE, TEXTBOOK, WAYS, Store
from dev.emulator.aws import EmbeddedAws
from dev.scenarios.slots.figures import percentile
from slotkeeper.token.item import RefreshLock, TokenItem

QUIET = Asked("a warm container's message", 0, 0, 1, 0, 0)


# --------------------------------------------------------------------------------------------------------- reckoned


@pytest.mark.parametrize("way", [LOCK, TEXTBOOK])
@pytest.mark.parametrize("count", [2, 100, 500])
def test_with_a_lock_one_invalidation_is_reckoned_to_cost_one_post(way: str, count: int) -> None:
    found = reckoned.meet_401(way, count, 0.3)
    assert (found.posts, found.failed, len(found.waits)) == (1, 0, count - 1)
    assert min(found.waits) > 0.3


def test_without_coordination_each_client_posts_at_least_once() -> None:
    assert reckoned.meet_401(NOTHING, 20, 0.3).posts >= 20


def test_a_lock_that_anybody_takes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_whatever_is_there(self: reckoned.Table, _: str, __: TokenItem, code: str, expires: float) -> bool:
        self._item = replace(self._item, lock=RefreshLock(code, expires))
        return True

    monkeypatch.setattr(reckoned.Table, "take", take_whatever_is_there)
    found = reckoned.meet_401(LOCK, 20, 0.3)
    assert found.posts > 1
    assert not tables.goals(_found({20: {LOCK: [found], TEXTBOOK: [found]}}))[0].met


def test_the_same_seed_draws_the_same_pauses() -> None:
    first, again, other = (reckoned.meet_401(LOCK, 30, 0.3, seed) for seed in (1, 1, 2))
    assert (first, first.waits == other.waits) == (again, False)


def test_who_is_refused_used_a_unit_and_everybody_has_looked_twice_or_more() -> None:
    counts = reckoned.meet_401(LOCK, 50, 0.3).counts
    assert counts["writes"] - counts["refused"] == 2
    assert counts["reads"] >= 2 * 49 + 1


def test_no_more_looks_are_served_than_dynamodb_serves_of_one_item() -> None:
    found = reckoned.meet_401(LOCK, 3000, 0.3)
    assert found.counts["throttled"] > 0
    assert found.counts["reads"] <= reckoned.MOST["reads"] * (1 + max(found.waits))


@pytest.mark.parametrize("auth_seconds", [0.0, *part.LATENCIES])
def test_a_hundred_who_wait_meet_the_goal_where_a_call_takes_as_long_as_inside_a_region(auth_seconds: float) -> None:
    waits = reckoned.meet_401(LOCK, 100, auth_seconds).waits
    assert (percentile(waits, 0.99) or 0) <= tables.goal_seconds(auth_seconds)


@pytest.mark.parametrize("other", part.OTHERS)
def test_the_goal_is_met_whatever_the_last_refresh_took_and_whenever_the_401s_come(other: str) -> None:
    found = reckoned.meet_401(LOCK, 100, 1.0, **part.OTHERS[other])
    assert (percentile(found.waits, 0.99) or 0, found.posts) <= (tables.goal_seconds(1.0), 1)


def test_whoever_knows_how_long_the_last_refresh_took_looks_half_as_often() -> None:
    looks = [reckoned.meet_401(LOCK, 100, 1.0, last_share=share).counts["reads"] for share in (1.0, 0.0)]
    assert looks[0] < 0.6 * looks[1]


@pytest.fixture
def moto_table() -> Iterator[Store]:
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "token_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "token_name", "KeyType": "HASH"}],
        )
        store = Store(client)
        store.put("token-0")
        yield store


def test_the_reckoned_table_does_what_the_items_own_steps_do(moto_table: Store) -> None:
    clock = reckoned.Clock()
    steps: list[Callable[[Store], object]] = [
        lambda table: table.read(NAME),
        lambda table: table.take(NAME, table.read(NAME), "a", 10.0),
        lambda table: table.take(NAME, replace(table.read(NAME), lock=None), "b", 10.0),
        lambda table: table.store(NAME, "b", "token-b", 5.0),
        lambda table: table.take(NAME, table.read(NAME), "c", 20.0),
        lambda table: table.store(NAME, "a", "token-a", 5.0),
        lambda table: table.store(NAME, "c", "token-c", 5.0, 1.5),
        lambda table: table.take(NAME, replace(table.read(NAME), generation=1), "d", 30.0),
        lambda table: table.put("token-e"),
        lambda table: table.read(NAME),
    ]
    told: list[object] = []
    table = reckoned.Table(clock, moto_table.read(NAME))
    clock.run([lambda: told.extend(step(table) for step in steps)])
    assert told == [step(moto_table) for step in steps]


# ----------------------------------------------------------------------------------------------------- what is told


def test_with_one_post_the_fastest_is_the_one_who_did_it_and_has_not_waited() -> None:
    messages = [(1.2, True), (1.0, True), (1.1, False)]
    assert (losers(messages, 1), losers(messages, 2)) == ([1.1, 1.2], [1.0, 1.1, 1.2])


def _found(measured: dict[int, dict[str, list[Invalidation]]]) -> tables.Found:
    timed = {
        count: {way: [replace(each, latencies=[0.001]) for each in rounds] for way, rounds in by_way.items()}
        for count, by_way in measured.items()
    }
    first = next(iter(measured.values()))
    return tables.Found(1.0, timed, measured, {1.0: first}, {"it rains": first[LOCK]}, [QUIET])


@pytest.mark.parametrize(
    ("posts", "waits", "met"),
    [(1, [1.0, 1.75], [True, True, True, True]), (2, [1.0, 1.76], [False, False, False, True])],
)
def test_goals_are_met_or_missed_by_what_was_found(posts: int, waits: list[float], met: list[bool]) -> None:
    rounds = [Invalidation(1, 0, [1.0], Counter(reads=1)), Invalidation(posts, 0, waits, Counter(reads=1))]
    assert [goal.met for goal in tables.goals(_found({10: {LOCK: rounds, TEXTBOOK: rounds}}))] == met


def test_ratios_are_of_rounds_that_were_run_one_after_the_other() -> None:
    def round_of(seconds: float) -> Invalidation:
        return Invalidation(1, 0, [seconds], Counter(reads=10))

    ours, theirs = [round_of(1.0), round_of(3.0)], [round_of(2.0), round_of(3.0)]
    grid = next(grid for grid in tables.grids(_found({10: {LOCK: ours, TEXTBOOK: theirs}})) if "share" in grid.title)
    assert grid.rows == [["10", "0.75 (0.50 to 1.00)", "0.75 (0.50 to 1.00)", "1.00 (1.00 to 1.00)"]]


# ----------------------------------------------------------------------------------------------------- with an engine


def test_the_thin_client_says_what_a_condition_refused_and_counts_it(tmp_path: Path) -> None:
    with EmbeddedAws.start(tmp_path) as engine:
        part.create_table(engine)
        client = ThinDynamoDb(engine.endpoint)
        store = Store(client)
        store.put("token-0")
        seen = store.read(NAME)
        assert [store.take(NAME, seen, code, 10.0) for code in ("a", "b")] == [True, False]
    # The refusal told the item: nobody had to look again.
    assert (client.counts, len(client.latencies)) == (Counter(reads=1, writes=3, refused=1), 4)


def test_the_smallest_run_measures_all_and_finds_one_post(tmp_path: Path) -> None:
    outcome = part.measure(tmp_path, lambda _text, _share: None, small=True)
    assert [goal.met for goal in outcome.goals if not goal.aim.startswith("wait")] == [True] * 3
    assert len(outcome.grids[0].rows) == len(part.SMALL_ROUNDS) * len(WAYS)
    assert outcome.pictures[0][0].stat().st_size > 0
