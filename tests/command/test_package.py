"""The wheel: the library imports only distributions that come with it, the command those of the extra `cli` too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from slotkeeper import __version__
from slotkeeper_cli import entry
from tests.command.distributions import (
    DEPENDENCIES,
    EXTRA,
    OPTIONAL,
    PROJECT,
    ROOT,
    build_wheel,
    distributions,
    installed_with,
)

# Imports every module of a package but the console's, which have an extra, and makes the tracer, as functions do.
# Prints the names that are loaded then.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    if not module.name.endswith("__main__") and ".web." not in module.name:
        importlib.import_module(module.name)
from slotkeeper.observability import tracer
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
# The script that pip writes, without the environment's packages.
RUN_SCRIPT = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import {function}; {function}()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> metadata.Distribution:
    """The wheel, unpacked as pip unpacks it: the folder has no other distribution."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("build"))) as archive:
        archive.extractall(folder)
    (found,) = metadata.distributions(path=[str(folder)])
    return found


def _imported(package: str) -> set[str]:
    """The distributions of what every module of a package imports."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package],
        env={"PYTHONPATH": f"{ROOT / 'layers' / 'slotkeeper'}:{ROOT / 'cli'}", "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return distributions(json.loads(ran.stdout))


def test_every_import_of_the_library_comes_with_the_package() -> None:
    imported = _imported("slotkeeper")

    assert {"boto3", "aws-xray-sdk", "fastjsonschema"} <= imported
    assert imported - OPTIONAL <= installed_with(DEPENDENCIES)


def test_every_import_of_the_command_comes_with_the_extra() -> None:
    imported = _imported("slotkeeper_cli")

    assert {"boto3", "typer"} <= imported
    assert imported - OPTIONAL <= installed_with([*DEPENDENCIES, *EXTRA])
    assert not {Requirement(one).name for one in EXTRA} & installed_with(DEPENDENCIES)


def test_the_wheel_requires_the_commands_packages_with_the_extra_only(installed: metadata.Distribution) -> None:
    needed = [Requirement(text) for text in installed.requires or []]
    always = {one.name for one in needed if one.marker is None}
    optional = [one for one in needed if one.marker is not None]
    with_extra, web = (
        {one.name for one in optional if one.marker and one.marker.evaluate({"extra": extra})}
        for extra in ("cli", "web")
    )

    assert installed.version == __version__
    assert always == {"boto3", "aws-lambda-powertools", "backoff", "fastjsonschema"}
    assert with_extra == {"typer", "click", "rich", "jinja2"}
    assert web == {"nicegui"}
    assert len(needed) == len(always | with_extra | web)


def test_the_wheel_contains_the_library_the_command_and_their_data(installed: metadata.Distribution) -> None:
    shipped = {str(file) for file in installed.files or [] if ".dist-info" not in str(file)}
    expected = {
        str(file.relative_to(ROOT / place))
        for place in ("layers/slotkeeper", "cli")
        for pattern in ("*.py", "*.json", "*.html", "*.css", "*.js", "py.typed")
        for file in (ROOT / place).rglob(pattern)
    }
    assert shipped == expected


def test_the_script_without_the_extra_says_what_to_install(installed: metadata.Distribution) -> None:
    """-I and -S: without the packages of this environment."""
    (script,) = installed.entry_points.select(group="console_scripts", name="slotkeeper")
    code = RUN_SCRIPT.format(module=script.module, function=script.attr)
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(installed.locate_file("")), "status"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        "slotkeeper: the command needs typer, and only the library is installed: in the checkout, "
        f"{sys.executable} -m pip install '.[cli]'\n"
    )


def test_make_cli_installs_what_every_command_needs() -> None:
    (extras,) = re.findall(r"pip install .*\n.*'\.\[(.*)\]'", (ROOT / "Makefile").read_text())
    assert set(extras.split(",")) == PROJECT["project"]["optional-dependencies"].keys()


def test_a_missing_package_of_the_library_is_not_reported_as_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slotkeeper_cli.app", None)
    with pytest.raises(ModuleNotFoundError, match=r"slotkeeper_cli\.app"):
        entry.main()


def test_the_script_runs_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["slotkeeper", "--version"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slotkeeper {__version__}\n"


def test_package_stack_and_changelog_have_the_version_of_the_layer() -> None:
    template = (ROOT / "template.yaml").read_text()
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "slotkeeper.__version__"}
    assert re.search(rf"^  SlotkeeperVersion:\n.*\n    Value: {re.escape(__version__)}$", template, re.MULTILINE)
    assert newest
    assert newest[1] == __version__
