"""`slotkeeper request list`: the requests of a process, one on each line, and what was not read."""

from __future__ import annotations

from typing import Any

import pytest

from slotkeeper.slots.request_table import Leaving
from slotkeeper.slots.rows import RequestRows
from slotkeeper_cli.commands.list_requests import LAST_ENDED
from tests.cli.account_contents import fail, job_run, succeed
from tests.cli.operator_account import NOW, Operator

pytestmark = pytest.mark.usefixtures("a_minute_later")
LONG = "order-of-the-largest-customer-in-the-north-2026-11-28"


def _states(operator: Operator, *options: str) -> list[tuple[str, str, int | None]]:
    data = operator.run("request", "list", "sample", *options, "--json").json
    return [(one["request_id"], one["state"], one["position"]) for one in data["requests"]]


@pytest.fixture
def furnished(operator: Operator) -> Operator:
    """Requests of each state."""
    operator.processes.set_limit("sample", 2)
    succeed(operator, "done")
    fail(operator, "failed", cause=job_run("no such month"))
    for end, code in (("SKIPPED", "Skipped"), ("TOO_LATE", "TooLate"), ("CANCELLED", "Cancelled"), ("REJECTED", "X")):
        operator.leave(operator.wait(code), end, code, f"it is {code}")
    operator.hold("first")
    operator.hold("starting", started=False, confirmed=False)
    operator.wait("late", priority="low")
    operator.wait("heavy", weight=3)
    operator.wait(LONG)
    operator.wait("urgent", priority="high")
    return operator


def test_open_requests_come_in_their_order_and_then_those_that_ended_last(furnished: Operator) -> None:
    states = _states(furnished)
    assert states[:6] == [
        ("first", "started", None),
        ("urgent", "queued", 1),
        ("starting", "queued", None),
        ("heavy", "queued", None),
        (LONG, "queued", 2),
        ("late", "queued", 3),
    ]
    ended = {"done": "succeeded", "failed": "failed", "Skipped": "skipped", "TooLate": "too late"}
    assert {name: state for name, state, _ in states[6:]} == {**ended, "Cancelled": "cancelled", "X": "rejected"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--state", "queued"), {"urgent", "starting", "heavy", LONG, "late"}),
        (("--state", "started"), {"first"}),
        (("--state", "failed", "--state", "too-late"), {"failed", "TooLate"}),
        (("--state", "redriven"), set()),
    ],
)
def test_a_list_has_the_states_that_are_asked_for(
    furnished: Operator, options: tuple[str, ...], expected: set[str]
) -> None:
    assert {name for name, _, _ in _states(furnished, *options)} == expected


def test_each_request_is_one_line_of_80_columns(furnished: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    heading, *lines = furnished.run("request", "list", "sample").stdout.splitlines()
    assert [heading.split(), len(lines)] == [["place", "request", "since", "priority", "weight", "why"], 12]
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines[:6]] == [
        ["started", "first"],
        ["1", "urgent"],
        ["starting", "starting"],
        ["blocked", "heavy"],
        ["2", "order-of-th...h-2026-11-28"],
        ["3", "late"],
    ]
    assert "behind urgent" in lines[4]


def test_a_list_names_reasons_and_expected_starts(operator: Operator) -> None:
    for number in range(6):
        succeed(operator, f"old{number}")
    operator.hold("a")
    operator.wait("b")
    queued = operator.run("request", "list", "sample", "--state", "queued", "--json").json["requests"]
    assert [one["condition"] for one in queued[0]["reasons"]] == ["slots"]
    assert queued[0]["expected_start"]["samples"] == 6


def test_ended_requests_are_listed_last_ended_first_and_not_all(operator: Operator) -> None:
    for number in range(LAST_ENDED + 2):
        succeed(operator, f"r{number}")
    assert len(_states(operator)) == LAST_ENDED
    assert len(_states(operator, "--state", "succeeded")) == LAST_ENDED + 2
    shown = operator.run("request", "list", "sample", "--state", "succeeded", "--limit", "3").stdout
    assert len(shown.splitlines()) == 4


def test_more_requests_than_the_limit_are_counted(operator: Operator) -> None:
    for number in range(5):
        operator.wait(f"r{number}")
    ended = operator.run("request", "list", "sample", "--limit", "2")
    assert "3 more not shown: above --limit 2" in ended.stdout


def test_a_queue_that_is_too_long_is_read_in_part(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    for request_id in "abc":
        operator.wait(request_id)
    queue = RequestRows.queue

    def cut(self: RequestRows, process: str, *_: Any) -> Any:
        listed = queue(self, process)
        listed.rows, listed.is_cut = listed.rows[:2], True
        return listed

    monkeypatch.setattr(RequestRows, "queue", cut)
    ended = operator.run("request", "list", "sample")
    assert "Only a part was read: more than 2 requests are queued." in ended.stdout
    shown = operator.run("explain", "c").stdout
    assert "it has waited for 59 s, behind more than 2 requests." in shown
    assert "more than 2 queued" in operator.run("status").stdout


def test_a_process_without_requests(operator: Operator) -> None:
    assert operator.run("request", "list", "sample").stdout == "sample has no such request.\n"


def test_the_rejected_requests_of_a_process_that_never_existed_are_listed(operator: Operator) -> None:
    name = operator.wait("a", "typo")
    rejected = [Leaving(name, "REJECTED", "UnknownProcess", "there is none")]
    operator.requests.end_homeless("typo", rejected, NOW, exists=False)
    ended = operator.run("request", "list", "typo")
    assert (ended.exit_code, ended.stdout.split()[-6:]) == (0, ["a", "1", "min", "there", "is", "none"])
