"""Metrics and logs of the janitor: queues, blocked requests, and slots in use."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from slotkeeper import observability
from slotkeeper.slots import run_report
from tests.unit.conftest import CONTEXT, Account, Load
from tests.unit.function_lines import Lines, written


def _lines(load: Load, capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines that a run of the janitor has written."""
    janitor = load("janitor")
    with patch.object(run_report, "logger", observability.logger):  # the one that `load` has made
        janitor.handler({}, CONTEXT)
    return written(capsys)


@pytest.mark.parametrize(("limit", "weight", "count"), [(3, 3, 0), (3, 4, 1), (0, 1, 0)])
def test_the_janitor_counts_and_names_the_requests_above_their_limit(
    limit: int, weight: int, count: int, account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zero is written too. With a limit of 0 an operator has stopped the process."""
    account.write("slot_limit", {"N": str(limit)})
    account.write("paused", {"BOOL": True})
    account.queue("x", weight=weight)
    lines = _lines(load, capsys)
    (metric,) = (line for line in lines if "BlockedRequests" in line)
    assert (metric["BlockedRequests"], metric.get("process")) == ([float(count)], None)
    named = [line for line in lines if "above the limit" in str(line.get("message"))]
    assert [(line["process_name"], line["request_id"], line["weight"], line["slot_limit"]) for line in named] == [
        ("p", "x", 4, 3)
    ] * count


def test_the_janitor_measures_each_process_in_the_unit_of_its_limit(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    account.write("slot_limit", {"N": "10"})
    account.hold("p-heavy", "RUNNING", weight=7)
    account.processes.create("idle", 1, "job")
    for request_id in ("a", "b"):
        account.queue(request_id, weight=9)
    lines = _lines(load, capsys)
    measured = {
        (line["process"], name): line[name]
        for line in lines
        for name in ("SlotsInUse", "SlotLimit", "QueuedRequests", "OldestQueuedSeconds")
        if name in line
    }
    assert measured.pop(("p", "OldestQueuedSeconds"))
    assert measured == {
        ("p", "SlotsInUse"): [7.0],
        ("p", "SlotLimit"): [10.0],
        ("p", "QueuedRequests"): [2.0],
        ("idle", "SlotsInUse"): [0.0],
        ("idle", "SlotLimit"): [1.0],
    }
