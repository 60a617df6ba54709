"""Who starts next: a table of examples, and any queue against an oracle that tries every number of starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.plan import (
    LOOK_AHEAD_SECONDS,
    Behind,
    Blocked,
    InPause,
    Leave,
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
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rate import Rate

NOW = 1_000_000
AGE = 32


def holder(weight: int = 1, state: HolderState = "RUNNING", since: int = NOW, until: int | None = None) -> Holder:
    return Holder(state, since, "job", None, {}, weight=weight, until=until)


def a_process(limit: int, *held: int, **others: object) -> Process:
    """A process of this limit, with a running holder of each weight."""
    holders = {f"h{number}": holder(weight) for number, weight in enumerate(held)}
    process = Process("p", limit, sum(held), holders, paused=False, target="job")
    return replace(process, **others)  # type: ignore[arg-type]  # any attribute


def a_queue(*requests: Queued | int | str) -> list[Queued]:
    """Requests a, b, c, ... of these weights, in this order."""
    names = iter("abcdefgh")
    queue = []
    for number, request in enumerate(requests):
        name = next(names)
        given = request if isinstance(request, Queued) else Queued(name, "", weight=int(request))
        queue.append(replace(given, execution=given.execution or name, place=f"{number:04}"))
    return queue


def skips(weight: int = 1) -> Queued:
    return Queued("", "", weight=weight, skips=True)


def until(start_before: float, weight: int = 1) -> Queued:
    return Queued("", "", weight=weight, start_before=start_before)


def named(execution: str) -> Queued:
    return Queued(execution, "")


def starts(planned: Plan) -> str:
    return "".join(start.execution for start in planned.starts)


def leaves(planned: Plan) -> dict[str, str]:
    return {leave.execution: leave.end for leave in planned.leaves}


EXAMPLES: dict[str, tuple[Process, list[Queued], str, dict[str, Reason]]] = {
    "a free slot each": (a_process(2), a_queue(1, 1), "ab", {}),
    "one slot for two": (a_process(1), a_queue(1, 1), "a", {"b": NoRoom(1, 0)}),
    "full": (a_process(1, 1), a_queue(1, 1), "", {"a": NoRoom(1, 0), "b": Behind("a")}),
    "a heavy head keeps back a light request that would fit": (
        a_process(3, 2),
        a_queue(2, 1),
        "",
        {"a": NoRoom(2, 1), "b": Behind("a")},
    ),
    "a blocked head keeps back no other": (a_process(2), a_queue(3, 1, 1), "bc", {"a": Blocked(3, 2)}),
    "the limit was lowered below what is in use": (a_process(1, 1, 1), a_queue(1), "", {"a": NoRoom(1, -1)}),
    "the limit is 0": (a_process(0), a_queue(1, 1), "", {"a": Stopped(), "b": Stopped()}),
    "paused": (a_process(2, paused=True), a_queue(1, 1), "", {"a": InPause(), "b": Behind("a")}),
    "the default weight of the item": (
        a_process(4, default_weight=3),
        [Queued("a", "0"), Queued("b", "1")],
        "a",
        {"b": NoRoom(3, 1)},
    ),
    "a counter that has drifted down refuses": (
        replace(a_process(2, 1, 1), slots_in_use=0),
        a_queue(1),
        "",
        {"a": NoRoom(1, 0)},
    ),
    "a counter that has drifted up refuses": (
        replace(a_process(2, 1), slots_in_use=2),
        a_queue(1),
        "",
        {"a": NoRoom(1, 0)},
    ),
    "a request that has a holder is passed over": (
        a_process(2, 1),
        a_queue(named("h0"), 1, 1),
        "b",
        {"h0": Starting(), "c": NoRoom(1, 0)},
    ),
    "as many holders as an item may have": (
        a_process(1000, *[1] * MAX_HOLDERS),
        a_queue(1, 1),
        "",
        {"a": TooManyHolders(), "b": Behind("a")},
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


def test_a_wait_has_the_number_of_requests_that_start_before_it() -> None:
    planned = plan(a_process(2, 2), a_queue(1, 3, 1, skips(), 1), NOW, age=AGE)
    assert {name: wait.ahead for name, wait in planned.waits.items()} == {"a": 0, "b": None, "c": 1, "e": 2}


@pytest.mark.parametrize(
    ("process", "queue", "expected_starts", "expected_leaves"),
    [
        pytest.param(a_process(1), a_queue(skips()), "a", {}, id="it fits, and starts"),
        pytest.param(a_process(1, 1), a_queue(skips()), "", {"a": "SKIPPED"}, id="full"),
        pytest.param(a_process(1, paused=True), a_queue(skips()), "", {"a": "SKIPPED"}, id="paused"),
        pytest.param(a_process(3, 2), a_queue(2, skips()), "", {"b": "SKIPPED"}, id="behind a heavy one"),
        pytest.param(a_process(1), a_queue(skips(2), 1), "b", {"a": "SKIPPED"}, id="blocked"),
        pytest.param(a_process(3, 2), a_queue(skips(2), 1), "b", {"a": "SKIPPED"}, id="the request behind it fits"),
        pytest.param(a_process(1), a_queue(until(NOW)), "", {"a": "TOO_LATE"}, id="its time has come"),
        pytest.param(a_process(1), a_queue(until(NOW + 1)), "a", {}, id="its time comes"),
        pytest.param(
            a_process(1, 1), a_queue(1, until(NOW)), "", {"b": "TOO_LATE"}, id="behind one, in a full process"
        ),
        pytest.param(a_process(1), a_queue(until(NOW, 2)), "", {"a": "TOO_LATE"}, id="blocked and late"),
    ],
)
def test_s9b_who_leaves_the_queue_without_a_start(
    process: Process, queue: list[Queued], expected_starts: str, expected_leaves: dict[str, str]
) -> None:
    planned = plan(process, queue, NOW, age=AGE)
    assert (starts(planned), leaves(planned)) == (expected_starts, expected_leaves)


def test_a_request_with_a_holder_never_leaves() -> None:
    queue = a_queue(replace(until(NOW - 1), execution="h0", skips=True))
    assert not plan(a_process(1, 1), queue, NOW, age=AGE).leaves


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


def test_what_waits_for_the_next_round_has_not_used_its_start() -> None:
    rate = Rate(count=6, seconds=60, burst=3)
    planned = plan(a_process(9, rate=rate), a_queue(1, 1, 1), NOW, age=AGE, most=1)
    assert planned.next_start == NOW * 1000 + 10_000


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
    )
    return replace(process, slots_in_use=max(0, sum(weights) + draw(st.sampled_from([0, 0, -1, 1]))))


REQUESTS = st.builds(
    Queued,
    execution=st.sampled_from(["", "", "", "h0", "h1"]),
    place=st.just(""),
    weight=st.none() | st.integers(1, 4),
    start_before=st.sampled_from([None, None, NOW - 1, NOW, NOW + 1]),
    skips=st.sampled_from([False, False, True]),
)
QUEUES = st.lists(REQUESTS, max_size=6).map(lambda requests: a_queue(*requests))
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


def oracle(process: Process, queue: list[Queued], most: int) -> tuple[list[str], set[Leave]]:
    """The largest number of requests from the front that may start together, after all have left that must."""
    ended = {
        q.execution: "TOO_LATE"
        for q in queue
        if q.execution not in process.holders and q.start_before in (NOW - 1, NOW)
    }
    left = [q for q in queue if q.execution not in process.holders and q.execution not in ended]
    while True:
        able = [q for q in left if (q.weight or process.default_weight) <= process.slot_limit]
        fitting = [
            n
            for n in range(1, len(able) + 1)
            if may_all_start(process, [q.weight or process.default_weight for q in able[:n]])
        ]
        front = able[: max(fitting, default=0)]
        skipped = next((q for q in left if q.skips and q not in front), None)
        if skipped is None:
            return [q.execution for q in front[:most]], {Leave(name, end) for name, end in ended.items()}  # type: ignore[arg-type]
        ended[skipped.execution] = "SKIPPED"
        left.remove(skipped)


@given(processes(), QUEUES, ROUNDS)
def test_any_queue_is_planned_as_by_the_oracle(process: Process, queue: list[Queued], most: int) -> None:
    queue = list({request.execution: request for request in queue}.values())
    planned = plan(process, queue, NOW, age=AGE, most=most)

    assert ([start.execution for start in planned.starts], set(planned.leaves)) == oracle(process, queue, most)


@given(processes(), QUEUES, ROUNDS)
def test_every_queued_request_starts_leaves_or_has_a_reason(process: Process, queue: list[Queued], most: int) -> None:
    queue = list({request.execution: request for request in queue}.values())
    planned = plan(process, queue, NOW, age=AGE, most=most)

    decided = [*planned.starts, *planned.leaves]
    assert sorted([each.execution for each in decided] + list(planned.waits)) == sorted(q.execution for q in queue)
    in_order = [wait.ahead for wait in planned.waits.values() if wait.ahead is not None and wait.reason != Starting()]
    assert in_order == list(range(len(in_order)))
