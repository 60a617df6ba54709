"""Access from outside the roles: policies of queues, topics and buckets, function permissions, trust policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from dev.tools import gradual
from tests.template.roles.evidence import VARIANTS, stack
from tests.template.roles.policies import listed, matches
from tests.template.roles.resolved_template import ACCOUNT, Stack

ALL = "all"
PLAIN_HTTP = {"Bool": {"aws:SecureTransport": "false"}}
# Resource type -> its policy's type, and the actions for which plain HTTP is denied. A topic's other actions are
# available to its owner only.
GUARDED = {
    "AWS::SQS::Queue": ("AWS::SQS::QueuePolicy", {"sqs:*"}),
    "AWS::S3::Bucket": ("AWS::S3::BucketPolicy", {"s3:*"}),
    "AWS::SNS::Topic": ("AWS::SNS::TopicPolicy", {"sns:*", "sns:Publish"}),
}
USERS = {
    "AWS::Lambda::Function": "lambda.amazonaws.com",
    "AWS::StepFunctions::StateMachine": "states.amazonaws.com",
    "AWS::Glue::Job": "glue.amazonaws.com",
}


def _statements(made: Stack, kind: str) -> Iterator[dict[str, Any]]:
    for policy in made.of_type(kind).values():
        yield from policy["PolicyDocument"]["Statement"]


@pytest.mark.parametrize("kind", GUARDED)
def test_plain_http_is_denied(kind: str) -> None:
    made = stack(ALL)
    policy, actions = GUARDED[kind]
    for name in made.of_type(kind):
        wanted = {made.arn(name)} | ({made.arn(name) + "/*"} if kind == "AWS::S3::Bucket" else set())
        (attached,) = [p for p in made.of_type(policy).values() if made.resolve({"Ref": name}) in _attached(p)]
        refused = [
            statement
            for statement in attached["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
            and statement["Principal"] == "*"
            and statement["Condition"] == PLAIN_HTTP
            and set(listed(statement["Action"])) <= actions
        ]
        resources = {resource for statement in refused for resource in listed(statement["Resource"])}
        # In a queue's policy, * means the queue of the policy.
        assert wanted <= resources or (kind == "AWS::SQS::Queue" and resources == {"*"}), name


def _attached(policy: dict[str, Any]) -> list[str]:
    return policy.get("Queues") or policy.get("Topics") or [policy["Bucket"]]


def test_exactly_the_services_that_send_to_a_queue_or_topic_are_allowed_and_only_of_this_account() -> None:
    made = stack(ALL)
    allowed: dict[str, set[str]] = {}
    for statement in (each for policy, _ in GUARDED.values() for each in _statements(made, policy)):
        if statement["Effect"] == "Allow":
            assert list(statement["Principal"]) == ["Service"]
            assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == ACCOUNT
            for resource in listed(statement["Resource"]):
                allowed.setdefault(resource, set()).add(statement["Principal"]["Service"])
    receivers = map(made.arn, [*made.of_type("AWS::SQS::Queue"), *made.of_type("AWS::SNS::Topic")])
    assert allowed == {arn: senders for arn in receivers if (senders := _senders(made, arn))}


def _senders(made: Stack, arn: str) -> set[str]:
    """The services that send to a queue or topic without a role: alarms and rules."""
    senders = set()
    if any(arn in alarm.get("AlarmActions", []) for alarm in made.of_type("AWS::CloudWatch::Alarm").values()):
        senders.add("cloudwatch.amazonaws.com")
    for rule in made.of_type("AWS::Events::Rule").values():
        if any(arn == target["Arn"] and "RoleArn" not in target for target in rule.get("Targets", [])):
            senders.add("events.amazonaws.com")
    return senders


def test_a_function_is_invoked_from_one_source_only() -> None:
    """Without a SourceArn, any rule or API of any account could invoke it (Lambda guide, "Granting Lambda function
    access to AWS services")."""
    made = stack(ALL)
    for name, permission in made.of_type("AWS::Lambda::Permission").items():
        assert permission["Action"] == "lambda:InvokeFunction", name
        source = permission["SourceArn"]
        match permission["Principal"]:
            case "events.amazonaws.com":
                rule = made.properties(made.logical[source])
                assert made.arn(permission["FunctionName"]) in [target["Arn"] for target in rule["Targets"]]
            case "apigateway.amazonaws.com":
                # Any stage of the one API, the one method of the one path.
                api = made.physical("ChatbotApi")
                assert source == f"arn:aws:execute-api:us-east-1:{ACCOUNT}:{api}/*/POST/messages"
            case other:
                raise NotImplementedError(f"{other}: add the source that it may invoke a function from")


def test_every_rule_may_invoke_its_targets() -> None:
    made = stack(ALL)
    permissions = list(made.of_type("AWS::Lambda::Permission").values())
    for name, rule in made.of_type("AWS::Events::Rule").items():
        for target in rule["Targets"]:
            if made.resources[made.logical[target["Arn"]]]["Type"] == "AWS::Lambda::Function":
                assert [p for p in permissions if matches(p["SourceArn"], made.arn(name))], name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_role_trusts_only_the_service_that_uses_it(variant: str) -> None:
    made = stack(variant)
    for role, properties in made.of_type("AWS::IAM::Role").items():
        (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
        assert (trust["Effect"], trust["Action"]) == ("Allow", "sts:AssumeRole")
        services = {USERS[made.resources[user]["Type"]] for user in made.users_of(role)}
        if role == "RetryScheduleRole":  # the creator of a schedule names it; only schedules of this group may use it
            services = {"scheduler.amazonaws.com"}
            expected = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": made.arn("RetryScheduleGroup")}
            assert trust["Condition"] == {"StringEquals": expected}
        elif services == {"states.amazonaws.com"}:
            assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
        else:  # AWS documents no condition for them (docs/permissions.md)
            assert "Condition" not in trust
        assert {trust["Principal"]["Service"]} == services, role
        assert list(trust["Principal"]) == ["Service"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_function_has_its_own_role(variant: str) -> None:
    made = stack(variant)
    for role in made.of_type("AWS::IAM::Role"):
        assert len(list(made.users_of(role))) == (role != "RetryScheduleRole")


def test_a_gradual_deployment_adds_codedeploys_role_and_changes_no_other() -> None:
    template = yaml_parse(gradual.TEMPLATE.read_text())
    made = gradual.gradual(template, gradual.DEFAULT, "release")
    kinds = ("AWS::IAM::Role", "AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy")
    before, after = (
        {name: resource for name, resource in each["Resources"].items() if resource["Type"] in kinds}
        for each in (template, made)
    )
    added = after.pop(gradual.ROLE)
    assert after == before
    assert json.dumps(added["Properties"]["ManagedPolicyArns"]).endswith('AWSCodeDeployRoleForLambdaLimited"}]')


def test_the_permissions_boundary_holds_for_every_role() -> None:
    made = Stack(PermissionsBoundaryArn="arn:aws:iam::123456789012:policy/boundary", **VARIANTS["all"])
    for properties in made.of_type("AWS::IAM::Role").values():
        assert properties["PermissionsBoundary"] == "arn:aws:iam::123456789012:policy/boundary"
