"""The template's grants in the terms of docs/permissions.md: logical ids of resources, and the parameter of a grant."""

from __future__ import annotations

import re
from functools import cache

from tests.least_privilege.evidence import KEY_ARN, VARIANTS, jobs, stack
from tests.least_privilege.policies import EVERYTHING, grants
from tests.least_privilege.resolved_template import NAMES, Stack

# Variant -> the parameter that its grants depend on.
PARAMETERS = {
    "token refresher": "TokenRefreshSchedule",
    "retry report": "RetryReportSchedule",
    "own jobs": "MoreGlueJobArns",
    "callers": "CallerStateMachineArns",
    "own key": "KmsKeyArn",
    "in a VPC": "SubnetIds",
}
# The parameters with ARNs of state machines. A grant whose resource has such a name exists if the parameter is set.
MACHINES = ("TargetStateMachineArn", "MoreStateMachineArns", "CallerStateMachineArns")
EVERY_FUNCTION = "Every function"

Row = tuple[str, str, str, str]  # role without "Role", action, resource, parameter


@cache
def rows() -> set[Row]:
    """Every grant of the template. A grant that every function has is one row."""
    granted = {
        (role.removesuffix("Role"), grant.action, _label(stack(variant), role, grant.resource))
        for variant in VARIANTS
        for role in stack(variant).of_type("AWS::IAM::Role")
        for grant in grants(stack(variant), role)
    }
    functions = {name.removesuffix("Function") for name in stack("all").of_type("AWS::Lambda::Function")}
    listed = set()
    for who, action, resource in granted:
        shared = who in functions and {(each, action, resource) for each in functions} <= granted
        parameter = _with(min(functions - {"TokenRefresher", "RetryReport"}) if shared else who, action, resource)
        listed.add((EVERY_FUNCTION if shared else who, action, resource, parameter))
    return listed


def named_in(resource: str) -> str:
    """The parameter that a resource's name on the page contains, and that its grant depends on; "" if none."""
    return next((each for each in ("KmsKeyArn", "MoreGlueJobArns", *MACHINES) if each in resource), "")


def _label(made: Stack, role: str, resource: str) -> str:
    """A resource's name on the page."""
    if resource == EVERYTHING:
        return resource
    if resource == KEY_ARN:
        return "KmsKeyArn"
    if resource in made.logical:
        name = made.logical[resource]
        return "its log group" if name == role.removesuffix("Role") + "LogGroup" else _job(name, made)
    if resource.startswith("arn:aws:glue:"):
        named = resource.rpartition("/")[2]
        return "GlueJobName" if named == jobs(made)[0] else "MoreGlueJobArns"
    for parameter in MACHINES:
        for machine in filter(None, made.parameters[parameter].split(",")):
            if resource == machine:
                return parameter
            if resource == f"{machine.replace(':stateMachine:', ':execution:')}:*":
                return f"execution:{parameter}:*"
    bucket, slash, rest = resource.partition("/")
    if bucket in made.logical:
        return f"{made.logical[bucket]}{slash}{rest}"
    logical = {name: each for each, name in NAMES.items()} | {
        made.parameters[name]: name for name in ("ArtifactBucketName", "EventBusName")
    }
    text = resource.split(":", 5)[5]
    return re.sub("|".join(map(re.escape, sorted(logical, key=len, reverse=True))), lambda m: logical[m[0]], text)


def _job(name: str, made: Stack) -> str:
    return "GlueJobName" if name == "SampleJob" else name


def _with(who: str, action: str, resource: str) -> str:
    """The parameter that adds a grant, or "no " and the parameter that removes it."""
    if named := named_in(resource):
        return named
    role = f"{who}Role"
    variants = [variant for variant in VARIANTS if role in stack(variant).resources]
    granted = {
        variant: (action, resource) in {(g.action, _label(made, role, g.resource)) for g in grants(made, role)}
        for variant, made in ((variant, stack(variant)) for variant in variants)
    }
    # The first variant with the role is the reference, since a parameter may add the role itself.
    usual = granted[variants[0]]
    changed = [parameter for variant, parameter in PARAMETERS.items() if granted.get(variant, usual) != usual]
    return f"{'no ' if usual else ''}{changed[0]}" if changed else ""
