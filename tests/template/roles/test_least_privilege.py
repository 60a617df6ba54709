"""Each role has exactly the permissions that it needs: every call is allowed, and every permission is used."""

from __future__ import annotations

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


@each_variant
def test_only_an_action_without_resources_is_granted_on_all(variant: str) -> None:
    """docs/permissions.md lists every other wildcard (test_permissions_page.py)."""
    for role in _roles(variant):
        for grant in grants(stack(variant), role):
            assert grant.resource != EVERYTHING or grant.action in WITHOUT_RESOURCE, f"{grant}: it supports ARNs"
