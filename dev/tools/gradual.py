"""Write the template of a gradual deployment: template.yaml with CodeDeploy between two versions of its functions.

    python -m dev.tools.gradual && sam build --config-env prod && sam deploy --config-env prod

The new version receives a tenth of the invocations first. If one of the function's alarms goes off meanwhile,
CodeDeploy returns all invocations to the old version, and CloudFormation rolls the update back.

It is a separate template because no parameter can switch SAM's versions off: AutoPublishAlias must not be empty. And
with versions in template.yaml, an update that changes only a parameter would publish none, so that the alias would keep
the old value. This template contains the name of its release, so every deployment publishes a version.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT

TEMPLATE = ROOT / "template.yaml"
GRADUAL = ROOT / "build" / "gradual" / "template.json"
ALIAS = "live"
# The functions with regular traffic, each with the alarms that show a bad version. The custom resources' two functions
# are invoked too rarely.
ALARMS = {
    "StarterFunction": ["StarterCrashAlarm", "StarterErrorAlarm"],
    "JanitorFunction": ["JanitorCrashAlarm", "JanitorErrorAlarm"],
    "ChatbotFunction": ["ChatbotFailureAlarm"],
    "WorkerFunction": ["WorkerCrashAlarm", "WorkLeftAlarm"],
}
# CodeDeploy guide, "Deployment configurations on an AWS Lambda compute platform". Some alarms take 15 minutes to go
# off, so a shorter deployment would have ended before.
TYPES = ("Canary10Percent15Minutes", "Canary10Percent30Minutes", "Linear10PercentEvery3Minutes", "AllAtOnce")
DEFAULT = "Canary10Percent30Minutes"
ROLE = "GradualDeploymentRole"
PATHS = ("CodeUri", "ContentUri", "DefinitionS3Location")
APPLICATION, FILES = "AWS::ServerlessRepo::Application", ("LicenseUrl", "ReadmeUrl")


def gradual(template: dict[str, Any], kind: str, release: str) -> dict[str, Any]:
    """The template with versions, an alias and a deployment group for each function of ALARMS.

    Args:
        kind: one of TYPES. AllAtOnce ignores the alarms, so that a fix can be deployed while they are on.
        release: a text that is unique to the deployment.
    """
    resources = dict(template["Resources"])
    for name, alarms in ALARMS.items():
        preference: dict[str, Any] = {"Type": kind, "Role": {"Fn::GetAtt": [ROLE, "Arn"]}}
        if kind != "AllAtOnce":
            preference["Alarms"] = [{"Ref": alarm} for alarm in alarms]
        # SAM uses the first ten characters in the version's name.
        published = {"AutoPublishAlias": ALIAS, "AutoPublishCodeSha256": sha256(release.encode()).hexdigest()}
        properties = resources[name]["Properties"] | published | {"DeploymentPreference": preference}
        resources[name] = resources[name] | {"Properties": properties}
    resources["ChatbotApi"] = _through_the_alias(resources["ChatbotApi"])
    # SAM's logical name of the alias.
    permitted = resources["ChatbotPermission"]["Properties"] | {"FunctionName": {"Ref": "ChatbotFunction.Alias"}}
    resources["ChatbotPermission"] = resources["ChatbotPermission"] | {"Properties": permitted}
    resources[ROLE] = _role(resources["StarterRole"])
    return template | {"Resources": resources}


def _through_the_alias(api: dict[str, Any]) -> dict[str, Any]:
    """The API, invoking the alias; ChatbotPermission allows nothing else. Raises ValueError."""
    text = json.dumps(api)
    function, alias = "${ChatbotFunction.Arn}/invocations", "${ChatbotFunction.Alias}/invocations"
    if text.count(function) != 1:
        raise ValueError(f"ChatbotApi names {function} {text.count(function)} times, expected 1")
    gradual: dict[str, Any] = json.loads(text.replace(function, alias))
    return gradual


def _role(like: dict[str, Any]) -> dict[str, Any]:
    """CodeDeploy's role. SAM would create one without the permissions boundary."""
    managed = {"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"}
    may_assume = {"Effect": "Allow", "Principal": {"Service": "codedeploy.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [may_assume]},
            "ManagedPolicyArns": [managed],
            "PermissionsBoundary": like["Properties"]["PermissionsBoundary"],
        },
    }


def moved(template: dict[str, Any], up: str) -> dict[str, Any]:
    """The template for another folder; `up` is the path from there to the template's files."""
    resources = {}
    for name, resource in template["Resources"].items():
        properties = dict(resource.get("Properties", {}))
        for path in PATHS:
            if path in properties:
                properties[path] = f"{up}/{properties[path]}"
        if resource["Type"] == "AWS::Glue::Job":
            command = properties["Command"]
            properties["Command"] = command | {"ScriptLocation": f"{up}/{command['ScriptLocation']}"}
        resources[name] = resource | ({"Properties": properties} if properties else {})
    metadata = template["Metadata"]
    published = {key: f"{up}/{each}" if key in FILES else each for key, each in metadata[APPLICATION].items()}
    return template | {"Resources": resources, "Metadata": metadata | {APPLICATION: published}}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--type", "kind", type=click.Choice(TYPES), default=DEFAULT, show_default=True)
def main(kind: str) -> None:
    """Write build/gradual/template.json for `sam build --config-env prod`."""
    template = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))
    made = gradual(template, kind, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    GRADUAL.parent.mkdir(parents=True, exist_ok=True)
    GRADUAL.write_text(json.dumps(moved(made, "../.."), indent=2) + "\n")
    click.echo(f"gradual: {_shown(GRADUAL)}, {kind}; next: sam build --config-env prod")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    main(prog_name="python -m dev.tools.gradual")
