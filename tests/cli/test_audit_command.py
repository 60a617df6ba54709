"""`slotkeeper audit`: its permissions, and the number of its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.request import execution_name
from slotkeeper.slots.work import MARKER
from slotkeeper_cli.audit import history_reader
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.work_history import EXECUTIONS, REQUESTS
from tests.cli.audit_situations import ERROR, add_row, ran
from tests.cli.operator_account import NOW, Operator, StubbedCalls
from tests.cli.work_histories import clean

SINCE = ("--since", datetime.fromtimestamp(NOW, UTC).isoformat(), "--until")
UNTIL = (*SINCE, datetime.fromtimestamp(NOW + 3600, UTC).isoformat())


def _denied(_: dict[str, Any]) -> dict[str, Any]:
    return {"Error": ERROR}


DENIED = {
    "GetJobRuns": ("glue", "Glue runs", ["limit", "once", "freed"]),
    "ListExecutions": ("stepfunctions", "executions", ["limit", "accounted", "once", "freed", "free"]),
    "DescribeExecution": ("stepfunctions", "executions", ["limit", "accounted", "once", "freed", "free"]),
    "Query": ("dynamodb", "RequestTable", ["accounted", "order", "free"]),
    "FilterLogEvents": ("logs", "AuditLogGroup", ["limit", "free"]),
    "Scan": ("dynamodb", "SlotTable", ["limit", "once", "freed", "free"]),
}


@pytest.mark.parametrize(("call", "denied"), DENIED.items(), ids=DENIED)
def test_without_a_permission_no_check_that_needs_it_holds(
    operator: Operator, call: str, denied: tuple[str, str, list[str]]
) -> None:
    service, source, checks = denied
    ran(operator, "a", 10.25, 20.25, "ABORTED")
    ran(operator, "b", 30.25, 40.25)
    if call == "DescribeExecution":
        add_row(operator, "c", state="STARTED", sent=3000, started=3000)  # it is in no list of executions
    with StubbedCalls(service, {call: _denied}):
        ended = operator.run("audit", *UNTIL, "--json")
    assert ended.exit_code == 1, ended.stdout
    assert "some checks are not shown" in ended.stderr
    assert source in [each["source"] for each in ended.json["not_read"]]
    assert any("AccessDenied" in each["why"] for each in ended.json["not_read"])
    assert {each["id"]: each["result"] for each in ended.json["checks"] if each["id"] in checks} == dict.fromkeys(
        checks, "not shown"
    )


# ----------------------------------------------------------------------------------------------- many executions


class _Records:
    """Executions of ten seconds, one after another, the newest first, with their Glue runs. It counts the calls."""

    def __init__(self, number: int) -> None:
        self.calls = Counter[str]()
        self._number = number

    def executions(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls["ListExecutions"] += 1
        return self._page("executions", "nextToken", asked.get("nextToken"), asked["maxResults"], self._execution)

    def runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls["GetJobRuns"] += 1
        return self._page("JobRuns", "NextToken", asked.get("NextToken"), 200, self._run)

    def _page(
        self, key: str, token: str, given: str | None, size: int, make: Callable[[int], dict[str, Any]]
    ) -> dict[str, Any]:
        first = int(given or 0)
        last = min(self._number, first + size)
        answer: dict[str, Any] = {key: [make(number) for number in range(first, last)]}
        return answer | ({token: str(last)} if last < self._number else {})

    @staticmethod
    def _execution(number: int) -> dict[str, Any]:
        return {"executionArn": "arn", "stateMachineArn": "arn"} | _execution(_name(number), number)

    @staticmethod
    def _run(number: int) -> dict[str, Any]:
        start = _start(number)
        times = {"StartedOn": start + timedelta(seconds=1), "CompletedOn": start + timedelta(seconds=9)}
        return {"Id": str(number), "JobRunState": "SUCCEEDED", "Arguments": {MARKER: _name(number)}, **times}


def _name(number: int) -> str:
    return execution_name("sample", str(number), 1)


_NEWEST = datetime.now(UTC)


def _start(number: int) -> datetime:
    return _NEWEST - timedelta(seconds=20.5 + 10 * number)


def _execution(name: str, number: int) -> dict[str, Any]:
    start = _start(number)
    return {"name": name, "status": "SUCCEEDED", "startDate": start, "stopDate": start + timedelta(seconds=9.5)}


def _audit(operator: Operator, records: _Records, *options: str) -> dict[str, Any]:
    with (
        StubbedCalls("stepfunctions", {"ListExecutions": records.executions}),
        StubbedCalls("glue", {"GetJobRuns": records.runs}),
    ):
        ended = operator.run("audit", "--json", *options)
    assert ended.exit_code == 0, ended.stderr
    result: dict[str, Any] = ended.json
    return result


def test_ten_thousand_executions_need_60_calls_for_them(operator: Operator) -> None:
    records = _Records(10_000)
    answer = _audit(operator, records, "--since", "2d")
    assert records.calls == {"ListExecutions": 10, "GetJobRuns": 50}
    limit = answer["checks"][0]
    assert (limit["result"], limit["numbers"]["processes"]["sample"]["Glue run"]["weight"]) == ("holds", 1)
    assert answer["figures"]["sample"]["utilization"] == pytest.approx(0.9 * 100_000 / 172_800, abs=0.01)


def test_the_page_states_the_bound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
    assert f"at most {history_reader.MAX_CALLS:,} calls" in page


def test_only_the_pages_of_the_period_are_read(operator: Operator) -> None:
    records = _Records(10_000)
    answer = _audit(operator, records, "--since", "1h")
    assert records.calls["ListExecutions"] == 1
    # Those of the hour before the command, of which the time since `records` was made is missing.
    assert 100 < sum(answer["figures"]["sample"]["executions"].values()) <= 360


def test_above_the_bound_a_sample_is_read_and_named(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(history_reader.MAX_READ_PAGES, EXECUTIONS, 3)
    records = _Records(10_000)
    answer = _audit(operator, records, "--since", "2d")
    assert records.calls["ListExecutions"] == 3
    assert "of the executions only those since" in answer["checks"][0]["sample"]


def test_above_its_bound_a_sample_of_the_rows_is_read_and_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(history_reader.MAX_READ_PAGES, REQUESTS, 1)
    ran(operator, "a", 10.25, 20.25)
    asked = Counter[str]()

    def page(given: dict[str, Any]) -> dict[str, Any]:
        asked[given["TableName"]] += 1
        return {"Items": [], "LastEvaluatedKey": {"execution": {"S": "x"}}}

    with StubbedCalls("dynamodb", {"Query": page}):
        ended = operator.run("audit", *UNTIL, "--json")
    assert asked == {operator.outputs["RequestTableName"]: 1}
    assert ended.json["samples"] == {REQUESTS: "of sample the first 1 MB of rows were read"}
    assert {each["id"]: each["result"] for each in ended.json["checks"]}["free"] == "not shown"


def test_a_malformed_row_is_counted_and_named(operator: Operator) -> None:
    name = ran(operator, "a", 10.25, 20.25)
    key = {"process_name": {"S": "sample"}, "execution": {"S": name}}
    operator.dynamodb.put_item(TableName=operator.outputs["RequestTableName"], Item={**key, "state": {"S": "ODD"}})
    ended = operator.run("audit", *UNTIL, "--json")
    (unread,) = ended.json["not_read"]
    assert unread["source"] == REQUESTS
    assert unread["why"].startswith(f"1 row of process sample malformed: request {name}: state must be one of QUEUED,")


def test_the_figures_of_a_history() -> None:
    made = figures(clean())["sample"]
    assert made["executions"] == {"SUCCEEDED": 2, "FAILED": 1, "ABORTED": 1, "RUNNING": 1}
    assert made["wait"] == {"count": 5, "p50": 5.9, "p90": 18.2, "p99": 18.2, "max": 18.2}
    assert made["hand_off"]["count"] == 0, "only the writes of a run show when a slot was free"
    assert made["priorities"]["normal"]["executions"] == 5
