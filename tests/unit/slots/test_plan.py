"""Who starts next: tables of examples, and any queue against an oracle that looks at all of it before each start."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.plan import (
    LOOK_AHEAD_SECONDS,
    Behind,
    Blocked,
    InPause,
    KeyBlocked,
    KeyFull,
    NextRound,
    NoRoom,
    Plan,
    PlannedStart,
    Reason,
    Starting,
    Stopped,
    TooEarly,
    TooManyHolders,
    Wait,
    plan,
)
from slotkeeper.slots.process import MAX_HOLDERS, Holder, HolderState, Process
from slotkeeper.slots.queued import Queued, before_key, rank_of
from slotkeeper.slots.rate import Rate
from tests.profiles import share

NOW = 1_000_000
AGE = 32


def holder(
    weight: int = 1, state: HolderState = "RUNNING", since: int = NOW, until: int | None = None, key: str = ""
) -> Holder:
    return Holder(state, since, "job", None, {}, weight=weight, until=until, key=key)


def a_process(limit: int, *held: int, **others: object) -> Process:
    """A process of this limit, with a running holder of each weight."""
    holders = {f"h{number}": holder(weight) for number, weight in enumerate(held)}
    process = Process("p", limit, sum(held), holders, paused=False, target="job")
    return replace(process, **others)  # type: ignore[arg-type]  # any attribute


def a_queue(*requests: Queued | int | str) -> list[Queued]:
    """Requests a, b, c, ... of these weights, in this order behind the beginnings of their places."""
    names = iter("abcdefgh")
    queue = []
    for number, request in enumerate(requests):
        name = next(names)
        given = request if isinstance(request, Queued) else Queued(name, "", weight=int(request))
        queue.append(replace(given, execution=given.execution or name, place=f"{given.place}{number:014}"))
    return sorted(queue, key=lambda each: each.place)


def of_keys(limit: int, held: str = "", **others: object) -> Process:
    """A process of this limit, in which a request of each of these keys runs; "_": of none."""
    process = a_process(limit, *[1] * len(held), **others)
    holders = zip(process.holders, held, strict=True)
    return replace(process, holders={name: holder(key=key.strip("_")) for name, key in holders})


def keyed(names: str, **fields: Any) -> list[Queued]:
    """Requests a1, b1, ... of the keys a, b, ..., and _1 of none: `a1:2` of weight 2, `!a1` of high priority."""
    queue = []
    for text in names.split():
        name, _, weight = text.strip("!").partition(":")
        begin = before_key(str(int("!" not in text)), name[0].strip("_"))
        queue.append(Queued(name, begin, weight=int(weight or 1), **fields))
    return a_queue(*queue)


def skips(weight: int = 1) -> Queued:
    return Queued("", "", weight=weight, skips=True)


def until(start_before: float, weight: int = 1) -> Queued:
    return Queued("", "", weight=weight, start_before=start_before)


def starts(planned: Plan) -> str:
    return "".join(start.execution for start in planned.starts)


def leaves(planned: Plan) -> dict[str, str]:
    return {leave.execution: leave.end for leave in planned.leaves}


EXAMPLES: dict[str, tuple[Process, list[Queued], str, dict[str, Reason]]] = {
    "full": (a_process(1, 1), a_queue(1, 1), "", {"a": NoRoom(1, 0), "b": Behind("a")}),
    "a blocked head keeps back no other": (a_process(2), a_queue(3, 1, 1), "bc", {"a": Blocked(3, 2)}),
    "the limit is 0": (a_process(0), a_queue(1, 1), "", {"a": Stopped(), "b": Stopped()}),
    "paused": (a_process(2, paused=True), a_queue(1, 1), "", {"a": InPause(), "b": Behind("a")}),
    "a counter that has drifted up refuses": (
        replace(a_process(2, 1), slots_in_use=2),
        a_queue(1),
        "",
        {"a": NoRoom(1, 0)},
    ),
    "a request that has a holder is passed over": (
        a_process(2, 1),
        a_queue(Queued("h0", ""), 1, 1),
        "b",
        {"h0": Starting(), "c": NoRoom(1, 0)},
    ),
    "as many holders as an item may have": (
        a_process(1000, *[1] * MAX_HOLDERS),
        a_queue(1, 1),
        "",
        {"a": TooManyHolders(), "b": Behind("a")},
    ),
    "keys have turns, and those without a key too": (of_keys(9), keyed("a1 a2 a3 b1 _1 _2"), "a1b1_1a2_2a3", {}),
    "each priority has its own turns": (
        of_keys(3, after_keys={"0": "a", "1": "b"}),
        keyed("!a1 !b1 a2 b2 _1"),
        "b1a1_1",
        {"a2": NoRoom(1, 0), "b2": Behind("a2")},
    ),
    "a lease belongs to no key": (
        replace(a_process(2, key_limit=1), slots_in_use=1, holders={"l": holder(state="LEASED", until=NOW + 60)}),
        keyed("_1"),
        "_1",
        {},
    ),
    "a heavy request keeps back all of its key, of each priority": (
        of_keys(9, "a", key_limit=3),
        keyed("!a1:3 a2 b1"),
        "b1",
        {"a1": KeyFull("a", 3, 2), "a2": Behind("a1")},
    ),
    "a request above its key's limit is blocked alone": (
        of_keys(9, key_limit=2),
        keyed("a1:3 a2 b1"),
        "a2b1",
        {"a1": KeyBlocked("a", 3, 2)},
    ),
}


@pytest.mark.parametrize(("process", "queue", "expected", "reasons"), EXAMPLES.values(), ids=EXAMPLES)
def test_requests_start_in_the_order_of_their_places(
    process: Process, queue: list[Queued], expected: str, reasons: dict[str, Reason]
) -> None:
    planned = plan(process, queue, NOW, age=AGE)

    assert starts(planned) == expected
    assert {name: wait.reason for name, wait in planned.waits.items()} == reasons
    assert not planned.leaves


def test_a_start_has_the_weight_that_it_takes() -> None:
    planned = plan(a_process(9, default_weight=2), [Queued("a", "0"), Queued("b", "1", weight=5)], NOW, age=AGE)
    assert planned.starts == (PlannedStart("a", 2), PlannedStart("b", 5))


def test_a_wait_has_the_numbers_of_requests_and_of_those_of_its_key_that_start_before_it() -> None:
    queue = [*keyed("a1 a2 a3 b1 b2 c1:2"), *keyed("a0", skips=True)]
    planned = plan(of_keys(1, "b", after_keys={"1": "a"}), queue, NOW, age=AGE)
    assert [(name, wait.ahead, wait.ahead_of_key) for name, wait in planned.waits.items()] == [
        ("c1", None, None),
        ("b1", 0, 0),
        ("a1", 1, 0),
        ("b2", 2, 1),
        ("a2", 3, 1),
        ("a3", 4, 2),
    ]


@pytest.mark.parametrize(
    ("process", "queue", "expected_starts", "expected_leaves"),
    [
        pytest.param(a_process(1), a_queue(skips()), "a", {}, id="it fits, and starts"),
        pytest.param(a_process(1, 1), a_queue(skips()), "", {"a": "SKIPPED"}, id="full"),
        pytest.param(a_process(1), a_queue(until(NOW)), "", {"a": "TOO_LATE"}, id="its time has come"),
        pytest.param(a_process(1), a_queue(until(NOW + 1)), "a", {}, id="its time comes"),
    ],
)
def test_s9b_who_leaves_the_queue_without_a_start(
    process: Process, queue: list[Queued], expected_starts: str, expected_leaves: dict[str, str]
) -> None:
    planned = plan(process, queue, NOW, age=AGE)
    assert (starts(planned), leaves(planned)) == (expected_starts, expected_leaves)


def test_one_write_grants_a_bounded_number_and_the_rest_is_for_the_next_round() -> None:
    planned = plan(a_process(3), a_queue(1, 1, skips(), 1), NOW, age=AGE, most=2)

    assert starts(planned) == "ab"
    assert planned.waits == {"c": Wait(NextRound(), 0, 0), "d": Wait(NoRoom(1, 0), 1, 1)}
    assert not planned.leaves


def test_a_rate_permits_a_burst_and_then_names_the_time_of_the_next_start() -> None:
    rate = Rate(count=6, seconds=60, burst=2)
    planned = plan(a_process(9, rate=rate, next_start=0), a_queue(1, 1, 1, 1), NOW, age=AGE)

    assert starts(planned) == "ab"
    assert planned.next_start == NOW * 1000 + 20_000
    assert planned.waits["c"].reason == TooEarly(NOW * 1000 + 10_000)
    assert planned.look_again == NOW + 10
    # What waits for the next round has not used its start.
    assert plan(a_process(9, rate=rate), a_queue(1, 1), NOW, age=AGE, most=1).next_start == NOW * 1000 + 10_000


LEASED = replace(a_process(1), slots_in_use=1, holders={"l": holder(state="LEASED", until=NOW + 60)})


@pytest.mark.parametrize(
    ("process", "queue", "expected"),
    [
        pytest.param(a_process(1, 1), a_queue(1), None, id="only a release frees a slot"),
        pytest.param(LEASED, a_queue(1), NOW + 65, id="a lease's end, and the difference of two clocks"),
        pytest.param(LEASED, a_queue(2), None, id="a lease does not help a blocked request"),
        pytest.param(replace(LEASED, paused=True), a_queue(1), None, id="a lease does not help in a pause"),
        pytest.param(a_process(1, 1), a_queue(1, until(NOW + 5)), NOW + 5, id="a deadline behind another"),
        pytest.param(a_process(1, 1), a_queue(until(NOW + 5, 2)), NOW + 5, id="a blocked request's deadline"),
        pytest.param(LEASED, a_queue(1, until(NOW + 5)), NOW + 5, id="the first of several"),
        pytest.param(a_process(1), a_queue(until(NOW + 5)), None, id="one that starts has no deadline any more"),
        pytest.param(a_process(1, 1), a_queue(until(NOW + LOOK_AHEAD_SECONDS + 1)), None, id="the janitor comes first"),
    ],
)
def test_when_to_look_again(process: Process, queue: list[Queued], expected: float | None) -> None:
    assert plan(process, queue, NOW, age=AGE).look_again == expected


@pytest.mark.parametrize(
    ("state", "since", "expected"),
    [
        ("RESERVED", NOW - AGE - 1, ("x",)),
        ("RESERVED", NOW - AGE, ()),  # its second may have ended later
        ("RUNNING", NOW - 9 * AGE, ()),
        ("LEASED", NOW - 9 * AGE, ()),
    ],
)
def test_only_old_reservations_are_started_again(state: HolderState, since: int, expected: tuple[str, ...]) -> None:
    process = replace(a_process(1), slots_in_use=1, holders={"x": holder(state=state, since=since, until=NOW + 99)})
    assert plan(process, [], NOW, age=AGE).again == expected


RATES = st.sampled_from([None, Rate(1, 1), Rate(2, 60, 2), Rate(100, 1, 5)])


KEYS = ["", "a", "b"]
LIMITS = st.sampled_from([None, None, 0, 1, 2, 3])


@st.composite
def processes(draw: st.DrawFn) -> Process:
    weights = draw(st.lists(st.integers(1, 3), max_size=3))
    process = a_process(
        draw(st.integers(0, 8)),
        *weights,
        paused=draw(st.sampled_from([False, False, False, True])),
        default_weight=draw(st.integers(1, 2)),
        rate=draw(RATES),
        next_start=draw(st.integers(NOW * 1000 - 200, NOW * 1000 + 200)),
        key_limit=draw(LIMITS),
        key_limits=draw(st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 3), max_size=1)),
        after_keys=draw(st.dictionaries(st.sampled_from("012"), st.sampled_from(["a", "aa", "b"]))),
    )
    holders = {name: replace(each, key=draw(st.sampled_from(KEYS))) for name, each in process.holders.items()}
    return replace(process, holders=holders, slots_in_use=max(0, sum(weights) + draw(st.sampled_from([0, 0, -1, 1]))))


REQUESTS = st.builds(
    Queued,
    execution=st.sampled_from(["", "", "", "h0", "h1"]),
    place=st.builds(before_key, st.sampled_from("012"), st.sampled_from(KEYS)),
    weight=st.none() | st.integers(1, 4),
    start_before=st.sampled_from([None, None, NOW - 1, NOW, NOW + 1]),
    skips=st.sampled_from([False, False, True]),
)
QUEUES = st.lists(REQUESTS, max_size=7, unique_by=lambda each: each.execution or object()).map(
    lambda requests: a_queue(*requests)
)
ROUNDS = st.integers(1, 4)


def may_all_start(process: Process, weights: Sequence[int]) -> bool:
    """Whether these requests may start together, each condition by itself."""
    fits_counter = process.slots_in_use + sum(weights) <= process.slot_limit
    fits_holders = sum(each.weight for each in process.holders.values()) + sum(weights) <= process.slot_limit
    if not process.rate:
        return fits_counter and fits_holders and not process.paused
    interval, before = process.rate.interval, len(weights) - 1
    last_due = (max(NOW * 1000, process.next_start) if before else process.next_start) + before * interval
    is_due = last_due - (process.rate.burst - 1) * interval <= NOW * 1000
    return fits_counter and fits_holders and not process.paused and is_due


def oracle(process: Process, queue: list[Queued], most: int) -> tuple[list[str], set[tuple[str, str]], dict[str, str]]:
    """One start after the other: each time, all that wait are looked at in their turns. One that must leave is removed.

    Returns the starts, the leaves, and the keys of the last turns.
    """
    ends = {each.execution: "TOO_LATE" for each in queue if each.start_before in (NOW - 1, NOW)}
    out = {*ends, *process.holders}
    waiting = [replace(q, weight=q.weight or process.default_weight) for q in queue if q.execution not in out]
    used = Counter[str]()
    for held in process.holders.values():
        used[held.key] += held.weight
    started, last, is_changed = list[Queued](), dict(process.after_keys), True

    def in_turn(request: Queued) -> tuple[str, bool, str]:
        """By priority, then the keys behind that of the last turn, then the others."""
        key, after = request.key, last.get(rank_of(request.place), "")
        return rank_of(request.place), (not key, key) <= (not after, after), request.place

    while is_changed:
        is_changed, passed = False, set[str]()
        for each in sorted(waiting, key=in_turn):
            weight, of_key = each.weight or 0, process.key_limits.get(each.key, process.key_limit)
            limit = math.inf if of_key is None else of_key
            if each.key in passed or weight > min(limit, process.slot_limit):
                continue
            has_turn = used[each.key] + weight <= limit
            if has_turn and may_all_start(process, [*(one.weight or 0 for one in started), weight]):
                started.append(each)
                used[each.key] += weight
                last[rank_of(each.place)] = each.key
            elif each.skips:
                ends[each.execution] = "SKIPPED"
            elif has_turn:
                break
            else:
                passed.add(each.key)
                continue
            waiting.remove(each)
            is_changed = True
            break
    ends |= {each.execution: "SKIPPED" for each in waiting if each.skips}
    last = {**process.after_keys, **{rank_of(each.place): each.key for each in started[:most]}}
    leaves = {(name, end) for name, end in ends.items() if name not in process.holders}
    return [each.execution for each in started[:most]], leaves, {rank: key for rank, key in last.items() if key}


@share(4)
@given(processes(), QUEUES, ROUNDS)
def test_any_queue_is_planned_as_by_the_oracle(process: Process, queue: list[Queued], most: int) -> None:
    planned = plan(process, queue, NOW, age=AGE, most=most)

    found = [start.execution for start in planned.starts], {*leaves(planned).items()}, planned.after_keys
    assert found == oracle(process, queue, most)


@given(processes(), QUEUES, ROUNDS)
def test_every_queued_request_starts_leaves_or_has_a_reason(process: Process, queue: list[Queued], most: int) -> None:
    planned = plan(process, queue, NOW, age=AGE, most=most)

    decided = [*planned.starts, *planned.leaves]
    assert sorted([each.execution for each in decided] + list(planned.waits)) == sorted(q.execution for q in queue)
    ahead = [wait.ahead for wait in planned.waits.values() if wait.ahead is not None and wait.reason != Starting()]
    assert ahead == list(range(len(ahead)))
