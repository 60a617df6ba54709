"""`slotkeeper doctor`: running the checks, their report, and fetching their facts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.process import MalformedProcess
from slotkeeper.slots.request_table import Leaving
from slotkeeper_cli import stack_connection
from slotkeeper_cli.commands import doctor as command
from slotkeeper_cli.doctor import CHECKS, facts
from slotkeeper_cli.doctor.facts import Facts, FunctionSettings, TableSettings
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.stack_connection import StackConnection
from tests.cli.account_contents import edit
from tests.cli.doctor_facts import WHOLE, process, whole
from tests.cli.operator_account import NOW, TEMPLATE, Operator, StubbedCalls, client, stack_of
from tests.support.module_time import replace_time

Patch = pytest.MonkeyPatch


class StubbedFacts(SimpleNamespace):
    """Facts of a test. Reading one that is an exception raises it."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if isinstance(value, Exception):
            raise value
        return value


def over(patch: Patch, **changes: Any) -> None:
    patch.setattr(command, "Facts", lambda _stack: StubbedFacts(**whole(**changes)))


def denied(operation: str, code: str = "AccessDeniedException") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


# Running the checks ------------------------------------------------------------------------------------------------


def test_doctor_exits_with_0_for_a_healthy_stack(operator: Operator, monkeypatch: Patch) -> None:
    over(monkeypatch)
    ended = operator.run("doctor")
    assert ended.exit_code == 0
    assert f"{len(CHECKS)} ok, 0 warnings, 0 problems" in ended.stdout
    assert operator.run("doctor", "--json").json["worst"] == "ok"


def test_doctor_exits_with_5_for_a_problem_and_states_what_to_do(operator: Operator, monkeypatch: Patch) -> None:
    over(monkeypatch, processes=[process(slots_in_use=2)], stack_status="UPDATE_FAILED")
    ended = operator.run("doctor")
    assert ended.exit_code == 5
    lines = ended.stdout.splitlines()
    found = lines.index("problem drift               process p: slots_in_use is 2 for 0 holders")
    assert lines[found + 1].strip().startswith("-> the janitor repairs it in its next run")
    assert "2 checks found a problem: drift, stack" in ended.stderr


def test_a_line_states_either_findings_or_what_was_verified(operator: Operator, monkeypatch: Patch) -> None:
    alarms = [{"LogicalId": "StarterErrorAlarm", "StateValue": "INSUFFICIENT_DATA", "ActionsEnabled": True}]
    over(monkeypatch, alarms=alarms, processes=[process(name="p", paused=True), process(name="q", paused=True)])
    ended = operator.run("doctor")
    lines = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert f"{len(CHECKS) - 2} ok, 3 warnings, 0 problems" in lines
    assert "warn    alarms              1 alarm without data: StarterErrorAlarm" in lines
    assert [line[28:36] for line in lines if line.startswith("warn    paused")] == ["process ", "process "]
    verified = {check.name: check.about for check in CHECKS}
    assert f"ok      rules               {verified['rules']}" in lines
    assert not [line for line in lines if verified["alarms"] in line or verified["paused"] in line]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (denied("DescribeAlarms"), "DescribeAlarms was denied (AccessDeniedException)"),
        (denied("DescribeAlarms", "AuthorizationError"), "DescribeAlarms was denied (AuthorizationError)"),
        (denied("DescribeAlarms", "Throttling"), "DescribeAlarms failed with Throttling: no"),
        (EndpointConnectionError(endpoint_url="https://x"), "Could not connect to the endpoint URL"),
        (CommandFailed("the stack has no output X"), "the stack has no output X"),
    ],
)
def test_a_check_whose_call_fails_becomes_a_warning_and_the_others_run(
    operator: Operator, monkeypatch: Patch, error: Exception, expected: str
) -> None:
    over(monkeypatch, alarms=error)
    ended = operator.run("doctor", "--json")
    assert ended.exit_code == 0
    by_level = {level: [c for c in ended.json["checks"] if c["level"] == level] for level in ("ok", "warn")}
    assert [one["check"] for one in by_level["warn"]] == ["alarms", "alarm-actions"]
    assert expected in by_level["warn"][0]["findings"][0]["saw"]
    assert len(by_level["ok"]) == len(CHECKS) - 2


