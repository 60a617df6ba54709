"""Run `sam build`, and deploy its output to the embedded AWS; errors contain the reasons of the stack's events.

`sam deploy` does the same, but starts slowly: it packages the output and reads the template several times for each
deployment. tests/e2e/test_deployments.py runs it.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT, child_environment

if TYPE_CHECKING:
    from dev.emulator.aws import EmbeddedAws

STACK_NAME = "slotkeeper"
ARTIFACT_BUCKET, TEMPLATE_KEY = "slotkeeper-deployment-artifacts", "template.json"
TEMPLATE = ROOT / "template.yaml"
BUILD_DIR = ROOT / "build" / "sam"
NO_ENDPOINT = "http://127.0.0.1:9"  # a build calls no AWS
TAIL_LINES = 30
POLL_SECONDS = 0.1
# Resource type -> the path of the property that names a file or a folder, which CloudFormation reads in S3.
LOCAL_FILES = {
    "AWS::Serverless::Function": ("CodeUri",),
    "AWS::Serverless::LayerVersion": ("ContentUri",),
    "AWS::Serverless::StateMachine": ("DefinitionUri",),
    "AWS::Glue::Job": ("Command", "ScriptLocation"),
}
# SAM CLI with PyYAML's C parser, if it is installed: it parses the template several times. It compresses little,
# because it sends nothing over a network.
SAM = """
import yaml
import zlib
zlib.Z_DEFAULT_COMPRESSION = 1
if yaml.__with_libyaml__:
    yaml.SafeLoader = yaml.CSafeLoader
