"""The replay of a process's requests: known results of queueing theory, the rules, and the edges of a period."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.intervals import weighted_steps
from slotkeeper_cli.audit.work_history import LimitSteps, OperatorAct, WorkHistory
from slotkeeper_cli.unread import UnreadSource
from slotkeeper_cli.what_if import CannotReplay, Course, PastRequest, Recording, replay
from slotkeeper_cli.what_if.recording import recording_of

PROCESS = Process("p", 1, 0, {}, paused=False, target="job")


def recording(requests: Sequence[PastRequest], limit: int | None = 1) -> Recording:
    return Recording(PROCESS, 0.0, 1000.0, requests, LimitSteps([(-math.inf, limit)]))


def arrived(*requests: tuple[float, float] | tuple[float, float, str, int]) -> list[PastRequest]:
    """Requests by (sent, duration) or (sent, duration, priority, weight), of which each started when it was sent."""
    made = []
    for number, (sent, duration, *of) in enumerate(requests):
        priority, weight = of or ("normal", 1)
        made.append(PastRequest(f"p-{number}", sent, sent, sent + duration, priority, weight))  # type: ignore[arg-type]
    return made


def starts(course: Course) -> dict[str, float]:
    return {each.execution: each.started for each in course.requests}


def at_limit(requests: Sequence[PastRequest], limit: int, **options: float) -> Course:
    return replay(recording(requests, None), limit, least=0, **options).replayed


def performed(requests: Sequence[PastRequest], limit: int) -> list[PastRequest]:
    """The requests as the rules let them start at a limit."""
    return list(at_limit(requests, limit).requests)


def started_at(limit: int, *requests: Any) -> list[float]:
    """The starts of the requests, in their order."""
    return [at for _, at in sorted(starts(at_limit(arrived(*requests), limit)).items())]


def test_requests_start_as_computed() -> None:
    assert started_at(2, (0, 10), (0, 4), (0, 3), (1, 5), (20, 1)) == [0, 0, 4, 7, 20]
    assert started_at(1, (0, 10), (1, 10, "low", 1), (2, 10, "normal", 1), (3, 10, "high", 1)) == [0, 30, 20, 10]
    # Free slots are collected for a heavy request of high priority.
    assert started_at(2, (0, 10), (0, 20), (1, 5, "high", 2), (2, 1, "low", 1)) == [0, 0, 20, 25]
    assert started_at(2, (0, 10), (0, 10), (1, 5, "high", 1), (2, 1, "low", 1)) == [0, 0, 10, 10]


def test_a_rate_delays_starts_although_slots_are_free() -> None:
    of = recording(arrived((0, 1), (0, 1), (0, 30), (0, 1), (300, 1)), None)
    rated = replace(of, process=replace(PROCESS, rate=Rate(6, 60, 2)))
    course = replay(rated, 5, least=0).replayed
    assert sorted(starts(course).values()) == [0, 0, 10, 20, 300]
    assert sorted(starts(replay(rated, 1, least=0).replayed).values()) == [0, 1, 10, 40, 300]


def test_the_mean_wait_of_random_arrivals_and_equal_durations_is_that_of_an_m_d_1_queue() -> None:
    """Pollaczek-Khinchine: rho * D / (2 * (1 - rho))."""
    source, sent, requests = random.Random(1), 0.0, list[tuple[float, float]]()  # noqa: S311
    for _ in range(6_000):
        sent += source.expovariate(0.6)
        requests.append((sent, 1.0))
    waits = at_limit(arrived(*requests), 1).waits
    assert sum(waits) / len(waits) == pytest.approx(0.6 / (2 * (1 - 0.6)), rel=0.05)


arrivals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(PRIORITIES), st.integers(1, 3)),
    min_size=1,
    max_size=25,
)


@given(arrivals, st.integers(3, 6))
def test_a_replay_of_what_the_rules_did_has_the_same_waits_and_keeps_limit_and_order(
    requests: list[tuple[float, float, str, int]], limit: int
) -> None:
    past = performed(arrived(*requests), limit)
    result = replay(recording(past, limit), limit, least=0)
    assert starts(result.replayed) == starts(result.recorded)
    assert result.check is not None
    assert starts(result.check) == starts(result.recorded)
    used = weighted_steps(((each.started, each.freed), each.weight) for each in result.replayed.requests)
    assert max(number for _, number in used) <= limit
    in_order = sorted(result.replayed.requests, key=lambda each: each.sent)
    for priority in PRIORITIES:
        of = [each.started for each in in_order if each.priority == priority]
        assert of == sorted(of)
    unlimited = replay(recording(past, limit), 1000, least=0).replayed
    assert set(unlimited.waits) == {0}


@given(arrivals, st.integers(3, 6))
def test_the_mean_queue_is_the_rate_times_the_mean_wait(
    requests: list[tuple[float, float, str, int]], limit: int
) -> None:
    """Little's law, over the time until the last start."""
    course = at_limit(arrived(*requests), limit)
    area = sum(number * (after - at) for (at, number), (after, _) in pairwise(course.queue))
    assert area == pytest.approx(sum(course.waits))


