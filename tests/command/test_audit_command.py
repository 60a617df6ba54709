"""`slotkeeper audit`: its permissions, and the number of its calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.queued import place_of
from slotkeeper.slots.request import execution_name
from slotkeeper.slots.request_table import granted_as
from slotkeeper.slots.work import MARKER
from slotkeeper_cli.audit import history_reader
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.work_history import EXECUTIONS, GLUE_RUNS
from tests.command.audit_situations import ERROR, add_row, ran
from tests.command.operator_account import NOW, Operator, StubbedCalls
from tests.command.situations import set_clock
from tests.command.work_histories import clean

SINCE = ("--since", datetime.fromtimestamp(NOW, UTC).isoformat(), "--until")
UNTIL = (*SINCE, datetime.fromtimestamp(NOW + 3600, UTC).isoformat())


DENIED = {
    "GetJobRuns": ("glue", "Glue runs"),
    "ListExecutions": ("stepfunctions", "executions"),
    "DescribeExecution": ("stepfunctions", "executions"),
    "Query": ("dynamodb", "RequestTable"),
    "FilterLogEvents": ("logs", "AuditLogGroup"),
    "Scan": ("dynamodb", "SlotTable"),
}


@pytest.mark.parametrize(("call", "service", "source"), [(call, *of) for call, of in DENIED.items()], ids=DENIED)
def test_what_may_not_be_read_is_named(operator: Operator, call: str, service: str, source: str) -> None:
    operator.parameters["RequestRetentionDays"] = "365"
    ran(operator, "a", 10.25, 20.25)
    if call == "DescribeExecution":
        add_row(operator, "c", state="STARTED", sent=3000, started=3000)  # it is in no list of executions
    with StubbedCalls(service, {call: lambda _: {"Error": ERROR}}):
        ended = operator.run("audit", *UNTIL, "--json")
    assert ended.exit_code == 1, ended.stdout
    assert "some checks are not shown" in ended.stderr
    assert "AccessDenied" in {each["source"]: each["why"] for each in ended.json["not_read"]}[source]


# ------------------------------------------------------------------------------------------------ many executions

HOUR = 3600.0
PAGE_ROWS = 2200  # of 1 MB in the index of ended requests, measured with DynamoDB Local


@dataclass(frozen=True)
class _Ran:
    """An execution of a process that runs from a time to another, in hours before the command."""

    request_id: str
    since: float
    until: float | None
    process: str = "sample"

    @property
    def name(self) -> str:
        return execution_name(self.process, self.request_id, 1)

    def times(self, start: str, end: str, margin: float = 0.0) -> dict[str, datetime]:
        """Its times under these names, later and earlier by some seconds."""
        ends = {} if self.until is None else {end: _ago(self.until) - timedelta(seconds=margin)}
        return {start: _ago(self.since) + timedelta(seconds=margin), **ends}

    def row(self) -> dict[str, Any]:
        times = {"sent": _ago(self.since), **self.times("started", "ended", 0.1)}
        texts = {"process_name": self.process, "execution": self.name, "state": "SUCCEEDED", "priority": "normal"}
        sent = times["sent"].timestamp()
        texts |= {"request_id": self.request_id, "placed": place_of(1, sent, "0"), "granted": granted_as(int(sent), 0)}
        numbers = {"attempt": 1, **{name: at.timestamp() for name, at in times.items()}}
        return {k: {"S": v} for k, v in texts.items()} | {k: {"N": repr(v)} for k, v in numbers.items()}


def _ago(hours: float) -> datetime:
    return datetime.fromtimestamp(NOW + HOUR - 3600 * hours + 0.25, UTC)


class _Account:
    """The lists of an account whose executions these are. It counts the calls.

    Args:
        order: by what the lists of executions are in order, the newest first.
    """

    def __init__(self, ran: Sequence[_Ran], order: Callable[[_Ran], float], rows: Sequence[_Ran] | None = None) -> None:
        self.calls = Counter[str]()
        self._ran = sorted(ran, key=order)
        ended = (each.row() for each in (ran if rows is None else rows) if each.until is not None)
        self._rows = sorted(((float(row["ended"]["N"]), row) for row in ended), key=itemgetter(0))

    def executions(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls["ListExecutions"] += 1
        status = asked["statusFilter"]
        listed = [each for each in self._ran if status == ("RUNNING" if each.until is None else "SUCCEEDED")]
        same = {"executionArn": "arn", "stateMachineArn": "arn", "status": status}
        return _page(
            listed,
            asked["maxResults"],
            asked.get("nextToken"),
            "executions",
            "nextToken",
            lambda each: same | {"name": each.name} | each.times("startDate", "stopDate"),
        )

    def runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls["GetJobRuns"] += 1
        started = sorted(self._ran, key=lambda each: each.since)
        return _page(
            started,
            200,
            asked.get("NextToken"),
            "JobRuns",
            "NextToken",
            lambda each: {
                "Id": each.request_id,
                "JobRunState": "RUNNING" if each.until is None else "SUCCEEDED",
                "Arguments": {MARKER: each.name},
                **each.times("StartedOn", "CompletedOn", 1.0),
            },
        )

    def query(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        self.calls["Query"] += 1
        if asked.get("IndexName") != "ended":
            return {"Items": []}
        since, until = (float(asked["ExpressionAttributeValues"][name]["N"]) for name in (":since", ":until"))
        after = math.nextafter(float(asked.get("ExclusiveStartKey", {"ended": {"N": "0"}})["ended"]["N"]), math.inf)
        of = asked["ExpressionAttributeValues"][":process"]["S"]
        left = [row for at, row in self._rows if max(since, after) <= at <= until and row["process_name"]["S"] == of]
        items = left[:PAGE_ROWS]
        return {"Items": items} | ({"LastEvaluatedKey": items[-1]} if len(left) > PAGE_ROWS else {})

    def describe(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.calls["DescribeExecution"] += 1
        name = asked["executionArn"].rpartition(":")[2]
        found = next((each for each in self._ran if each.name == name), None)
        if found is None:
            return {"Error": {"Code": "ExecutionDoesNotExist", "Message": ""}}
        status = "RUNNING" if found.until is None else "SUCCEEDED"
        return {"executionArn": name, "stateMachineArn": "", "status": status, **found.times("startDate", "stopDate")}


def _page(
    records: Sequence[_Ran],
    size: int,
    given: str | None,
    key: str,
    token: str,
    shown: Callable[[_Ran], dict[str, Any]],
) -> dict[str, Any]:
    first = int(given or 0)
    more = {token: str(first + size)} if first + size < len(records) else {}
    return {key: [shown(each) for each in records[first : first + size]], **more}


Audit = Callable[..., dict[str, Any]]


@pytest.fixture
def audit(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Asks for the audit of an account an hour after NOW; `results` of the answer: of each check."""
    set_clock(monkeypatch, NOW + HOUR)

    def ask(account: _Account, *options: str) -> dict[str, Any]:
        lists = {"ListExecutions": account.executions, "DescribeExecution": account.describe}
        with (
            StubbedCalls("stepfunctions", lists),
            StubbedCalls("glue", {"GetJobRuns": account.runs}),
            StubbedCalls("dynamodb", {"Query": account.query}),
        ):
            result: dict[str, Any] = operator.run("audit", "sample", "--json", *options).json
        return result | {"results": {each["id"]: each["result"] for each in result["checks"]}}

    return ask


