"""No deployment loses data that cannot be recreated, by the schemas of CloudFormation's resource types."""

from __future__ import annotations

import copy
import json
import re
from functools import cache, reduce
from typing import Any

import pytest

from tests.template.parsing import parsed_template, translated
from tests.template.stateful import POLICIES, RETAINED, ROOT, STATEFUL, read_baseline, stateful

WRITTEN = parsed_template()

# The stateful resources that are deleted with the stack, and the reasons.
EXPENDABLE = {
    "DispatchQueue": "the janitor dispatches the processes whose rings it drops",
    "EndingQueue": "the janitor publishes the ends that it drops",
    "TokenTable": "the API issues another token",
    "SeenSignatureTable": "after ten minutes its items have no effect",
    "DownstreamTable": "without its items each breaker is closed, and the first failures open it again",
}
EXPENDABLE_TYPES = {
    "AWS::ApiGateway::RestApi": "stores nothing; its URL has no use without its functions",
    "AWS::Logs::LogGroup": "the workflow's has a fixed name, so a retained one blocks the next stack of that name; "
    "export logs that you need for longer (docs/upgrades.md)",
    "AWS::SNS::Topic": "without alarms nothing is published to it",
    "AWS::StepFunctions::StateMachine": "its executions end with the stack, and a retained one starts none",
}


@cache
def _template() -> dict[str, Any]:
    return translated(WRITTEN)


@cache
def _held() -> dict[str, dict[str, Any]]:
    return stateful(_template())


def test_an_update_of_a_deployed_stack_loses_nothing() -> None:
    """A resource that is not in the template any more, whose logical id, type, condition or a create-only property has
    changed, is deleted or replaced by an empty one. Restore it, or add a new one and move the data.

    Only for a new resource: `python -m tests.template.stateful` adds it to the baseline.
    """
    assert _held() == read_baseline()


def test_every_stateful_type_is_checked() -> None:
    """By cfn-lint's list of stateful types, for resources that are added later."""
    import cfnlint.data.AdditionalSpecs
    from cfnlint.helpers import load_resource

    listed = load_resource(cfnlint.data.AdditionalSpecs, "StatefulResources.json")["ResourceTypes"]
    assert {resource["Type"] for resource in _template()["Resources"].values()} & listed.keys() <= STATEFUL.keys()


@pytest.mark.parametrize("name", [n for n, held in read_baseline().items() if held["Type"] not in EXPENDABLE_TYPES])
def test_data_that_cannot_be_recreated_outlives_the_stack_and_a_replacement(name: str) -> None:
    kept = [_held()[name].get(policy) in RETAINED for policy in POLICIES]
    assert kept == [name not in EXPENDABLE] * 2


def test_a_protected_table_does_not_block_a_rollback() -> None:
    """With RetainExceptOnCreate a failed creation deletes its tables, which DynamoDB refuses for a protected one."""
    for name, resource in _template()["Resources"].items():
        if resource.get("Properties", {}).get("DeletionProtectionEnabled"):
            assert _held()[name]["DeletionPolicy"] == "Retain"


@pytest.mark.parametrize("table", ["SlotTable", "RequestTable", "RequestLedgerTable"])
def test_a_table_that_cannot_be_recreated_is_protected_and_backed_up(table: str) -> None:
    properties = _template()["Resources"][table]["Properties"]
    assert properties["DeletionProtectionEnabled"] is True
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_other_values_of_all_parameters_make_the_same_resources() -> None:
    """SAM derives some logical ids from parameter values."""
    other = copy.deepcopy(WRITTEN)
    for parameter in other["Parameters"].values():
        allowed = [str(each) for each in parameter.get("AllowedValues", [])]
        before = str(parameter.get("Default", ""))
        number = str(parameter.get("MaxValue", parameter.get("MinValue", 7)))
        text = number if parameter["Type"] == "Number" else "another"
        parameter["Default"] = next((each for each in reversed(allowed) if each != before), text)
    assert stateful(translated(other)) == _held()


def test_the_page_lists_the_kept_and_the_deleted_resources() -> None:
    page = (ROOT / "docs" / "upgrades.md").read_text()
    rows = re.findall(r"^\| (.*?) \| (kept|deleted)\b", page, re.MULTILINE)
    listed = {name: fate for names, fate in rows for name in re.findall(r"`(\w+)`", names)}
    queues = {name for name, each in _held().items() if each["Type"] == "AWS::SQS::Queue"} - EXPENDABLE.keys()
    assert (*next(row for row in rows if "queues" in row[0]), len(queues)) == ("the five queues", "kept", 5)
    kept = {name for name, each in _held().items() if each.get("DeletionPolicy") in RETAINED}
    assert {name for name, fate in listed.items() if fate == "kept"} == kept - queues
    assert {name for name, fate in listed.items() if fate == "deleted"} == EXPENDABLE.keys()


def test_the_stack_policy_protects_every_stateful_type_except_log_groups() -> None:
    """One log group is deleted on purpose, when the refresher is disabled."""
    _, deny = json.loads((ROOT / "stack-policy.json").read_text())["Statement"]
    assert (deny["Effect"], deny["Action"]) == ("Deny", ["Update:Replace", "Update:Delete"])
    assert set(deny["Condition"]["StringEquals"]["ResourceType"]) == STATEFUL.keys() - {"AWS::Logs::LogGroup"}


# --------------------------------------------------------------------- negative controls: changes that lose a resource


OMITTED = object()


def _changed(*changes: tuple[str, str, Any]) -> dict[str, Any]:
    """The translated template with other values at places in resources; OMITTED removes what is there."""
    changed = copy.deepcopy(WRITTEN)
    for resource, place, value in changes:
        *path, last = [resource, *filter(None, place.split("."))]
        parent = reduce(lambda part, name: part[int(name) if name.isdigit() else name], path, changed["Resources"])
        parent[last] = value
        if value is OMITTED:
            del parent[last]
    return translated(changed)


LOSING = [
    ("SlotTable", "", OMITTED),
    ("RequestLedgerTable", "Properties.KeySchema.0.AttributeName", "id"),
    ("WorkQueue", "Properties.QueueName", "work"),
    ("SlotTable", "Properties.TableName", {"Fn::Sub": "slots-${ProcessName}"}),
    ("RequestQueue", "Properties.FifoQueue", OMITTED),
    ("DataBucket", "Condition", "HasSampleJob"),
    ("ApiCredentialsSecret", "UpdateReplacePolicy", OMITTED),
    ("Workflow", "Properties.StateMachineType", "EXPRESS"),
    ("RetryPolicyParameter", "Type", "AWS::SQS::Queue"),
]


@pytest.mark.parametrize("change", LOSING, ids=[f"{name} {place}" for name, place, _ in LOSING])
def test_a_change_that_loses_a_resource_is_noticed(change: tuple[str, str, Any]) -> None:
    changed = stateful(_changed(change))
    assert [name for name in _held() if changed.get(name) != _held()[name]] == [change[0]]


def test_a_change_that_loses_nothing_is_not_noticed() -> None:
    tags = [{"Key": "team", "Value": "data"}]
    changed = _changed(("RequestQueue", "Properties.VisibilityTimeout", 200), ("SlotTable", "Properties.Tags", tags))
    assert stateful(changed) == _held()
