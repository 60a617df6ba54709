"""Each role has exactly the permissions that it needs: every call is allowed, and every permission is used."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from tests.template.roles.evidence import KEY_ARN, VARIANTS, calls, needed, stack
from tests.template.roles.needs import WITHOUT_RESOURCE
from tests.template.roles.policies import EVERYTHING, grants, listed
from tests.template.roles.resolved_template import REGION

OF_THE_BUCKET = ("SSEKMSKeyId", "SSEKMSEncryptionContext")
FAKE = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def _roles(variant: str) -> list[str]:
    return list(stack(variant).of_type("AWS::IAM::Role"))


@each_variant
def test_every_call_is_allowed(variant: str) -> None:
    for role in _roles(variant):
        allowed = grants(stack(variant), role)
        denied = {need for need in needed(variant)[role] if not any(grant.allows(need) for grant in allowed)}
        assert not denied, "\n".join(sorted(f"{role} needs {n.action} on {n.resource}: {n.by}" for n in denied))


@each_variant
def test_every_permission_is_used(variant: str) -> None:
    for role in _roles(variant):
        asked = needed(variant)[role]
        idle = [grant for grant in grants(stack(variant), role) if not any(map(grant.allows, asked))]
        assert not idle, f"unused permissions of {role}:\n" + "\n".join(map(str, idle))


@each_variant
def test_the_context_of_a_call_is_a_condition_of_its_permission(variant: str) -> None:
    """A role is passed to one service, an object is in one account, an event of one source.

    The sample job uses the key through S3. Every other value is refused.
    """
    for role in _roles(variant):
        for grant in grants(stack(variant), role):
            used = [need.context for need in needed(variant)[role] if grant.allows(need)]
            conditions = {key: set(listed(values)) for key, values in grant.conditions}
            for context in used:
                assert conditions.keys() == context.keys(), f"{role}, {grant}: expected {context}"
            assert conditions == {key: {context[key] for context in used} for key in conditions}, f"{role}, {grant}"


def test_every_call_that_takes_a_key_gives_the_customers_key() -> None:
    """By botocore's models. S3 encrypts an object by its bucket's setting."""
    given = {}
    for call in (call for function, made in calls("own key").items() if function != "Workflow" for call in made):
        model = boto3.client(call.service, REGION, **FAKE).meta.service_model.operation_model(call.operation)
        taken = [name for name in (model.input_shape.members if model.input_shape else ()) if "KMS" in name.upper()]
        given |= {(call.operation, name): call.parameters.get(name) for name in taken}
    assert {key for key, value in given.items() if not value} == {("PutObject", name) for name in OF_THE_BUCKET}
    assert given["CreateSchedule", "KmsKeyArn"] == KEY_ARN


# Patterns for resources whose names are created later, as narrow as the names allow: (pattern, action) -> roles.
PATTERNS = {
    # An execution is named after its request.
    ("execution:workflow:*", "states:DescribeExecution"): "Starter, Janitor, Ending",
    # Any state machine may wait for an answer, unless CallerStateMachineArns names them.
    ("stateMachine:*", "states:SendTaskHeartbeat"): "Workflow",
    **{("stateMachine:*", f"states:SendTask{each}"): "Janitor, Ending" for each in ("Success", "Failure")},
    # A child is named after its request.
    **{
        (f"execution:{machine}:*", f"states:{each}Execution"): "Workflow, Janitor, Ending"
        for machine in ("child", "second", "third")
        for each in ("Describe", "Stop")
    },
    # A request names input and output.
    **{("DataBucket/*", f"s3:{each}Object"): "SampleJob" for each in ("Get", "Put")},
    # `sam deploy` creates the bucket and names the script.
    ("aws-sam-cli-managed-default-samclisourcebucket-*/*", "s3:GetObject"): "SampleJob",
    # Glue creates its log groups itself.
    **{
        ("log-group:/aws-glue/*", f"logs:{each}"): "SampleJob"
        for each in ("CreateLogGroup", "CreateLogStream", "PutLogEvents")
    },
    # A schedule is named after its attempt.
    **{("schedule/RetryScheduleGroup/*", f"scheduler:{each}Schedule"): "Worker" for each in ("Create", "Get")},
}


def _patterns(variant: str) -> Iterator[tuple[tuple[str, str], str]]:
    """(pattern, action), role; without log groups, whose ARNs end in an asterisk for their streams."""
    for role in _roles(variant):
        for grant in grants(stack(variant), role):
            name = grant.resource.split(":", 5)[-1]
            if "*" in name and grant.resource not in (EVERYTHING, *map(stack(variant).arn, _log_groups(variant))):
                yield (name, grant.action), role.removesuffix("Role")


def _log_groups(variant: str) -> list[str]:
    return list(stack(variant).of_type("AWS::Logs::LogGroup"))


@each_variant
def test_a_resource_with_a_name_is_granted_by_its_name(variant: str) -> None:
    for role in _roles(variant):
        for grant in grants(stack(variant), role):
            named = grant.resource != EVERYTHING or grant.action in WITHOUT_RESOURCE
            assert named, f"{grant}: the action supports ARNs"
    for pattern, role in _patterns(variant):
        listed = role in PATTERNS.get(pattern, "").split(", ")
        assert listed, f"{role}, {pattern}: name the resource, or extend PATTERNS"


def test_every_listed_pattern_exists() -> None:
    matched = {each for variant in ("default", "state machines") for each in _patterns(variant)}
    assert matched == {(pattern, role) for pattern, roles in PATTERNS.items() for role in roles.split(", ")}
