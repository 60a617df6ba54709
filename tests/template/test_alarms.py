"""The alarms: each watches what somebody writes, wakes somebody, and says where it stands what to do."""

from __future__ import annotations

import re

import pytest

from tests.support.metrics import ROOT
from tests.template.test_template import RESOURCES, TEMPLATE
from tests.template.watched import ALARMS, Asked, asked_by_alarm, judge, unknown_references
from tests.workflow.definition import definition

RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^##? |\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL))


def _description(alarm: str) -> str:
    text: str = ALARMS[alarm]["AlarmDescription"]["Fn::Sub"]
    return text


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm_watches_a_metric_that_is_written(alarm: str) -> None:
    assert [judge(asked) for asked in asked_by_alarm(ALARMS[alarm])] == [""] * len(list(asked_by_alarm(ALARMS[alarm])))


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm_ends_with_the_link_to_its_runbook(alarm: str) -> None:
    assert _description(alarm).rstrip().endswith(f" Runbook: ${{RunbookUrl}}#{alarm.lower()}")
    assert not unknown_references(_description(alarm))


@pytest.mark.parametrize("alarm", ALARMS)
def test_a_description_has_room_for_the_longest_address(alarm: str) -> None:
    """CloudWatch API Reference, PutMetricAlarm: 1,024 characters."""
    longest = TEMPLATE["Parameters"]["RunbookUrl"]["MaxLength"]
    assert len(_description(alarm).replace("${RunbookUrl}", "x" * longest)) <= 1024


def test_by_default_the_link_leads_to_the_page_that_is_here() -> None:
    assert (ROOT / TEMPLATE["Parameters"]["RunbookUrl"]["Default"]).read_text() == RUNBOOKS


def test_every_alarm_has_a_runbook_and_every_runbook_an_alarm() -> None:
    assert sorted(re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)) == sorted(ALARMS)


@pytest.mark.parametrize("alarm", ALARMS)
def test_a_runbook_says_how_one_knows_that_it_is_over(alarm: str) -> None:
    assert re.search(r"\bOver:\s", SECTIONS[alarm])


def test_the_runbooks_links_lead_somewhere() -> None:
    headings = {heading.lower() for heading in re.findall(r"^##? (\w+)$", RUNBOOKS, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", RUNBOOKS)) <= headings


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm_wakes_somebody_and_silence_does_not(alarm: str) -> None:
    properties = ALARMS[alarm]
    assert properties["AlarmActions"]
    # The janitor's silence is what its alarm is about.
    assert properties["TreatMissingData"] == ("breaching" if alarm == "JanitorSilentAlarm" else "notBreaching")


def test_the_refusals_that_are_counted_are_those_that_the_workflow_tries_again() -> None:
    """By its log, which must have them: they are events of level ERROR (Step Functions guide, "cw-logs")."""
    counted = re.findall(r'\$\.details\.error = "([\w.]+)"', RESOURCES["GlueRefusals"]["Properties"]["FilterPattern"])
    assert counted == definition()["States"]["RunGlueJob"]["Retry"][0]["ErrorEquals"]
    assert RESOURCES["Workflow"]["Properties"]["Logging"]["Level"] in ("ERROR", "ALL")


def test_an_alarm_that_somebody_would_have_to_guess_at_is_noticed() -> None:
    """Negative control of the judge."""
    stack = (("service", "${AWS::StackName}"),)
    assert judge(Asked("Slotkeeper", "RequestsAdmitted", stack)) == ""
    assert judge(Asked("Slotkeeper", "RequestAdmitted", stack))
    assert judge(Asked("Slotkeeper", "SlotsInUse", stack))
    assert judge(Asked("AWS/SQS", "ApproximateNumberOfMessagesVisible", (("QueueName", "${SlotTable}"),)))
    assert judge(Asked("AWS/Lambda", "Errors", (("Function", "${StarterFunction}"),)))


def test_the_cost_of_the_alarms_is_what_the_page_says() -> None:
    """CloudWatch pricing: 0.10 dollars a month for each metric of an alarm."""
    always = [name for name in ALARMS if not name.startswith("TokenRefresher")]
    cents = [10 * sum(len(list(asked_by_alarm(ALARMS[name]))) for name in names) for names in (always, ALARMS)]
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert f"| {cents[0] / 100:.2f}; with `TokenRefreshSchedule` {cents[1] / 100:.2f} |" in page
