"""The template meets the documented conditions of the Serverless Application Repository.

"Developer guide" is that of the Serverless Application Repository. tests/deployed/test_deployments.py packages it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samcli.vendor.serverlessrepo.parser import get_app_metadata

from slotkeeper import __version__
from tests.template.parsing import parsed_template

ROOT = Path(__file__).parents[2]
TEMPLATE = parsed_template()
RESOURCES: dict[str, Any] = TEMPLATE["Resources"]
APPLICATION: dict[str, Any] = TEMPLATE["Metadata"]["AWS::ServerlessRepo::Application"]


def _texts(part: Any) -> Iterator[str]:
    """Every key and text in a part of the template."""
    if isinstance(part, dict):
        yield from part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _texts(each)
    elif isinstance(part, str):
        yield part


# SAM developer guide, "AWS SAM template Metadata section properties".
def test_sam_publish_accepts_the_properties() -> None:
    assert get_app_metadata(TEMPLATE).validate(["author", "description", "name", "semantic_version", "license_url"])


def test_the_version_is_the_packages() -> None:
    assert APPLICATION["SemanticVersion"] == __version__


def test_the_license_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert APPLICATION["SpdxLicenseId"] == project["license"] == "MIT"
    assert (ROOT / APPLICATION["LicenseUrl"]).read_text().startswith("MIT License\n")


@pytest.mark.parametrize("name", ["LicenseUrl", "ReadmeUrl"])
def test_a_local_file_exists_and_is_below_the_limit(name: str) -> None:
    assert 0 < (ROOT / APPLICATION[name]).stat().st_size <= 5 * 1024 * 1024


def test_the_deployer_acknowledges_no_more_than_roles_and_resource_policies() -> None:
    """Developer guide, "Application Capabilities": a named role, a macro or a nested application needs more."""
    assert [name for name, each in RESOURCES.items() if "RoleName" in each.get("Properties", {})] == []
    assert TEMPLATE["Transform"] == "AWS::Serverless-2016-10-31"
    assert not {each["Type"] for each in RESOURCES.values()} & {
        "AWS::Serverless::Application",
        "AWS::CloudFormation::Stack",
    }


def test_no_role_has_the_permissions_that_block_a_publication() -> None:
    """Developer guide, "Using AWS SAM with the AWS Serverless Application Repository"."""
    blocked = {"iam:AttachRolePolicy", "iam:PutRolePolicy", "iam:*", "*"}
    for name, resource in RESOURCES.items():
        for policy in resource.get("Properties", {}).get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                assert not blocked & set(_texts(statement.get("Action", []))), name
    assert [text for text in _texts(RESOURCES) if "AWSLambda_FullAccess" in text] == []
