"""A received request becomes a row once: redelivered, sent again, sent again after an end without a start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slotkeeper.aws.dynamodb import number
from slotkeeper.slots import queued
from slotkeeper.slots.intake import (
    Acceptance,
    Accepted,
    ReceivedAgain,
    Rejected,
    SameAgain,
    accept,
    digest_of,
)
from slotkeeper.slots.request import Request, execution_name
from slotkeeper.slots.request_table import ENDED_WITHOUT_START, State
from tests.unit.conftest import NOW
from tests.unit.slots.queue_scene import QueueScene

LIMIT = 1
A = Request("p", {"--day": "1"}, "a")
CORRECTED = replace(A, arguments={"--day": "2"})
OF_ACME = replace(A, key="acme")
FIRST, SECOND = (execution_name("p", "a", attempt) for attempt in (1, 2))


def test_an_accepted_request_is_queued_at_its_place(scene: QueueScene) -> None:
    assert scene.accept(A, "m1", at=NOW - 2) == Accepted(FIRST)
    place = {"S": f"1#01799999998000#{'1'.zfill(40)}"}
    assert scene.row(FIRST) == {
        "process_name": {"S": "p"},
        "execution": {"S": FIRST},
        "state": {"S": "QUEUED"},
        "request_id": {"S": "a"},
        "attempt": {"N": "1"},
        "message_id": {"S": "m1"},
        "digest": {"S": digest_of(A)},
        "body": {"S": A.to_json()},
        "priority": {"S": "normal"},
        "sent": {"N": "1799999998"},
        "place": place,
        "placed": place,
        "open": {"N": "1800000000"},
    }


@pytest.mark.parametrize("state", ["QUEUED", "STARTED", "SUCCEEDED", "FAILED", "RETURNED", "REDRIVEN"])
def test_a_message_is_compared_with_the_row_of_a_request_that_was_or_may_be_started(
    state: State, scene: QueueScene
) -> None:
    scene.accept(A, "m1")
    scene.end(FIRST, state)
    known = scene.row(FIRST)

    answers = [scene.accept(A, "m1"), scene.accept(A, "m2")]

    assert answers == [ReceivedAgain(FIRST), SameAgain(FIRST)]
    assert scene.aws.tables.items("requests") == [known]


@pytest.mark.parametrize("other", [CORRECTED, OF_ACME], ids=["other arguments", "another key"])
def test_a_message_that_reuses_the_id_of_another_request_is_rejected_once(other: Request, scene: QueueScene) -> None:
    scene.accept(A, "m1")
    known = scene.row(FIRST)

    rejected = scene.accept(other, "m2")

    assert isinstance(rejected, Rejected)
    assert (rejected.execution, rejected.code, FIRST in rejected.reason) == (f"{FIRST}#m2", "RequestIdReused", True)
    row = scene.row(rejected.execution)
    assert (row["state"], row["open"], row["reason"]) == (
        {"S": "REJECTED"},
        number(-NOW),
        {"S": rejected.reason},
    )
    assert not row.keys() & {"place", "deadline", "body"}
    assert queued.key_of(row["placed"]["S"]) == other.key
    assert scene.accept(other, "m2") == ReceivedAgain(rejected.execution)
    assert scene.row(FIRST) == known


def test_a_request_that_is_too_large_is_a_row_without_a_body(scene: QueueScene) -> None:
    def send(message: str, at: float) -> Acceptance:
        return accept(scene.requests, OF_ACME, message, at, "1", at, too_large="why")

    assert send("m1", NOW) == Rejected(FIRST, "TooLarge", "why")
    row = scene.row(FIRST)
    assert row["placed"] == {"S": queued.place_of(1, NOW, "1", "acme")}
    assert (row["state"], row["code"], row["open"]) == ({"S": "REJECTED"}, {"S": "TooLarge"}, number(-NOW))
    assert row["ended"] == row["failed"] == number(NOW)
    assert not row.keys() & {"place", "deadline", "body", "expires"}
    assert send("m1", NOW) == ReceivedAgain(FIRST)
    assert send("m2", NOW) == Rejected(SECOND, "TooLarge", "why")


@pytest.mark.parametrize("state", ENDED_WITHOUT_START)
@pytest.mark.parametrize("again", [A, CORRECTED, OF_ACME], ids=["the same", "corrected", "with another key"])
def test_after_an_end_without_a_start_a_message_is_the_next_attempt(
    again: Request, state: State, scene: QueueScene
) -> None:
    scene.accept(A, "m1")
    scene.end(FIRST, state)

    assert scene.accept(A, "m1") == ReceivedAgain(FIRST)
    assert scene.accept(again, "m2") == Accepted(SECOND)
    assert scene.row(SECOND)["body"]["S"] == replace(again, attempt=2).to_json()
    assert scene.states == {"a": "QUEUED"}


def test_each_caller_has_a_row_of_its_own_with_its_token(scene: QueueScene) -> None:
    waited_for = [replace(A, task_token=token) for token in ("one", "two")]
    names = [each.execution_name for each in (A, *waited_for)]

    assert [scene.accept(each) for each in (A, *waited_for)] == [Accepted(name) for name in names]
    assert len(set(names)) == 3
    tokens = [scene.row(name).get("task_token") for name in names]
    assert tokens == [None, {"S": "one"}, {"S": "two"}]
    assert not any("one" in scene.row(name)["body"]["S"] for name in names)


@pytest.mark.parametrize(
    ("fields", "attributes"),
    [
        ({"weight": 3}, {"weight": {"N": "3"}}),
        ({"key": "acme"}, {key: {"S": queued.place_of(1, NOW - 0.75, "1", "acme")} for key in ("place", "placed")}),
        ({"start_before": "2027-01-15T08:00:01.5Z"}, {"start_before": {"N": "1800000001.5"}}),
        ({"when_busy": "skip"}, {"skips": {"BOOL": True}, "deadline": {"N": "1799999999.25"}}),
        (
            {"when_busy": "skip", "start_before": "2027-01-15T09:00:00Z"},
            {"start_before": {"N": "1800003600"}, "deadline": {"N": "1799999999.25"}},
        ),
    ],
)
def test_what_a_request_states_is_in_its_row(
    fields: dict[str, object], attributes: dict[str, object], scene: QueueScene
) -> None:
    scene.accept(replace(A, **fields), at=NOW - 0.75)  # type: ignore[arg-type]  # any field
    assert attributes.items() <= scene.row(FIRST).items()
    assert ("deadline" in scene.row(FIRST)) == ("start_before" in fields or "when_busy" in fields)


KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=3) | st.sampled_from(
    ["a", "a ", "a#", "a/", "a~", "ab", "0", "1", "/", "#", "~", " ", "e\u0301", "\uffff", "\U00010000", ""]
)
SENT = st.tuples(st.integers(0, 2), KEYS, st.sampled_from([NOW, NOW + 0.001, NOW + 10]), st.sampled_from("149"))


@given(sent=st.lists(SENT, max_size=12))
@example(sent=[(1, "", NOW, sequence) for sequence in ("4", "10", "3" + 38 * "0")])  # as text "4" is the last of them
def test_places_are_ordered_by_priority_key_time_and_sequence_number(sent: list[tuple[int, str, float, str]]) -> None:
    in_order = sorted(sent, key=lambda one: (one[0], not one[1], one[1].encode(), one[2], int(one[3])))
    places = [queued.place_of(rank, at, sequence, key) for rank, key, at, sequence in in_order]
    assert places == sorted(places) == sorted(places, key=str.encode)
    read = [(int(queued.rank_of(place)), queued.key_of(place), queued.sent_at(place)) for place in places]
    assert read == [one[:3] for one in in_order]


@given(rank=st.sampled_from("01"), keys=st.tuples(KEYS, KEYS), at=st.sampled_from([0, NOW, 9 * 10**9]))
def test_all_places_of_a_key_are_together(rank: str, keys: tuple[str, str], at: float) -> None:
    """Otherwise a read that begins behind a key would find its requests, or miss those of another one."""
    places = [queued.place_of(int(rank), at, "9" * 39, key) for key in keys]
    begins, ends = ([edge(rank, key) for key in keys] for edge in (queued.before_key, queued.behind_key))
    assert queued.before_rank(rank) < begins[0] < places[0] < ends[0] <= queued.behind_rank(rank)
    assert queued.behind_rank(rank) < queued.before_rank(f"{int(rank) + 1}")
    if keys[0] != keys[1]:
        assert ends[0] < begins[1] or ends[1] < begins[0]
