"""`slotkeeper explain`: the conditions of a start, the expected start, and when a stopped request frees its slot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES
from slotkeeper.slots.request_table import place_of
from slotkeeper.slots.rows import Listed, QueuedRow
from slotkeeper_cli.expected_start import ExpectedStart, expected_start
from slotkeeper_cli.explanation import lease_reasons
from slotkeeper_cli.holders import SlotRelease, estimate
from slotkeeper_cli.process_queue import ProcessQueue
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.row_search import RowSearch
from tests.cli.operator_account import NOW, Operator

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()


HOLDER = Holder("RUNNING", 1, "", None, {})
MOST = {f"p-{number}": HOLDER for number in range(500)}


def process(**changes: Any) -> Process:
    whole: dict[str, Any] = {"name": "p", "slot_limit": 3, "slots_in_use": 0, "holders": {}, "paused": False}
    return Process(**{**whole, "target": "job", **changes})


def row(execution: str = "p-first", priority: int = 1, **queued: Any) -> QueuedRow:
    """A queued request that is five minutes old."""
    place = place_of(priority, NOW - 300, execution[2:])
    return QueuedRow(Queued(execution, place, **queued), execution[2:], PRIORITIES[priority], NOW - 300)


def queue(of: Process | MalformedProcess, *rows: QueuedRow, is_cut: bool = False) -> ProcessQueue:
    return ProcessQueue(of, Listed([*rows], is_cut=is_cut), NOW)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"next": "it can start, and a dispatch is about to start it"}),
        ({"paused": True}, {"pause": "the process is paused"}),
        ({"slot_limit": 0}, {"limit": "the process has no slots"}),
        ({"default_weight": 4}, {"limit": "blocked: weight 4 above the limit 3"}),
        (
            {"target": NO_TARGET},
            {"target": "the process is for leases only: it runs no request, and rejects those that"},
        ),
        (
            {"slot_limit": 600, "holders": MOST, "slots_in_use": 500},
            {"holders": "the process has 500 holders, which is the maximum"},
        ),
        (
            {"slot_limit": 1, "slots_in_use": 3, "holders": dict.fromkeys(("p-1", "p-2", "p-3"), HOLDER)},
            {"slots": "3 of 1 slot in use"},
        ),
        (
            {"rate": Rate(1, 60), "next_start": int(NOW * 1000) + 30_000},
            {"rate": "the rate of 1/minute permits the next start in 30.0 s"},
        ),
        (
            {"holders": {"p-first": Holder("RESERVED", 1, "", None, {})}, "slots_in_use": 1},
            {"starting": "a slot is reserved for it, and its workflow is being started"},
        ),
    ],
)
def test_the_reasons_of_a_plan_in_words(changes: dict[str, Any], expected: dict[str, str]) -> None:
    (request,) = queue(process(**changes), row()).requests
    ((name, text),) = expected.items()
    assert [(each.name, each.text.startswith(text)) for each in request.reasons] == [(name, True)]


def test_positions_count_what_starts_before_and_pass_over_what_is_blocked_or_starts() -> None:
    starting = {"p-c": Holder("RESERVED", 1, "", None, {}), "p-x": HOLDER}
    of = process(slot_limit=2, slots_in_use=2, holders=starting)
    rows = [row("p-a", 0), row("p-b", weight=3), row("p-c"), row("p-d"), row("p-e", 2), row("p-f", 2, skips=True)]
    found = {each.request_id: (each.position, each.ahead) for each in queue(of, *rows).requests}
    none = (None, None)
    assert found == {"a": (1, 0), "b": none, "c": none, "d": (2, 1), "e": (3, 2), "f": none}


def test_a_request_of_a_malformed_process_keeps_its_place() -> None:
    requests = queue(MalformedProcess("slot_limit must be a number", "p"), row("p-a"), row("p-b")).requests
    assert [(each.position, each.reasons[0].name) for each in requests] == [
        (1, "malformed process"),
        (2, "malformed process"),
    ]


def test_a_lease_comes_after_each_request_that_is_not_blocked() -> None:
    low = row("p-low", 2)
    assert [each.text for each in lease_reasons(queue(process(paused=True), low))] == [
        "behind low, which is next",
        "the process is paused",
    ]
    assert lease_reasons(queue(process(), row("p-heavy", weight=9))) == []
    assert lease_reasons(queue(process(target=NO_TARGET))) == []


def _waits_for(ages: dict[str, int], durations: list[float], *ahead: int, **changes: Any) -> tuple[Any, Any]:
    """The range of the expected start in seconds from now, with holders of these ages and a limit of two."""
    holders = {name: replace(HOLDER, since=int(NOW) - age) for name, age in ages.items()}
    of = process(**{"holders": holders, "slots_in_use": len(holders), "slot_limit": 2, **changes})
    found = expected_start(of, ahead, 1, durations, NOW)
    assert found.samples == len(durations)
    return tuple(None if each is None else each - NOW for each in (found.earliest, found.latest))


TENS = [10.0 * number for number in range(1, 11)]  # 10 to 100 seconds


@pytest.mark.parametrize(
    ("ages", "durations", "ahead", "expected"),
    [
        pytest.param({"a": 0}, TENS, (), (0, 0), id="a slot is free"),
        pytest.param({"a": 0, "b": 0}, TENS, (), (20, 100), id="the first of two holders that have just started"),
        pytest.param({"a": 50, "b": 0}, TENS, (), (10, 50), id="a holder of this age has at most 50 s left"),
        pytest.param({"a": 50, "b": 0}, TENS, (1,), (20, 100), id="one request is before it, and takes the first slot"),
        pytest.param({"a": 200, "b": 0}, TENS, (), (20, 100), id="a holder that has run for longer than each"),
        pytest.param({"a": 200, "b": 300}, TENS, (), (None, None), id="all holders have run for longer than each"),
        pytest.param({"a": 0, "b": 0}, TENS[:4], (), (None, None), id="too few executions"),
    ],
)
def test_the_expected_start(
    ages: dict[str, int], durations: list[float], ahead: tuple[int, ...], expected: tuple[Any, Any]
) -> None:
    assert _waits_for(ages, durations, *ahead) == expected


def test_a_queued_request_starts_after_those_before_it_and_at_no_known_time_while_paused() -> None:
    of = process(slot_limit=1, slots_in_use=1, holders={"p-1": replace(HOLDER, since=int(NOW))})
    rows = [row("p-a"), row("p-b", weight=2), row("p-c")]
    waits = queue(of, *rows)
    expected = [waits.expected(each, TENS) for each in waits.requests]
    # The holder takes 20 to 100 s, and the request before the last one too; the blocked one starts at no known time.
    assert expected == [ExpectedStart(NOW + 20, NOW + 100, 10), None, ExpectedStart(NOW + 40, NOW + 200, 10)]
    paused = queue(replace(of, paused=True), *rows)
    assert [paused.expected(each, TENS) for each in paused.requests] == [None, None, None]


def test_a_lease_may_end_at_any_time_until_its_end() -> None:
    lease = replace(HOLDER, state="LEASED", until=int(NOW) + 30)
    assert _waits_for({}, TENS, holders={"a": lease}, slots_in_use=1, slot_limit=1) == (0, 30 + CLOCK_SKEW_SECONDS)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (ExpectedStart(None, None, 4), "not known: 4 recent requests of the process, 5 are needed"),
        (ExpectedStart(NOW + 20, None, 9), "in 20 s or later: a holder has run for longer than each recent request"),
        (ExpectedStart(NOW + 20, NOW + 90, 9), "in 20 s to 1 min 30 s, by about "),
        (ExpectedStart(NOW + 20, NOW + 20, 9), "in 20 s, by about "),
    ],
)
def test_the_text_of_an_expected_start(expected: ExpectedStart, text: str) -> None:
    assert expected.text(NOW).startswith(text)


DEFAULTS = {"JanitorSchedule": "rate(1 minute)", "GraceSeconds": "120"}


@pytest.mark.parametrize(
    ("parameters", "run", "seconds"),
    [
        (DEFAULTS, None, 240),
        (DEFAULTS, "STOPPED", 240),
        (DEFAULTS, "STOPPING", 300),
        ({"JanitorSchedule": "rate(5 minutes)", "GraceSeconds": "0"}, None, 600),
        ({"JanitorSchedule": "cron(0 * * * ? *)"}, None, None),
    ],
)
def test_the_slot_is_free_after_the_grace_time_and_the_janitors_runs(
    parameters: dict[str, str], run: str | None, seconds: int | None
) -> None:
    release = estimate(parameters, 1000.0, "job", None if run is None else {"state": run})
    assert release == SlotRelease(None if seconds is None else 1000.0 + seconds, 65)


def test_the_text_of_an_estimate_that_has_passed_or_is_not_known() -> None:
    assert SlotRelease(NOW, 65).text(NOW + 1).endswith(", which has passed: run slotkeeper holder release")
    assert SlotRelease(None, 65).text(NOW).startswith("in a run after GraceSeconds, usually 1 min")


def test_many_requests_with_one_id_are_found_in_part(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = RowSearch.attempts
    cut = lambda self, request_id: replace(attempts(self, request_id), is_cut=True)  # noqa: E731
    monkeypatch.setattr(RowSearch, "attempts", cut)
    operator.wait("b")
    ended = operator.run("explain", "b")
    assert (ended.exit_code, "Not read: RequestTable: there are more than 1 requests" in ended.stdout) == (0, True)


def test_a_request_is_found_before_the_index_has_it(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its execution, if the process is known."""
    monkeypatch.setattr(RowSearch, "attempts", lambda *_: Listed())
    operator.wait("b")
    assert operator.run("explain", "b", "--process", "sample").exit_code == 0
    assert operator.run("explain", "b").exit_code == 4


# The states --------------------------------------------------------------------------------------------------------


def test_the_help_and_the_page_list_the_states_of_the_code(operator: Operator) -> None:
    help_text = " ".join(re.sub(r"[│|]", " ", operator.run("request", "show", "--help").stdout).split())
    (row,) = re.findall(r"^\| `slotkeeper explain ID`, `slotkeeper request show ID` \| (.+) \|$", PAGE, re.MULTILINE)
    *most, last = RequestState
    for text in (help_text, row):
        assert f"{', '.join(most)} or {last}" in text
