"""Reads of rows: bounded lists without bodies and tokens, and rows that are not of the documented types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.intake import digest_of
from slotkeeper.slots.queued import Queued
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import Leaving, State
from slotkeeper.slots.rows import LISTED, Listed, MalformedRequestRow, QueuedRow, RequestRow, RequestRows, read_row
from tests.simulation.account.boundary import passed_values
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

LIMIT = 1
SECRET = "the-token"
REQUEST = Request(
    "p", {}, "a", priority="high", weight=2, task_token=SECRET, when_busy="skip", start_before="2027-01-15T08:10:00Z"
)


def test_a_row_has_what_was_written(scene: QueueScene) -> None:
    scene.accept(REQUEST, "m1", at=NOW - 0.5)
    place = f"0#01799999999500#{'1'.zfill(40)}"
    row = RequestRow(
        process="p",
        execution=REQUEST.execution_name,
        state="QUEUED",
        request_id="a",
        attempt=1,
        priority="high",
        sent=NOW - 0.5,
        place=place,
        placed=place,
        weight=2,
        skips=True,
        start_before=NOW + 600,
        open=NOW,
        message_id="m1",
        digest=digest_of(REQUEST),
        body=REQUEST.to_json(),
        task_token=SECRET,
    )
    assert read_row(scene.row(REQUEST.execution_name)) == row
    assert row.queued == Queued(REQUEST.execution_name, place, 2, NOW + 600, skips=True)
    assert SECRET not in repr(row)


def test_a_row_is_read_without_body_token_and_answer(scene: QueueScene) -> None:
    scene.accept(REQUEST, "m1", at=NOW - 0.5)
    whole = read_row(scene.row(REQUEST.execution_name))
    assert scene.rows.row("p", REQUEST.execution_name) == replace(whole, body="", task_token="")
    scene.record(REQUEST.execution_name, "SUCCEEDED", answer=f'"{SECRET}"')
    whole = read_row(scene.row(REQUEST.execution_name))
    assert (whole.answer, SECRET in repr(whole)) == (f'"{SECRET}"', False)
    assert scene.rows.row("p", REQUEST.execution_name) == replace(whole, task_token="", answer="")
    assert scene.rows.row("p", "p-none") is None


def test_an_ended_row_has_its_end_and_is_not_in_the_queue(scene: QueueScene) -> None:
    cancelled, failed = scene.queue("a", "b")
    scene.requests.leave("p", [Leaving(cancelled, "CANCELLED", "Cancelled", "why")], NOW)
    scene.requests.mark_started("p", failed, "8#00", NOW)
    scene.record(failed, "FAILED", NOW + 1, cause="cause")
    listed = {row.request_id: row for row in scene.rows.rows("p").rows}
    shown = [
        (row.state, row.code, row.reason, row.cause, row.started, row.ended, row.failed, row.open, row.granted)
        for row in (listed["a"], listed["b"])
    ]
    assert shown == [
        ("CANCELLED", "Cancelled", "why", "", None, NOW, None, -NOW, ""),
        ("FAILED", "Error", "", "cause", NOW, NOW + 1, NOW + 1, -NOW - 1, "8#00"),
    ]
    assert [(each.queued, each.is_unpublished) for each in listed.values()] == [(None, True)] * 2
    scene.endings.publish("p", [failed])
    published = scene.rows.row("p", failed)
    assert published is not None
    assert (published.reason, published.open, published.is_unpublished) == ("cause", None, False)


def test_lists_have_no_bodies_and_no_tokens_and_are_read_consistently(scene: QueueScene) -> None:
    """Readers of lists need not be permitted to read them."""
    scene.accept(REQUEST)
    asked = passed_values(scene.dynamodb, "Query", "ProjectionExpression")
    consistent = passed_values(scene.dynamodb, "Query", "ConsistentRead")
    (row,) = scene.rows.rows("p").rows
    assert (row.body, row.task_token, asked, consistent) == ("", "", [LISTED], [True])
    assert not {"body", "task_token", "answer"} & set(LISTED.split(", "))


def test_rows_are_listed_by_state(scene: QueueScene) -> None:
    scene.queue("a", "b", "c")
    for name, state in zip(scene.names, ("STARTED", "FAILED", "QUEUED"), strict=True):
        scene.end(name, state)
    scene.accept(Request("q", {}, "other"))

    def ids(*given: Any) -> list[str]:
        return sorted(row.request_id for row in scene.rows.rows("p", *given).rows)

    assert ids() == ["a", "b", "c"]
    assert ids(["STARTED", "FAILED"]) == ["a", "b"]


def test_open_rows_are_those_without_an_end_and_unpublished_ones_those_with_an_end_to_publish(
    scene: QueueScene,
) -> None:
    queued, started, failed, cancelled, published = scene.queue("a", "b", "c", "d", "e")
    scene.requests.mark_started("p", started, "8#00", NOW)
    scene.record(failed, "FAILED")
    for at, name in enumerate((cancelled, published)):
        scene.requests.leave("p", [Leaving(name, "CANCELLED", "Cancelled", "why")], NOW + at)
    scene.endings.publish("p", [published])
    assert sorted(scene.rows.open("p").rows) == sorted([(queued, "QUEUED"), (started, "STARTED")])
    assert sorted(scene.rows.unpublished("p").rows) == sorted([(failed, "FAILED"), (cancelled, "CANCELLED")])


# History and failures


def _end(scene: QueueScene, request_id: str, at: float, state: State) -> None:
    (name,) = scene.queue(request_id)
    if state in ("SUCCEEDED", "FAILED"):
        scene.record(name, state, at)
    else:
        scene.requests.leave("p", [Leaving(name, state, "Code", "why")], at)  # type: ignore[arg-type]  # no other state


def _fail_elsewhere(scene: QueueScene) -> None:
    """Let a request of a process fail that does not exist."""
    scene.accept(Request("gone", {}, "other"))
    scene.outcomes.failed("gone", execution_name("gone", "other", 1), NOW + 20, "Error", "why")


def test_the_history_has_what_ended_in_a_time_in_the_order_of_the_ends(scene: QueueScene) -> None:
    """Also what is not published yet: it is read consistently, and has no time that is not known yet."""
    ends: list[tuple[str, int, State]] = [
        ("late", 31, "FAILED"),
        ("third", 30, "CANCELLED"),
        ("second", 20, "FAILED"),
        ("first", 10, "SUCCEEDED"),
        ("early", 9, "SUCCEEDED"),
    ]
    for request_id, after, state in ends:
        _end(scene, request_id, NOW + after, state)
    scene.queue("waits")
    _fail_elsewhere(scene)
    consistent = passed_values(scene.dynamodb, "Query", "ConsistentRead")

    listed = scene.rows.history("p", NOW + 10, NOW + 30)

    shown = [(row.request_id, row.state, row.ended, row.code, row.cause, row.body) for row in listed.rows]
    assert shown == [
        ("first", "SUCCEEDED", NOW + 10, "", "", ""),
        ("second", "FAILED", NOW + 20, "Error", "", ""),
        ("third", "CANCELLED", NOW + 30, "Code", "", ""),
    ]
    assert (consistent, listed.is_cut, listed.malformed) == ([True], False, [])


@pytest.mark.parametrize(
    ("process", "expected"), [("p", ["third", "second", "first"]), (None, ["first", "other", "second", "third"])]
)
def test_failures_are_those_that_were_not_redriven_or_discarded(
    process: str | None, expected: list[str], scene: QueueScene
) -> None:
    """Those of all processes also contain those of a process that does not exist."""
    ends: list[tuple[str, int, State]] = [
        ("early", 9, "FAILED"),
        ("first", 10, "FAILED"),
        ("second", 20, "REJECTED"),
        ("third", 30, "TOO_LATE"),
        ("late", 31, "FAILED"),
        ("skipped", 20, "SKIPPED"),
        ("cancelled", 20, "CANCELLED"),
        ("succeeded", 20, "SUCCEEDED"),
        ("redriven", 20, "FAILED"),
        ("discarded", 20, "FAILED"),
    ]
    for request_id, after, state in ends:
        _end(scene, request_id, NOW + after, state)
    _fail_elsewhere(scene)
    again, discarded = (execution_name("p", request_id, 1) for request_id in ("redriven", "discarded"))
    scene.endings.publish("p", [again, discarded])
    scene.requeues.redrive("p", [again], NOW + 40)
    scene.requeues.discard("p", discarded)

    listed = scene.rows.failures(process, NOW + 10, NOW + 30)

    found = [row.request_id for row in listed.rows]
    assert (found if process else sorted(found)) == expected
    assert {row.cause for row in listed.rows} == {""}


def test_the_queue_has_its_order_and_what_is_blocked(scene: QueueScene) -> None:
    for fields in ({"priority": "low"}, {"weight": 9}, {"priority": "high"}):
        scene.accept(Request("p", {}, str(fields), **fields), at=NOW - 1.25)  # type: ignore[arg-type]  # any field
    listed = scene.rows.queue("p")
    assert [(row.priority, row.sent, row.queued.weight) for row in listed.rows] == [
        ("high", NOW - 1.25, None),
        ("normal", NOW - 1.25, 9),
        ("low", NOW - 1.25, None),
    ]
    assert isinstance(listed.rows[0], QueuedRow)
    assert listed.rows[0].request_id == "{'priority': 'high'}"


READS: dict[str, Callable[[RequestRows, int], Listed[Any]]] = {
    "rows": lambda rows, pages: rows.rows("p", max_pages=pages),
    "open": lambda rows, pages: rows.open("p", pages),
    "queue": lambda rows, pages: rows.queue("p", pages),
    "history": lambda rows, pages: rows.history("p", NOW, NOW, pages),
    "failures": lambda rows, pages: rows.failures("p", NOW, NOW, pages),
    "all failures": lambda rows, pages: rows.failures(None, NOW, NOW, pages),
}


@pytest.mark.parametrize("kind", READS)
def test_a_read_is_bounded_in_pages_and_states_if_there_is_more(
    kind: str, scene: QueueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in scene.queue(*map(str, range(5))):
        if kind in ("history", "failures", "all failures"):
            scene.record(name, "FAILED")
    monkeypatch.setattr("tests.simulation.aws.dynamodb._LARGEST_PAGE", 1)  # bytes: a row each
    read = [READS[kind](scene.rows, pages) for pages in (2, 5, 9)]
    assert [(len(listed.rows), listed.is_cut) for listed in read] == [(2, True), (5, False), (5, False)]


ODD: list[tuple[Item, str]] = [
    ({"state": {"S": "DONE"}}, "state must be one of"),
    ({"priority": {"S": "urgent"}}, "priority"),
    ({"attempt": {"S": "1"}}, "attempt must be of DynamoDB type N"),
    ({"sent": {"NULL": True}}, "sent must be of DynamoDB type N"),
]
PLACES: list[Item] = [{"place": {"S": place}} for place in ("9#1#1", "nowhere", "1#x#1")]


@pytest.mark.parametrize(
    ("kind", "attributes", "problem"),
    [(kind, *odd) for kind in ("rows", "history", "failures", "all failures") for odd in ODD]
    + [("queue", each, "") for each in (*PLACES, {"weight": number(1.5)})],
)
def test_a_malformed_row_is_named_and_the_others_are_listed(
    kind: str, attributes: Item, problem: str, scene: QueueScene
) -> None:
    names = scene.queue("a", "b")
    for name in names if problem else ():
        scene.record(name, "FAILED")
    scene.aws.tables.put("requests", scene.row(names[0]) | attributes)
    listed = READS[kind](scene.rows, 9)
    assert [row.request_id for row in listed.rows] == ["b"]
    (malformed,) = listed.malformed
    assert malformed.startswith(f"request {names[0]}: {problem}")
    if problem:
        with pytest.raises(MalformedRequestRow, match=names[0]):
            scene.rows.row("p", names[0])


def test_a_malformed_state_does_not_hide_the_other_ends_to_publish(scene: QueueScene) -> None:
    names = scene.queue("a", "b")
    scene.requests.leave("p", [Leaving(name, "CANCELLED", "Cancelled", "why") for name in names], NOW)
    scene.aws.tables.put("requests", scene.row(names[0]) | {"state": {"S": "DONE"}})
    unpublished = scene.rows.unpublished("p")
    assert (unpublished.rows, names[0] in unpublished.malformed[0]) == ([(names[1], "CANCELLED")], True)
