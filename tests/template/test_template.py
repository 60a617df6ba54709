"""The template: the relations between its numbers, permissions and names."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.tools import bootstrap
from slotkeeper.slots.closed_executions import MAX_WAIT_SECONDS
from slotkeeper.slots.dispatch import RESERVE_SECONDS
from slotkeeper.slots.doorbell import MAX_DELAY_SECONDS
from slotkeeper.slots.janitor import RUN_SECONDS
from tests.template.client_configs import client_configs, longest_call
from tests.template.parsing import parsed_template
from tests.workflow.definition import FILE, definition

ROOT = Path(__file__).parents[2]
TEMPLATE: dict[str, Any] = parsed_template()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
FUNCTIONS = {n: r["Properties"] for n, r in RESOURCES.items() if r["Type"] == "AWS::Serverless::Function"}


def properties(name: str) -> Any:
    return RESOURCES[name]["Properties"]


# Outputs that producers and operators read, by flow.
PROMISED = {
    "slots": "RequestQueueUrl RequestDeadLetterQueueUrl DispatchQueueUrl EndingQueueUrl SlotTableName "
    "RequestTableName WorkflowArn DataBucketName",
    "worker": "WorkQueueUrl WorkDeadLetterQueueUrl RequestLedgerTableName DownstreamTableName WorkerFunctionName "
    "RetryPolicyParameterName RetryScheduleGroupName RetryScheduleDeadLetterQueueUrl",
    "chatbot": "ChatbotUrl ChatbotFunctionName TokenTableName SeenSignatureTableName ApiCredentialsSecretArn "
    "SigningKeySecretArn",
}


@pytest.mark.parametrize("flow", PROMISED)
def test_the_outputs_of_the_contract_exist(flow: str) -> None:
    assert set(PROMISED[flow].split()) <= TEMPLATE["Outputs"].keys()


SOURCES = [
    ("StarterFunction", "RequestQueue", "StarterConcurrency", 10),
    ("StarterFunction", "DispatchQueue", "StarterConcurrency", 10),
    ("EndingFunction", "EndingQueue", "StarterConcurrency", 10),
    ("WorkerFunction", "WorkQueue", "WorkerConcurrency", 1),
]


def test_a_function_takes_batches_of_a_size_and_reports_failed_items() -> None:
    """Without a window, in which a batch would wait for more messages, and without taking the account's whole
    concurrency. A message is hidden for six times the timeout (Lambda guide, "Configuring an SQS queue for use with
    Lambda")."""
    events = [(name, each) for name, made in FUNCTIONS.items() for each in made.get("Events", {}).values()]
    assert [(name, each["Properties"]) for name, each in events if each["Type"] == "SQS"] == [
        (
            function,
            {
                "Queue": {"Fn::GetAtt": [queue, "Arn"]},
                "BatchSize": messages,
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                "ScalingConfig": {"MaximumConcurrency": {"Ref": concurrency}},
            },
        )
        for function, queue, concurrency, messages in SOURCES
    ]
    for function, queue, *_ in SOURCES:
        assert properties(queue)["VisibilityTimeout"] == 6 * FUNCTIONS[function]["Timeout"]


def test_the_longest_call_fits_what_a_dispatch_keeps_of_its_invocation() -> None:
    exhausted = longest_call(client_configs("starter")["_client_config"])
    assert exhausted <= RESERVE_SECONDS < FUNCTIONS["StarterFunction"]["Timeout"]


def test_a_ring_outlives_its_delay_and_its_deliveries_and_is_gone_after_an_hour() -> None:
    """The janitor repeats what was dropped. An older ring has nothing to start."""
    queue = properties("DispatchQueue")
    assert MAX_DELAY_SECONDS + 2 * queue["VisibilityTimeout"] < queue["MessageRetentionPeriod"] == 3600
    assert "RedrivePolicy" not in queue


def test_no_role_loses_a_job_before_the_check_that_no_request_uses_it() -> None:
    """And the process is created after its workflow is permitted to run the job."""
    of_runs = {"glue:StartJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:BatchStopJobRun"}
    permitted = properties("PermittedJobs")["JobArns"]
    roles = set()
    for name, role in RESOURCES.items():
        policies = role["Properties"].get("Policies", []) if role["Type"] == "AWS::IAM::Role" else []
        for statement in (one for policy in policies for one in policy["PolicyDocument"]["Statement"]):
            if of_runs & set(statement.get("Action", [])):
                assert statement["Resource"] == permitted
                assert role["DependsOn"] == "PermittedJobs"
                roles.add(name)
    assert roles >= {"WorkflowRole", "JanitorRole", "EndingRole"}
    assert RESOURCES["Process"]["DependsOn"] == "WorkflowRole"


def test_the_queue_is_fifo_by_group_and_takes_the_largest_messages() -> None:
    """Of any group, and senders of different groups do not share a limit of messages a second."""
    for name in ("RequestQueue", "RequestDeadLetterQueue"):
        queue = properties(name)
        assert (queue["FifoQueue"], queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == (
            True,
            "messageGroup",
            "perMessageGroupId",
        )
        assert "ContentBasedDeduplication" not in queue  # a send without an id fails, instead of being dropped
        # The largest of SQS (SQS guide, "Amazon SQS message quotas"). The starter rejects a request that is too large,
        # and states its size. SQS would only refuse the sender's call.
        assert queue["MaximumMessageSize"] == 1_048_576


def test_f21_the_receive_count_is_a_backstop_only() -> None:
    """SQS dead-letters without a reason, so an hour of failing calls must come first."""
    queue = properties("RequestQueue")
    assert queue["RedrivePolicy"]["maxReceiveCount"] * queue["VisibilityTimeout"] >= 3600


SUMMARY = (
    "state request_id attempt priority weight sent started placed granted put_back start_before skips code reason open"
)
# Index -> the type of its sort key, and what it contains in addition to keys.
LOCAL = {
    "place": ("S", "weight start_before skips request_id"),
    "deadline": ("N", "place weight start_before skips"),
    "open": ("N", "state request_id"),
    "ended": ("N", f"{SUMMARY} failed"),
}
GLOBAL = {"failed": ("N", f"{SUMMARY} ended"), "request_id": ("S", "attempt")}


@pytest.mark.parametrize(("scope", "indexes"), [("Local", LOCAL), ("Global", GLOBAL)])
def test_an_index_of_the_requests_contains_what_its_readers_need_and_no_body_or_token(
    scope: str, indexes: dict[str, tuple[str, str]]
) -> None:
    """The local ones exist from the table's creation: none can be added later (DynamoDB guide, "Local secondary
    indexes")."""
    table = properties("RequestTable")
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    found = {}
    for index in table[f"{scope}SecondaryIndexes"]:
        keys, projection = [key["AttributeName"] for key in index["KeySchema"]], index["Projection"]
        name = keys[-1]
        assert (name, projection["ProjectionType"]) == (index["IndexName"], "INCLUDE")
        assert keys == ["request_id"] or keys[:-1] == ["process_name"]
        found[name] = (types[name], set(projection["NonKeyAttributes"]))
    assert found == {name: (kind, set(contained.split())) for name, (kind, contained) in indexes.items()}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}


def test_f10_no_function_has_a_slot_limit_in_its_settings() -> None:
    """The limit is data, in one place: two deployments cannot disagree on it."""
    mentions = re.findall(r"Ref SlotLimit", (ROOT / "template.yaml").read_text())
    assert len(mentions) == 1
    assert "SlotLimit" in str(properties("Process"))


def test_f12_glue_does_not_retry_the_sample_job() -> None:
    assert properties("SampleJob")["MaxRetries"] == 0


def test_f3_glue_allows_at_least_as_many_runs_as_any_slot_limit() -> None:
    from slotkeeper.slots.process import MAX_HOLDERS, MAX_SLOT_LIMIT

    assert properties("SampleJob")["ExecutionProperty"]["MaxConcurrentRuns"] >= MAX_HOLDERS
    assert TEMPLATE["Parameters"]["SlotLimit"]["MaxValue"] == MAX_SLOT_LIMIT


def test_f18_the_janitor_has_a_schedule_and_not_only_events() -> None:
    events = FUNCTIONS["JanitorFunction"]["Events"]
    assert {event["Type"] for event in events.values()} == {"Schedule"}


def test_a_janitor_run_is_neither_retried_nor_queued_and_ends_before_its_timeout() -> None:
    """Lambda retries an asynchronous invocation twice, up to six hours later; the next run works sooner."""
    function = FUNCTIONS["JanitorFunction"]
    assert function["EventInvokeConfig"] == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    assert function["Timeout"] > 2 * RUN_SECONDS


def test_an_end_outlives_its_two_checks_and_a_weekend_with_the_event_source_disabled() -> None:
    longest_gap = TEMPLATE["Parameters"]["CheckGapSeconds"]["MaxValue"]
    queue = properties("EndingQueue")
    assert 2 * longest_gap + queue["VisibilityTimeout"] < MAX_WAIT_SECONDS
    assert queue["MessageRetentionPeriod"] == 4 * 86_400


@pytest.mark.parametrize("status", ["SUCCEEDED", "ABORTED", "FAILED", "TIMED_OUT"])
def test_f20_the_rules_pattern_matches_what_step_functions_sends(status: str) -> None:
    """A pattern that matches no event is valid and causes no error."""
    sample = json.loads((ROOT / "events" / "ending" / "succeeded.json").read_text())
    event = json.loads(sample["Records"][0]["body"])
    event["detail"]["status"] = status
    pattern = properties("WorkflowClosedRule")["EventPattern"]
    assert pattern["detail"]["stateMachineArn"] == [{"Ref": "Workflow"}]
    ours = {**pattern["detail"], "stateMachineArn": [event["detail"]["stateMachineArn"]]}
    assert _matches({**pattern, "detail": ours}, event)


def _matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """EventBridge guide, "Creating Amazon EventBridge event patterns": each field has one of the values."""
    return all(
        _matches(wanted, event[field]) if isinstance(wanted, dict) else event[field] in wanted
        for field, wanted in pattern.items()
    )


def statements(role: str) -> list[Any]:
    """The statements of a role's policies."""
    policies = properties(role)["Policies"]
    return [each for policy in policies for each in policy["PolicyDocument"]["Statement"] if "Action" in each]


def test_the_workflow_uses_exactly_the_substitutions_of_the_template() -> None:
    used = set(re.findall(r"\$\{(\w+)\}", FILE.read_text()))
    assert used == properties("Workflow")["DefinitionSubstitutions"].keys()
    assert definition()["QueryLanguage"] == "JSONata"


def test_the_runtimes_python_version_is_the_same_everywhere() -> None:
    runtime = f"python{bootstrap.RUNTIME}"
    assert TEMPLATE["Globals"]["Function"]["Runtime"] == runtime
    assert RESOURCES["SlotkeeperLayer"]["Properties"]["CompatibleRuntimes"] == [runtime]
    assert f"--python-version {bootstrap.RUNTIME} " in (ROOT / "layers" / "slotkeeper" / "Makefile").read_text()
    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == f">={bootstrap.RUNTIME}"
    )


def test_the_tests_run_with_the_layers_pins() -> None:
    def pins(path: str) -> set[str]:
        lines = (ROOT / path).read_text().splitlines()
        return {re.split("#| --hash=", line)[0].strip() for line in lines} - {""}

    assert pins("layers/slotkeeper/requirements.txt") <= pins("requirements/local.txt")


def test_any_linter_and_editor_reads_the_template() -> None:
    """CloudFormation supports neither YAML merges nor aliases."""
    tokens = yaml.scan((ROOT / "template.yaml").read_text(), yaml.CSafeLoader)
    assert not [each for each in tokens if isinstance(each, yaml.AnchorToken | yaml.AliasToken)]


def test_the_map_at_the_top_lists_the_sections_in_their_order() -> None:
    text = (ROOT / "template.yaml").read_text()
    flow, mapped = "", []
    for entry in re.findall(r"^#   ([a-z]+:| ) +(.+)$", text, re.MULTILINE):
        flow = entry[0].strip() or flow
        mapped.append(f"{flow} {entry[1]}")
    assert mapped == re.findall(r"^  # -{8,} (.+)$", text, re.MULTILINE)
