"""Alarms: each watches a metric that is written, notifies the topic, and states symptom, first step and runbook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest
import typer.main

from slotkeeper.retry.deferral import MAX_SPREAD_SECONDS
from slotkeeper.retry.downstream.health import BreakerSettings
from slotkeeper.slots.closed_executions import MAX_WAIT_SECONDS
from slotkeeper.slots.doorbell import MAX_DELAY_SECONDS
from slotkeeper_cli.app import app
from tests.template.aws_metrics import MISSING_IS_IGNORED, ONLY_ABOVE_ZERO
from tests.template.metric_math import Point, values
from tests.template.metrics import ROOT
from tests.template.test_template import RESOURCES, TEMPLATE
from tests.template.watched import ALARMS, OF_THE_STACK, STACK, Asked, asked_by_alarm, judge
from tests.workflow.definition import definition

RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
SECTIONS = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", RUNBOOKS, re.MULTILINE)}
FORM = re.compile(r"(?P<symptom>[A-Z].*)\. First step: (?P<step>.*)\. Runbook: docs/runbooks\.md#(?P<anchor>[\w-]+)")


def form_faults(description: str) -> Iterator[str]:
    """Each deviation from the form: the symptom first, then the first step, then the link to an existing runbook."""
    parts = FORM.fullmatch(description.strip())
    if not parts:
        yield "has not the form <symptom>. First step: <step>. Runbook: docs/runbooks.md#<alarm>"
        return
    if re.match(r"(If|When|Once|As soon as|(This|The|An) alarm)\b", parts["symptom"]):
        yield "does not start with the symptom"
    if parts["anchor"] not in SECTIONS:
        yield f"links to #{parts['anchor']}, which docs/runbooks.md does not have"
    for arguments in re.findall(r"`slotkeeper ([^`]*)`", description):
        yield from _command_faults(re.sub(r"<\w+>", "name", arguments).split())


@cache
def _operator_command() -> Any:
    return typer.main.get_command(app)


def _command_faults(arguments: list[str]) -> Iterator[str]:
    command = _operator_command()
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if hasattr(command, "commands"):
        yield f"slotkeeper has no command {' '.join(arguments)!r}"
        return
    try:
        command.make_context("slotkeeper", list(arguments))
    except click.ClickException as error:
        yield f"slotkeeper refuses its command: {error.format_message()}"


def test_an_alarm_watches_metrics_that_are_written() -> None:
    faults = {(name, judge(asked)) for name, alarm in ALARMS.items() for asked in asked_by_alarm(alarm)}
    assert {(name, fault) for name, fault in faults if fault} == set()


@pytest.mark.parametrize("alarm", ALARMS)
def test_a_description_starts_with_the_symptom_and_ends_with_the_first_step_and_the_runbook(alarm: str) -> None:
    """With the longest address of the runbooks it has at most 1,024 characters (CloudWatch API Reference,
    PutMetricAlarm)."""
    description, address = ALARMS[alarm]["AlarmDescription"], TEMPLATE["Parameters"]["RunbookUrl"]
    assert list(form_faults(description)) == []
    assert len(description) - len(address["Default"]) + address["MaxLength"] <= 1024


def test_every_alarm_has_a_runbook_and_every_runbook_an_alarm() -> None:
    assert {alarm["AlarmDescription"].rpartition("#")[2] for alarm in ALARMS.values()} == SECTIONS


def test_an_alarm_has_an_action_and_missing_data_does_not_raise_it() -> None:
    """Except the janitor's, which is for missing data."""
    assert [name for name, alarm in ALARMS.items() if not alarm["AlarmActions"]] == []
    assert {name for name, alarm in ALARMS.items() if alarm["TreatMissingData"] != "notBreaching"} == {
        "JanitorSilentAlarm"
    }
    assert ALARMS["JanitorSilentAlarm"]["TreatMissingData"] == "breaching"


# ------------------------------------------------------------------------------------------------------ missing data


def _metrics(alarm: str) -> dict[str, Any]:
    """The metrics of an alarm's expressions, by their ids."""
    return {each["Id"]: each["MetricStat"]["Metric"] for each in ALARMS[alarm]["Metrics"] if "MetricStat" in each}


def _result(alarm: str, *periods: dict[str, Point]) -> Point:
    """The value that the alarm watches in the last of these periods."""
    series = {name: [period[name] for period in periods] for name in _metrics(alarm)}
    for each in reversed(ALARMS[alarm]["Metrics"]):  # an expression precedes those that it uses
        if "Expression" in each:
            series[each["Id"]] = values(each["Expression"], series)
            watched = each
    assert watched.get("ReturnData", True)
    return series[watched["Id"]][-1]


COMPUTED = [alarm for alarm in ALARMS if "Metrics" in ALARMS[alarm]]


@pytest.mark.parametrize("alarm", COMPUTED)
def test_an_expression_has_a_value_when_aws_writes_no_zero(alarm: str) -> None:
    """Otherwise the alarm has no data in the case that it is for, or never returns to OK."""
    own = {metric["MetricName"] for metric in _metrics(alarm).values() if metric["Namespace"] == "Slotkeeper"}
    rare = own | ONLY_ABOVE_ZERO
    points = {name: None if metric["MetricName"] in rare else 1.0 for name, metric in _metrics(alarm).items()}
    assert None in points.values()
    assert _result(alarm, points, points) is not None


@pytest.mark.parametrize(
    ("visible", "received", "counted"), [(3, None, 3), (3, 0, 3), (3, 2, 0), (0, None, 0), (None, None, None)]
)
def test_messages_that_no_function_receives_are_counted(visible: Point, received: Point, counted: Point) -> None:
    """A disabled event source receives nothing, and SQS then writes no data point."""
    alarm = ALARMS["WorkerIdleAlarm"]
    assert _result("WorkerIdleAlarm", {"visible": visible, "received": received}) == counted
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)


