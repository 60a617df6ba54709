"""`make work`: the observation of a sent message, and the printed outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from dev.emulator import next_steps
from dev.emulator import worker_client as worker
from dev.emulator.aws import EngineError
from dev.emulator.worker_client import DeadLetter, End, LedgerRow, Observation

FIRST = "1970-01-01T00:16:40.500Z"
UNREAD = DeadLetter("the body", 1002.0, "InvalidMessage", "body is not JSON", None, None, None, None, None)
DEAD_LETTER = DeadLetter("the body", 1001.8, "Poison", "Poison: no such object", "a", 1, FIRST, FIRST, [{"attempt": 1}])
SUCCEEDED = LedgerRow("a", "SUCCEEDED", 1, FIRST, FIRST, result='{"manifest": "m", "parts": 1}')
WAITING = LedgerRow(
    "a", "WAITING", 1, FIRST, FIRST, last_error="Retryable: no", next_attempt_at="2030-01-01T00:00:00.000Z"
)
DEAD = LedgerRow("a", "DEAD_LETTERED", 1, FIRST, FIRST, last_error="Poison: no")
RUNNING = LedgerRow("a", "RUNNING", 1, FIRST, FIRST)
NEW = Observation(elapsed=1.0, visible=0, in_flight=0)


@pytest.mark.parametrize(
    ("seen", "end"),
    [
        ({"visible": 1}, None),
        ({"in_flight": 1}, None),
        ({"in_flight": 1, "elapsed": 31.0}, End.NOT_BEGUN),
        ({"in_flight": 1, "visible": 1, "elapsed": 31.0}, None),  # other messages may be first
        ({"in_flight": 1, "elapsed": 31.0, "row": RUNNING}, None),
        ({"row": WAITING, "late": True}, End.WAITING),
        ({"dead_letter": UNREAD, "unworked": True, "before": SUCCEEDED, "row": SUCCEEDED}, End.DEAD_LETTERED),
        ({"before": SUCCEEDED, "row": SUCCEEDED}, End.DROPPED),
        ({"before": WAITING, "row": WAITING, "late": True}, End.DROPPED),
        ({"before": SUCCEEDED, "row": SUCCEEDED, "in_flight": 1}, None),
        ({"before": DEAD, "row": replace(SUCCEEDED, attempts=2)}, End.SUCCEEDED),
    ],
)
def test_a_message_has_ended_by_the_ledger_or_a_dead_letter(seen: dict[str, Any], end: End | None) -> None:
    assert replace(NEW, **seen).end == end


@pytest.mark.parametrize(
    ("seen", "code", "texts"),
    [
        (
            {"row": DEAD, "dead_letter": DEAD_LETTER},
            1,
            ["1 attempt: Poison", "Poison: no such object", "as attempt 2: slotkeeper --local dlq redrive work --id a"],
        ),
        ({"row": DEAD}, 1, ["no longer in WorkDeadLetterQueue", "Poison: no"]),
        ({"row": WAITING, "late": True}, 0, ["begins at 2030-01-01T00:00:00.000Z", "last error: Retryable: no"]),
        ({"in_flight": 1, "elapsed": 31.0}, 2, ["its log states why"]),
    ],
)
def test_the_outcome_is_shown_with_its_cause(seen: dict[str, Any], code: int, texts: list[str]) -> None:
    answer = worker.describe(replace(NEW, **seen), "a", [])
    assert (answer.code, [text in line for text, line in zip(texts, answer.lines, strict=False)]) == (
        code,
        [True] * len(texts),
    )


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
