"""`slotkeeper request list`: the requests of a process, one on each line, and the unread sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.slots.rows import RequestRows
from slotkeeper_cli.formatting import iso
from slotkeeper_cli.request_history import LAST_ENDED
from tests.command.account_contents import fail, job_run, succeed
from tests.command.operator_account import NOW, Operator

pytestmark = pytest.mark.usefixtures("a_minute_later")
LONG = "order-of-the-largest-customer-in-the-north-2026-11-28"
LIST = ("request", "list", "sample")


def _names(operator: Operator, *options: str) -> set[str]:
    return {one["request_id"] for one in operator.run(*LIST, *options, "--json").json["requests"]}


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


def test_open_requests_come_in_their_order_and_then_those_that_ended_last_each_on_a_line_of_80_columns(
    furnished: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    data = furnished.run(*LIST, "--json").json
    states = [(one["request_id"], one["state"], one["position"]) for one in data["requests"]]
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

    heading, *lines = furnished.run(*LIST).stdout.splitlines()
    assert [heading.split(), len(lines)] == [["place", "request", "since", "priority", "weight", "why"], 12]
    assert max(map(len, lines)) <= 80
    cut = "order-of-...026-11-28"
    places = ["started first", "1 urgent", "starting starting", "blocked heavy", f"2 {cut}", "3 late"]
    assert [" ".join(line.split()[:2]) for line in lines[:6]] == places
    assert lines[4].endswith("  behind ur...ts in use")


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
    assert _names(furnished, *options) == expected


def test_a_list_names_reasons_and_expected_starts_and_not_all_that_have_ended(operator: Operator) -> None:
    for number in range(LAST_ENDED + 2):
        succeed(operator, f"r{number:02}")
    operator.hold("a")
    operator.wait("b")
    (queued,) = operator.run(*LIST, "--state", "queued", "--json").json["requests"]
    assert [one["condition"] for one in queued["reasons"]] == ["slots"]
    assert queued["because"] == "1 of 1 slot in use"
    assert "12 recent requests" in queued["expected_start"]["text"]
    assert len(_names(operator)) == LAST_ENDED + 2
    assert len(_names(operator, "--state", "succeeded")) == LAST_ENDED + 2
    shown = operator.run(*LIST, "--state", "succeeded", "--limit", "3").stdout
    assert len(shown.splitlines()) == 4


def test_more_than_the_limit_and_what_ended_before_the_newest_page_are_stated(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        operator.wait(f"r{number}")
    succeed(operator, "done")
    assert "4 more not shown: above --limit 2" in operator.run(*LIST, "--limit", "2").stdout
    history = RequestRows.history
    monkeypatch.setattr(RequestRows, "history", lambda *asked, **more: replace(history(*asked, **more), is_cut=True))
    shown = operator.run(*LIST, "--state", "failed").stdout
    assert "Not read: RequestTable: what ended before the last 1: give --since" in shown
    fail(operator, "failed")
    assert "1 of the last 2 that ended in 24 h failed" in operator.run("failed", "list").stdout


@pytest.mark.parametrize("key", [{}, {"key": "acme"}])
def test_a_queue_that_is_too_long_is_read_in_part(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, key: dict[str, str]
) -> None:
    for request_id in "abc":
        operator.wait(request_id, **key)
    queue = RequestRows.queue

    def cut(self: RequestRows, process: str, *_: Any) -> Any:
        listed = queue(self, process)
        listed.rows, listed.is_cut = listed.rows[:2], True
        return listed

    monkeypatch.setattr(RequestRows, "queue", cut)
    assert "Only a part was read: more than 2 requests are queued." in operator.run(*LIST).stdout
    assert "it has waited for 59 s, behind more than 2 requests." in operator.run("explain", "c").stdout
    place = 'number 2 of key "acme" (1 ahead of it), one of more than 2 in' if key else "number 2 of more than 2 in"
    assert f"it is {place} the queue" in operator.run("explain", "b").stdout
    assert operator.run(*LIST).stdout.splitlines()[2].startswith("queued" if key else "2")


# Every request of a period --------------------------------------------------------------------------------------------


def test_the_list_of_a_period_has_every_request_with_its_times_and_the_totals(furnished: Operator) -> None:
    data = furnished.run(*LIST, "--since", "24h", "--json").json

    assert {one["request_id"]: one["state"] for one in data["requests"]} == {
        **{"done": "succeeded", "failed": "failed", "Skipped": "skipped", "TooLate": "too late", "X": "rejected"},
        **{"Cancelled": "cancelled", "first": "started"},
        **dict.fromkeys(("starting", "late", "heavy", LONG, "urgent"), "queued"),
    }
    assert [one["request_id"] for one in data["requests"]][:3] == ["done", "failed", "Skipped"], "in order of sending"
    shown = {one["request_id"]: one for one in data["requests"]}
    keys = ("code", "started", "ended", "waited_seconds", "ran_seconds")
    assert {name: tuple(shown[name].get(key) for key in keys) for name in ("failed", "Skipped", "first", "late")} == {
        "failed": ("Glue.Failed", iso(NOW), iso(NOW + 30), 0, 30),
        "Skipped": ("Skipped", None, iso(NOW + 30), 30, None),
        "first": (None, iso(NOW), None, 0, 60),
        "late": (None, None, None, 60, None),
    }
    assert (shown["Skipped"]["execution"], shown["late"]["attempt"], data["not_read"]) == (None, None, [])
    assert (data["outcomes"]["queued"], data["started"], data["longest_wait_seconds"]) == (5, 3, 0)
    lines = furnished.run(*LIST, "--since", "24h").stdout.splitlines()
    assert " ".join(lines[2].split()) == "failed 09-21 14:13:20 0 s 14:13:20 14:13:50 failed (Glue.Failed)"
    assert "14:14:20 UTC: 1 succeeded, 1 failed," in lines[-1]
    assert lines[-1].endswith("Of the 3 that have started, the median wait is 0 s, the longest 0 s.")


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (("--since", "2026-09-21T14:13:51Z"), {"open"}),
        (("--since", "2026-09-21T14:13:50Z"), {"open", "done"}),
        (("--since", "24h", "--until", "2026-09-21T14:13:49Z"), {"open"}),
        (("--since", "24h", "--state", "succeeded"), {"done"}),
    ],
)
def test_the_list_of_a_period_has_what_ended_in_it_and_what_is_open(
    operator: Operator, period: tuple[str, ...], expected: set[str]
) -> None:
    succeed(operator, "done")
    operator.wait("open")
    assert _names(operator, *period) == expected


@pytest.mark.parametrize(("options", "ends"), [(("--since", "1h"), True), ((), False)])
def test_a_request_that_starts_during_the_reads_is_listed_once(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], ends: bool
) -> None:
    """1. The queue is read. 2. The request starts, and perhaps ends. 3. Other rows are read."""
    name = operator.wait("a")
    queue = RequestRows.queue

    def then_it_starts(self: RequestRows, *arguments: Any) -> Any:
        listed = queue(self, *arguments)
        operator.start(name)
        if ends:
            operator.succeed(name)
        return listed

    monkeypatch.setattr(RequestRows, "queue", then_it_starts)
    (one,) = operator.run(*LIST, *options, "--json").json["requests"]
    assert (one["state"], one["started"]) == ("succeeded" if ends else "started", iso(NOW))


def test_what_was_not_read_of_a_period_is_stated(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    succeed(operator)
    history = RequestRows.history
    cut = {"is_cut": True, "malformed": ["odd", "too"]}
    monkeypatch.setattr(RequestRows, "history", lambda *asked: replace(history(*asked), **cut))
    shown = operator.run(*LIST, "--since", "1h").stdout
    assert "Not read: RequestTable: there are more than 1 requests that have ended since 20" in shown
    assert "Not read: RequestTable: 2 rows are malformed: odd, and 1 more" in shown
