"""The requests of `make run`: the months of the data set, and their sending."""

from __future__ import annotations

from typing import Any

import pytest

from dev.emulator.sample_data import read_dataset, split_by_month
from dev.scenarios.runner import sending
from dev.scenarios.slots import slot_requests as work

TEXT = read_dataset()


def plan(requests: int, fail: float = 0.0) -> work.WorkList:
    return work.plan(TEXT, requests=requests, fail=fail, run_id="run")


def test_the_data_set_has_four_years_of_days_each_in_one_month() -> None:
    months = split_by_month(TEXT)
    assert len(months) == 48
    assert list(months) == sorted(months)
    assert sum(body.count(b"\n") - 1 for body in months.values()) == 4 * 365 + 1  # 2012 is a leap year
    assert months["2012-02"].count(b"2012/02/") == 29
    assert {body.splitlines()[0] for body in months.values()} == {TEXT.splitlines()[0].encode()}


def test_more_requests_than_months_start_again_each_with_its_own_id_and_output() -> None:
    todo = plan(100)
    assert [request.month for request in todo.requests[:2]] == ["2012-01", "2012-02"]
    assert todo.requests[48].month == "2012-01"
    assert len({request.request_id for request in todo.requests}) == 100
    assert len({request.output_key for request in todo.requests}) == 100
    assert len(todo.inputs) == 48


def test_every_request_reads_a_part_that_is_uploaded() -> None:
    todo = plan(60, fail=0.3)
    assert {request.arguments["--input_key"] for request in todo.requests} == set(todo.inputs)


def test_the_message_has_the_contract_s_fields() -> None:
    body = plan(1).requests[0].body()
    assert set(body) == {"process", "request_id", "arguments"}
    assert all(isinstance(value, str) and key.startswith("--") for key, value in body["arguments"].items())


@pytest.mark.parametrize(
    ("share", "count", "marked"),
    [(0.0, 40, 0), (0.2, 40, 8), (1.0, 40, 40), (0.5, 5, 2), (0.001, 40, 1), (0.1, 1, 1), (0.3, 10, 3)],
)
def test_the_share_of_damaged_requests_is_exact(share: float, count: int, marked: int) -> None:
    assert sum(work.evenly_marked(share, count)) == marked


def test_damaged_requests_are_spread_evenly_and_the_same_each_time() -> None:
    places = [i for i, damaged in enumerate(work.evenly_marked(0.2, 40)) if damaged]
    assert places == [4, 9, 14, 19, 24, 29, 34, 39]


def test_a_damaged_month_differs_in_one_temperature() -> None:
    whole = split_by_month(TEXT)["2012-05"]
    pairs = zip(whole.splitlines(), work.damage(whole).splitlines(), strict=True)
    changed = [(before, after) for before, after in pairs if before != after]
    assert changed == [(b"2012/05/16,0.0,19.4,9.4,3.5,sun", b"2012/05/16,0.0,n/a,9.4,3.5,sun")]


def test_a_month_can_be_read_damaged_and_whole_in_one_run() -> None:
    todo = plan(96, fail=0.01)  # one damaged request, whose month comes again undamaged
    damaged = next(request for request in todo.requests if request.damaged)
    keys = {request.arguments["--input_key"] for request in todo.requests if request.month == damaged.month}
    assert len(keys) == 2


class Queue:
    """A client that accepts every entry, except the one to refuse."""

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
            "Failed": [{"Id": e["Id"], "Code": "InternalError", "Message": "no"} for e in bad],
        }


def requests(count: int) -> list[work.Request]:
    return [work.Request(f"r{i}", "2012-01", {"--output_key": "o"}, damaged=False) for i in range(count)]


def test_requests_are_sent_in_order_ten_per_call_in_one_group() -> None:
    queue = Queue()
    sent = work.send(queue, "url", requests(23))
    assert [len(batch) for batch in queue.batches] == [10, 10, 3]
    assert {entry["MessageGroupId"] for batch in queue.batches for entry in batch} == {work.PROCESS}
    assert [s.request.request_id for s in sent] == [f"r{i}" for i in range(23)]
    assert [s.sequence for s in sent][9:11] == [19, 20]


def test_a_refused_entry_ends_the_sending_and_is_named() -> None:
    queue = Queue(refuse="r12")
    with pytest.raises(sending.SendFailed, match=r"1 of 10 requests: r12 \(InternalError: no\); 10 were sent"):
        work.send(queue, "url", requests(30))
    assert len(queue.batches) == 2
