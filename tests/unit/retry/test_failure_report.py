"""The analysis of failures on rows made for the test, and its reading of a ledger."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from slotkeeper.retry.downstream.health import Breaker, Change, Health, State
from slotkeeper.retry.downstream.rules import MAX_CHANGES
from slotkeeper.retry.failures.analysis import MAX_EXAMPLES, FailureAnalysis
from slotkeeper.retry.failures.reading import Bounds, counted_calls, read_report
from slotkeeper.retry.failures.report import (
    BUCKETS,
    MAX_CAUSES,
    OTHER,
    DeadLetterNote,
    FailureReport,
    Period,
    breaker_history,
    next_steps,
)
from slotkeeper.retry.ledger import DEAD_LETTERED, RUNNING, SUCCEEDED, WAITING, Ledger, Row
from slotkeeper.retry.message import instant
from tests.unit.ledger_rows import ME, PLAN, claimed
from tests.unit.worker_harness import NOW, TABLE, WorkerHarness

PERIOD = Period(NOW - 2400, NOW)
Failed = tuple[float, str, str]  # seconds before NOW, type, error


def row(*failures: Failed, status: str = WAITING, downstream: str = "crm") -> Row:
    history = tuple(
        {"attempt": number, "at": instant(NOW - ago), "error": error} | ({"type": kind} if kind else {})
        for number, (ago, kind, error) in enumerate(failures, 1)
    )
    return Row(status, len(history), "claim", 0.0, NOW, "hash", history=history, downstream=downstream)


def report(*rows: Row, dead_letters: tuple[DeadLetterNote, ...] = ()) -> FailureReport:
    analysis = FailureAnalysis(PERIOD, dead_letters)
    for number, each in enumerate(rows):
        analysis.add_row(f"r{number}", each)
    return analysis.report()


def note(request_id: str, code: str, ago: float = 60, attempted: bool = True) -> DeadLetterNote:
    return DeadLetterNote(request_id, code, f"{code}: id {request_id}1", NOW - ago, attempted)


def test_a_request_counts_for_each_cause_by_which_it_failed_and_is_lost_by_the_last() -> None:
    found = report(
        row((300, "A", "a 1"), (200, "A", "a 2"), (100, "B", "b"), status=DEAD_LETTERED),
        row((300, "A", "a 3"), status=SUCCEEDED),
        row((50, "B", "b"), status=RUNNING),
    )
    numbers = {
        each.error_type: (each.failures, each.attempts, each.requests, each.lost, each.recovered, each.waiting)
        for each in found.causes
    }
    assert numbers == {"A": (3, 3, 2, 0, 1, 0), "B": (2, 2, 2, 1, 0, 1)}
    first = found.causes[0]
    assert (first.first, first.last, first.fingerprint) == (NOW - 300, NOW - 200, "a <n>")


def test_only_failures_in_the_period_count_and_those_in_the_one_before_are_compared() -> None:
    found = report(
        row((0, "Now", "e")),  # at the end, which is not part of the period
        row((2400, "First", "e")),
        row((2401, "Before", "e"), (10, "First", "e")),
        row((4800, "Before", "e")),
        row((4801, "Old", "e")),
    )
    assert [(each.error_type, each.failures, each.before) for each in found.causes] == [("First", 2, 0)]
    assert [(each.error_type, each.before) for each in found.gone] == [("Before", 2)]
    assert (found.causes[0].is_new, found.before) == (True, 2)


@pytest.mark.parametrize(
    ("failures", "causes"),
    [
        pytest.param((), [], id="none"),
        pytest.param(((3000, "A", "e"),), [], id="lost before the period"),
        pytest.param(((1, "A", "e"), (-1, "B", "e")), [("A", 0)], id="lost by a failure after the period"),
        pytest.param(((1, "", "HTTP 503"),), [("unknown", 1)], id="lost by a failure of an unknown type"),
    ],
)
def test_a_loss_counts_for_a_last_failure_in_the_period(
    failures: tuple[Failed, ...], causes: list[tuple[str, int]]
) -> None:
    found = report(*[row(*failures, status=DEAD_LETTERED)] * bool(failures))
    assert [(each.error_type, each.lost) for each in found.causes] == causes
    assert sum(each.lost for each in found.downstreams.values()) == sum(lost for _, lost in causes)
    assert sum(found.buckets) == len(causes)


def test_failures_are_counted_over_time_and_by_downstream() -> None:
    found = report(
        row((2400, "A", "e"), (2399, "A", "e"), (1, "A", "e")),
        row((1200, "A", "e"), downstream="", status=DEAD_LETTERED),
    )
    assert (found.buckets[0], found.buckets[BUCKETS // 2], found.buckets[-1], sum(found.buckets)) == (2, 1, 1, 4)
    numbers = {name: (each.failures, each.requests, each.lost) for name, each in found.downstreams.items()}
    assert numbers == {"crm": (3, 1, 0), "unknown": (1, 1, 1)}


def test_a_time_that_cannot_be_parsed_makes_the_row_malformed() -> None:
    bad = Row(WAITING, 1, "c", 0.0, NOW, "h", history=({"attempt": 1, "at": "yesterday", "error": "e"},))
    found = report(*[bad] * (MAX_EXAMPLES + 2), row((1, "A", "e")))
    assert (found.failures, found.reading.malformed) == (1, MAX_EXAMPLES + 2)
    assert len(found.reading.malformed_names) == MAX_EXAMPLES
    assert "'r0'" in found.reading.malformed_names[0]


def test_failed_attempts_that_the_history_has_dropped_are_counted() -> None:
    long = row((9, "A", "e"), (8, "A", "e"))
    history = (long.history[0], {**long.history[1], "attempt": 7})
    assert report(Row(WAITING, 7, "c", 0.0, NOW, "h", history=history)).reading.unlisted == 5


def test_further_causes_are_counted_together() -> None:
    found = report(*(row((1, f"Type{'x' * number}", "e")) for number in range(MAX_CAUSES + 3)))
    assert len(found.causes) == MAX_CAUSES + 1
    assert found.failures == MAX_CAUSES + 3
    assert next(each.failures for each in found.causes if each.error_type == OTHER[0]) == 3


@pytest.mark.parametrize("when", [1, -90])
def test_many_small_causes_do_not_hide_a_large_one(when: int) -> None:
    """`when`: before the period, or in it. Rows are read in any order: the small ones first is the worst."""
    small = [row((when, f"Type{'x' * number}", "e")) for number in range(3 * MAX_CAUSES)]
    large = [row((2, "Unavailable", "the API failed with 503"))] * 20
    found = report(*small, *large)
    assert (found.causes[0].error_type, found.causes[0].failures, found.causes[0].requests) == ("Unavailable", 20, 20)
    assert found.failures == 20 + len(small) * (when > 0)


def test_a_message_without_an_attempt_is_a_failure_by_its_code() -> None:
    found = report(dead_letters=(note("a", "TooLarge", attempted=False), note("b", "TooLarge", 2500, attempted=False)))
    (cause,) = found.causes
    assert (cause.error_type, cause.failures, cause.attempts, cause.lost, cause.before) == ("TooLarge", 1, 0, 1, 1)


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("Poison", "Correct the sender"),
        ("RequestIdReused", "Correct the sender"),
        ("SlowDown", "Raise the downstream's limit"),
        ("CredentialsRefused", "Renew the worker's credentials"),
        ("Died", "Raise the worker's memory or timeout"),
        ("Cancelled", "None: an operator"),
        ("SomethingElse", "Read the worker's log of the example: slotkeeper request show r0 --stack s"),
    ],
)
def test_the_next_step_follows_from_the_cause(kind: str, begins: str) -> None:
    found = report(row((1, kind, "e")))
    assert next_steps(found.causes[0], found, "s")[0].startswith(begins)


def test_lost_messages_are_selected_by_code_only_if_the_code_has_no_others() -> None:
    lost = row((1, "A", "e"), status=DEAD_LETTERED)
    alone = report(lost, dead_letters=(note("r0", "TooOld"),))
    among = report(lost, dead_letters=(note("r0", "TooOld"), note("old", "TooOld")))
    assert next_steps(alone.causes[0], alone, "s")[1].endswith("dlq redrive work --stack s --code TooOld")
    assert next_steps(among.causes[0], among, "s")[1].endswith("dlq redrive work --stack s --id r0")


# the breaker ---------------------------------------------------------------------------------------------------------


def changes(*each: tuple[float, State]) -> tuple[Change, ...]:
    return tuple(Change(NOW - ago, to, "why") for ago, to in each)


@pytest.mark.parametrize(
    ("made", "openings", "closings", "seconds"),
    [
        ((), 0, 0, 0),
        (((500, State.OPEN), (400, State.CLOSED)), 1, 1, 100),
        (((3000, State.OPEN), (2000, State.CLOSED)), 0, 1, 400),  # open when the period began
        (((300, State.OPEN),), 1, 0, 300),  # open when it ends
        (((300, State.OPEN), (200, State.OPEN), (100, State.CLOSED)), 1, 1, 200),  # opened again by an operator
        (((100, State.CLOSED),), 0, 0, 0),
        (((-10, State.OPEN),), 0, 0, 0),  # by a clock ahead of this one
    ],
)
def test_the_breakers_open_time_is_within_the_period(
    made: tuple[tuple[float, State], ...], openings: int, closings: int, seconds: float
) -> None:
    found = breaker_history("crm", Health(Breaker(changes=changes(*made))), PERIOD.start, PERIOD.end)
    assert (found.openings, found.closings, found.open_seconds) == (openings, closings, seconds)
    assert not found.incomplete


def test_a_full_list_of_changes_that_all_happened_in_the_period_is_incomplete() -> None:
    full = changes(*((1000 - number, State.OPEN) for number in range(MAX_CHANGES)))
    assert breaker_history("crm", Health(Breaker(changes=full)), PERIOD.start, PERIOD.end).incomplete


# reading -------------------------------------------------------------------------------------------------------------


def downstreams(health: dict[str, Any] | None = None) -> Any:
    return SimpleNamespace(read_all=lambda: health or {})


def scanned(workplace: WorkerHarness) -> Ledger:
    """A ledger whose scans return a page for each row."""
    items = workplace.dynamodb.scan(TableName=TABLE)["Items"]
    pages: list[dict[str, Any]] = [{"Items": [item], "ScannedCount": 1, "LastEvaluatedKey": item} for item in items]
    del pages[-1]["LastEvaluatedKey"]
    dynamodb: Any = SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=lambda **_: iter(pages)))
    return Ledger(dynamodb, TABLE)


def fail(workplace: WorkerHarness, *names: str) -> None:
    for name in names:
        message = SimpleNamespace(request_id=name, attempt=1, retries=(), payload_hash="hash")
        made: Any = message
        workplace.ledger.record(made, claimed(workplace, made, ME, NOW - 60), PLAN, "e", "A")


def test_reading_ends_after_the_permitted_pages_and_states_what_is_missing(workplace: WorkerHarness) -> None:
    fail(workplace, "a", "b", "c")
    ledger = scanned(workplace)
    whole = read_report(ledger, downstreams(), PERIOD)
    some = read_report(ledger, downstreams(), PERIOD, bounds=Bounds(pages=2))
    late = read_report(ledger, downstreams(), PERIOD, bounds=Bounds(seconds_left=lambda: 0.0))
    assert (whole.failures, whole.reading.rows, whole.reading.left_out) == (3, 3, [])
    assert (some.failures, some.reading.rows) == (2, 2)
    assert some.reading.left_out == ["the rows of RequestLedgerTable after the first 2 pages of a scan"]
    assert (late.failures, len(late.reading.left_out)) == (1, 1)


def test_rows_without_a_failure_are_read_and_not_returned(workplace: WorkerHarness) -> None:
    fail(workplace, "a")
    message: Any = SimpleNamespace(request_id="b", attempt=1, retries=(), payload_hash="hash")
    claimed(workplace, message)
    found = read_report(workplace.ledger, downstreams(), PERIOD)
    assert (found.failures, found.reading.rows, found.reading.malformed) == (1, 2, 0)


def test_calls_are_counted_while_the_report_is_read(workplace: WorkerHarness) -> None:
    with counted_calls(workplace.dynamodb) as calls:
        read_report(workplace.ledger, downstreams(), PERIOD)
        assert calls() == 1
    workplace.ledger.read("r")
    assert calls() == 1


class _HugeLedger:
    """A ledger that creates its rows while they are read."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def failed_rows(self, on_page: Callable[[int], None], _may_continue: Any) -> Iterator[tuple[str, Row]]:
        for number in range(self._rows):
            yield f"request-{number}", row((1 + number % 2000, "A", f"HTTP 503 after {number} s"))
            if number % 1000 == 999:
                on_page(1000)


def _peak(rows: int) -> int:
    huge: Any = _HugeLedger(rows)
    tracemalloc.start()
    try:
        found = read_report(huge, downstreams(), PERIOD)
        assert (found.failures, found.reading.rows) == (rows, rows)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_ledger() -> None:
    _peak(1000)
    assert _peak(3000) < _peak(1000) + 100_000
