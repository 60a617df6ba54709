"""Deploy one function and the resources that it uses, as a separate stack on an embedded AWS, from template.yaml.

The stack is inert: it has no event source, no schedule and no custom resource, and its workflow waits in its first
state. So every change after a call was made by the function. Names, environment and timeout are the template's.
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from dev.emulator.aws import EmbeddedAws
from dev.emulator.deployment import DeploymentError
from dev.emulator.environment import ROOT
from dev.tools.function_folders import code_folders
from dev.tools.invoke.lambda_runtime import Configuration

TEMPLATE = ROOT / "template.yaml"
BUCKET = "slotkeeper-invoke"
WAITING_STATE = {"Type": "Wait", "Seconds": 86400, "End": True}
WAITING_DEFINITION = {"StartAt": "Only", "States": {"Only": WAITING_STATE}}
READY_SECONDS = 120.0


def logical_id(function: str) -> str:
    """The logical id of a function: `token_refresher` -> TokenRefresherFunction."""
    return "".join(word.capitalize() for word in function.split("_")) + "Function"


def bring_up(aws: EmbeddedAws, function: str, parameters: Mapping[str, str], name: str = "") -> str:
    """Deploy `function` with the resources that it uses; return the stack's name. Raises DeploymentError."""
    name = name or f"slotkeeper-{function.replace('_', '-')}"
    s3, cloudformation = aws.client("s3"), aws.client("cloudformation")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="nothing.zip", Body=_nothing())
    # By URL, as sam deploys it: a template in the request may have at most 51,200 bytes.
    template = json.dumps(reached_by(logical_id(function), yaml_parse(TEMPLATE.read_text(encoding="utf-8"))))
    s3.put_object(Bucket=BUCKET, Key=f"{name}.json", Body=template.encode())
    cloudformation.create_stack(
        StackName=name,
        TemplateURL=f"{aws.endpoint}/{BUCKET}/{name}.json",
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
    )
    deadline = time.monotonic() + READY_SECONDS
    while True:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if stack["StackStatus"] == "CREATE_COMPLETE":
            return name
        if stack["StackStatus"] != "CREATE_IN_PROGRESS" or time.monotonic() > deadline:
            raise DeploymentError(f"{name} is {stack['StackStatus']}: {stack.get('StackStatusReason', '')}")
        time.sleep(0.02)


def reached_by(function: str, template: dict[str, Any]) -> dict[str, Any]:
    """The part of `template` that a function refers to, directly or indirectly."""
    resources = template["Resources"]
    wanted, included = [function], {}
    while wanted:
        name = wanted.pop()
        if name in resources and name not in included:
            included[name] = _inert(resources[name])
            wanted += _names(included[name])
    left_out = {key: value for key, value in template.items() if key not in ("Resources", "Outputs", "Metadata")}
    wanted = [name for name in _names(template["Globals"]) if name in resources]
    return left_out | {"Resources": included | {name: _inert(resources[name]) for name in wanted}}


def _inert(resource: dict[str, Any]) -> dict[str, Any]:
    """The resource without event sources and workflow steps, and without files that `sam build` provides."""
    properties = dict(resource.get("Properties", {}))
    match resource["Type"]:
        case "AWS::Serverless::Function":
            properties.pop("Events", None)
            properties.pop("DeploymentPreference", None)
            properties["CodeUri"] = f"s3://{BUCKET}/nothing.zip"
        case "AWS::Serverless::LayerVersion":
            properties["ContentUri"] = f"s3://{BUCKET}/nothing.zip"
        case "AWS::StepFunctions::StateMachine":
            for name in ("DefinitionS3Location", "DefinitionSubstitutions", "LoggingConfiguration"):
                properties.pop(name, None)
            properties["Definition"] = WAITING_DEFINITION
        case "AWS::Glue::Job":
            properties["Command"] = properties["Command"] | {"ScriptLocation": f"s3://{BUCKET}/nothing.py"}
    return resource | {"Properties": properties}


def _names(value: Any) -> Iterator[str]:
    """The names that a part of a template refers to: resources, parameters and pseudo parameters."""
    if isinstance(value, list):
        for each in value:
            yield from _names(each)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        match key, inner:
            case "Ref", str():
                yield inner
            case "Fn::GetAtt", str() | [str(), *_]:
                yield (inner if isinstance(inner, str) else inner[0]).split(".")[0]
            case "Fn::Sub", str() | [str(), *_]:
                text = inner if isinstance(inner, str) else inner[0]
                yield from (name.split(".")[0] for name in re.findall(r"\$\{([^!}]+)\}", text))
        yield from _names(inner)


def _nothing() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("nothing.txt", "")
    return content.getvalue()


class DeployedFunction:
    """A function that is deployed on an embedded AWS, with the physical names of its stack's resources."""

    def __init__(self, aws: EmbeddedAws, stack: str, function: str) -> None:
        """`function` is the name of its folder. Raises KeyError if the stack has no such function."""
        self.aws = aws
        resources = aws.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        self.names = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
        deployed = aws.client("lambda").get_function_configuration(FunctionName=self.names[logical_id(function)])
        self.configuration = Configuration(
            name=deployed["FunctionName"],
            folder=code_folders()[function],
            handler=deployed["Handler"],
            timeout=deployed["Timeout"],
            memory=deployed["MemorySize"],
            environment=deployed["Environment"]["Variables"],
        )


def folders() -> list[str]:
    """The functions, by the names of their folders."""
    return list(code_folders())


def events_of(function: str) -> list[Path]:
    """The sample events of a function: in events/ and in its own folder."""
    return [path for folder in event_folders(function) for path in sorted(folder.glob("*.json"))]


def event_folders(function: str) -> tuple[Path, Path]:
    """The folders with the sample events of a function."""
    return ROOT / "events" / function, ROOT / "functions" / function / "events"