def test_an_alarm_that_would_keep_its_state_without_data_uses_an_expression() -> None:
    assert [name for name, alarm in ALARMS.items() if alarm.get("Namespace") == MISSING_IS_IGNORED] == []


@pytest.mark.parametrize("alarm", ["SlotTableThrottleAlarm", "RequestTableThrottleAlarm"])
def test_a_throttle_alarm_returns_to_ok_when_no_write_is_refused(alarm: str) -> None:
    assert _result(alarm, {"throttled": None}) == 0
    assert _result(alarm, {"throttled": 7}) == 7


@pytest.mark.parametrize(
    ("before", "now", "sent", "added"),
    [
        pytest.param(3, 3, None, 0, id="an old message lies there"),
        pytest.param(3, 4, None, 1, id="SQS moves a message"),
        pytest.param(None, 1, None, 1, id="SQS moves the first message, which wakes the queue"),
        pytest.param(3, 1, 1, 1, id="the starter sends one while an operator discards others"),
        pytest.param(3, None, None, 0, id="an operator discards all"),
    ],
)
def test_the_dead_letter_alarm_rings_for_an_increase(before: Point, now: Point, sent: Point, added: Point) -> None:
    periods = {"visible": before, "sent": None}, {"visible": now, "sent": sent}
    assert _result("DeadLetterAlarm", *periods) == added
    alarm = ALARMS["DeadLetterAlarm"]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)


@pytest.mark.parametrize(
    ("queue", "delay"), [("RequestQueue", 0), ("DispatchQueue", MAX_DELAY_SECONDS), ("EndingQueue", MAX_WAIT_SECONDS)]
)
def test_an_old_message_rings_before_the_queue_drops_it_and_not_for_a_delay(queue: str, delay: int) -> None:
    """Or for one failed delivery: SQS delivers that message again after the visibility timeout."""
    properties = RESOURCES[queue]["Properties"]
    (alarm,) = (
        alarm
        for alarm in ALARMS.values()
        if alarm.get("MetricName") == "ApproximateAgeOfOldestMessage"
        and alarm["Dimensions"] == [{"Name": "QueueName", "Value": STACK.physical(queue)}]
    )
    assert delay + 2 * properties["VisibilityTimeout"] < alarm["Threshold"]
    assert alarm["Threshold"] <= properties["MessageRetentionPeriod"] / 2


LONGEST_SCHEDULE = 30  # minutes: docs/parameters.md allows schedules that run at least twice an hour


def _bad_periods(alarm: dict[str, Any], run_every: int, first: int) -> int:
    """The most periods with a data point in any evaluation range, if every run fails. Times in seconds."""
    period, periods = alarm["Period"], alarm.get("EvaluationPeriods", 1)
    bad = {run // period for run in range(first, 4 * periods * period, run_every)}
    return max(sum(start <= each < start + periods for each in bad) for start in range(2 * periods))


@pytest.mark.parametrize(
    "name", ["JanitorErrorAlarm", "JanitorCrashAlarm", "StartsOverdueAlarm", "RequestsUnpublishedAlarm"]
)
def test_what_every_run_of_the_janitor_finds_rings_at_every_allowed_schedule(name: str) -> None:
    """Also if a run is a minute early or late."""
    alarm = ALARMS[name]
    needed = alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"])
    for minutes in range(1, LONGEST_SCHEDULE + 1):
        found = [_bad_periods(alarm, minutes * 60, first) for first in range(0, alarm["Period"], 30)]
        assert min(found) >= needed, minutes


def test_the_silent_alarms_period_contains_a_run_of_every_allowed_schedule() -> None:
    assert ALARMS["JanitorSilentAlarm"]["Period"] == 2 * LONGEST_SCHEDULE * 60
    assert "at least twice an hour" in TEMPLATE["Parameters"]["JanitorSchedule"]["Description"]


def test_a_message_that_is_held_back_returns_in_every_period_of_the_breakers_alarm() -> None:
    """Each return writes BreakerOpen. Half a minute for the delivery."""
    alarm = ALARMS["BreakerOpenAlarm"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("BreakerOpen", "Maximum", 1)
    assert BreakerSettings().recovery + MAX_SPREAD_SECONDS + 30 <= alarm["Period"]


def test_the_counted_refusals_are_the_errors_that_the_workflow_retries() -> None:
    """The workflow's log contains them as events of level ERROR (Step Functions guide, "cw-logs")."""
    counted = re.findall(r'\$\.details\.error = "([\w.]+)"', RESOURCES["GlueRefusals"]["Properties"]["FilterPattern"])
    assert counted == definition()["States"]["RunGlueJob"]["Retry"][0]["ErrorEquals"]
    assert RESOURCES["Workflow"]["Properties"]["LoggingConfiguration"]["Level"] in ("ERROR", "ALL")


def test_an_alarm_on_a_metric_that_is_never_written_is_found() -> None:
    """Negative control of the judge."""
    assert judge(Asked("Slotkeeper", "RequestsAdmitted", OF_THE_STACK)) == ""
    assert judge(Asked("Slotkeeper", "RequestAdmitted", OF_THE_STACK))
    assert judge(Asked("Slotkeeper", "SlotsInUse", OF_THE_STACK))
    assert judge(Asked("AWS/SQS", "ApproximateNumberOfMessagesVisible", (("QueueName", STACK.physical("SlotTable")),)))
    assert judge(Asked("AWS/Lambda", "Errors", (("Function", "StarterFunction"),)))