def test_requests_that_ran_at_the_begin_hold_their_slots_until_their_end() -> None:
    before = PastRequest("p-before", -60.0, -50.0, 30.0)
    course = at_limit([before, *arrived((5, 1))], 1)
    assert starts(course)["p-0"] == 30
    assert course.waits == [25]  # the wait of the one that started before the period is not counted


def test_requests_that_still_run_keep_their_slots_and_those_behind_them_never_start() -> None:
    running = PastRequest("p-running", 10.0, 10.0, None)
    result = replay(recording([running, *arrived((20, 1))], None), 1, least=0)
    figures = result.replayed.figures()
    assert (figures["never_started"], figures["wait"]["max"]) == (1, None)


def test_the_factors_shorten_durations_and_the_times_between_arrivals() -> None:
    past = arrived((0, 10), (4, 10), (40, 10))
    assert at_limit(past, 1, duration_factor=0.5).waits == [0, 1, 0]
    faster = at_limit(past, 1, arrival_factor=2)
    assert faster.waits == [0, 8, 0]
    assert faster.until == 500


def test_what_delayed_a_request_without_a_rule_delays_it_in_the_replay_too() -> None:
    """The starter's cold start took three seconds."""
    past = [PastRequest("p-0", 0.0, 3.0, 13.0), PastRequest("p-1", 1.0, 13.0, 20.0)]
    result = replay(recording(past, 1), 1, least=0)
    assert result.check is not None
    assert result.check.waits == result.replayed.waits == [3, 12]


def test_the_usual_hand_off_is_that_of_the_records() -> None:
    past = [PastRequest(f"p-{number}", 0.0, 12.0 * number, 12.0 * number + 10) for number in range(6)]
    result = replay(recording(past, 1), 2, least=0)
    assert result.check is not None
    assert result.check.waits == [0, 12, 24, 36, 48, 60]
    assert result.replayed.waits == [0, 0, 12, 12, 24, 24]


def test_the_check_follows_the_recorded_limits() -> None:
    past = [*arrived((0, 10)), PastRequest("p-1", 1.0, 5.0, 15.0)]
    raised = replace(recording(past), limits=LimitSteps([(-math.inf, 1), (5.0, 2)]))
    result = replay(raised, 1, least=0)
    assert result.check is not None
    assert (result.check.waits, result.replayed.waits) == ([0, 4], [0, 9])
    assert result.recorded.figures()["slot_hours_offered"] == pytest.approx((5 + 2 * 995) / 3600, abs=0.001)


def test_an_unknown_limit_has_no_check() -> None:
    data = replay(recording(arrived((0, 10), (1, 10)), None), 1, least=0).as_dict()
    assert (data["check"], data["recorded"]["utilization"], data["replayed"]["utilization"]) == (None, None, 0.02)


