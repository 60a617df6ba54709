"""The replay of a queue: known results of queueing theory, and the rules."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.plan import KEY_READ, MAX_READS
from slotkeeper.slots.process import Process
from slotkeeper.slots.queued import before_key
from slotkeeper.slots.rate import Rate
from slotkeeper_cli.audit.intervals import weighted_steps
from slotkeeper_cli.replay import QueuedWork, Replay, ReplayCourse, SettingsChange

PROCESS = Process("p", 1, 0, {}, paused=False, target="job")


def works(*requests: Any) -> list[QueuedWork]:
    """Requests by (sent, seconds), or (sent, seconds, rank, weight), and whether they skip, and `start_before`."""
    made = []
    for number, (sent, length, *of) in enumerate(requests):
        rank, weight, skips, before = (*of, *(1, 1, False, None)[len(of) :])
        place = f"{rank}#{number:05}"
        made.append(QueuedWork(f"p-{number}", place, weight, before, skips, arrives=sent, seconds=length))
    return made


def run(requests: list[QueuedWork], limit: int = 1, **options: Any) -> ReplayCourse:
    process = replace(PROCESS, slot_limit=limit, rate=options.pop("rate", None))
    return Replay(process, requests, 0.0, ends={}, **options).run()


def starts(*requests: Any, limit: int = 1, **options: Any) -> list[float]:
    """The starts of the requests, in their order; infinite for those that never start."""
    started = run(works(*requests), limit, **options).starts
    return [started.get(f"p-{number}", math.inf) for number in range(len(requests))]


PAUSE = [SettingsChange(5, {"paused": True}), SettingsChange(30, {"paused": False})]
NEVER = math.inf


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(starts((0, 10), (0, 4), (0, 3), (1, 5), (20, 1), limit=2), [0, 0, 4, 7, 20], id="in order"),
        pytest.param(starts((0, 1, 1, 3), (1, 1), limit=2), [NEVER, 1], id="a blocked one keeps back no other"),
        pytest.param(
            starts((0, 9, 1, 3), (1, 1), limit=2, changes=[SettingsChange(4, {"slot_limit": 3})]),
            [4, 1],
            id="until the limit is raised",
        ),
        pytest.param(
            starts((0, 1), (0, 1), (0, 30), (0, 1), (300, 1), limit=5, rate=Rate(6, 60, 2)),
            [0, 0, 10, 20, 300],
            id="a rate delays starts although slots are free",
        ),
        pytest.param(starts((0, 10), (6, 1), (7, 1), changes=PAUSE), [0, 30, 31], id="a pause"),
        pytest.param(
            starts((0, 10), (1, 1, 1, 1, True), (10, 1, 1, 1, True)), [0, NEVER, 10], id="one that skips leaves"
        ),
        pytest.param(
            starts((0, 10), (1, 1, 1, 1, False, 9), (1, 1, 1, 1, False, 11)), [0, NEVER, 10], id="one is too late"
        ),
        pytest.param(
            starts((0, 10), (0, 10), (0, 5), limit=3, pace=2),
            [0, 2, 4],
            id="each start takes two seconds",
        ),
        pytest.param(starts((0, 10), (0, 10), hand_off=1), [0, 11], id="a hand-off takes a second"),
    ],
)
def test_requests_start_as_computed(found: list[float], expected: list[float]) -> None:
    assert found == expected


def test_more_keys_at_their_limit_than_one_plan_reads_do_not_hide_those_behind_them() -> None:
    keys = [f"{number:03}" for number in range(MAX_READS + 9)]
    queue = [
        QueuedWork(f"p-{key}-{at}", f"{before_key('1', key)}{at:02}", arrives=0, seconds=NEVER)
        for key in keys
        if key != keys[-2]
        for at in range(KEY_READ + 1)
    ]
    # The turns begin behind the key that started last.
    last = QueuedWork("p-last", f"{before_key('1', keys[-2])}1", arrives=5, seconds=1)
    process = replace(PROCESS, slot_limit=len(keys) + 1, key_limit=1)
    started = Replay(process, [*queue, last], 0.0, ends={}).run().starts
    assert started == {**{f"p-{key}-0": 0 for key in keys if key != keys[-2]}, "p-last": 5}


def test_a_rate_ends_a_wait_although_a_plan_does_not_read_the_request_that_is_next() -> None:
    process = replace(PROCESS, slot_limit=9, key_limit=2, rate=Rate(1, 60))
    queue = [QueuedWork(f"p-{at}", f"{before_key('1', 'acme')}{at:02}", arrives=0, seconds=500) for at in range(60)]
    last = QueuedWork("p-last", f"{before_key('1', 'b')}1", arrives=70, seconds=5)
    assert Replay(process, [*queue, last], 0.0, ends={}).run().starts["p-last"] == 120


def test_many_blocked_requests_do_not_hide_those_behind_them() -> None:
    heavy = [(0, 1, 1, 2)] * 40
    assert starts(*heavy, (1, 2))[-1] == 1


def test_a_course_states_why_the_rest_never_starts_and_when_others_left() -> None:
    course = run(works((0, NEVER), (1, 1), (1, 1, 1, 9), (1, 1, 1, 1, True)))
    assert {name: type(wait.reason).__name__ for name, wait in course.waits.items()} == {
        "p-1": "NoRoom",
        "p-2": "Blocked",
    }
    assert course.left == {"p-3": 1}


def test_of_recorded_starts_it_is_stated_from_when_on_each_could_start() -> None:
    recorded = {"p-0": 2.0, "p-1": 14.0, "p-2": 20.0}
    course = run(works((0, 10), (1, 1), (2, 1), (3, 1, 1, 1, True)), recorded=recorded)
    assert course.startable == {"p-0": 0, "p-1": 12, "p-2": 15}
    assert course.starts == recorded


def test_the_mean_wait_of_random_arrivals_and_equal_durations_is_that_of_an_m_d_1_queue() -> None:
    """Pollaczek-Khinchine: rho * D / (2 * (1 - rho))."""
    source, sent, requests = random.Random(1), 0.0, list[tuple[float, float]]()  # noqa: S311
    for _ in range(6_000):
        sent += source.expovariate(0.6)
        requests.append((sent, 1.0))
    waits = [at - sent for at, (sent, _) in zip(starts(*requests), requests, strict=True)]
    assert sum(waits) / len(waits) == pytest.approx(0.6 / (2 * (1 - 0.6)), rel=0.05)


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 2), st.integers(1, 3)),
        min_size=1,
        max_size=25,
    ),
    st.integers(3, 6),
)
def test_limit_and_order_are_kept_and_each_starts_as_soon_as_it_can(
    requests: list[tuple[int, int, int, int]], limit: int
) -> None:
    made = works(*sorted(requests))
    course = run(made, limit)
    used = weighted_steps(
        ((course.starts[each.execution], course.starts[each.execution] + each.seconds), each.weight) for each in made
    )
    assert max(number for _, number in used) <= limit
    for rank in "012":
        of = [course.starts[each.execution] for each in made if each.place[0] == rank]
        assert of == sorted(of)
    assert run(made, limit, recorded=course.starts).startable == course.starts
    assert set(starts(*requests, limit=1000)) <= {sent for sent, *_ in requests}
