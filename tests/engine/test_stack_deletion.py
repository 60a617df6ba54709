"""The resources that outlive their stack when the embedded CloudFormation deletes, renames, replaces or rolls back.

The stacks have only the template's stateful resources, need no build, and are created in a second.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dev.emulator.aws import EmbeddedAws
from tests.support.template import parsed_template
from tests.support.waiting import wait_until
from tests.template.stateful import RETAINED, read_baseline, translated

HELD = read_baseline()
# These two depend on functions and roles, and are deleted with their stack.
ALONE = [name for name in HELD if name not in ("ChatbotApi", "Workflow")]
KEPT = {name for name in ALONE if HELD[name].get("DeletionPolicy") in RETAINED}


@cache
def _template() -> dict[str, Any]:
    """The template's stateful resources with every flow."""
    whole = translated(parsed_template())
    values = {"ChatApiUrl": "https://chat.example", "DeployWorker": "true"}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": {
            name: declared | {"Default": values.get(name, declared["Default"])}
            for name, declared in whole["Parameters"].items()
        },
        "Conditions": whole["Conditions"],
        "Resources": {name: whole["Resources"][name] for name in ALONE},
    }


class Stacks:
    """Stacks of that template, each with its own name."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self._cloudformation = aws.client("cloudformation")

    def create(self, name: str, template: dict[str, Any] | None = None, end: str = "CREATE_COMPLETE") -> dict[str, str]:
        """The physical ids, by logical id."""
        self._cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template or _template()))
        return self._wait(name, end)

    def update(self, name: str, template: dict[str, Any]) -> dict[str, str]:
        self._cloudformation.update_stack(StackName=name, TemplateBody=json.dumps(template))
        return self._wait(name, "UPDATE_COMPLETE")

    def delete(self, name: str) -> None:
        identity = self._cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        self._cloudformation.delete_stack(StackName=name)
        wait_until(lambda: self._status(identity) == "DELETE_COMPLETE", f"stack {name} to be deleted")

    def _status(self, name: str) -> str:
        return str(self._cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])

    def _wait(self, name: str, end: str) -> dict[str, str]:
        wait_until(lambda: not self._status(name).endswith("_IN_PROGRESS"), f"stack {name} to be {end}")
        pages = self._cloudformation.get_paginator("describe_stack_events").paginate(StackName=name)
        events = [event for page in pages for event in page["StackEvents"]]
        assert self._status(name) == end, [event.get("ResourceStatusReason") for event in events]
        # From the events, newest first, because a rolled back stack has no resources.
        made = [
            event for event in reversed(events) if event["ResourceStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        ]
        return {event["LogicalResourceId"]: event["PhysicalResourceId"] for event in made}

    def is_there(self, name: str, physical: str) -> bool:
        """Whether the service itself still has the resource."""
        look = {
            "AWS::DynamoDB::Table": ("dynamodb", "describe_table", "TableName"),
            "AWS::Logs::LogGroup": ("logs", "describe_log_streams", "logGroupName"),
            "AWS::S3::Bucket": ("s3", "head_bucket", "Bucket"),
            "AWS::SNS::Topic": ("sns", "get_topic_attributes", "TopicArn"),
            "AWS::SQS::Queue": ("sqs", "get_queue_attributes", "QueueUrl"),
            "AWS::SSM::Parameter": ("ssm", "get_parameter", "Name"),
            "AWS::Scheduler::ScheduleGroup": ("scheduler", "get_schedule_group", "Name"),
            "AWS::SecretsManager::Secret": ("secretsmanager", "list_secret_version_ids", "SecretId"),
        }
        service, operation, argument = look[HELD[name]["Type"]]
        try:
            getattr(self.aws.client(service), operation)(**{argument: physical})
        except ClientError as error:
            if not re.search("NotFound|NonExistent|404", str(error)):
                raise
            return False
        return True

    def there(self, physical: dict[str, str]) -> set[str]:
        return {name for name in ALONE if name in physical and self.is_there(name, physical[name])}


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    state_dir: Path = tmp_path_factory.mktemp("embedded-aws")
    with EmbeddedAws.start(state_dir) as aws:
        yield Stacks(aws)


def test_resources_with_retained_data_outlive_their_stack(stacks: Stacks) -> None:
    physical = stacks.create("deleted")
    stacks.delete("deleted")
    assert stacks.there(physical) == KEPT


def test_a_protected_table_cannot_be_deleted_manually(stacks: Stacks) -> None:
    physical = stacks.create("protected")
    dynamodb = stacks.aws.client("dynamodb")
    for table in ("SlotTable", "RequestLedgerTable"):
        with pytest.raises(ClientError, match="protect"):
            dynamodb.delete_table(TableName=physical[table])


@pytest.mark.parametrize(("name", "logical_id"), [("renamed", "Work"), ("replaced", "WorkQueue")])
def test_a_renamed_or_replaced_queue_keeps_its_messages(stacks: Stacks, name: str, logical_id: str) -> None:
    physical = stacks.create(name)
    sqs = stacks.aws.client("sqs")
    sqs.send_message(QueueUrl=physical["WorkQueue"], MessageBody="wanted")
    template = copy.deepcopy(_template())
    queue = template["Resources"].pop("WorkQueue")
    template["Resources"][logical_id] = queue
    if name == "replaced":
        queue["Properties"]["QueueName"] = "another"
    assert stacks.update(name, template)[logical_id] != physical["WorkQueue"]
    assert sqs.receive_message(QueueUrl=physical["WorkQueue"])["Messages"][0]["Body"] == "wanted"


def test_a_first_deployment_that_fails_leaves_only_protected_resources(stacks: Stacks) -> None:
    template = copy.deepcopy(_template())
    template["Resources"]["Impossible"] = {
        "Type": "Custom::Impossible",
        "DependsOn": ALONE,
        "Properties": {"ServiceToken": "arn:aws:lambda:us-east-1:000000000000:function:unknown"},
    }
    physical = stacks.create("failed", template, end="ROLLBACK_COMPLETE")
    assert stacks.there(physical) == {"SlotTable", "RequestLedgerTable", "AuditLogGroup"}
