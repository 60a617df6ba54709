"""`slotkeeper recursion check`: what Lambda does about loops, against what the template says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.operating import Answers, Operator

FUNCTIONS = {"StarterFunction": "Terminate", "WorkerFunction": "Allow", "OtherFunction": None}


def checked(operator: Operator, deployed: dict[str, str], *arguments: str, body: Any = None) -> Any:
    """The command over a stack with these functions, whose template leaves the setting of one out."""
    resources = {
        name: {"Type": "AWS::Lambda::Function", "Properties": {"RecursiveLoop": wanted} if wanted else {}}
        for name, wanted in FUNCTIONS.items()
    }
    template = json.dumps({"Resources": resources}) if body is None else body
    summaries = [
        {"LogicalResourceId": name, "PhysicalResourceId": name.lower(), "ResourceType": "AWS::Lambda::Function"}
        for name in FUNCTIONS
    ] + [{"LogicalResourceId": "Queue", "PhysicalResourceId": "url", "ResourceType": "AWS::SQS::Queue"}]
    asked: list[dict[str, Any]] = []

    def get_template(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"TemplateBody": template}

    def get(params: dict[str, Any]) -> dict[str, Any]:
        return {"RecursiveLoop": deployed[params["FunctionName"]]}

    told = {"ListStackResources": lambda _: {"StackResourceSummaries": summaries}, "GetTemplate": get_template}
    with Answers("cloudformation", told), Answers("lambda", {"GetFunctionRecursionConfig": get}):
        ended = operator.run("recursion", "check", *arguments)
    assert asked[0]["TemplateStage"] == "Processed"
    return ended


AS_IT_SHOULD_BE = {"starterfunction": "Terminate", "workerfunction": "Allow", "otherfunction": "Terminate"}


def test_settings_as_in_the_template_are_shown_with_their_reasons(operator: Operator) -> None:
    ended = checked(operator, AS_IT_SHOULD_BE)
    assert ended.exit_code == 0
    assert "it sends to its own queue on purpose" in ended.out
    assert "no loop is intended" in ended.out
    told = checked(operator, AS_IT_SHOULD_BE, "--json").json
    assert told["different"] == []
    assert told["functions"][2] == {
        "function": "WorkerFunction",
        "name": "workerfunction",
        "deployed": "Allow",
        "template": "Allow",
    }


@pytest.mark.parametrize(
    ("function", "setting"), [("workerfunction", "Terminate"), ("starterfunction", "Allow"), ("otherfunction", "Allow")]
)
def test_a_setting_that_somebody_has_changed_is_a_problem(operator: Operator, function: str, setting: str) -> None:
    ended = checked(operator, {**AS_IT_SHOULD_BE, function: setting}, "--json")
    assert ended.exit_code == 5
    assert [name.lower() for name in ended.json["different"]] == [function]
    assert "Somebody has changed it by hand" in ended.told


def test_a_template_that_is_not_json_is_said_to_be_none(operator: Operator) -> None:
    ended = checked(operator, AS_IT_SHOULD_BE, body="Resources: {}")
    assert ended.exit_code == 1
    assert "the deployed template is not JSON" in ended.told
