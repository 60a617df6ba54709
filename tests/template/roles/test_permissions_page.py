"""docs/permissions.md lists the template's grants, the services of a deployment and the calls of each command."""

from __future__ import annotations

import inspect
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.rows import LISTED
from slotkeeper.token import item as token_item
from tests.command.command_tree import all_commands
from tests.template.parsing import parsed_template
from tests.template.roles import sites
from tests.template.roles.evidence import KEY_ARN, VARIANTS, jobs, stack
from tests.template.roles.needs import ACTIONS, PARTS, PREFIXES
from tests.template.roles.operators import ACTION, AUDIT, OPERATORS, PAGE, entries, section
from tests.template.roles.policies import EVERYTHING, grants
from tests.template.roles.policies import listed as as_list
from tests.template.roles.resolved_template import NAMES, Stack

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


def _rows() -> set[tuple[str, str, str, str]]:
    """Every grant of the template, as role without "Role", action, resource and parameter.

    A grant that every function has is one row.
    """
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


def _named_in(resource: str) -> str:
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
        return {"SampleJob": "GlueJobName", f"{role.removesuffix('Role')}LogGroup": "its log group"}.get(name, name)
    if resource.startswith("arn:aws:glue:"):
        named = resource.rpartition("/")[2]
        return "GlueJobName" if named == jobs(made)[0] else "MoreGlueJobArns"
    for parameter in MACHINES:
        for machine in filter(None, made.parameters[parameter].split(",")):
            if resource == machine:
                return parameter
            if resource == f"{machine.replace(':stateMachine:', ':execution:')}:*":
                return f"execution:{parameter}:*"
    for within in ("/index/", "/"):  # a table's index, a bucket's objects
        owner, _, name = resource.partition(within)
        if owner in made.logical:
            return f"{made.logical[owner]}{within}{name}"
    logical = {name: each for each, name in NAMES.items()} | {
        made.parameters[name]: name for name in ("ArtifactBucketName", "EventBusName")
    }
    text = resource.split(":", 5)[5]
    return re.sub("|".join(map(re.escape, sorted(logical, key=len, reverse=True))), lambda m: logical[m[0]], text)


def _with(who: str, action: str, resource: str) -> str:
    """The parameter that adds a grant, or "no " and the parameter that removes it."""
    if named := _named_in(resource):
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


def test_every_grant_is_on_the_page_and_nothing_else() -> None:
    listed = set()
    for owners in re.findall(r"^### (.+)$", PAGE.partition("\n## The roles\n")[2].partition("\n## ")[0], re.MULTILINE):
        for resources, actions in entries(section(owners)).items():
            named, _, parameter = resources.replace("`", "").replace(" without ", " with no ").partition(" with ")
            for owner, resource, action in product(owners.split(", "), named.split(", "), ACTION.findall(actions)):
                listed.add((owner, action, resource, parameter or _named_in(resource)))
    rows = _rows()
    assert (listed - rows, rows - listed) == (set(), set()), "(only on the page, only in the template)"


# IAM's prefix, if it is not CloudFormation's service name in lower case.
SERVICES = {"StepFunctions": "states", "Custom": "lambda"}


def test_the_page_lists_every_service_that_a_deployment_uses() -> None:
    kinds = {resource["Type"].removeprefix("AWS::").partition("::")[0] for resource in stack("all").resources.values()}
    made = {SERVICES.get(kind, kind.lower()) for kind in kinds}
    listed = {service for entry in entries(section("Who deploys")) for service in re.findall(r"\w+", entry)}
    # CloudFormation itself, services that parameters add, and `make gradual`.
    assert listed == made | {"cloudformation", "glue", "kms", "codedeploy"}


# --------------------------------------------------------------------------------------------------------- operators

TRANSACTION = "dynamodb:TransactWriteItems"  # no action: each part has its own

COMMANDS = {path: command.callback for path, command in all_commands() if not hasattr(command, "commands")}