def _by_end(ran: _Ran) -> float:
    return -1.0 if ran.until is None else ran.until


def _by_start(ran: _Ran) -> float:
    return ran.since


def _one_after_another(number: int) -> list[_Ran]:
    """Executions of nine seconds, the newest first."""
    return [_Ran(f"r{n}", (20 + 10 * n) / 3600, (11 + 10 * n) / 3600) for n in range(number)]


def test_a_hundred_thousand_requests_need_655_calls_for_them(audit: Audit) -> None:
    """Their rows need 51: of the queue, of open requests, one page of ended ones, and 48 parts of the rest."""
    account = _Account(_one_after_another(100_000), _by_end)
    answer = audit(account, "--since", "12d")
    assert account.calls == {"ListExecutions": 104, "GetJobRuns": 500, "Query": 51}
    assert {each for name, each in answer["results"].items() if name != "freed"} == {"holds"}
    limit = answer["checks"][0]
    assert limit["numbers"]["processes"]["sample"]["Glue run"]["weight"] == 1
    assert answer["figures"]["sample"]["utilization"] == pytest.approx(0.86, abs=0.01)


def test_only_the_pages_of_the_period_are_read(audit: Audit) -> None:
    account = _Account(_one_after_another(10_000), _by_end)
    answer = audit(account, "--since", "1h")
    assert account.calls == {"ListExecutions": 5, "GetJobRuns": 2, "Query": 3}
    assert 350 < sum(answer["figures"]["sample"]["executions"].values()) <= 360


