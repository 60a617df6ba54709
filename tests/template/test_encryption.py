"""The policy of a customer's key permits exactly the services that the encrypted resources need.

The test derives the services from the templates: each resource under KmsKeyArn, its type, and its permitted senders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.template.parsing import parsed, parsed_template
from tests.template.roles.resolved_template import CHATBOT, WORKER, Stack

ROOT = Path(__file__).parents[2]
STACK: dict[str, Any] = parsed_template()["Resources"]
PRODUCER = parsed((ROOT / "docs" / "completion-events.yaml").read_text())["Resources"]
KEY = parsed((ROOT / "docs" / "kms-key.yaml").read_text())["Resources"]["Key"]
LOG_DELIVERY = "delivery.logs.amazonaws.com"
LOGS = "logs.${AWS::Region}.${AWS::URLSuffix}"
# Types whose service uses the key with its caller's permissions, or by a grant of the resource's creator, so that IAM
# policies decide (of DynamoDB, Secrets Manager, S3 and Lambda, the pages on encryption at rest in their guides).
BY_ITS_CALLERS = {
    "AWS::DynamoDB::Table",
    "AWS::SecretsManager::Secret",
    "AWS::S3::Bucket",
    "AWS::Serverless::Function",
}
POLICIES = {"AWS::SQS::Queue": "AWS::SQS::QueuePolicy", "AWS::SNS::Topic": "AWS::SNS::TopicPolicy"}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    else:
        yield str(value)


def _encrypted(resources: dict[str, Any]) -> dict[str, str]:
    """Logical id -> type of each resource under KmsKeyArn. A role and a custom resource only name the key."""
    return {
        name: resource["Type"]
        for name, resource in resources.items()
        if "KmsKeyArn" in _texts(resource.get("Properties", {}))
        and resource["Type"] not in ("AWS::IAM::Role", "Custom::Process")
    }


def _senders(resources: dict[str, Any], name: str, policy_type: str) -> set[str]:
    """The services that may send to a queue or topic."""
    policies = [r["Properties"] for r in resources.values() if r["Type"] == policy_type]
    return {
        statement["Principal"]["Service"]
        for policy in policies
        if {"Ref": name} in policy.get("Queues", policy.get("Topics"))
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    }


def _needed(resources: dict[str, Any]) -> dict[str, set[str]]:
    """Service -> the resources for which it must use the key."""
    needed: dict[str, set[str]] = {}
    for name, kind in _encrypted(resources).items():
        if kind == "AWS::Logs::LogGroup":
            services = {LOGS}
        elif kind == "AWS::StepFunctions::StateMachine":
            # Step Functions guide, "Data at rest encryption in Step Functions": step 3. Its role does the rest.
            services = {LOG_DELIVERY} if "LoggingConfiguration" in resources[name]["Properties"] else set()
        elif kind in POLICIES:
            services = _senders(resources, name, POLICIES[kind])
        else:
            assert kind in BY_ITS_CALLERS, (
                f"{name}, a {kind}, is under KmsKeyArn: add the services that use the key for it"
            )
            services = set()
        for service in services:
            needed.setdefault(service, set()).add(name)
    return needed


def _allowed() -> dict[str, dict[str, Any]]:
    """Service -> the statement of the key's policy that permits its use."""
    statements = KEY["Properties"]["KeyPolicy"]["Statement"]
    services = [(s["Principal"]["Service"], s) for s in statements if "Service" in s["Principal"]]
    return {service["Fn::Sub"] if isinstance(service, dict) else service: s for service, s in services}


def test_the_keys_policy_permits_exactly_the_services_that_need_it() -> None:
    assert _allowed().keys() == _needed(STACK).keys() | _needed(PRODUCER).keys()
    assert set(_needed(STACK)) == {LOGS, LOG_DELIVERY, "cloudwatch.amazonaws.com", "events.amazonaws.com"}
    assert set(_needed(PRODUCER)) == {"events.amazonaws.com"}


# Types that take a key, but store nothing under it here, and why.
NOTHING_STORED = {"AWS::Lambda::EventSourceMapping": "the key is for filter criteria, of which there are none"}


def test_every_resource_that_takes_a_key_is_under_the_customers_key() -> None:
    """By CloudFormation's own schemas of the types, which cfn-lint carries."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    flows = {"TokenRefreshSchedule": "rate(1 hour)", "RetryReportSchedule": "rate(7 days)", **CHATBOT, **WORKER}
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    made, without = Stack(KmsKeyArn=key, **flows).resources, Stack(**flows).resources
    kinds = {each["Type"] for each in made.values()} - NOTHING_STORED.keys()
    schemas = {k: PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", k).schema for k in kinds if k[0] == "A"}
    taking = {kind for kind, schema in schemas.items() if re.search(r'"kms\w*": ', json.dumps(schema), re.IGNORECASE)}
    assert len(taking) == 8
    assert {n for n, each in made.items() if each["Type"] in taking and key not in _texts(each["Properties"])} == set()
    assert without["Workflow"]["Properties"]["EncryptionConfiguration"] == {"Type": "AWS_OWNED_KEY"}


@pytest.mark.parametrize("service", sorted(set(_allowed()) - {LOG_DELIVERY}))
def test_a_publishing_service_may_generate_and_decrypt_a_data_key(service: str) -> None:
    """SNS guide, "Managing Amazon SNS encryption keys and costs"; SQS guide, "Key management"."""
    statement = _allowed()[service]
    for action in ("kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"):
        assert any(fnmatchcase(action, pattern) for pattern in statement["Action"])
    assert statement["Effect"] == "Allow"
    assert statement["Resource"] == "*"  # of a key's policy: this key


def test_a_service_that_sends_its_source_is_limited_to_this_account() -> None:
    """EventBridge sends none: a condition would block every event (SNS guide, the same page). For the log delivery the
    Step Functions guide shows none."""
    conditions = {service: statement.get("Condition") for service, statement in _allowed().items()}
    unconditional = {service for service, condition in conditions.items() if not condition}
    assert unconditional == {"events.amazonaws.com", LOG_DELIVERY}
    assert all("AWS::AccountId" in str(conditions[service]) for service in conditions.keys() - unconditional)