def _reached(callback: Any) -> set[str]:
    """The actions that a command's code may call, and some more: calls are found by the names of methods."""
    function = inspect.unwrap(callback)
    services = {operation: service for service, operation in sites.operations().values()}
    reached = sites.reached_from([Path(inspect.getfile(function))], lambda site: site.function == function.__qualname__)
    asked = {(services[operation], operation) for made in reached for operation, _ in made.operations}
    actions = {ACTIONS.get(each, f"{PREFIXES.get(each[0], each[0])}:{each[1]}") for each in asked}
    if TRANSACTION not in actions:
        return actions
    return actions - {TRANSACTION} | {PARTS[part] for made in reached for part in made.parts}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_lists_only_what_a_command_may_call(command: str) -> None:
    """That it lists all of it, each test that runs a command checks (`within_the_page`)."""
    assert OPERATORS[command] - _reached(COMMANDS[command]) - AUDIT == set()


def test_an_operator_is_granted_no_read_of_the_token() -> None:
    """The page's conditions list the attributes that the commands use, and no read returns the token."""
    read, write = _statements("Operators do not need the token")
    shown = {path.partition(".")[0] for path in token_item.STATUS_ATTRIBUTES.split(", ")}
    assert set(_attributes(read)) == {"token_name", *shown}
    assert "access_token" not in _attributes(read)
    written = " ".join(
        (
            token_item.DROP_UPDATE,
            token_item.DROP_CONDITION,
            token_item.CLEAR_REFUSAL_UPDATE,
            token_item.CLEAR_REFUSAL_CONDITION,
        )
    )
    known = set(re.findall(r"^    (\w+) +[SNM]\b", token_item.__doc__ or "", re.MULTILINE))
    assert set(_attributes(write)) == {"token_name", *(known & set(re.findall(r"\w+", written)))}
    assert write["Condition"]["StringEqualsIfExists"] == {"dynamodb:ReturnValues": "NONE"}
    assert read["Condition"]["StringEqualsIfExists"] == {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"}


def _statements(heading: str) -> list[dict[str, Any]]:
    """The policy in a section."""
    match = re.search(r"^```json\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)
    assert match is not None
    statements: list[dict[str, Any]] = json.loads(match[1])
    return statements


def _attributes(statement: dict[str, Any]) -> list[str]:
    named: list[str] = statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"]
    return named


def test_a_reader_of_requests_is_granted_no_read_of_task_tokens_and_of_bodies_by_one_statement_alone() -> None:
    """Each of the others has what the reads of its kind name (rows.py), or what its indexes contain."""
    positions, lists, content = _statements("Who reads requests")
    table = stack("default").properties("RequestTable")
    indexes = table["LocalSecondaryIndexes"] + table["GlobalSecondaryIndexes"]
    read = [each for each in indexes if f"REQUEST_TABLE_ARN/index/{each['IndexName']}" in positions["Resource"]]
    contained = {name for each in read for name in each["Projection"]["NonKeyAttributes"]}
    assert len(read) == len(positions["Resource"]) == 5
    assert set(_attributes(positions)) == {
        "process_name",
        "execution",
        *(each["IndexName"] for each in read),
        *contained,
    }
    assert set(_attributes(lists)) == set(LISTED.replace("#", "").split(", "))
    assert set(_attributes(content)) == {"process_name", "execution", "body"}
    granted = {action for statement in (positions, lists, content) for action in as_list(statement["Action"])}
    assert granted == {f"dynamodb:{each}" for each in ("Query", "Scan", "GetItem", "BatchGetItem")}
    for statement in (positions, lists, content):
        assert not {"task_token", "ALL_ATTRIBUTES"} & {*_attributes(statement), *_selected(statement)}
        assert statement["Resource"] != "REQUEST_TABLE_ARN" or "ALL_PROJECTED_ATTRIBUTES" not in _selected(statement)


def _selected(statement: dict[str, Any]) -> list[str]:
    return as_list(statement["Condition"]["StringEqualsIfExists"]["dynamodb:Select"])


def test_the_resources_that_policies_of_operators_and_producers_need_have_outputs_with_their_arns() -> None:
    named = stack("all").resources.keys() & set(re.findall(r"\w+", section("Who operates") + section("Who produces")))
    assert len(named) > 10
    assert {name for name in named if f"{name}Arn" not in parsed_template()["Outputs"]} == set()


def test_there_is_no_row_without_a_command() -> None:
    assert OPERATORS.keys() == COMMANDS.keys()
