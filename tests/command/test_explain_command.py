"""`slotkeeper explain`: the conditions of a start, the expected start, and when a stopped request frees its slot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import Holder, MalformedProcess, Process
from slotkeeper.slots.queued import Queued, place_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES
from slotkeeper.slots.rows import Listed, QueuedRow, RequestRows
from slotkeeper_cli.holders import SlotRelease, estimate
from slotkeeper_cli.process_queue import ProcessQueue
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.row_search import RowSearch
from slotkeeper_cli.slot_control import name_of
from tests.command.operator_account import NOW, Operator, StubbedCalls

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()


HOLDER = Holder("RUNNING", 1, "", None, {})
MOST = {f"p-{number}": HOLDER for number in range(500)}
THREE = {f"p-{number}": HOLDER for number in range(3)}
STARTING = {"p-first": Holder("RESERVED", 1, "", None, {})}
DUE = int(NOW * 1000) + 30_000


def process(**changes: Any) -> Process:
    whole: dict[str, Any] = {"name": "p", "slot_limit": 3, "slots_in_use": 0, "holders": {}, "paused": False}
    return Process(**{**whole, "target": "job", **changes})


def row(execution: str = "p-first", priority: int = 1, key: str = "", **queued: Any) -> QueuedRow:
    """A queued request that is five minutes old."""
    place = place_of(priority, NOW - 300, execution[2:], key)
    return QueuedRow(Queued(execution, place, **queued), execution[2:], PRIORITIES[priority], NOW - 300)


def queue(of: Process | MalformedProcess, *rows: QueuedRow, is_cut: bool = False) -> ProcessQueue:
    return ProcessQueue(name_of(of), of, Listed([*rows], is_cut=is_cut), NOW)


REASONS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "next", "it can start, and a dispatch is about to start it"),
    ({"paused": True}, "pause", "the process is paused"),
    ({"slot_limit": 0}, "limit", "the process has no slots"),
    ({"default_weight": 4}, "limit", "blocked: weight 4 above the limit 3"),
    ({"target": NO_TARGET}, "target", "the process is for leases only: it runs no request, and rejects those that"),
    ({"slot_limit": 600, "holders": MOST, "slots_in_use": 500}, "holders", "the process has 500 holders, which is the"),
    ({"slot_limit": 1, "slots_in_use": 3, "holders": THREE}, "slots", "3 of 1 slot in use"),
    ({"rate": Rate(1, 60), "next_start": DUE}, "rate", "the rate of 1/minute permits the next start in 30.0 s"),
    ({"holders": STARTING, "slots_in_use": 1}, "starting", "a slot is reserved for it, and its workflow is being"),
]


@pytest.mark.parametrize(("changes", "name", "text"), REASONS, ids=[name for _, name, _ in REASONS])
def test_the_reasons_of_a_plan_in_words(changes: dict[str, Any], name: str, text: str) -> None:
    (request,) = queue(process(**changes), row()).requests
    assert [(each["condition"], each["text"].startswith(text)) for each in request["reasons"]] == [(name, True)]


def test_positions_count_what_starts_before_and_pass_over_what_is_blocked_or_starts() -> None:
    starting = {"p-c": Holder("RESERVED", 1, "", None, {}), "p-x": HOLDER}
    of = process(slot_limit=2, slots_in_use=2, holders=starting)
    rows = [row("p-a", 0), row("p-b", weight=3), row("p-c"), row("p-d"), row("p-e", 2), row("p-f", 2, skips=True)]
    found = {each["request_id"]: (each["position"], each["ahead"]) for each in queue(of, *rows).requests}
    none = (None, None)
    assert found == {"a": (1, 0), "b": none, "c": none, "d": (2, 1), "e": (3, 2), "f": none}


def test_a_lease_comes_after_each_request_that_is_not_blocked() -> None:
    def reasons(of: ProcessQueue) -> list[str]:
        lease = of.with_lease().find()
        assert lease is not None
        return [each["text"] for each in lease["reasons"]]

    can_start = ["it can start, and a dispatch is about to start it"]
    paused = queue(process(paused=True), row("p-low", 2))
    assert reasons(paused) == ["behind low, which is next", "the process is paused"]
    assert reasons(queue(process(), row("p-heavy", weight=9))) == can_start
    assert reasons(queue(process(key_limit=0), row("p-a", key="a"))) == can_start
    assert reasons(queue(process(holders=THREE), *KEYED)) == ["behind a1, which is next", "3 of 3 slots in use"]
    assert reasons(queue(process(target=NO_TARGET))) == can_start


KEYED = [row(f"p-{key}{at}", key=key.strip("-")) for key in ("a", "b", "-") for at in (1, 2)]
FULL = {"key_limit": 1, "holders": {"p-x": replace(HOLDER, key="a")}, "slots_in_use": 1}


IN_PART = "a1 None 0, a2 None 1, b1 None 0, b2 None 1, -1 None 0, -2 None 1"
UNREAD = "more requests are queued than were read, so whose turn is next is not known"


@pytest.mark.parametrize(
    ("changes", "expected", "because"),
    [
        ({"after_keys": {"1": "a"}}, "b1 1 0, -1 2 0, a1 3 0, b2 4 1, -2 5 1, a2 6 1", "behind b2, which is next; "),
        ({"slot_limit": 0}, "a1 1 0, b1 2 0, -1 3 0, a2 4 1, b2 5 1, -2 6 1", "the process has no slots"),
        (FULL, "b1 1 0, -1 2 0, a1 3 0, b2 4 1, -2 5 1, a2 6 1", 'behind a1, which is next of key "a"; 1 of 1 slots'),
        ({"key_limits": {"b": 0}}, "a1 1 0, -1 2 0, b1 None None, b2 None None, a2 3 1, -2 4 1", "it can start"),
        ({"slots_in_use": 3, "is_cut": True}, IN_PART, UNREAD),
        ({"is_cut": True}, IN_PART, UNREAD),
        ({"paused": True, "is_cut": True}, IN_PART, "the process is paused"),
        ({**FULL, "is_cut": True}, IN_PART, 'behind a1, which is next of key "a"; 1 of 1 slots'),
    ],
)
def test_requests_are_in_the_order_of_turns(changes: dict[str, Any], expected: str, because: str) -> None:
    """A blocked one keeps its place. Of a part of a queue, the keys between are not known."""
    is_cut = changes.pop("is_cut", False)
    read = queue(process(**changes), *KEYED, is_cut=is_cut)
    shown = ", ".join(f"{one['request_id']} {one['position']} {one['ahead_of_key']}" for one in read.requests)
    last, lease = read.find("p-a2"), read.with_lease().find()
    assert last is not None
    assert (shown, last["because"][: len(because)]) == (expected, because)
    assert lease is not None
    assert not is_cut or "which is next" not in lease["because"]


def test_a_key_at_its_limit_is_expected_to_start_and_one_above_it_is_not() -> None:
    of = process(key_limit=2, holders={"p-x": replace(HOLDER, key="a", weight=2)}, slots_in_use=2)
    starts = queue(of, *KEYED[:2], row("p-heavy", key="b", weight=3)).expected_starts([])
    assert starts.keys() == {"p-a1", "p-a2"}
    malformed = queue(MalformedProcess("odd", "p"), *KEYED).requests
    assert {each["position"] for each in malformed} == {None}


EVERY_MINUTE = {"JanitorSchedule": "rate(1 minute)", "GraceSeconds": "120"}
ESTIMATES: list[tuple[dict[str, str], str, int | None]] = [
    (EVERY_MINUTE, "", 240),
    (EVERY_MINUTE, "STOPPED", 240),
    (EVERY_MINUTE, "STOPPING", 300),
    ({"JanitorSchedule": "rate(5 minutes)", "GraceSeconds": "0"}, "", 600),
    ({"JanitorSchedule": "cron(0 * * * ? *)"}, "", None),
]


@pytest.mark.parametrize(("parameters", "run", "seconds"), ESTIMATES)
def test_the_slot_is_free_after_the_grace_time_and_the_janitors_runs(
    parameters: dict[str, str], run: str, seconds: int | None
) -> None:
    release = estimate(parameters, 1000.0, "job", {"state": run} if run else None)
    assert release == SlotRelease(None if seconds is None else 1000.0 + seconds, 65)


def test_the_text_of_an_estimate_that_has_passed_or_is_not_known() -> None:
    assert SlotRelease(NOW, 65).text(NOW + 1).endswith(", which has passed: run slotkeeper holder release")
    assert SlotRelease(None, 65).text(NOW).startswith("in a run after GraceSeconds, usually 1 min")


def test_of_many_requests_with_one_id_ten_are_explained_and_the_others_counted(operator: Operator) -> None:
    for number in range(30):
        operator.processes.create(f"p{number:02}", 1, "sample-job")
        operator.wait("nightly", f"p{number:02}")
    shown = operator.run("explain", "nightly").stdout
    assert shown.count(": queued") == 10
    assert "Not read: RequestTable: 20 more requests have the id, of p10 and others: give --process" in shown


def test_a_request_deep_in_its_queue_is_explained_in_few_lines(operator: Operator) -> None:
    operator.processes.set_limit("sample", 12)
    for number in range(12):
        operator.hold(f"h{number}")
    for number in range(30):
        operator.wait(f"q{number}")
    shown = operator.run("explain", "q29").stdout
    assert "it is number 30 of 30 in the queue" in shown
    assert "and 9 more: slotkeeper status sample" in shown
    assert len(shown.splitlines()) == 10


@pytest.mark.parametrize(
    ("service", "call", "source", "still"),
    [
        ("stepfunctions", "ListExecutions", "executions", "held by a  RUNNING"),
        ("lambda", "ListEventSourceMappings", "event source of DispatchQueue", "1 of 1 slot in use"),
        ("dynamodb", "Query place", "the queue", "Its place in the queue could not be read."),
        ("dynamodb", "Query ended", "history", "1 of 1 slot in use"),
    ],
)
def test_what_may_not_be_read_is_named_and_the_rest_answered(
    operator: Operator, service: str, call: str, source: str, still: str
) -> None:
    operator.hold("a")
    operator.wait("b")
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    operation, _, index = call.partition(" ")
    with StubbedCalls(service, {operation: lambda asked: denied if index in asked.get("IndexName", "") else None}):
        shown = operator.run("explain", "b")
    assert (shown.exit_code, f"Not read: {source}: {operation} failed with AccessDenied" in shown.stdout) == (0, True)
    assert still in shown.stdout


def test_what_could_not_be_searched_is_named(operator: Operator) -> None:
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    with StubbedCalls("sqs", {"GetQueueAttributes": lambda _: denied}):
        ended = operator.run("explain", "typo")
    assert (ended.exit_code, "Not read: queues: GetQueueAttributes failed" in ended.stdout) == (1, True)


def _index(monkeypatch: pytest.MonkeyPatch, *attempts: tuple[str, str, int], is_cut: bool = False) -> None:
    """Let the index of ids contain only these attempts."""
    monkeypatch.setattr(RowSearch, "attempts", lambda *_: Listed([*attempts], is_cut=is_cut))


def test_of_many_holders_those_whose_execution_has_ended_are_named_by_their_requests(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slotkeeper_cli.account.MAX_KEYS", 1)
    operator.processes.set_limit("sample", 2)
    operator.hold("runs")
    operator.stop(operator.hold("ended"))
    operator.wait("b")
    assert "  held by ended  RUNNING" in operator.run("explain", "b").stdout


def test_an_execution_is_found_although_its_row_changes_between_the_reads(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read = operator.wait("a"), RequestRows.row

    def changed(rows: RequestRows, process: str, execution: str) -> Any:
        row = read(rows, process, execution)
        operator.start(execution, process)
        return row

    monkeypatch.setattr(RequestRows, "row", changed)
    assert "a in sample: started" in operator.run("explain", name).stdout


def test_an_id_that_no_request_can_have_is_not_asked_for(operator: Operator) -> None:
    refused = {"Error": {"Code": "ValidationException", "Message": "the key is not valid"}}
    with StubbedCalls("dynamodb", {"Query": lambda _: refused}):
        for given in ("", "x" * 3000):
            assert operator.run("explain", "--process", "sample", given).exit_code == 4


def test_a_request_is_found_before_the_index_has_it(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its execution: of the process that is given, and after an attempt that the index has."""
    first = operator.wait("b", when_busy="skip")
    _index(monkeypatch)
    assert operator.run("explain", "b", "--process", "sample").exit_code == 0
    assert "accepted in the last second" in operator.refuses("explain", "b", exit_code=4)

    operator.leave(first, "SKIPPED", "Skipped", "no slot was free")
    operator.wait("b")
    _index(monkeypatch, ("sample", first, 1))
    assert operator.run("explain", "b", "--json").json["state"] == "queued"


def test_more_requests_with_an_id_than_a_page_contains_are_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _index(monkeypatch, ("sample", operator.wait("b"), 1), is_cut=True)
    assert "Not read: RequestTable: there are more than 1 requests with the id" in operator.run("explain", "b").stdout


# The states --------------------------------------------------------------------------------------------------------


def test_the_help_and_the_page_list_the_states_of_the_code(operator: Operator) -> None:
    help_text = " ".join(re.sub(r"[│|]", " ", operator.run("request", "show", "--help").stdout).split())
    (row,) = re.findall(r"^\| `slotkeeper explain ID`, `slotkeeper request show ID` \| (.+) \|$", PAGE, re.MULTILINE)
    *most, last = RequestState
    for text in (help_text, row):
        assert f"{', '.join(most)} or {last}" in text
