"""`slotkeeper doctor`: its report, checks that cannot be made, and what only the doctor reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from slotkeeper_cli import stack_connection
from slotkeeper_cli.account import Account
from slotkeeper_cli.attention import CHECKS
from slotkeeper_cli.doctor import job_checks, readings, retry_checks
from slotkeeper_cli.doctor.readings import FunctionSettings
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.stack_connection import FLOWS, StackConnection
from tests.command.account_contents import edit, send_dead_letter
from tests.command.operator_account import NOW, Operator, StubbedCalls, stack_of
from tests.command.situations import set_clock
from tests.module_time import replace_time

FUNCTION, RULE = "AWS::Lambda::Function", "AWS::Events::Rule"
# Checks that need no more than the account of these tests has.
ONLY = ("processes", "held-back", "drift", "dead-letters", "alarms", "rules")
CHOSEN = [argument for name in ONLY for argument in ("--only", name)]


@pytest.fixture
def alarms(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The alarms of the stack, of which none rings."""
    found = [{"AlarmName": f"alarm-{number}", "StateValue": "OK"} for number in range(3)]
    set_clock(monkeypatch, NOW + 60)
    monkeypatch.setenv("TZ", "UTC")
    resources = [(f"Alarm{number}", f"alarm-{number}", "AWS::CloudWatch::Alarm") for number in range(3)]
    operator.aws.alarms = found
    with stack_of(*resources):
        yield found


def test_problems_come_first_then_warnings_and_the_rest_is_one_line(
    operator: Operator, alarms: list[dict[str, Any]]
) -> None:
    send_dead_letter(operator)
    operator.wait("a")
    operator.processes.set_limit("sample", 0)
    alarms[1] |= {"StateValue": "ALARM", "StateReason": "1 > 0"}
    ended = operator.run("doctor")
    lines = ended.stdout.splitlines()
    assert ended.exit_code == 5
    stopped = (
        "bad   process sample: 1 request is queued: the process has no slots (for 1 min): The process starts nothing."
    )
    first = lines.index(f"{stopped}  held-back")
    assert lines[first + 1] == "      -> slotkeeper process set-limit sample 1"
    levels = [line.split()[0] for line in lines if line[:1] != " "]
    assert levels[:-1] == sorted(levels[:-1]), "problems, then warnings"
    assert "\nbad   Alarm1 is in ALARM: 1 > 0 " in ended.stdout
    assert "\nwarn  RequestDeadLetterQueue has 1 message: " in ended.stdout
    assert " checks shown by --all)" in lines[-1]


