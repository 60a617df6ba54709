"""Under a customer's key everything still arrives: its policy lets those use it that the encrypted resources need.

Who that is follows from the templates: from each resource under KmsKeyArn, its type, and who may send to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import cfn_yaml

from tests.support.template import parsed_template

ROOT = Path(__file__).parents[2]
STACK: dict[str, Any] = parsed_template()["Resources"]
PRODUCER: dict[str, Any] = cfn_yaml.load(str(ROOT / "docs" / "completion-events.yaml"))["Resources"]
KEY: dict[str, Any] = cfn_yaml.load(str(ROOT / "docs" / "kms-key.yaml"))["Resources"]["Key"]
DESCRIPTION: str = parsed_template()["Parameters"]["KmsKeyArn"]["Description"]

LOGS = "logs.${AWS::Region}.${AWS::URLSuffix}"
# Types whose service uses the key in the name of whoever calls it, or by a grant that its creator gives, so that IAM
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
    """Logical id -> type, of what is under KmsKeyArn. A role only names it, for its permissions."""
    return {
        name: resource["Type"]
        for name, resource in resources.items()
        if "KmsKeyArn" in _texts(resource.get("Properties", {})) and resource["Type"] != "AWS::IAM::Role"
    }


def _senders(resources: dict[str, Any], name: str, policy_type: str) -> set[str]:
    """The services that a queue or topic lets send to it."""
    policies = [r["Properties"] for r in resources.values() if r["Type"] == policy_type]
    return {
        statement["Principal"]["Service"]
        for policy in policies
        if {"Ref": name} in policy.get("Queues", policy.get("Topics"))
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    }


def _needed(resources: dict[str, Any]) -> dict[str, set[str]]:
    """Service -> the resources for which it has to use the key."""
    needed: dict[str, set[str]] = {}
    for name, kind in _encrypted(resources).items():
        if kind == "AWS::Logs::LogGroup":
            services = {LOGS}
        elif kind in POLICIES:
            services = _senders(resources, name, POLICIES[kind])
        else:
            assert kind in BY_ITS_CALLERS, f"{name}, a {kind}, is under KmsKeyArn: who has to use the key for it?"
            services = set()
        for service in services:
            needed.setdefault(service, set()).add(name)
    return needed


def _allowed() -> dict[str, dict[str, Any]]:
    """Service -> the statement of the key's policy that lets it use the key."""
    statements = KEY["Properties"]["KeyPolicy"]["Statement"]
    services = [(s["Principal"]["Service"], s) for s in statements if "Service" in s["Principal"]]
    return {service["Fn::Sub"] if isinstance(service, dict) else service: s for service, s in services}


def test_the_key_lets_exactly_those_services_use_it_that_have_to() -> None:
    assert _allowed().keys() == _needed(STACK).keys() | _needed(PRODUCER).keys()
    assert set(_needed(STACK)) == {LOGS, "cloudwatch.amazonaws.com", "events.amazonaws.com"}
    assert set(_needed(PRODUCER)) == {"events.amazonaws.com"}


@pytest.mark.parametrize("service", _allowed())
def test_who_publishes_may_make_a_data_key_and_read_it(service: str) -> None:
    """SNS guide, "Managing Amazon SNS encryption keys and costs"; SQS guide, "Key management"."""
    statement = _allowed()[service]
    for action in ("kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"):
        assert any(fnmatchcase(action, pattern) for pattern in statement["Action"])
    assert statement["Effect"] == "Allow"
    assert statement["Resource"] == "*"  # of a key's policy: this key


def test_each_service_is_held_to_this_account_where_it_says_for_whom_it_asks() -> None:
    """EventBridge does not: a condition would keep every event away (SNS guide, the same page)."""
    conditions = {service: statement.get("Condition") for service, statement in _allowed().items()}
    unconditional = {service for service, condition in conditions.items() if not condition}
    assert unconditional == {"events.amazonaws.com"}
    assert all("AWS::AccountId" in str(conditions[service]) for service in conditions.keys() - unconditional)


def test_every_role_of_the_stack_may_use_the_key() -> None:
    """The rest is theirs: a queue, table or secret under the key is used in the name of whoever calls."""
    for name, resource in STACK.items():
        if resource["Type"] == "AWS::IAM::Role":
            statements = resource["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
            (use_key,) = [s["Fn::If"][1] for s in statements if "Fn::If" in s and s["Fn::If"][0] == "HasKey"]
            assert "kms:Decrypt" in use_key["Action"], name
    (own,) = [s for s in KEY["Properties"]["KeyPolicy"]["Statement"] if "AWS" in s["Principal"]]
    assert (own["Action"], own["Principal"]["AWS"]["Fn::Sub"].endswith(":root")) == ("kms:*", True)


def test_every_alarm_rings_at_the_topic_that_lets_alarms_publish() -> None:
    alarms = [r["Properties"] for r in STACK.values() if r["Type"].endswith("Alarm")]
    topics = {action["Ref"] for alarm in alarms for action in alarm["AlarmActions"]}
    assert topics == {"FailureTopic"}
    assert _senders(STACK, "FailureTopic", "AWS::SNS::TopicPolicy") == {"cloudwatch.amazonaws.com"}


def test_the_topic_is_under_your_key_or_under_none() -> None:
    """Never under alias/aws/sns: nobody can change its policy, and alarms cannot use it."""
    key = STACK["FailureTopic"]["Properties"]["KmsMasterKeyId"]
    assert key == {"Fn::If": ["HasKey", {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}]}


def test_losing_the_key_is_losing_the_data() -> None:
    assert (KEY["DeletionPolicy"], KEY["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_the_parameter_says_where_the_policy_stands() -> None:
    assert "docs/kms-key.yaml" in DESCRIPTION
