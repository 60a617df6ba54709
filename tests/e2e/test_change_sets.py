"""Change sets of the deployed stack: the embedded CloudFormation replaces no stateful resource.

MiniStack knows the create-only properties of some types, and answers Conditional for others. For those, the types'
schemas state whether the changed property is create-only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from dev.emulator.deployment import STACK_NAME
from tests.e2e.deployed_stack import DeployedStack
from tests.support.waiting import wait_until
from tests.template.stateful import STATEFUL, create_only

OTHER = {
    "Architecture": "x86_64",
    "ArtifactBucketName": "another-bucket",
    "ChatApiUrl": "https://chat.example.com",
    "ChatbotBurst": "20",
    "ChatbotRate": "9",
    "ChatbotReservedConcurrency": "9",
    "GraceSeconds": "60",
    "JanitorSchedule": "rate(2 minutes)",
    "KmsKeyArn": "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-000000000000",
    "LogRetentionDays": "7",
    "MoreGlueJobArns": "arn:aws:glue:us-east-1:000000000000:job/another",
    "PermissionsBoundaryArn": "arn:aws:iam::000000000000:policy/boundary",
    "SlotLimit": "9",
    "WorkSeconds": "9",
    "WorkerConcurrency": "4",
    "WorkerReservedConcurrency": "9",
}
IN_PLACE = {"LogRetentionDays": "7", "SlotLimit": "9"}


class ChangeSets:
    """Change sets of the stack, like those of `sam deploy`."""

    def __init__(self, stack: DeployedStack) -> None:
        self._s3, self._bucket = stack.s3, stack.outputs["DataBucketName"]
        self._cloudformation = stack.aws.client("cloudformation")
        deployed = self._cloudformation.describe_stacks(StackName=STACK_NAME)["Stacks"][0]
        self._parameters = [each["ParameterKey"] for each in deployed["Parameters"]]

    def template(self) -> dict[str, Any]:
        """The deployed template, before SAM's translation."""
        body = self._cloudformation.get_template(StackName=STACK_NAME, TemplateStage="Original")["TemplateBody"]
        template: dict[str, Any] = yaml_parse(body) if isinstance(body, str) else json.loads(json.dumps(body))
        return template

    def changes(self, name: str, parameters: dict[str, str], template: dict[str, Any] | None = None) -> dict[str, Any]:
        """Create a change set; return its changes by logical id."""
        self._cloudformation.create_change_set(
            StackName=STACK_NAME,
            ChangeSetName=name,
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[
                {"ParameterKey": key, "ParameterValue": parameters[key]}
                if key in parameters
                else {"ParameterKey": key, "UsePreviousValue": True}
                for key in self._parameters
            ],
            **({"TemplateURL": self._uploaded(template)} if template else {"UsePreviousTemplate": True}),
        )
        described = wait_until(lambda: self._made(name), f"change set {name}")
        assert described["Status"] == "CREATE_COMPLETE", described.get("StatusReason")
        return {each["ResourceChange"]["LogicalResourceId"]: each["ResourceChange"] for each in described["Changes"]}

    def _uploaded(self, template: dict[str, Any]) -> str:
        """Upload the template, which is too long for the request's body."""
        self._s3.put_object(Bucket=self._bucket, Key="template.json", Body=json.dumps(template).encode())
        return f"https://s3.us-east-1.amazonaws.com/{self._bucket}/template.json"

    def _made(self, name: str) -> Any:
        described = self._cloudformation.describe_change_set(StackName=STACK_NAME, ChangeSetName=name)
        return described["Status"] in ("CREATE_COMPLETE", "FAILED") and described

    def execute(self, name: str) -> None:
        self._cloudformation.execute_change_set(StackName=STACK_NAME, ChangeSetName=name)
        wait_until(self._settled, "the update to be complete")

    def _settled(self) -> bool:
        status = self._cloudformation.describe_stacks(StackName=STACK_NAME)["Stacks"][0]["StackStatus"]
        assert "ROLLBACK" not in status, status
        return bool(status == "UPDATE_COMPLETE")

    def delete(self, name: str) -> None:
        self._cloudformation.delete_change_set(StackName=STACK_NAME, ChangeSetName=name)

    def physical_ids(self) -> dict[str, str]:
        """The physical ids of the stateful resources."""
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=STACK_NAME)
        listed = [each for page in pages for each in page["StackResourceSummaries"]]
        return {
            each["LogicalResourceId"]: each["PhysicalResourceId"] for each in listed if each["ResourceType"] in STATEFUL
        }


@pytest.fixture
def change_sets(stack: DeployedStack) -> ChangeSets:
    return ChangeSets(stack)


def _lost(changes: dict[str, Any]) -> Iterator[str]:
    """The stateful resources that the changes remove or replace."""
    for name, change in changes.items():
        if change["ResourceType"] not in STATEFUL or change["Action"] == "Add":
            continue
        changed = {each["Target"].get("Name"): None for each in change.get("Details", [])}
        by_schema = create_only({"Type": change["ResourceType"], "Properties": dict.fromkeys(changed, True)})
        if change["Action"] == "Remove" or change["Replacement"] == "True" or by_schema:
            yield name


def test_no_parameter_change_replaces_a_stateful_resource(change_sets: ChangeSets) -> None:
    changes = change_sets.changes("other-parameters", OTHER)
    change_sets.delete("other-parameters")
    assert {"SlotTable", "RequestQueue", "DataBucket", "JanitorLogGroup", "SigningKeySecret"} <= changes.keys()
    assert list(_lost(changes)) == []


def test_control_a_change_set_shows_the_stateful_resources_that_it_replaces(change_sets: ChangeSets) -> None:
    """`lost` finds a renamed table, a table with a new name property, and such a queue."""
    template = change_sets.template()
    resources = template["Resources"]
    resources["Ledger"] = resources.pop("RequestLedgerTable")
    template = json.loads(json.dumps(template).replace("RequestLedgerTable", "Ledger"))
    template["Resources"]["SlotTable"]["Properties"]["TableName"] = "slots"
    template["Resources"]["WorkQueue"]["Properties"]["QueueName"] = "work"
    changes = change_sets.changes("losing", {}, template)
    change_sets.delete("losing")
    assert set(_lost(changes)) == {"RequestLedgerTable", "SlotTable", "WorkQueue"}
    assert changes["RequestLedgerTable"]["PolicyAction"] == "Retain"
    assert changes["SlotTable"]["PolicyAction"] == "ReplaceAndRetain"


def test_an_update_keeps_every_stateful_resource_and_its_content(stack: DeployedStack, change_sets: ChangeSets) -> None:
    process = stack.process(limit=1)
    name = stack.send(process, "r1")
    stack.wait_until_running(name)
    before = change_sets.physical_ids()
    change_sets.changes("in-place", IN_PLACE)
    change_sets.execute("in-place")
    assert change_sets.physical_ids() == before
    assert stack.holders(process) == {name}
    stack.end(process, "r1")
    stack.wait_for_status(name, "SUCCEEDED")
