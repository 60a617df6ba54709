"""The prediction from the records of a process, and when they do not show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queued import before_key
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import RequestRow
from slotkeeper_cli.audit.intervals import percentile
from slotkeeper_cli.replay import QueuedWork, Replay, SettingsChange
from slotkeeper_cli.what_if.prediction import CannotKnow, Course, _bounds, _lengths, predict
from slotkeeper_cli.what_if.recording import PastRequest, Recording, recording_of

PROCESS = Process("p", 1, 0, {}, paused=False, target="job")
LEASE = Holder("LEASED", 0, "", None, {}, until=500, code="c")


def recorded(
    arrivals: Sequence[float],
    seconds: float,
    limit: int,
    until: float = 100_000,
    rate: Rate | None = None,
    pace: float = 0.0,
    hand_off: float = 0.0,
    changes: Sequence[SettingsChange] = (),
    keys: Sequence[str] = ("",),
    **more: Any,
) -> Recording:
    """The records of requests that started by the rule, until a time. They have these keys, one after the other."""
    now = replace(PROCESS, slot_limit=limit, **more.pop("then", {}))
    works = [
        QueuedWork(
            f"p-{number}", f"{before_key('0', keys[number % len(keys)])}{number:05}", arrives=at, seconds=seconds
        )
        for number, at in enumerate(arrivals)
    ]
    rated = replace(now, rate=rate)
    starts = Replay(rated, works, 0.0, ends={}, changes=changes, pace=pace, hand_off=hand_off).run().starts
    past = []
    for work in works:
        at = starts.get(work.execution, math.inf)
        started, ended = (each if each <= until else None for each in (at, at + seconds))
        past.append(PastRequest(work.execution, work.arrives, started, ended, place=work.place))
    process = replace(now, **more.pop("now", {}))
    return Recording(process, 0.0, until, past, changes=changes, **more)


def one_after_the_other(seconds: float, late: float, every: int, begin: float = 0.0, number: int = 42) -> Recording:
    """Requests that were sent together and ran in one slot: each `every`-th one started late."""
    past, at = [], begin
    for each in range(number):
        at += late * (each % every == 1)
        past.append(PastRequest(f"p-{begin:03}-{each:02}", begin, at, at + seconds))
        at += seconds
    return Recording(PROCESS, begin, at, past)


EACH_MINUTE = [60.0 * number for number in range(60)]
EACH_THIRD = [20.0 * number for number in range(60)]
RATE_REMOVED = [SettingsChange(5000, {"rate": None, "next_start": 0})]
ANSWERS: dict[str, tuple[Recording, int, tuple[float, float]]] = {
    "a burst takes the starts of the records at a much higher limit": (
        recorded([number / 1000 for number in range(500)], 2, 10, pace=0.083),
        200,
        (20.4, 36.8),
    ),
    "a burst takes the writes of a large item": (recorded([0] * 400, 600, 10), 500, (21, 38)),
    "a rate that was removed": (
        recorded(EACH_THIRD, 30, 5, rate=Rate(1, 60), changes=RATE_REMOVED, first={"rate": Rate(1, 60)}),
        6,
        (0, 0),
    ),
    "a rate that was set since": (
        recorded(EACH_THIRD, 30, 5, now={"rate": Rate(1, 60)}, first={"rate": None}),
        6,
        (1160, 2120),
    ),
    "the limit of keys was another one": (
        recorded([0] * 80, 10, 4, keys=["a"], then={"key_limit": 1}, now={"key_limit": 2}, first={"key_limit": 1}),
        4,
        (190, 350),
    ),
    "hand-offs that take longer than the time between starts do not slow a higher limit": (
        recorded([0] * 200, 10, 20, hand_off=4.0),
        200,
        (4.2, 7.5),
    ),
    "some hand-offs are slow": (one_after_the_other(5, 4.8, 3), 1, (135, 250)),
    "the target was another one, of slower requests": (
        replace(
            recorded([*(100.0 * at for at in range(30)), *[4000] * 60], 10, 1, until=4250),
            target_since=3999.0,
            requests=[
                *one_after_the_other(100, 0, 2, number=30).requests,
                *recorded([4000] * 60, 10, 1, until=4250).requests,
            ],
        ),
        2,
        (200, 1000),
    ),
}
MINUTES = recorded([1 + at for at in EACH_MINUTE], 50, 2)
REFUSALS: dict[str, tuple[Recording, int, str]] = {
    "leases held slots, and no record states it": (
        recorded(EACH_MINUTE, 120, 1, now={"slot_limit": 5}),
        6,
        r"waited although a slot was free by the records, such as p-59 .* Give --since \d+m",
    ),
    "a rate that no line states": (recorded(EACH_THIRD, 30, 5, rate=Rate(1, 60)), 6, "do not explain its waits"),
    "more ran than the present limit": (recorded(EACH_MINUTE, 300, 5, now={"slot_limit": 2}), 6, "More requests ran"),
    "some waited in a backlog, although the slot was free": (one_after_the_other(20, 14, 7), 1, "6 requests waited"),
    "leases hold slots now": (recorded(EACH_MINUTE, 10, 5, now={"holders": {"l": LEASE}}), 4, "leases hold slots of"),
    "one runs for longer than each that has ended": (
        Recording(replace(PROCESS, slot_limit=2), 0, 5000, [PastRequest("p-l", 0, 0, None), *MINUTES.requests]),
        1,
        "1 request of process p have not ended, and the 60 that have do not show",
    ),
    "the period begins within a backlog": (
        replace(recorded([0] * 40, 10, 1), since=100.0),
        2,
        "begins within a backlog: 30 of the 30 .* Give a --since before 1970-01-01T00:00:00Z",
    ),
    "too few samples": (recorded([0] * 3, 10, 1, until=15), 1, "has 1 requests .* 20 are needed. Of 2 that started, 1"),
    "a weight above the limit": (
        Recording(PROCESS, 0, 9, [PastRequest("p-y", 0, 0, 1, 2), PastRequest("p-z", 0, 0, 1, 5)]),
        1,
        "2 of the recorded requests .* p-z of weight 5: give --limit 5 or more",
    ),
}


REFUSALS |= {
    "a weight above the limit of its key": (
        replace(MINUTES, process=replace(MINUTES.process, default_weight=2, key_limit=0)),
        2,
        "at limit 0 of requests without a key: give --key-limit 1",
    ),
    "leases hold slots now, and the limit of keys was another": (
        recorded(EACH_MINUTE, 10, 5, now={"holders": {"l": LEASE}, "key_limit": 3}, first={"key_limit": 5}),
        5,
        "leases hold slots of",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_predicted_waits(name: str) -> None:
    recording, limit, expected = ANSWERS[name]
    waits = predict(recording, limit)["replayed"].waits
    assert tuple(percentile(waits, share) for share in (0.5, 0.9)) == pytest.approx(expected, rel=0.05, abs=0.5)


def test_the_starts_of_a_grant_may_be_recorded_in_any_order() -> None:
    """Six keys have turns; three slots are free together each ten seconds, and the last start is marked first."""
    past = [
        PastRequest(
            f"p-{number}",
            0.0,
            (at := 10.0 * (number // 3) + 0.1) + (2 - number % 3) * 0.01,
            at + 9.5,
            place=f"{before_key('0', 'abcdef'[number % 6])}{number:05}",
            granted=f"{100 + number // 3}#{number % 3}",
        )
        for number in range(60)
    ]
    recording = Recording(replace(PROCESS, slot_limit=3), 0.0, 1000.0, past)
    assert predict(recording, 3)["check"].starts["p-59"] == pytest.approx(190, abs=1)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_the_records_do_not_show_is_refused_with_the_reason_and_what_to_do(name: str) -> None:
    recording, limit, text = REFUSALS[name]
    with pytest.raises(CannotKnow, match=text):
        predict(recording, limit)


def replays(*past: PastRequest, limit: int = 1) -> list[Course]:
    """The check and the replay of requests at one slot."""
    made = predict(Recording(PROCESS, 0.0, 1000.0, past), limit, least=0)
    return [made["check"], made["replayed"]]


def test_what_delays_starts_without_a_rule_delays_them_in_the_replay_too() -> None:
    cold = [PastRequest("p-0", 0.0, 3.0, 13.0), PastRequest("p-1", 1.0, 13.0, 20.0)]
    assert [each.waits for each in replays(*cold)] == [[3, 12], [3, 12]]
    slow = [PastRequest(f"p-{at}", 0.0, 12.0 * at, 12.0 * at + 10, place=str(at)) for at in range(6)]
    check, replayed = replays(*slow, limit=2)
    assert check.waits == [0, 12, 24, 36, 48, 60]
    assert replayed.waits == pytest.approx([0, 0, 12, 12, 24, 24], abs=0.1)


def test_requests_that_ran_at_the_begin_hold_their_slots_and_are_not_counted() -> None:
    past = [PastRequest("p-before", -60.0, -50.0, 30.0), PastRequest("p-0", 5.0, 30.0, 31.0)]
    assert [each.waits for each in replays(*past)] == [[25], [25]]


def test_a_request_that_runs_takes_as_long_as_one_that_took_longer_than_it_has() -> None:
    past = [PastRequest(f"p-{at:02}", 200.0 * at, 200.0 * at, 200.0 * at + (10, 100)[at % 2]) for at in range(30)]
    past += [PastRequest("p-runs", 6000, 6000, None), PastRequest("p-queued", 6001, None, None)]
    waits = predict(Recording(PROCESS, 0, 6050, past), 1)["replayed"].waits
    assert waits[-1] == pytest.approx(99)


# ---------------------------------------------------------------------------------------------------------- recording


@pytest.mark.parametrize("seconds", [[0.0] * 42, [0.001] * 41 + [100_000.0]], ids=["none", "one of all"])
def test_durations_of_which_the_mean_is_not_known_are_at_least_0(seconds: list[float]) -> None:
    past = [PastRequest(f"p-{at}", 10.0 * at, 10.0 * at, 10.0 * at + each) for at, each in enumerate(seconds)]
    recording = Recording(PROCESS, 0.0, 1000.0, [*past, PastRequest("p-open", 500.0, None, None)])
    low, high = _bounds(recording, _lengths(recording))
    assert 0.0 <= low["p-open"] <= high["p-open"]


def _row(execution: str, sent: float, started: float | None, ended: float | None, **fields: Any) -> RequestRow:
    state = fields.pop("state", "STARTED" if ended is None else "SUCCEEDED")
    return RequestRow("p", execution, state, execution, 1, "normal", sent, started=started, ended=ended, **fields)


ROWS = [
    _row("p-before", 80.0, 90.0, 110.0, weight=1),
    _row("p-clock", 131.0, 130.0, 140.0),  # it was sent by another clock
    _row("p-runs", 140.0, 150.0, None, start_before=170.0),
    _row("p-quick", 140.0, None, 150.0),  # it ended before its start was marked
    _row("p-queued", 160.0, None, None, state="QUEUED", placed="1#160"),
    _row("p-cancelled", 160.0, None, 170.0, state="CANCELLED"),
    _row("p-skipped", 161.0, None, 161.0, state="SKIPPED", skips=True),
    _row("p-redriven", 101.0, 102.0, 190.0, state="REDRIVEN"),
    _row("p-returned", 101.0, 102.0, 190.0, state="RETURNED"),
    _row("p-refused", 101.0, None, 101.0, state="REJECTED"),
]


def test_a_recording_has_what_held_a_slot_or_was_queued() -> None:
    made = recording_of(replace(PROCESS, default_weight=2, holders={"l": LEASE}), ROWS, [], 100.0, 200.0)
    requests = {each.execution: each for each in made.requests}
    found = {name: (each.sent, each.started, each.ended, each.weight, each.leaves) for name, each in requests.items()}
    assert found == {
        "p-before": (80, 90, 110, 1, math.inf),
        "p-clock": (130, 130, 140, 2, math.inf),
        "p-runs": (140, 150, None, 2, 170),
        "p-quick": (140, 150, 150, 2, math.inf),
        "p-queued": (160, None, None, 2, math.inf),
        "p-cancelled": (160, None, 170, 2, 170),
        "p-skipped": (161, None, 161, 2, math.inf),
        "p-redriven": (101, 102, 190, 2, math.inf),
    }
    # Samples, started, running and waiting at the begin, and at the end.
    assert list(made.counts.values()) == [3, 4, 1, 0, 1, 1]
    notes = [note.partition(":")[0] for note in made.notes]
    assert notes == ["2 have not ended", "leases leave no record and are not replayed"]


def _line(second: int, action: str, **fields: Any) -> dict[str, Any]:
    return {"at": f"1970-01-01T00:00:{second:02}Z", "action": f"process {action}", **fields}


LIMIT = {"slot_limit": 1}
SETTINGS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]], str]] = {
    "none": ([], {}, [], ""),
    "the limit": (
        [_line(5, "set-limit", before=3, after=2), _line(9, "set-limit", before=2, after=1)],
        {"slot_limit": 3},
        [{"slot_limit": 2}, LIMIT],
        "",
    ),
    "the rate": (
        [_line(5, "set-rate", before="2/minute, burst 2", after=None, burst=1)],
        {"rate": Rate(2, 60, 2)},
        [{"rate": None, "next_start": 0}],
        "",
    ),
    "a pause": ([_line(1, "pause"), _line(2, "resume")], {"paused": False}, [{"paused": True}, {"paused": False}], ""),
    "removed and added": (
        [_line(1, "remove"), _line(2, "add", limit=1, rate=None, burst=1, paused=False)],
        {},
        [{"slot_limit": 0}, {"slot_limit": 1, "rate": None, "paused": False, "next_start": 0}],
        "",
    ),
    "the present limit is another one": (
        [_line(1, "set-limit", before=1, after=4)],
        LIMIT,
        [{"slot_limit": 4}],
        "its slot_limit was changed by something else than a command",
    ),
    "the next line has another limit": (
        [_line(1, "set-limit", before=1, after=4), _line(2, "set-limit", before=3, after=1)],
        LIMIT,
        [{"slot_limit": 4}, LIMIT],
        "its slot_limit was changed before 1970-01-01T00:00:02Z",
    ),
    "limits of keys": (
        [
            _line(1, "set-key-limit", key=None, before=None, after=9),
            _line(2, "set-key-limit", key="a", before=None, after=2),
            _line(3, "set-key-limit", key=None, before=9, after=None),
        ],
        {"key_limit": None, "key_limits": {"b": 4}},
        [
            {"key_limit": 9, "key_limits": {"b": 4}},
            {"key_limit": 9, "key_limits": {"a": 2, "b": 4}},
            {"key_limit": None, "key_limits": {"a": 2, "b": 4}},
        ],
        "",
    ),
    "a limit of a key that no line states": (
        [_line(1, "set-key-limit", key="a", before=None, after=3)],
        {"key_limit": None, "key_limits": {"b": 4}},
        [{"key_limit": None, "key_limits": {"a": 2, "b": 4}}],
        "its limits of keys were changed by something else",
    ),
    "a repair": ([_line(1, "repair")], {}, [], "its item was repaired at 1970-01-01T00:00:01Z"),
    "a line that cannot be read": ([_line(1, "set-limit", before="x")], {}, [], "an audit line of process set-limit"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_then_come_from_the_audit_log(name: str) -> None:
    lines, first, changes, doubt = SETTINGS[name]
    process = replace(PROCESS, key_limits={"a": 2, "b": 4} if "key" in name else {})
    made = recording_of(process, [], lines, 0.0, 100.0)
    assert (made.first, [each.fields for each in made.changes]) == (first, changes)
    assert [each[: len(doubt)] for each in made.doubts] == [doubt] * bool(doubt)