def test_a_limit_below_a_weight_and_too_few_samples_are_refused_with_what_to_do() -> None:
    past = arrived((0, 1, "normal", 2), (0, 1, "high", 5))
    with pytest.raises(CannotReplay, match=r"2 of the recorded requests .* p-1 of weight 5: give --limit 5 or more"):
        replay(recording(past), 1, least=0)
    past = [*arrived((0, 1)), PastRequest("p-y", 7.0, 7.0, None)]
    text = r"has 1 requests .* 20 are needed. Of 2 that started, 1 still run\. Give an earlier"
    with pytest.raises(CannotReplay, match=text):
        replay(recording(past), 1)


def test_a_queue_with_many_blocked_requests_is_planned_behind_them() -> None:
    """While the limit was 1, the heavy ones were blocked."""
    heavy = [PastRequest(f"p-heavy{number:02}", 0.0, 50.0 + number, 51.0 + number, weight=2) for number in range(40)]
    light = PastRequest("p-light", 1.0, 1.0, 3.0)
    raised = replace(recording([light, *heavy]), limits=LimitSteps([(-math.inf, 1), (50.0, 2)]))
    result = replay(raised, 2, least=0)
    assert result.check is not None
    assert starts(result.check) == {each.execution: each.started for each in [light, *heavy]}


# ---------------------------------------------------------------------------------------------------------- recording


def _row(execution: str, sent: float, started: float | None, ended: float | None, **fields: Any) -> RequestRow:
    state = fields.pop("state", "STARTED" if ended is None else "SUCCEEDED")
    return RequestRow("p", execution, state, execution, 1, "normal", sent, started=started, ended=ended, **fields)


HISTORY = WorkHistory(
    100.0,
    200.0,
    200.0,
    {"p": replace(PROCESS, slot_limit=2, default_weight=2)},
    rows=[
        _row("p-before", 80.0, 90.0, 110.0, weight=1),
        _row("p-a", 95.5, 120.0, 130.0, weight=1),
        _row("p-b", 131.0, 130.0, 140.0),  # by another clock
        _row("p-c", 140.0, 150.0, None),
        _row("p-quick", 140.0, None, 150.0),  # it ended before its start was marked
        _row("p-queued", 160.0, None, None, state="QUEUED", place="1#160"),
        _row("p-cancelled", 160.0, None, 170.0, state="CANCELLED"),
        _row("p-redriven", 101.0, 102.0, 190.0, state="REDRIVEN"),
    ],
)


def test_a_recording_has_the_rows_that_held_a_slot() -> None:
    made = recording_of(HISTORY, "p")
    assert [(each.execution, each.sent, each.weight) for each in made.requests] == [
        ("p-before", 80.0, 1),
        ("p-a", 95.5, 1),
        ("p-b", 130.0, 2),
        ("p-c", 140.0, 2),
    ]
    # Samples, started, running at the begin, waiting then, running at the end.
    assert list(made.counts.values()) == [2, 3, 1, 1, 1]
    assert (made.since, made.until, list(made.limits.steps)) == (100.0, 200.0, [(-math.inf, 2)])
    assert [note.partition(":")[0] for note in made.notes] == [
        "1 ended before their start was recorded, and are left out",
        "1 were redriven, and are left out",
        "1 still queued are left out",
        "1 still run",
    ]


def test_pauses_leases_and_an_unknown_limit_are_named() -> None:
    process = replace(PROCESS, holders={"l": Holder("LEASED", 0, "", None, {}, until=500, code="c")})
    acts, unread = [OperatorAct(130.0, "process pause", "p")], [UnreadSource("AuditLogGroup", "denied")]
    made = recording_of(replace(HISTORY, processes={"p": process}, acts=acts, not_read=unread), "p")
    assert [note.partition(" ")[0] for note in made.notes[-3:]] == ["the", "it", "leases"]
    assert list(made.limits.steps) == [(-math.inf, None)]