def test_a_line_is_as_wide_as_the_terminal_and_a_command_is_whole(
    operator: Operator, alarms: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    operator.event_source = "Disabled"
    lines = operator.run("doctor", "--only", "event-sources").stdout.splitlines()
    assert "      -> aws lambda update-event-source-mapping --enabled --uuid mapping-1" in lines
    assert max(len(line) for line in lines if "-> " not in line) <= 50
    assert lines[:2] == [
        "bad   no function receives messages of",
        "  RequestQueue: its event source mapping is",
    ]


def test_the_chosen_checks_are_shown_with_what_they_verified(operator: Operator, alarms: Any) -> None:
    ended = operator.run("doctor", *CHOSEN)
    assert (ended.exit_code, len(ended.stdout.splitlines())) == (0, len(ONLY) + 1)
    verified = {check.name: check.about for check in CHECKS}
    assert f"ok    {verified['rules']}  rules" in ended.stdout
    assert "0 problems, 0 warnings, 6 ok\n" in ended.stdout
    data = operator.run("doctor", *CHOSEN, "--json").json
    assert data["worst"] == "ok"
    assert {one["check"] for one in data["checks"]} == set(ONLY)


DENIED = {"Error": {"Code": "AccessDenied", "Message": "no"}}


def test_a_check_whose_call_is_denied_is_a_warning_and_the_others_are_made(operator: Operator, alarms: Any) -> None:
    with StubbedCalls("cloudwatch", {"DescribeAlarms": lambda _: DENIED}):
        ended = operator.run("doctor", *CHOSEN)
    assert ended.exit_code == 0
    assert "warn  not checked: DescribeAlarms failed with AccessDenied: no (the permissions of each" in ended.stdout
    assert "0 problems, 1 warning, 5 ok\n" in ended.stdout


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (EndpointConnectionError(endpoint_url="https://x"), "Could not connect to the endpoint URL"),
        (CommandFailed("the stack has no output X"), "the stack has no output X"),
        (KeyError("WorkerFunction"), "there is no WorkerFunction"),
    ],
)
def test_a_check_that_cannot_be_made_has_the_reason(
    operator: Operator, alarms: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    def fails(_: Account) -> Any:
        raise error

    monkeypatch.setattr(Account, "alarms", fails)
    data = operator.run("doctor", "--only", "alarms", "--json").json
    (check,) = data["checks"]
    assert check["findings"][0]["what"].startswith(f"not checked: {shown}")
    assert check["level"] == ("bad" if isinstance(error, KeyError) else "warn")


def test_a_check_of_a_flow_that_is_not_deployed_is_absent(operator: Operator, alarms: Any) -> None:
    (worker,) = (flow for flow in FLOWS if flow.name == "worker")
    for name in [*filter(worker.has, operator.outputs)]:
        del operator.outputs[name]
    of_worker = ("worker-concurrency", "retries", "retry-policy", "breakers")
    ended = operator.run("doctor", *(each for name in of_worker for each in ("--only", name)))
    assert ended.exit_code == 0
    assert ended.stdout.count("absent ") == 4
    assert "worker (deploy with DeployWorker=true)" in ended.stdout
    assert operator.run("doctor", "--only", "event-sources").exit_code == 0


# What only the doctor reads ------------------------------------------------------------------------------------------


@pytest.fixture
def account(operator: Operator) -> Account:
    return Account(StackConnection("slotkeeper"))


def test_a_live_run_without_a_slot_is_found_but_not_of_a_malformed_process(
    operator: Operator, account: Account
) -> None:
    """The holders of a malformed process are not known, and an operator would stop a run that has a slot."""
    operator.processes.create("odd", 1, "sample-job")
    names = operator.hold("a", "odd"), operator.hold("b"), "sample-gone"
    *started, gone = (operator.run_glue(name, seconds=3600) for name in names)
    young = operator.run_glue("sample-young")
    edit(operator, "slot_limit", {"S": "1"}, "odd")
    found = job_checks.runs_without_slot(account)
    assert found == [("sample-job", gone, "sample-gone")]
    assert young not in started


def test_functions_are_read(account: Account) -> None:
    reserved = {"starter-1": {}, "worker-1": {"ReservedConcurrentExecutions": 5}}
    answers = {
        "GetFunctionConcurrency": lambda params: reserved[params["FunctionName"]],
        "GetFunctionRecursionConfig": lambda _: {"RecursiveLoop": "Allow"},
        "GetAccountSettings": lambda _: {"AccountLimit": {"UnreservedConcurrentExecutions": 995}},
    }
    resources = ("StarterFunction", "starter-1", FUNCTION), ("WorkerFunction", "worker-1", FUNCTION)
    with stack_of(*resources), StubbedCalls("lambda", answers):
        assert readings.functions(account) == {
            "StarterFunction": FunctionSettings(None, "Allow"),
            "WorkerFunction": FunctionSettings(5, "Allow"),
        }
        assert readings.unreserved_concurrency(account) == 995


def test_rules_are_read_from_any_bus(account: Account) -> None:
    states = {("default", "round"): "ENABLED", ("bus", "closed"): "DISABLED"}

    def rule(asked: dict[str, Any]) -> dict[str, Any]:
        return {"State": states[asked.get("EventBusName", "default"), asked["Name"]]}

    resources = ("JanitorFunctionRound", "round", RULE), ("JanitorFunctionClosed", "bus|closed", RULE)
    with stack_of(*resources), StubbedCalls("events", {"DescribeRule": rule}):
        assert readings.rules(account) == {"JanitorFunctionClosed": "DISABLED", "JanitorFunctionRound": "ENABLED"}


def test_the_topic_its_subscriptions_and_its_key_policy_are_read(operator: Operator, account: Account) -> None:
    operator.aws.topic_attributes = {"KmsMasterKeyId": "a-key"}
    operator.aws.subscriptions = [{"Endpoint": "us@example.com"}]
    policy = {"GetKeyPolicy": lambda asked: {"Policy": json.dumps({"Statement": [], "Id": asked["KeyId"]})}}
    with StubbedCalls("kms", policy):
        assert readings.topic_key(account) == "a-key"
        assert readings.key_policy(account, "a-key") == {"Statement": [], "Id": "a-key"}
        assert [one["Endpoint"] for one in readings.subscriptions(account)] == ["us@example.com"]


def test_a_large_ledger_is_read_in_part(operator: Operator, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    assert retry_checks.ledger_rows(account) == ([], True)
    account.forget()
    monkeypatch.setattr(retry_checks, "MAX_ROWS", 5)
    numbers = count()

    def page(_: dict[str, Any]) -> dict[str, Any]:
        last = {"request_id": {"S": str(next(numbers))}}
        return {"Items": [{"request_id": {"S": "r"}}] * 3, "LastEvaluatedKey": last, "ScannedCount": 3}

    with StubbedCalls("dynamodb", {"Scan": page}):
        rows, is_whole = retry_checks.ledger_rows(account)
    assert (len(rows), is_whole) == (7, False)


@pytest.mark.parametrize("end", ["DETECTION_COMPLETE", "DETECTION_FAILED"])
def test_stack_drift_is_polled_until_detection_ends(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    pauses: list[float] = []
    replace_time(monkeypatch, stack_connection, sleep=pauses.append)
    statuses = iter(["DETECTION_IN_PROGRESS", "DETECTION_IN_PROGRESS", end])

    def page(params: dict[str, Any]) -> dict[str, Any]:
        # Operators change the retry policy.
        name, more = ("RetryPolicyParameter", {}) if "NextToken" in params else ("First", {"NextToken": "more"})
        return {"StackResourceDrifts": [{"LogicalResourceId": name, "StackResourceDriftStatus": "MODIFIED"}], **more}

    answers = {
        "DetectStackDrift": lambda _: {"StackDriftDetectionId": "1"},
        "DescribeStackDriftDetectionStatus": lambda _: {"DetectionStatus": next(statuses)},
        "DescribeStackResourceDrifts": page,
    }
    with StubbedCalls("cloudformation", answers):
        ended = operator.run("doctor", "--stack-drift", "--only", "stack-drift")
    failed = "not checked: CloudFormation's drift detection is DETECTION_FAILED"
    assert (failed if end == "DETECTION_FAILED" else "First is MODIFIED, compared with the template") in ended.stdout
    assert (len(pauses), "1 warning" in ended.stdout) == (2, True)