def test_a_resource_that_the_stack_lacks_is_a_problem_of_the_checks_that_need_it(
    operator: Operator, monkeypatch: Patch
) -> None:
    over(monkeypatch, functions={name: each for name, each in WHOLE["functions"].items() if name != "WorkerFunction"})
    ended = operator.run("doctor", "--json")
    assert ended.exit_code == 5
    problems = {one["check"]: one["findings"] for one in ended.json["checks"] if one["level"] == "problem"}
    assert problems.keys() == {"visibility", "worker-concurrency"}
    assert problems["visibility"][0]["saw"] == "not checked: there is no WorkerFunction"


def test_a_check_of_a_flow_that_is_not_deployed_is_absent(operator: Operator, monkeypatch: Patch) -> None:
    functions = {name: each for name, each in WHOLE["functions"].items() if name != "WorkerFunction"}
    slots = {name: WHOLE[name] | {} for name in ("queues", "mappings")}
    for each in slots.values():
        del each["WorkQueue"]
    missing = dict.fromkeys(("rows", "retry_policy"), CommandFailed("must not be fetched"))
    over(monkeypatch, not_deployed=["chatbot", "worker"], functions=functions, **slots, **missing)
    report = operator.run("doctor", "--json").json
    levels = {one["check"]: one["level"] for one in report["checks"]}
    absent = {"worker-concurrency", "retries", "retry-policy", "breakers"}
    assert levels == {name: "absent" if name in absent else "ok" for name in levels}
    assert (report["worst"], report["not_deployed"]) == ("ok", ["chatbot", "worker"])
    ended = operator.run("doctor")
    assert f"{len(CHECKS) - 4} ok, 0 warnings, 0 problems" in ended.stdout
    assert "absent  retry-policy        not checked: worker is not deployed\n" in ended.stdout
    assert "chatbot (deploy with ChatApiUrl=https://...), worker (deploy with DeployWorker=true)" in ended.stdout


def test_only_runs_the_named_checks(operator: Operator, monkeypatch: Patch) -> None:
    over(monkeypatch, stack_status="UPDATE_FAILED")
    ended = operator.run("doctor", "--only", "drift", "--only", "rules", "--json")
    assert [one["check"] for one in ended.json["checks"]] == ["drift", "rules"]


def test_stack_drift_is_detected_only_with_the_option(operator: Operator, monkeypatch: Patch) -> None:
    over(monkeypatch, drifted={"WorkQueue": "MODIFIED"})
    assert "stack-drift" not in operator.run("doctor").stdout
    ended = operator.run("doctor", "--stack-drift", "--only", "stack-drift", "--json")
    assert (ended.exit_code, ended.json["worst"]) == (0, "warn")


# Fetching the facts ------------------------------------------------------------------------------------------------

FUNCTION, TABLE, RULE, ALARM = (
    "AWS::Lambda::Function",
    "AWS::DynamoDB::Table",
    "AWS::Events::Rule",
    "AWS::CloudWatch::Alarm",
)


@pytest.fixture
def fetched(operator: Operator, monkeypatch: Patch) -> Facts:
    """Facts over moto, fetched one call at a time, since StubbedCalls is not thread-safe."""
    monkeypatch.setattr(stack_connection, "THREADS", 1)
    return Facts(StackConnection("slotkeeper"))


def listed(*resources: tuple[str, str, str], template_text: str = "") -> StubbedCalls:
    """Stub a stack of these resources, and its deployed template, which has settings of the table Ledger."""
    recovery = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": "true"}}
    ledger = {"Properties": {"TimeToLiveSpecification": {"Enabled": True}, **recovery}}
    body = {"TemplateBody": template_text or json.dumps({"Resources": {"Ledger": ledger}})}
    return stack_of(*resources, GetTemplate=lambda asked: body if asked["TemplateStage"] == "Processed" else {})


