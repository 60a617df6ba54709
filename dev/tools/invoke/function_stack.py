"""Deploy one function and the resources that it uses, as a separate stack on an embedded AWS, and call the function.

The stack is part of template.yaml and inert: it has no event source, no schedule and no custom resource, and its
workflow waits in its first state. So every change after a call was made by the function. Names, environment and timeout
are the template's. The code is that of the sources; the packages that the layer contains are those of build/venv.
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from dev.emulator.aws import EmbeddedAws
from dev.emulator.deployment import DeploymentError
from dev.emulator.environment import ROOT
from dev.emulator.local_clients import local_client

TEMPLATE = ROOT / "template.yaml"
BUCKET = "slotkeeper-invoke"
RESPONSE = "response.json"
WAITING_STATE = {"Type": "Wait", "Seconds": 86400, "End": True}
READY_SECONDS = 120.0
ANSWER_SECONDS = 1200.0  # longer than any function's timeout


class FunctionFailed(RuntimeError):
    """The function raised, exited or timed out; the message is Lambda's answer."""


def logical_id(function: str) -> str:
    """The logical id of a function: `token_refresher` -> TokenRefresherFunction."""
    return "".join(word.capitalize() for word in function.split("_")) + "Function"


def bring_up(aws: EmbeddedAws, function: str, parameters: Mapping[str, str], name: str = "") -> str:
    """Deploy `function` with the resources that it uses; return the stack's name. Raises DeploymentError."""
    name = name or f"slotkeeper-{function.replace('_', '-')}"
    s3, cloudformation = aws.client("s3"), aws.client("cloudformation")
    s3.create_bucket(Bucket=BUCKET)
    template = reached_by(logical_id(function), yaml_parse(TEMPLATE.read_text(encoding="utf-8")))
    for properties in (each["Properties"] for each in template["Resources"].values()):
        for code, inside in (("CodeUri", ""), ("ContentUri", "python/")):
            if code in properties:
                key = f"{properties[code]}.zip"
                s3.put_object(Bucket=BUCKET, Key=key, Body=archive(ROOT / properties[code], inside))
                properties[code] = f"s3://{BUCKET}/{key}"
    # By URL, as sam deploys it: a template in the request may have at most 51,200 bytes.
    s3.put_object(Bucket=BUCKET, Key=f"{name}.json", Body=json.dumps(template).encode())
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
    """The part of `template` that a function names, directly or indirectly."""
    resources, included = template["Resources"], {}
    wanted = {function} | _words(template["Globals"]) & resources.keys()
    while wanted:
        name = wanted.pop()
        included[name] = _inert(resources[name])
        wanted |= _words(included[name]["Properties"]) & resources.keys() - included.keys()
    left_out = {key: value for key, value in template.items() if key not in ("Resources", "Outputs", "Metadata")}
    return left_out | {"Resources": included}


def _words(value: Any) -> set[str]:
    return set(re.findall(r"\w+", json.dumps(value)))


def _inert(resource: dict[str, Any]) -> dict[str, Any]:
    """The resource without event sources and workflow steps."""
    left_out = ("Events", "DefinitionS3Location", "DefinitionSubstitutions", "LoggingConfiguration")
    properties = {name: value for name, value in resource.get("Properties", {}).items() if name not in left_out}
    if resource["Type"] == "AWS::StepFunctions::StateMachine":
        properties["Definition"] = {"StartAt": "Only", "States": {"Only": WAITING_STATE}}
    return resource | {"Properties": properties}


def archive(folder: Path, inside: str = "") -> bytes:
    """A zip archive of the files of a folder. Equal files give equal archives, of which the engines keep one copy."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                zipped.writestr(zipfile.ZipInfo(inside + path.relative_to(folder).as_posix()), path.read_bytes())
    return content.getvalue()


class DeployedFunction:
    """A function that is deployed on an embedded AWS, with the physical names of its stack's resources.

    `response_url` is where a custom resource's function sends its answer: an object in S3, as with CloudFormation.
    """

    def __init__(self, aws: EmbeddedAws, stack: str, function: str) -> None:
        """`function` is the name of its folder."""
        self.aws = aws
        self.folder = function
        resources = aws.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
        self.names = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
        self.name = self.names[logical_id(function)]
        self._lambda = local_client("lambda", aws.endpoint, read_timeout=ANSWER_SECONDS)
        deployed = self._lambda.get_function_configuration(FunctionName=self.name)
        self._log_group = deployed["LoggingConfig"]["LogGroup"]
        self._lines_read = 0
        response = {"Bucket": BUCKET, "Key": RESPONSE}
        self.response_url = aws.client("s3").generate_presigned_url("put_object", Params=response)

    def invoke(self, event: Any) -> Any:
        """Call the function, and return its answer. Raises FunctionFailed."""
        self.aws.client("s3").delete_object(Bucket=BUCKET, Key=RESPONSE)
        called = self._lambda.invoke(FunctionName=self.name, Payload=json.dumps(event))
        answer = json.loads(called["Payload"].read())
        if "FunctionError" in called:
            raise FunctionFailed(f"{answer['errorType']}: {answer['errorMessage']}")
        return answer

    def new_log(self) -> str:
        """The function's log since the last call of this method."""
        pages = self.aws.client("logs").get_paginator("filter_log_events").paginate(logGroupName=self._log_group)
        lines = [event["message"] for page in pages for event in page["events"]]
        new = lines[self._lines_read :]
        self._lines_read = len(lines)
        return "\n".join(new)

    def response(self) -> dict[str, Any]:
        """The answer to CloudFormation of the last call; empty if there is none."""
        s3 = self.aws.client("s3")
        try:
            response: dict[str, Any] = json.load(s3.get_object(Bucket=BUCKET, Key=RESPONSE)["Body"])
        except s3.exceptions.NoSuchKey:
            return {}
        return response


def events_of(function: str) -> list[Path]:
    """The sample events of a function: in events/ and in its own folder."""
    return [path for folder in event_folders(function) for path in sorted(folder.glob("*.json"))]


def event_folders(function: str) -> tuple[Path, Path]:
    """The folders with the sample events of a function."""
    return ROOT / "events" / function, ROOT / "functions" / function / "events"
