"""docs/permissions.md lists the wildcards of the roles, the services of a deployment and the calls of each command."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.slots.rows import LISTED
from slotkeeper.token import item as token_item
from tests.command.command_tree import all_commands
from tests.template.parsing import parsed_template
from tests.template.roles import sites
from tests.template.roles.evidence import stack
from tests.template.roles.needs import ACTIONS, PARTS, PREFIXES
from tests.template.roles.operators import ACTION, AUDIT, OPERATORS, entries, section
from tests.template.roles.policies import grants
from tests.template.roles.policies import listed as as_list
from tests.template.roles.resolved_template import NAMES

# The parameters with the ARNs of state machines that the variants have.
MACHINES = ("TargetStateMachineArn", "MoreStateMachineArns")


def _wildcards(variant: str) -> Iterator[tuple[str, str, str]]:
    """The pattern as on the page, the role without "Role" and the action of each grant with an asterisk."""
    made = stack(variant)
    names = {name: logical for logical, name in NAMES.items()}
    names |= {made.parameters["ArtifactBucketName"]: "ArtifactBucketName"}
    names |= {arn.rpartition(":")[2]: each for each in MACHINES for arn in made.parameters[each].split(",") if arn}
    logs = {made.arn(name) for name in made.of_type("AWS::Logs::LogGroup")}  # the asterisk is for their streams
    for role in made.of_type("AWS::IAM::Role"):
        for grant in grants(made, role):
            if "*" in grant.resource and grant.resource not in logs:
                pattern = grant.resource.split(":", 5)[-1]
                known = re.sub(r"[\w*-]+", lambda found: names.get(found[0], found[0]), pattern)
                yield known, role.removesuffix("Role"), grant.action


def test_every_wildcard_is_on_the_page_and_nothing_else() -> None:
    functions = [name.removesuffix("Function") for name in stack("all").of_type("AWS::Lambda::Function")]
    listed = set()
    for entry, actions in entries(section("Wildcards")).items():
        patterns, _, owners = entry.partition(" for ")
        named = owners.partition(" with ")[0].replace("every function", ", ".join(functions)).split(", ")
        listed |= set(product(re.findall("`([^`]+)`", patterns), named, ACTION.findall(actions)))
    assert listed == {each for variant in ("state machines", "all", "default") for each in _wildcards(variant)}


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
    """That it lists all of it, each test that runs a command checks (`check_page`)."""
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
