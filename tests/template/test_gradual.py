"""A gradual deployment after the SAM transform: the invocations through the alias, and the alarms that stop it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dev.tools import gradual
from tests.template.parsing import parsed_template, translated

ROOT = Path(__file__).parents[2]
TEMPLATE = parsed_template()


@pytest.fixture(scope="module")
def plain() -> Any:
    return translated(TEMPLATE)["Resources"]


@pytest.fixture(scope="module")
def made() -> Any:
    return translated(gradual.gradual(TEMPLATE, gradual.DEFAULT, "2026-11-22T01:00:00Z"))["Resources"]


@pytest.fixture(scope="module")
def cure() -> Any:
    """The next release, deployed without delay while alarms ring."""
    return translated(gradual.gradual(TEMPLATE, "AllAtOnce", "2026-11-22T01:00:01Z"))["Resources"]


def _alias(function: str) -> str:
    return f"{function}Aliaslive"


@pytest.mark.parametrize("function", gradual.ALARMS)
def test_codedeploy_moves_the_alias_and_its_alarms_exist(made: dict[str, Any], function: str) -> None:
    update = made[_alias(function)]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
    group = made[update["DeploymentGroupName"]["Ref"]]["Properties"]
    assert "Canary10Percent30Minutes" in json.dumps(group["DeploymentConfigName"])
    assert group["ServiceRoleArn"] == {"Fn::GetAtt": [gradual.ROLE, "Arn"]}
    assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
    alarms = [each["Name"]["Ref"] for each in group["AlarmConfiguration"]["Alarms"]]
    assert alarms == gradual.ALARMS[function]
    for alarm in alarms:
        assert made[alarm]["Type"] == "AWS::CloudWatch::Alarm"
        assert made[alarm].get("Condition") == made[_alias(function)].get("Condition")


@pytest.mark.parametrize("function", gradual.ALARMS)
def test_the_deployment_takes_longer_than_its_alarms_need_to_ring(made: dict[str, Any], function: str) -> None:
    for alarm in gradual.ALARMS[function]:
        properties = made[alarm]["Properties"]
        periods = properties.get("DatapointsToAlarm", properties["EvaluationPeriods"])
        assert properties["Period"] * periods < 30 * 60


def test_every_event_goes_through_the_alias(made: dict[str, Any]) -> None:
    """A source that invokes the function itself would use the new version immediately."""
    invoked = {"AWS::Lambda::EventSourceMapping": "FunctionName", "AWS::Lambda::Permission": "FunctionName"}
    invoked |= {"AWS::Events::Rule": "Targets"}
    by_alias = dict.fromkeys(gradual.ALARMS, 0)
    for resource in made.values():
        if place := invoked.get(resource["Type"]):
            what = json.dumps(resource["Properties"][place])
            for function in gradual.ALARMS:
                by_alias[function] += f'"{_alias(function)}"' in what
                assert f'"{function}"' not in what
    assert by_alias == {"StarterFunction": 2, "JanitorFunction": 2, "ChatbotFunction": 1, "WorkerFunction": 1}


def test_the_api_invokes_the_alias_that_it_is_permitted_to(made: dict[str, Any]) -> None:
    body = json.dumps(made["ChatbotApi"]["Properties"]["Body"])
    assert "${ChatbotFunctionAliaslive}/invocations" in body
    assert "${ChatbotFunction.Arn}" not in body
    permissions = [each["Properties"] for each in made.values() if each["Type"] == "AWS::Lambda::Permission"]
    by_the_api = [each for each in permissions if each["Principal"] == "apigateway.amazonaws.com"]
    assert [each["FunctionName"] for each in by_the_api] == [{"Ref": _alias("ChatbotFunction")}]


def test_every_release_publishes_a_new_version(made: dict[str, Any], cure: dict[str, Any]) -> None:
    """SAM does not notice a parameter's new value: without a new release the alias would keep the old version."""
    versions, others = (
        {name for name, resource in each.items() if resource["Type"] == "AWS::Lambda::Version"} for each in (made, cure)
    )
    assert len(versions) == len(others) == len(gradual.ALARMS)
    assert not versions & others


def test_a_fix_is_deployed_while_alarms_ring(cure: dict[str, Any]) -> None:
    groups = [each["Properties"] for each in cure.values() if each["Type"] == "AWS::CodeDeploy::DeploymentGroup"]
    assert len(groups) == len(gradual.ALARMS)
    assert not any("AlarmConfiguration" in group for group in groups)


def test_the_gradual_template_has_no_other_differences(made: dict[str, Any], plain: dict[str, Any]) -> None:
    kinds = {"AWS::Lambda::Version", "AWS::Lambda::Alias", "AWS::CodeDeploy::Application"}
    added = {made[name]["Type"] for name in made.keys() - plain.keys()}
    assert added <= kinds | {"AWS::CodeDeploy::DeploymentGroup", "AWS::IAM::Role", "AWS::ApiGateway::Deployment"}
    gone = {plain[name]["Type"] for name in plain.keys() - made.keys()}
    assert gone <= {"AWS::ApiGateway::Deployment"}  # named by the hash of the API's definition


def test_the_file_is_where_prod_builds_from_and_its_paths_lead_to_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod = tomllib.loads((ROOT / "samconfig.toml").read_text())["prod"]
    assert prod["build"]["parameters"]["template_file"] == str(gradual.GRADUAL.relative_to(ROOT))
    # `sam deploy` of a plain `sam build` would not be gradual.
    built = f"{prod['build']['parameters']['build_dir']}/template.yaml"
    assert prod["deploy"]["parameters"]["template_file"] == built
    monkeypatch.setattr(gradual, "GRADUAL", tmp_path / "build" / "gradual" / "template.json")
    monkeypatch.setattr(gradual, "_shown", str)
    assert CliRunner().invoke(gradual.main).exit_code == 0
    template = json.loads(gradual.GRADUAL.read_text())
    resources = template["Resources"]
    paths = [template["Metadata"][gradual.APPLICATION][file] for file in gradual.FILES]
    paths += [resources["SampleJob"]["Properties"]["Command"]["ScriptLocation"]]
    paths += [
        each["Properties"][path]
        for each in resources.values()
        for path in gradual.PATHS
        if path in each.get("Properties", {})
    ]
    assert len(paths) == 13
    for path in paths:
        assert (ROOT / "build" / "gradual" / path).resolve().exists(), path
