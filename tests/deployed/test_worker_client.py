"""`make work`: the outcome of a sent message by the ledger or a dead letter, as it is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from dev.emulator import next_steps
from dev.emulator import worker_client as worker
from dev.emulator.aws import EngineError
from dev.emulator.worker_client import DeadLetter, LedgerRow

NOW, FIRST = 1000.0, "1970-01-01T00:16:40.500Z"
REFUSED = DeadLetter("the body", 1002.0, "InvalidMessage", "body is not JSON", None, None, None, None, None)
SUCCEEDED = LedgerRow("a", "SUCCEEDED", 1, FIRST, FIRST, result='{"manifest": "m", "parts": 1}')
POISON = DeadLetter("the body", 1001.8, "Poison", "no such object", "a", 1, FIRST, FIRST, [{"attempt": 1}])
DEAD = LedgerRow("a", "DEAD_LETTERED", 1, FIRST, FIRST, last_error="no such object")
WAITING = LedgerRow("a", "WAITING", 1, FIRST, FIRST, last_error="Retryable: no")
SOON, LATE = "1970-01-01T00:17:30.000Z", "2030-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("row", "dead", "code", "texts"),
    [
        (SUCCEEDED, None, 0, ["a has succeeded after 1 attempt", "its result"]),
        (DEAD, POISON, 1, ["1 attempt: Poison", "no such object", "2: slotkeeper --local dlq redrive work --id a"]),
        (DEAD, None, 1, ["its message has left WorkDeadLetterQueue", "no such object", "--id a"]),
        (replace(WAITING, next_attempt_at=LATE), None, 0, [f"begins at {LATE}", "last error: Retryable: no", "show a"]),
    ],
)
def test_the_outcome_is_shown_with_its_cause(
    row: LedgerRow, dead: DeadLetter | None, code: int, texts: list[str]
) -> None:
    outcome = worker.outcome_of(row, NOW, dead, ["its result"])
    assert outcome is not None
    assert outcome.code == code
    assert [line.endswith(text) for text, line in zip(texts, outcome.lines, strict=True)] == [True] * len(texts)


@pytest.mark.parametrize("row", [replace(WAITING, next_attempt_at=SOON), replace(DEAD, status="RUNNING")])
def test_an_attempt_that_runs_or_is_due_soon_is_waited_for(row: LedgerRow) -> None:
    assert worker.outcome_of(row, NOW) is None


def test_a_message_that_left_the_queue_without_an_attempt_was_refused_or_dropped_or_met_no_worker() -> None:
    refused = worker.without_attempt("a", REFUSED, None)
    assert (refused.code, refused.lines[0]) == (1, "a is dead-lettered without an attempt: InvalidMessage")
    dropped = worker.without_attempt("a", None, worker.outcome_of(SUCCEEDED, NOW))
    assert (dropped.code, dropped.lines[0].startswith("dropped: ")) == (0, True)
    assert worker.without_attempt("a", None, None).code == 2


def test_own_work_has_no_sample_and_its_result_is_shown_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (worker, next_steps):
        monkeypatch.setattr(module, "own_module", lambda *_: None)
    assert worker.result_lines(Mock(), replace(SUCCEEDED, result="[1]")) == ["its result: [1]"]
    with pytest.raises(EngineError, match=r"BODY is empty: .* as in make work BODY=.*request_id.*Nothing was sent"):
        next_steps.sample_body()


@pytest.mark.parametrize(
    ("body", "name"),
    [('{"request_id": "a"}', "a"), (json.dumps({"request_id": "x" * 129}), None), ("[]", None), ("[" * 100_000, None)],
)
def test_only_an_id_that_the_ledger_can_know_is_looked_up(body: str, name: str | None) -> None:
    assert worker.request_id_of(body) == name