def test_processes_jobs_and_holders_are_fetched(operator: Operator, fetched: Facts) -> None:
    operator.hold("a")
    closed = operator.hold("b", "other") if operator.processes.create("other", 1, "no-such-job") else ""
    operator.stop(closed)
    operator.processes.create("leases", 1, NO_TARGET)
    odd = {"process_name": {"S": "odd"}}
    operator.dynamodb.put_item(TableName=operator.outputs["SlotTableName"], Item=odd)
    assert [one.name for one in fetched.processes] == ["leases", "other", "sample"]
    assert len(fetched.malformed) == 1
    assert fetched.jobs.keys() == {"no-such-job", "sample-job"}
    assert fetched.jobs["no-such-job"] is None
    assert (fetched.jobs["sample-job"] or {})["MaxRetries"] == 0
    assert {(one.process, one.status) for one in fetched.held} == {("sample", "RUNNING"), ("other", "ABORTED")}
    assert fetched.execution_status("sample-unknown") == ""


def test_a_live_run_of_a_malformed_process_is_not_called_unheld(operator: Operator, fetched: Facts) -> None:
    """Its holders are not known, and an operator would stop a run that has a slot."""
    operator.processes.create("odd", 1, "sample-job")
    run = operator.run_glue(operator.hold("a", "odd"))
    next(one for one in operator.glue_runs if one["Id"] == run)["StartedOn"] -= timedelta(hours=1)
    edit(operator, "slot_limit", {"S": "1"}, "odd")

    assert fetched.unheld_runs == []


def test_queues_and_their_event_sources_are_fetched(operator: Operator, fetched: Facts) -> None:
    asked: list[str] = []

    def listed_mappings(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["EventSourceArn"].rpartition(":")[2])
        return {"EventSourceMappings": [{"UUID": "1", "State": "Enabled"}]}

    with StubbedCalls("lambda", {"ListEventSourceMappings": listed_mappings}):
        assert fetched.mappings["WorkQueue"] == [{"UUID": "1", "State": "Enabled"}]
    assert asked == ["RequestQueue.fifo", "DispatchQueue", "EndingQueue", "WorkQueue"]
    assert fetched.queues["WorkQueue"]["VisibilityTimeout"] == "720"


def test_of_ends_that_are_not_published_the_oldest_is_fetched(operator: Operator, fetched: Facts) -> None:
    for number, end in enumerate("ab"):
        operator.requests.leave("sample", [Leaving(operator.wait(end), "CANCELLED", "Cancelled", "no")], NOW + number)
    (found,) = fetched.unpublished
    assert (found.number, found.oldest.request_id, found.oldest.ended) == ("2", "a", NOW)


def test_functions_are_fetched(operator: Operator, fetched: Facts) -> None:
    reserved = {"starter-1": {}, "worker-1": {"ReservedConcurrentExecutions": 5}}
    answers = {
        "GetFunctionConfiguration": lambda _: {"Timeout": 30},
        "GetFunctionConcurrency": lambda params: reserved[params["FunctionName"]],
        "GetFunctionRecursionConfig": lambda _: {"RecursiveLoop": "Allow"},
        "GetAccountSettings": lambda _: {"AccountLimit": {"UnreservedConcurrentExecutions": 995}},
    }
    resources = ("StarterFunction", "starter-1", FUNCTION), ("WorkerFunction", "worker-1", FUNCTION)
    with listed(*resources), StubbedCalls("lambda", answers):
        assert fetched.functions == {
            "StarterFunction": FunctionSettings("StarterFunction", 30, None),
            "WorkerFunction": FunctionSettings("WorkerFunction", 30, 5),
        }
        assert [one.differs for one in fetched.recursion] == [True, True]
        assert fetched.unreserved_concurrency == 995


@pytest.mark.parametrize(("deployed", "differs"), [("Terminate", False), ("Allow", True)])
def test_a_function_without_a_recursion_setting_in_the_template_has_lambdas_default(
    fetched: Facts, deployed: str, differs: bool
) -> None:
    answers = {"GetFunctionRecursionConfig": lambda _: {"RecursiveLoop": deployed}}
    with listed(("StarterFunction", "starter-1", FUNCTION)), StubbedCalls("lambda", answers):
        (setting,) = fetched.recursion
    assert (setting.template, setting.differs) == ("Terminate", differs)


