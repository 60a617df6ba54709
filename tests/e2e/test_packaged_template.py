"""`sam package` uploads every file that the template names, which `sam publish` requires."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dev.emulator.aws import silent
from dev.emulator.deployment import ARTIFACT_BUCKET, SAM, built
from dev.emulator.environment import ROOT, child_environment
from tests.e2e.deployed_stack import DeployedStack
from tests.support.template import parsed

# In bytes, 450 KB: CloudFormation's former quota. The Serverless Application Repository documents none of its own, and
# CloudFormation reads 1 MB today (CloudFormation guide, "Understand CloudFormation quotas").
LONGEST_TEMPLATE = 460_800


def _packaged(stack: DeployedStack, folder: Path) -> Path:
    """The template that `sam package` writes for the build that is deployed."""
    written = folder / "packaged.yaml"
    (folder / "samconfig.toml").write_text("version = 0.1\n")
    with built(ROOT / "template.yaml", folder, silent) as build_dir:
        command = ["package", "--template-file", str(build_dir / "template.yaml"), "--s3-bucket", ARTIFACT_BUCKET]
        ran = subprocess.run(
            [sys.executable, "-P", "-c", SAM, *command, "--output-template-file", str(written), "--no-progressbar"],
            cwd=folder,  # the project's samconfig.toml is for accounts
            env=child_environment(stack.aws.endpoint),
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return written


def test_sam_package_leaves_no_local_file_in_the_template(stack: DeployedStack, tmp_path: Path) -> None:
    packaged = _packaged(stack, tmp_path)
    assert packaged.stat().st_size <= LONGEST_TEMPLATE
    template = parsed(packaged.read_text())
    application = template["Metadata"]["AWS::ServerlessRepo::Application"]
    resources: dict[str, dict[str, Any]] = template["Resources"]

    def uploaded(address: Any) -> bytes:
        """The object at an address in the packaged template, `s3://...` or its parts."""
        if isinstance(address, dict):
            bucket, key = address["Bucket"], address["Key"]
        else:
            parts = urlsplit(address)
            assert parts.scheme == "s3", address
            bucket, key = parts.netloc, parts.path.removeprefix("/")
        content: bytes = stack.aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    assert uploaded(application["LicenseUrl"]) == (ROOT / "LICENSE").read_bytes()
    assert uploaded(application["ReadmeUrl"]) == (ROOT / "README.md").read_bytes()
    paths = {
        "AWS::Serverless::LayerVersion": "ContentUri",
        "AWS::Serverless::Function": "CodeUri",
        "AWS::Serverless::StateMachine": "DefinitionUri",
    }
    for kind, path in paths.items():
        of_kind = [each["Properties"] for each in resources.values() if each["Type"] == kind]
        assert of_kind
        for properties in of_kind:
            assert uploaded(properties[path])
    assert uploaded(resources["SampleJob"]["Properties"]["Command"]["ScriptLocation"])
