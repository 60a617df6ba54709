"""Run `sam build` and `sam deploy` for the embedded AWS; errors contain the reasons of the stack's events."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
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
ARTIFACT_BUCKET = "slotkeeper-deployment-artifacts"
TEMPLATE = ROOT / "template.yaml"
BUILD_DIR = ROOT / "build" / "sam"
NO_ENDPOINT = "http://127.0.0.1:9"  # a build calls no AWS
TAIL_LINES = 30
# SAM CLI with PyYAML's C parser, if it is installed: a deployment parses the template ten times. It compresses little,
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
    """Build and deploy `template`; return the stack's outputs. Raises DeploymentError."""
    if not template.exists():
        raise DeploymentError(f"there is no template at {template}")
    with built(template, aws.state_dir, say) as build_dir:
        say("sam deploy")
        aws.client("s3").create_bucket(Bucket=ARTIFACT_BUCKET)
        command = ["deploy", "--template-file", str(build_dir / "template.yaml"), "--stack-name", STACK_NAME]
        command += ["--s3-bucket", ARTIFACT_BUCKET, "--capabilities", "CAPABILITY_IAM"]
        command += ["--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"]
        if parameters:
            command += ["--parameter-overrides", *(f"{name}={_quoted(value)}" for name, value in parameters.items())]
        try:
            _sam(command, aws.state_dir, aws.endpoint)
        except DeploymentError as error:
            reasons = _stack_reasons(aws)
            raise DeploymentError(
                f"{error}" + (f"\nFailed resources of the stack:\n{reasons}" if reasons else "")
            ) from None
    stack = aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


@contextmanager
def built(template: Path, folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The folder with the output of `sam build`. Inside the `with` block no other program builds into it.

    The project's template is built into BUILD_DIR if a source has changed since the last build. Another template is
    built into `folder`, which also contains sam's log. Raises DeploymentError.
    """
    default = template == TEMPLATE
    build_dir = BUILD_DIR if default else folder / "sam"
    sources = build_dir / "sources.sha256"
    digest = digest_of_sources() if default else ""

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
                cache_dir = build_dir.with_name(build_dir.name + "-cache")
                command = ["build", "--template-file", str(template), "--cached", "--cache-dir", str(cache_dir)]
                _sam([*command, "--build-dir", str(build_dir)], folder, NO_ENDPOINT)
                sources.write_text(digest)  # after sam, which empties the folder: a failed build leaves no digest
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield build_dir


def digest_of_sources() -> str:
    """The digest of the files that `sam build` reads, and of the versions of the programs that it runs."""
    versions = [sys.version, *(importlib.metadata.version(name) for name in ("aws-sam-cli", "pip"))]
    digest = hashlib.sha256(json.dumps(versions).encode())
    folders = [ROOT / "functions", ROOT / "layers"]
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
    """Raise DeploymentError for a name that is no parameter of the template, which sam deploy ignores silently."""
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
    """The expectation of a parameter's declaration that the value does not meet; empty if it is valid.

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
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"]
    return {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}


def _sam(arguments: list[str], folder: Path, endpoint: str) -> None:
    """Run SAM CLI in `folder`, and append its output to sam.log there. Raises DeploymentError."""
    # The project's samconfig.toml has bucket and confirmation settings for real accounts.
    no_config = folder / "samconfig.toml"
    no_config.write_text("version = 0.1\n")
    result = subprocess.run(
        [sys.executable, "-P", "-c", SAM, *arguments, "--config-file", str(no_config)],
        cwd=folder,
        env=child_environment(endpoint, {"SAM_CLI_POLL_DELAY": "0.25"}),
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
    try:
        events = aws.client("cloudformation").describe_stack_events(StackName=STACK_NAME)["StackEvents"]
    except ClientError:
        return ""  # the stack was not created: sam's own lines state the reason
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event['ResourceStatus']}: {event.get('ResourceStatusReason', '')}"
        for event in reversed(events)
        if "FAILED" in event["ResourceStatus"]
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