def test_a_deployed_template_that_is_not_json_fails(fetched: Facts) -> None:
    with listed(template_text="Resources: {}"), pytest.raises(CommandFailed, match="is not JSON"):
        _ = fetched.template


def test_tables_are_compared_with_the_template(operator: Operator, fetched: Facts) -> None:
    ledger, slots = operator.outputs["RequestLedgerTableName"], operator.outputs["SlotTableName"]
    operator.dynamodb.update_time_to_live(
        TableName=ledger, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"}
    )
    with listed(("Ledger", ledger, TABLE), ("Slots", slots, TABLE)):
        assert fetched.tables == {
            "Ledger": (TableSettings(expires=True), TableSettings(expires=True, recoverable=True)),
            "Slots": (TableSettings(), TableSettings()),
        }


def test_the_indexes_of_requests_are_fetched(operator: Operator, fetched: Facts) -> None:
    resource = TEMPLATE["Resources"]["RequestTable"]
    body = json.dumps({"Resources": {"RequestTable": resource}}, default=str)
    with listed(("RequestTable", operator.outputs["RequestTableName"], TABLE), template_text=body):
        has, wanted = fetched.tables["RequestTable"]
    assert wanted == TableSettings(True, True, True, frozenset({"place", "deadline", "open", "ended", "failed"}))
    assert has.indexes == wanted.indexes


def test_what_is_queued_and_what_could_start_are_fetched(operator: Operator, fetched: Facts) -> None:
    operator.wait("a")
    operator.wait("b")
    assert [each.request_id for each in fetched.queued["sample"].requests] == ["a", "b"]
    assert [(queue.name, request.request_id) for queue, request in fetched.idle()] == [("sample", "a")]
    operator.hold("c", priority="high")
    assert fetched.idle() == [], "it was started after the first read"


def test_a_started_request_without_a_running_execution_is_fetched(operator: Operator, fetched: Facts) -> None:
    operator.processes.set_limit("sample", 3)
    gone, closed, running = operator.hold("gone"), operator.hold("closed"), operator.hold("running")
    for name in (gone, closed, running):
        operator.release(name)
    operator.stop(closed)
    operator.end(operator.outputs["WorkflowArn"].replace("stateMachine", "execution") + f":{closed}", "ABORTED")
    with StubbedCalls("stepfunctions", {"DescribeExecution": _without(gone)}):
        found = {each.execution: each.status for each in fetched.stranded}
    assert found == {gone: "", closed: "ABORTED"}


