"""The handlers write each metric of the source, in the same unit, and docs/metrics.md lists all of them."""

from __future__ import annotations

import re

import pytest

from tests.simulation.account.account import AwsAccount
from tests.template.metrics import ROOT, Metric, in_output, in_source
from tests.unit import function_output
from tests.unit.chatbot_account import ChatbotAccount
from tests.unit.conftest import CONTEXT, Account, Load, request_record
from tests.unit.work_messages import invocation

BY_FILTER = Metric("GlueConcurrencyRefusals", "Count", ())


@pytest.fixture
def everything(load: Load, chat: ChatbotAccount, work_account: AwsAccount) -> dict[str, str]:
    return function_output.by_function(load)


def test_every_metric_of_the_source_is_written_in_its_unit_and_under_its_dimensions(everything: dict[str, str]) -> None:
    written = {metric for text in everything.values() for metric in in_output(text)}
    assert written == in_source()


@pytest.mark.parametrize("body", ['{"process": "made-up"}', "not JSON", '{"process": "p", "priority": 1}'])
def test_an_unknown_process_in_a_message_adds_no_metric(
    account: Account, load: Load, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    """Each metric costs money, and a sender could invent any number of processes."""
    load("starter").handler({"Records": [request_record(body, group="made-up")]}, CONTEXT)
    load("ending").handler({"Records": [account.next_ending()]}, invocation())
    written = in_output(capsys.readouterr().out)
    assert {"RequestsDeadLettered", "RequestsRejected"} & {metric.name for metric in written}
    assert not [metric for metric in written if "process" in metric.dimensions]


def test_the_page_of_metrics_lists_each_metric_with_its_unit_and_dimensions() -> None:
    """A row has the name, in parentheses the differences from a Count of the stack, the meaning and the alarm."""
    rows = re.findall(r"^\| `(\w+)`(?: \(([^)|]+)\))? \| [^|]+ \|(?: [^|]+)? \|$", _page(), re.MULTILINE)
    assert sorted(_documented(*row) for row in rows) == sorted(in_source() | {BY_FILTER})


def _documented(name: str, notes: str) -> Metric:
    unit, dimensions = "Count", ["service"]
    for note in filter(None, notes.split(", ")):
        if note == "no dimension":
            dimensions = []
        elif match := re.fullmatch(r"per `(\w+)`", note):
            dimensions.append(match[1])
        else:
            unit = note
    return Metric(name, unit, tuple(sorted(dimensions)))


def _page() -> str:
    return (ROOT / "docs" / "metrics.md").read_text()
