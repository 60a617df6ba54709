"""`sam build` and `sam deploy` of a template to the embedded AWS, and errors that say why it failed."""

import difflib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import ClientError
from samtranslator.yaml_helper import yaml_parse

from dev.emulator.environment import ROOT, child_environment

STACK_NAME = "slotkeeper"
ARTIFACT_BUCKET = "slotkeeper-deployment-artifacts"
BUILD_DIR = ROOT / "build" / "sam"
TAIL_LINES = 30


class Target(Protocol):
    """What a deployment needs of the embedded AWS."""

    endpoint: str
    state_dir: Path

    def client(self, service: str) -> Any:
        """A boto3 client."""


class DeploymentError(RuntimeError):
    """The build or the deployment failed; the message carries sam's last lines and the stack's own reasons."""


def deploy(aws: Target, parameters: Mapping[str, str], template: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Build and deploy `template`; return the stack's outputs. Raises DeploymentError."""
    if not template.exists():
        raise DeploymentError(f"there is no template at {template}")
    # The project's samconfig.toml is for real accounts: its bucket and confirmation settings have no place here.
    no_config = aws.state_dir / "samconfig.toml"
    no_config.write_text("version = 0.1\n")
    default = template == ROOT / "template.yaml"
    build_dir = BUILD_DIR if default else aws.state_dir / "sam"
    with _thread_lock(build_dir):
        say("sam build")
        command = ["build", "--template-file", str(template), "--config-file", str(no_config), "--cached"]
        command += ["--build-dir", str(build_dir), "--cache-dir", str(build_dir.with_name(build_dir.name + "-cache"))]
        _sam(aws, command)
        say("sam deploy")
        aws.client("s3").create_bucket(Bucket=ARTIFACT_BUCKET)
        command = ["deploy", "--template-file", str(build_dir / "template.yaml"), "--stack-name", STACK_NAME]
        command += ["--s3-bucket", ARTIFACT_BUCKET, "--capabilities", "CAPABILITY_IAM", "--config-file", str(no_config)]
        command += ["--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"]
        if parameters:
            command += ["--parameter-overrides", *(f"{name}={_quoted(value)}" for name, value in parameters.items())]
        _sam(aws, command)
    stack = aws.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def check_names(parameters: Iterable[str], template: Path = ROOT / "template.yaml") -> None:
    """Raises DeploymentError for a name that is no parameter of `template`: sam deploy would pass over it silently."""
    known = list(yaml_parse(template.read_text(encoding="utf-8")).get("Parameters", {}))
    for name in parameters:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise DeploymentError(f"{template.name} has no parameter {name}; {instead}")


def _sam(aws: Target, arguments: list[str]) -> None:
    command = [str(Path(sys.executable).parent / "sam"), *arguments]
    environment = child_environment(aws.endpoint, {"SAM_CLI_POLL_DELAY": "1"})
    result = subprocess.run(
        command,
        cwd=aws.state_dir,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with (aws.state_dir / "sam.log").open("a") as log:
        log.write(result.stdout)
    if result.returncode == 0:
        return
    tail = "\n".join(result.stdout.splitlines()[-TAIL_LINES:])
    reasons = _stack_reasons(aws) if arguments[0] == "deploy" else ""
    raise DeploymentError(f"sam {arguments[0]} failed:\n{tail}" + (f"\nThe stack says:\n{reasons}" if reasons else ""))


def _stack_reasons(aws: Target) -> str:
    """One line for each resource that failed, oldest first."""
    try:
        events = aws.client("cloudformation").describe_stack_events(StackName=STACK_NAME)["StackEvents"]
    except ClientError:
        return ""  # the stack was never made: sam's own lines say why
    return "\n".join(
        f"  {event['LogicalResourceId']}: {event['ResourceStatus']}: {event.get('ResourceStatusReason', '')}"
        for event in reversed(events)
        if "FAILED" in event["ResourceStatus"]
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def _thread_lock(build_dir: Path) -> Iterator[None]:
    """Two programs that build into the same folder would deploy half of each other's work."""
    build_dir.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(build_dir.with_name(build_dir.name + ".lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