def _without(execution: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    error = {"Error": {"Code": "ExecutionDoesNotExist", "Message": "no"}}
    return lambda asked: error if asked["executionArn"].endswith(execution) else None


def test_rules_are_fetched_from_any_bus(operator: Operator, fetched: Facts) -> None:
    events = client("events")
    events.create_event_bus(Name="bus")
    events.put_rule(Name="round", ScheduleExpression="rate(1 minute)")
    events.put_rule(Name="closed", EventBusName="bus", EventPattern="{}", State="DISABLED")
    with listed(("JanitorFunctionRound", "round", RULE), ("JanitorFunctionClosed", "bus|closed", RULE)):
        assert fetched.rules == {"JanitorFunctionClosed": "DISABLED", "JanitorFunctionRound": "ENABLED"}


def test_alarms_are_fetched_with_their_names_in_the_template(operator: Operator, fetched: Facts) -> None:
    for number in range(101):
        client("cloudwatch").put_metric_alarm(
            AlarmName=f"alarm-{number}",
            MetricName="StarterErrors",
            Namespace="Slotkeeper",
            Statistic="Sum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=0,
            ComparisonOperator="GreaterThanThreshold",
            ActionsEnabled=bool(number),
        )
    with listed(*((f"Alarm{number}", f"alarm-{number}", ALARM) for number in range(101))):
        assert len(fetched.alarms) == 101
        assert [one["LogicalId"] for one in fetched.alarms if not one["ActionsEnabled"]] == ["Alarm0"]


def test_the_topic_its_subscriptions_and_its_key_policy_are_fetched(operator: Operator, fetched: Facts) -> None:
    sns, kms = client("sns"), client("kms")
    key = kms.create_key(Policy=json.dumps({"Statement": []}))["KeyMetadata"]["Arn"]
    topic = sns.create_topic(Name="failures", Attributes={"KmsMasterKeyId": key})["TopicArn"]
    operator.outputs["FailureTopicArn"] = topic
    sns.subscribe(TopicArn=topic, Protocol="email", Endpoint="us@example.com")
    facts = Facts(StackConnection("slotkeeper"))  # reads the outputs again
    assert facts.topic["KmsMasterKeyId"] == key
    assert facts.key_policy(facts.topic["KmsMasterKeyId"]) == {"Statement": []}
    assert [one["Endpoint"] for one in facts.subscriptions] == ["us@example.com"]


def test_the_retry_policy_is_fetched_or_none(operator: Operator, fetched: Facts) -> None:
    operator.outputs["RetryPolicyParameterName"] = "/policy"
    gone = {"Error": {"Code": "ParameterNotFound", "Message": "no"}}
    with StubbedCalls("ssm", {"GetParameter": lambda _: gone}):
        assert fetched.retry_policy is None
    with StubbedCalls("ssm", {"GetParameter": lambda params: {"Parameter": {"Value": params["Name"]}}}):
        assert Facts(StackConnection("slotkeeper")).retry_policy == "/policy"


def test_a_large_ledger_is_read_in_part(operator: Operator, fetched: Facts, monkeypatch: Patch) -> None:
    for number in range(3):
        operator.dynamodb.put_item(
            TableName=operator.outputs["RequestLedgerTableName"],
            Item={"request_id": {"S": f"r{number}"}, "status": {"S": "WAITING"}},
        )
    assert (len(fetched.rows.rows), fetched.rows.all_of_them) == (3, True)

    class Paged:
        def __init__(self, _stack: Any) -> None:
            self.ledger = self

        def rows(self, _statuses: Any, on_page: Any) -> Any:
            while True:
                on_page(1000)
                yield "r", MalformedProcess("")

    monkeypatch.setattr(facts, "RetryControl", Paged)
    monkeypatch.setattr(facts, "MAX_ROWS", 5000)
    again = Facts(StackConnection("slotkeeper")).rows
    assert (len(again.rows), again.all_of_them) == (5, False)


@pytest.mark.parametrize("end", ["DETECTION_COMPLETE", "DETECTION_FAILED"])
def test_stack_drift_is_polled_until_detection_ends(
    operator: Operator, fetched: Facts, monkeypatch: Patch, end: str
) -> None:
    pauses: list[float] = []
    replace_time(monkeypatch, stack_connection, sleep=pauses.append)
    statuses = iter(["DETECTION_IN_PROGRESS", "DETECTION_IN_PROGRESS", end])

    def page(params: dict[str, Any]) -> dict[str, Any]:
        name, more = ("Second", {}) if "NextToken" in params else ("First", {"NextToken": "more"})
        return {"StackResourceDrifts": [{"LogicalResourceId": name, "StackResourceDriftStatus": "DELETED"}], **more}

    answers = {
        "DetectStackDrift": lambda _: {"StackDriftDetectionId": "1"},
        "DescribeStackDriftDetectionStatus": lambda _: {"DetectionStatus": next(statuses)},
        "DescribeStackResourceDrifts": page,
    }
    with StubbedCalls("cloudformation", answers):
        if end == "DETECTION_FAILED":
            with pytest.raises(CommandFailed, match="DETECTION_FAILED"):
                _ = fetched.drifted
        else:
            assert fetched.drifted == {"First": "DELETED", "Second": "DELETED"}
    assert len(pauses) == 2


def test_facts_include_the_time_the_parameters_and_the_stack_status(operator: Operator, fetched: Facts) -> None:
    assert fetched.now == pytest.approx(time.time(), abs=60)
    assert fetched.parameters["WorkTimeoutMinutes"] == "480"
    assert fetched.stack_status == "UPDATE_COMPLETE"
    assert fetched.allowed_jobs == {"sample-job"}
