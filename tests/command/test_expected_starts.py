"""When the requests of a queue are expected to start: a table of processes, queues and durations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Holder, Process
from slotkeeper.slots.queued import Queued, before_key
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.rows import QueuedRow
from slotkeeper_cli.expected_start import expected_starts

NOW = 1_790_000_000.0
PROCESS = Process("p", 1, 0, {}, paused=False, target="job")
TENS = [600.0] * 20  # recent requests took ten minutes


def held(*ages: float, **changes: Any) -> dict[str, Any]:
    """Fields of a process whose holders run for so many seconds."""
    holder = Holder("RUNNING", 0, "job", None, {})
    holders = {f"p-x{number}": replace(holder, since=int(NOW - age)) for number, age in enumerate(ages)}
    return {"slot_limit": len(ages), "slots_in_use": len(ages), "holders": holders, **changes}


def queue(*queued: dict[str, Any]) -> list[QueuedRow]:
    """Requests `p-0`, `p-1`, ... in their order, which were sent two minutes ago."""
    made = []
    for number, each in enumerate(queued):
        fields = dict(each)
        place = f"{before_key('1', fields.pop('key', ''))}{number:05}"
        made.append(QueuedRow(Queued(f"p-{number}", place, **fields), str(number), "normal", NOW - 120))
    return made


LEASE = Holder("LEASED", int(NOW), "", None, {}, until=int(NOW) + 300, code="c")
SITUATIONS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[float], list[tuple[Any, str]]]] = {
    "a slot is free": ({}, [{}], TENS, [(0, "now (20 recent requests)")]),
    "each waits for the slot of the one before it": (
        held(180),
        [{}, {}],
        TENS,
        [(420, "in 7 min, by about"), (1020, "in 17 min, by about")],
    ),
    "the first start uses the rate, and the next one is due an hour later": (
        held(180, rate=Rate(1, 3600)),
        [{}, {}, {}],
        TENS,
        [(420, "in 7 min,"), (4020, "in 1 h 7 min,"), (7620, "in 2 h 7 min,")],
    ),
    "a rate needs no durations": (
        {"slot_limit": 5, "rate": Rate(1, 3600), "next_start": int(NOW * 1000) + 60_000},
        [{}, {}],
        [],
        [(60, "in 1 min, by about"), (3660, "in 1 h 1 min, by about")],
    ),
    "a heavy request keeps back those behind it until it fits": (
        held(0, 300, slot_limit=3),
        [{"weight": 3}, {}],
        TENS,
        [(600, "in 10 min"), (1200, "in 20 min")],
    ),
    "the keys have turns": (
        held(180),
        [{"key": "a"}, {"key": "a"}, {"key": "b"}],
        TENS,
        [(420, "in 7"), (1620, "in 27"), (1020, "in 17")],
    ),
    "a key at its limit waits for its own holder": (
        held(180, slot_limit=3, key_limit=1, holders={"x": Holder("RUNNING", int(NOW - 180), "", None, {}, key="a")}),
        [{"key": "a"}, {"key": "b"}, {}],
        TENS,
        [(420, "in 7 min"), (0, "now"), (0, "in 0 s")],
    ),
    "above the limit of its key": (
        {"slot_limit": 3, "key_limits": {"a": 1}},
        [{"key": "a", "weight": 2}, {"weight": 2}],
        TENS,
        [(None, "not known: its weight 2 is above the limit 1 of its key"), (0, "now")],
    ),
    "a counter that has drifted takes no part of a key's limit": (
        {"slot_limit": 2, "slots_in_use": 1, "key_limit": 1},
        [{}],
        TENS,
        [(0, "now")],
    ),
    "a lease ends at any time until its end": (
        {"holders": {"lease": LEASE}, "slots_in_use": 1},
        [{}],
        TENS,
        [(152, "in 16 s to 4 min 48 s, by about")],
    ),
    "a holder that has run for longer than each frees its slot at no known time": (
        held(700, 0),
        [{}, {}, {}],
        TENS,
        [(600, "in 10 min"), (1200, "in 20 min"), (1800, "in 30 min")],
    ),
    "all of them have": (held(700), [{}], TENS, [(None, "not known: a holder has run for longer than each recent")]),
    "too few have ended": (held(1), [{}], [1.0] * 4, [(None, "not known: 4 recent requests of the process, 5 are")]),
    "a counter that has drifted frees nothing": (
        {"slots_in_use": 1},
        [{}],
        TENS,
        [(None, "not known: a holder has run for longer")],
    ),
    "it is paused": ({"paused": True}, [{}, {}], TENS, [(None, "not known: the process is paused")] * 2),
    "the limit is 0": ({"slot_limit": 0}, [{}, {}], TENS, [(None, "not known: the limit is 0")] * 2),
    "a blocked one keeps back no other": (
        {},
        [{"weight": 2}, {}],
        TENS,
        [(None, "not known: its weight 2 is above the limit 1"), (0, "now")],
    ),
    "each takes the default weight": (
        {"slot_limit": 3, "default_weight": 2},
        [{}, {}],
        TENS,
        [(0, "now"), (600, "in 10 min")],
    ),
    "one has a slot, the next one is too late before it ends": (
        held(0) | {"holders": {"p-0": Holder("RESERVED", int(NOW), "", None, {})}},
        [{}, {"start_before": NOW + 60}, {"skips": True}],
        TENS,
        [(0, "now: it has a slot"), (None, "never: its start_before comes first"), (None, "never: its start_before")],
    ),
    "a process for leases only": ({"target": NO_TARGET}, [{}], TENS, [(None, "never: the process has no target")]),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_expected_starts_of_a_queue(situation: str) -> None:
    changes, queued, durations, expected = SITUATIONS[situation]
    found = expected_starts(replace(PROCESS, **changes), queue(*queued), durations, NOW)
    shown = list(found.values())
    assert [each["seconds"] for each in shown] == [seconds for seconds, _ in expected]
    for each, (seconds, text) in zip(shown, expected, strict=True):
        assert each["text"].startswith(text), each
        assert (each["at"] is None) == (seconds is None)


def test_the_range_is_wide_for_the_next_one_and_narrow_behind_many() -> None:
    durations = [60.0 * number for number in range(1, 21)]
    found = expected_starts(replace(PROCESS, **held(0)), queue(*[{}] * 200), durations, NOW)
    assert found["p-0"]["text"].startswith("in 2 min to 19 min, by about ")
    assert found["p-199"]["text"].startswith("in 1 d 9 h to 1 d 1")
    assert found["p-199"]["seconds"] == pytest.approx(200 * 630, rel=0.1)


def test_a_start_behind_a_thousand_others_takes_their_starts_although_slots_are_free() -> None:
    found = expected_starts(replace(PROCESS, slot_limit=10_000), queue(*[{}] * 1001), [1.0] * 5, NOW)
    assert found["p-1000"]["seconds"] == 33