@pytest.mark.parametrize("order", [_by_end, _by_start])
@pytest.mark.parametrize("until", [None, 1.0], ids=["still runs", "ended an hour ago"])
def test_an_execution_of_40_hours_is_not_overlooked(
    audit: Audit, until: float | None, order: Callable[[_Ran], float]
) -> None:
    """A second one ran meanwhile in its slot. The lists have thousands of other processes before it."""
    others = [_Ran(f"o{n}", n / 60 + 0.01, n / 60, "other") for n in range(1, 2390)]
    long, second = _Ran("long", 40, until), _Ran("second", 5, 4)
    answer = audit(_Account([*others, second, long], order), "--since", "24h")
    assert answer["results"]["limit"] == "fails"
    assert long.name in answer["checks"][0]["examples"][0]


def test_a_list_that_is_not_in_the_order_of_ends_is_read_to_its_end(audit: Audit) -> None:
    """The last execution of the list ended an hour ago, and no row names it."""
    others = [_Ran(f"o{n}", n / 60 + 3 * (n % 2), n / 60, "other") for n in range(1, 2390)]
    long = _Ran("long", 50, 1)
    answer = audit(_Account([*others, long], _by_start, others), "--since", "24h")
    assert f"{long.name} (sample), which began at" in answer["checks"][1]["examples"][0]


@pytest.mark.parametrize(("source", "why"), [(EXECUTIONS, "of the SUCCEEDED ones"), (GLUE_RUNS, "those of sample-job")])
def test_a_list_that_is_not_read_to_its_end_shows_nothing(
    audit: Audit, source: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(history_reader.MAX_READ_PAGES, source, 3)
    answer = audit(_Account(_one_after_another(5_000), _by_end), "--since", "2d")
    assert (answer["results"]["limit"], answer["results"]["once"]) == ("not shown", "not shown")
    assert "fails" not in answer["results"].values()
    (unread,) = answer["not_read"]
    assert unread["source"] == source
    assert why in unread["why"]


def test_executions_that_the_lists_lack_and_rows_name_are_described_or_named_as_not_read(audit: Audit) -> None:
    """As if the lists were in another order than AWS documents."""
    ran = _one_after_another(300)
    missing = [_Ran(f"x{n}", 10 + n / 100, 9.999 + n / 100) for n in range(101)]
    within = audit(_Account(ran, _by_end, [*ran, *missing[:1]]), "--since", "24h")
    assert within["results"]["accounted"] == "fails"
    assert (
        "x0, attempt 1 (sample) is SUCCEEDED, and Step Functions has no execution" in within["checks"][1]["examples"][0]
    )
    beyond = audit(_Account(ran, _by_end, [*ran, *missing]), "--since", "24h")
    assert beyond["results"]["accounted"] == "not shown"
    assert "of 101 that rows or holders name, and the lists do not, 100 were read" in beyond["not_read"][0]["why"]


def test_of_rows_that_have_expired_nothing_is_shown(operator: Operator, audit: Audit) -> None:
    operator.parameters["RequestRetentionDays"] = "1"
    answer = audit(_Account(_one_after_another(10), _by_end), "--since", "25h")
    assert "rows are kept for 1 day after their end" in answer["not_read"][0]["why"]
    assert answer["results"]["limit"] == "not shown"


def test_the_page_states_the_bound() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
    assert f"at most {history_reader.MAX_CALLS:,} calls" in page


def test_the_figures_of_a_history() -> None:
    made = figures(clean())["sample"]
    assert made["executions"] == {"SUCCEEDED": 2, "FAILED": 1, "ABORTED": 1, "RUNNING": 1}
    assert made["wait"] == {"count": 5, "p50": 5.9, "p90": 18.2, "p99": 18.2, "max": 18.2}
    assert made["priorities"]["normal"]["executions"] == 5
