"""The command imports only distributions that `pipx install .` installs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from typer.testing import CliRunner

from slotkeeper import __version__
from slotkeeper_cli.app import app

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Optional imports of botocore and urllib3, which the local environment has.
OPTIONAL = {"awscrt", "certifi", "cffi", "cryptography", "pyopenssl", "setuptools"}
IMPORTED = "import json, sys, slotkeeper_cli.app; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"


def _installed(requirements: list[str]) -> set[str]:
    """The distributions that these requirements install, with their own requirements."""
    seen: set[tuple[str, str]] = set()
    wanted = [Requirement(one) for one in requirements]
    while wanted:
        requirement = wanted.pop()
        for extra in {"", *requirement.extras}:
            key = (requirement.name.lower().replace("_", "-"), extra)
            if key in seen:
                continue
            seen.add(key)
            for text in metadata.requires(requirement.name) or []:
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    wanted.append(further)
    return {name for name, _ in seen}


def test_every_import_comes_with_the_package() -> None:
    imported_modules = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        env={"PYTHONPATH": f"{ROOT / 'layers' / 'slotkeeper'}:{ROOT / 'cli'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = (
        set(json.loads(imported_modules.stdout))
        - sys.stdlib_module_names
        - {"slotkeeper", "slotkeeper_cli", "__main__"}
    )
    of = metadata.packages_distributions()
    imported = {of[module][0].lower().replace("_", "-") for module in modules if module in of}

    assert {"boto3", "typer", "aws-xray-sdk"} <= imported
    assert imported - OPTIONAL <= _installed(PROJECT["project"]["dependencies"])


def test_the_package_contains_every_module_and_schema() -> None:
    find = PROJECT["tool"]["setuptools"]["packages"]["find"]
    data = PROJECT["tool"]["setuptools"]["package-data"]["slotkeeper"]
    for place in find["where"]:
        for folder in (path.parent for path in (ROOT / place).rglob("*.py")):
            assert (folder / "__init__.py").exists(), folder
    layer = ROOT / "layers" / "slotkeeper" / "slotkeeper"
    shipped = {*layer.rglob("*.json"), *layer.rglob("py.typed")}
    assert shipped == {file for pattern in data for file in layer.glob(pattern)}


def test_package_stack_and_changelog_have_the_version_of_the_layer() -> None:
    template = (ROOT / "template.yaml").read_text()
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "slotkeeper.__version__"}
    assert f"SlotkeeperVersion: {{Value: {__version__}," in template
    assert newest
    assert newest[1] == __version__


def test_the_command_shows_the_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"slotkeeper {__version__}\n"
