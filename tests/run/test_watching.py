"""When the run is over, when it is stuck, and what is said meanwhile."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from dev.scenarios.runner import command
from dev.scenarios.runner.viewing import for_console
from dev.scenarios.runner.waiting import Stall, Stuck, wait_until_over
from dev.scenarios.slots import main as main_module
from dev.scenarios.slots import sending, view, work
from dev.scenarios.slots.watching import Snapshot

DONE = Snapshot(
    elapsed=9.0, requests=40, limit=3, slots_in_use=0, waiting=0, running=0, succeeded=32, failed=8, dead_lettered=0
)
BUSY = replace(DONE, slots_in_use=3, waiting=20, running=3, succeeded=15, failed=2, holders=("sample-1", "sample-2"))


def test_a_run_is_over_when_all_have_ended_and_every_slot_is_back() -> None:
    assert DONE.over
    assert replace(DONE, succeeded=30, dead_lettered=2).over


@pytest.mark.parametrize("change", [{"slots_in_use": 1}, {"waiting": 1}, {"running": 1}, {"succeeded": 31}])
def test_a_run_is_not_over_while_anything_is_left(change: dict[str, Any]) -> None:
    assert not replace(DONE, **change).over


def test_a_run_in_which_nothing_moves_is_stuck_and_says_what_stands_where() -> None:
    stall = Stall[Snapshot](after=60)
    stall.check(BUSY)
    stall.check(replace(BUSY, elapsed=68.9))
    with pytest.raises(Stuck) as caught:
        stall.check(replace(BUSY, elapsed=69.0))
    for said in ("60 s", "17 of 40 ended", "20 on RequestQueue", "3 of 3 slots in use", "sample-1, sample-2"):
        assert said in str(caught.value)


def test_any_movement_starts_the_wait_again() -> None:
    stall = Stall[Snapshot](after=60)
    stall.check(BUSY)
    stall.check(replace(BUSY, elapsed=60.0, waiting=19))
    stall.check(replace(BUSY, elapsed=119.0, waiting=19))


def test_waiting_ends_with_the_snapshot_in_which_all_was_over() -> None:
    snapshots = iter([BUSY, replace(DONE, slots_in_use=1), DONE])
    shown: list[Snapshot] = []
    last = wait_until_over(lambda _: next(snapshots), shown.append, interval=0)
    assert last == shown[-1] == DONE
    assert len(shown) == 3


def test_without_a_terminal_a_line_appears_only_when_something_has_changed() -> None:
    text = io.StringIO()
    shown = for_console(Console(file=text, width=40), view.panel, view.plain_line)
    with shown:
        for snapshot in (BUSY, replace(BUSY, elapsed=10.0), replace(BUSY, elapsed=11.0, waiting=19)):
            shown.show(snapshot)
    assert text.getvalue().splitlines() == [
        "   9.0 s  slots 3/3  waiting 20  running 3  done 15  failed 2",
        "  11.0 s  slots 3/3  waiting 19  running 3  done 15  failed 2",
    ]


@pytest.mark.parametrize(("limit", "boxes"), [(3, "■■□"), (500, "2 of 500")])
def test_the_panel_draws_the_slots_or_numbers_too_many_of_them(limit: int, boxes: str) -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(view.panel(replace(BUSY, limit=limit, slots_in_use=2)))
    text = console.export_text()
    assert boxes in text
    assert "waiting 20" in text
    assert "17 of 40" in text


class Queue:
    """A client that takes every batch, or refuses one entry of it."""

    def __init__(self, refuse: str | None = None) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self._refuse = refuse

    def send_message_batch(self, **call: Any) -> dict[str, Any]:
        entries = call["Entries"]
        self.batches.append(entries)
        bad = [e for e in entries if e["MessageDeduplicationId"] == self._refuse]
        good = [e for e in entries if e not in bad]
        return {
            "Successful": [{"Id": e["Id"], "SequenceNumber": f"{len(self.batches)}{e['Id']}"} for e in reversed(good)],
            "Failed": [{"Id": e["Id"], "Code": "InternalError", "SenderFault": False} for e in bad],
        }


def requests(count: int) -> list[work.Request]:
    return [work.Request(f"r{i}", "2012-01", {"--output_key": "o"}, damaged=False) for i in range(count)]


def test_requests_go_out_in_order_ten_a_call_in_one_group_with_their_ids() -> None:
    queue = Queue()
    sent = sending.send(queue, "url", requests(23))
    assert [len(batch) for batch in queue.batches] == [10, 10, 3]
    assert {entry["MessageGroupId"] for batch in queue.batches for entry in batch} == {work.PROCESS}
    assert [s.request.request_id for s in sent] == [f"r{i}" for i in range(23)]
    assert [s.sequence for s in sent][9:11] == [19, 20]


def test_a_refused_entry_stops_the_sending_and_is_named() -> None:
    queue = Queue(refuse="r12")
    with pytest.raises(sending.SendFailed, match=r"r12 \(InternalError"):
        sending.send(queue, "url", requests(30))
    assert len(queue.batches) == 2


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--requests", "0", "1<=x<=2000"),
        ("--requests", "2001", "1<=x<=2000"),
        ("--limit", "0", "1<=x<=500"),
        ("--limit", "501", "1<=x<=500"),
        ("--fail", "1.1", "0.0<=x<=1.0"),
        ("--fail", "nan", "0.0<=x<=1.0"),
        ("--fail", "-0.1", "0.0<=x<=1.0"),
        ("--limit", "three", "not a valid integer"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(
    option: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "EmbeddedAws", None)  # an option that slips through starts nothing here
    answer = CliRunner().invoke(main_module.main, [option, value])
    assert answer.exit_code == 2
    assert option in answer.output
    assert allowed in answer.output
