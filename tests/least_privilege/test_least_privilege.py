"""Each role may do what it is seen to do, and no more: every call is allowed, and every permission is used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.least_privilege.calls import WITHOUT_RESOURCE
from tests.least_privilege.evidence import VARIANTS, needed, stack
from tests.least_privilege.policies import EVERYTHING, Grant, grants


def _roles() -> Iterator[tuple[str, str]]:
    for variant in VARIANTS:
        yield from ((variant, role) for role in stack(variant).of_type("AWS::IAM::Role"))


each_role = pytest.mark.parametrize(("variant", "role"), list(_roles()))


@each_role
def test_every_call_is_allowed(variant: str, role: str) -> None:
    allowed = grants(stack(variant), role)
    denied = {need for need in needed(variant)[role] if not any(grant.allows(need) for grant in allowed)}
    assert not denied, "\n".join(sorted(f"{role} needs {n.action} on {n.resource}: {n.by}" for n in denied))


@each_role
def test_every_permission_is_used(variant: str, role: str) -> None:
    asked = needed(variant)[role]
    idle = [grant for grant in grants(stack(variant), role) if not any(map(grant.allows, asked))]
    assert not idle, "nobody uses\n" + "\n".join(map(str, idle))


@each_role
def test_what_a_call_is_for_is_a_condition_of_its_permission(variant: str, role: str) -> None:
    """A role passed to one service, an object in one account, a metric in one namespace, and no other."""
    for grant in grants(stack(variant), role):
        for need in filter(grant.allows, needed(variant)[role]):
            assert dict(grant.conditions) == need.context, f"{grant}: {need.context} and nothing else"


# What a policy can say of a resource whose name is made later: a pattern, as narrow as the names allow.
PATTERNS = {
    ("JanitorRole", "execution:workflow:*"): "an execution is named after its request",
    ("SampleJobRole", "DataBucket/*"): "a request names the objects that the sample job reads and writes",
    ("SampleJobRole", "aws-sam-cli-managed-default-samclisourcebucket-*/*"): "sam deploy makes the bucket, and uploads",
    ("SampleJobRole", "log-group:/aws-glue/*"): "Glue's own log groups, which it makes itself",
    ("WorkerRole", "DataBucket/*"): "a request names the object that it wants split",
    ("WorkerRole", "DataBucket/work/*"): "parts and manifests are named after their requests",
    ("WorkerRole", "schedule/RetryScheduleGroup/*"): "a schedule is named after its attempt",
}


def _pattern(grant: Grant) -> str:
    """The part of the ARN that says which resource."""
    return grant.resource.split(":", 5)[5]


@each_role
def test_a_resource_is_named_where_it_has_a_name(variant: str, role: str) -> None:
    for grant in grants(stack(variant), role):
        if grant.resource == EVERYTHING:
            assert grant.action in WITHOUT_RESOURCE, f"{grant}: there is an ARN for that"
        elif not grant.action.startswith("logs:") or role == "SampleJobRole":
            assert "*" not in grant.resource or (role, _pattern(grant)) in PATTERNS, grant
        else:
            assert grant.resource.count("*") == 1, grant  # the streams of the one log group


def test_every_pattern_is_there_still() -> None:
    made = stack("as it is")
    there = {
        (role, _pattern(g)) for role in made.of_type("AWS::IAM::Role") for g in grants(made, role) if ":" in g.resource
    }
    assert PATTERNS.keys() <= there