from samcli.cli.main import cli
cli(prog_name="sam")
"""


class DeploymentError(RuntimeError):
    """The build or the deployment failed; the message has sam's last lines and the stack's reasons."""


def deploy(
    aws: EmbeddedAws, parameters: Mapping[str, str], template: Path, say: Callable[[str], None]
) -> dict[str, str]:
    """Build and deploy `template`; return the stack's outputs. Raises DeploymentError.

    The parameters of a deployed stack that are not given keep their values.
    """
    if not template.exists():
        raise DeploymentError(f"there is no template at {template}")
    with built(template, aws.state_dir, say) as build_dir:
        say("deploy")
        s3 = aws.client("s3")
        s3.create_bucket(Bucket=ARTIFACT_BUCKET)
        for file in (build_dir / "packaged").iterdir():
            s3.put_object(Bucket=ARTIFACT_BUCKET, Key=file.name, Body=file.read_bytes())
        declared = json.loads((build_dir / "packaged" / TEMPLATE_KEY).read_text()).get("Parameters", {})
        _change(aws, parameters, declared)
    return {output["OutputKey"]: output["OutputValue"] for output in _stack(aws).get("Outputs", [])}


def _change(aws: EmbeddedAws, parameters: Mapping[str, str], declared: Iterable[str]) -> None:
    """Create or update the stack, and wait for the end of it. Raises DeploymentError."""
    cloudformation = aws.client("cloudformation")
    given: list[dict[str, Any]] = [{"ParameterKey": key, "ParameterValue": parameters[key]} for key in parameters]
    request: dict[str, Any] = {
        "StackName": STACK_NAME,
        "TemplateURL": f"{aws.endpoint}/{ARTIFACT_BUCKET}/{TEMPLATE_KEY}",
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    }
    try:
        if (stack := _stack(aws)) is None:
            cloudformation.create_stack(**request, Parameters=given)
        else:
            deployed = {each["ParameterKey"] for each in stack.get("Parameters", [])}
            kept = sorted(deployed & set(declared) - parameters.keys())
            given += [{"ParameterKey": name, "UsePreviousValue": True} for name in kept]
            cloudformation.update_stack(**request, Parameters=given)
    except ClientError as error:
        if "No updates are to be performed" in str(error):
            return
        raise DeploymentError(f"the deployment was refused: {error}") from None
    while (status := _stack(aws)["StackStatus"]).endswith("_IN_PROGRESS"):
        time.sleep(POLL_SECONDS)
    if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
        raise DeploymentError(f"the stack is {status}. Its failed resources:\n{_stack_reasons(aws)}")


def _stack(aws: EmbeddedAws) -> Any:
    """The description of the stack; None if there is none."""
    try:
        return aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        return None


@contextmanager
def built(template: Path, folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The folder with the output of `sam build`. Inside the `with` block no other program builds into it.

    The project's template is built into BUILD_DIR if a source has changed since the last build. Another template is
    built into `folder`, which also contains sam's log. Raises DeploymentError.
    """
    default = template == TEMPLATE
    build_dir = BUILD_DIR if default else folder / "sam"
    sources = build_dir / "sources.sha256"
    digest = _digest_of_sources() if default else ""

    def is_current() -> bool:
        return default and sources.exists() and sources.read_text() == digest

    build_dir.parent.mkdir(parents=True, exist_ok=True)
    # A build holds the lock exclusively, deployments share it.
    with build_dir.with_name(build_dir.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not is_current():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_current():  # another program may have built it while this one waited
                say("sam build")
                _build(template, folder, build_dir)
                sources.write_text(digest)  # after sam, which empties the folder: a failed build leaves no digest
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield build_dir


def _build(template: Path, folder: Path, build_dir: Path) -> None:
    """Build into `build_dir`, and package the output there: the files that CloudFormation reads, by their digests."""
    command = ["build", "--template-file", str(template), "--build-dir", str(build_dir)]
    command += ["--cache-dir", f"{build_dir}-cache", "--config-file", str(ROOT / "samconfig.toml")]
    _sam(command, folder)
    packaged = build_dir / "packaged"
    packaged.mkdir()
    parsed = yaml_parse((build_dir / "template.yaml").read_text(encoding="utf-8"))
    for resource in parsed["Resources"].values():
        *way, name = LOCAL_FILES.get(resource["Type"], ("",))
        properties = resource.get("Properties", {})
        for step in way:
            properties = properties[step]
        if isinstance(named := properties.get(name), str):
            path = build_dir / named
            content = path.read_bytes() if path.is_file() else _zipped(path)
            digest = hashlib.sha256(content).hexdigest()
            (packaged / digest).write_bytes(content)
            properties[name] = f"s3://{ARTIFACT_BUCKET}/{digest}"
    (packaged / TEMPLATE_KEY).write_text(json.dumps(parsed))


def _zipped(folder: Path) -> bytes:
    """An archive of the folder without times: equal files give an equal archive. It is little compressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(folder)))
            entry.external_attr = path.stat().st_mode << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return content.getvalue()


def _digest_of_sources() -> str:
    """The digest of the files that `sam build` reads, and of the versions of the programs that it runs."""
    versions = [sys.version, *(importlib.metadata.version(name) for name in ("aws-sam-cli", "pip"))]
    digest = hashlib.sha256(json.dumps(versions).encode())
    folders = [ROOT / "functions", ROOT / "layers", ROOT / "statemachines", ROOT / "jobs"]
    for path in [TEMPLATE, *sorted(path for folder in folders for path in folder.rglob("*"))]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(json.dumps([str(path), path.stat().st_mode]).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _declared() -> dict[str, dict[str, Any]]:
    """Parameter name -> its declaration in the template."""
    parameters: dict[str, dict[str, Any]] = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))["Parameters"]
    return parameters


def check_names(parameters: Iterable[str]) -> None:
    """Raise DeploymentError for a name that is no parameter of the template."""
    known = list(_declared())
    for name in parameters:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise DeploymentError(f"{TEMPLATE.name} has no parameter {name}; {instead}")


def check_values(parameters: Mapping[str, str]) -> None:
    """Raise DeploymentError for a parameter or a value that CloudFormation would refuse, which MiniStack accepts."""
    check_names(parameters)
    for name, value in parameters.items():
        expected = _violated(_declared()[name], value)
        if expected:
            raise DeploymentError(f"{name}={value}: expected {expected}")


def _violated(declared: Mapping[str, Any], value: str) -> str:
    """What the declaration of a parameter expects and the value is not; empty if it is valid.

    CloudFormation guide, "Parameters": the pattern must match the whole value.
    """
    lowest, highest = declared.get("MinValue"), declared.get("MaxValue")
    if declared["Type"] == "Number" and not re.fullmatch(r"-?\d+", value):
        return "a whole number"
    if lowest is not None and int(value) < lowest:
        return f"at least {lowest}"
    if highest is not None and int(value) > highest:
        return f"at most {highest}"
    if "AllowedValues" in declared and value not in map(str, declared["AllowedValues"]):
        return f"one of {', '.join(map(str, declared['AllowedValues']))}"
    if "MaxLength" in declared and len(value) > declared["MaxLength"]:
        return f"at most {declared['MaxLength']} characters"
    if "AllowedPattern" in declared and not re.fullmatch(declared["AllowedPattern"], value):
        return f"the pattern {declared['AllowedPattern']}"
    return ""


def stack_parameters(aws: EmbeddedAws) -> dict[str, str]:
    """The parameters of the deployed stack; a deployment changes only those that it names."""
    return {each["ParameterKey"]: each["ParameterValue"] for each in _stack(aws)["Parameters"]}


def _sam(arguments: list[str], folder: Path) -> None:
    """Run SAM CLI in `folder`, and append its output to sam.log there. Raises DeploymentError."""
    result = subprocess.run(
        [sys.executable, "-P", "-c", SAM, *arguments],
        cwd=folder,
        env=child_environment(NO_ENDPOINT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with (folder / "sam.log").open("a") as log:
        log.write(result.stdout)
    if result.returncode != 0:
        tail = "\n".join(result.stdout.splitlines()[-TAIL_LINES:])
        raise DeploymentError(f"sam {arguments[0]} failed:\n{tail}")


def _stack_reasons(aws: EmbeddedAws) -> str:
    """One line for each resource that failed, oldest first."""
    events = aws.client("cloudformation").describe_stack_events(StackName=STACK_NAME)["StackEvents"]
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event['ResourceStatus']}: {event.get('ResourceStatusReason', '')}"
        for event in reversed(events)
        if "FAILED" in event["ResourceStatus"]
    )
