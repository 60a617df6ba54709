"""The wheel: the library imports only distributions that come with it, the command those of the extra `cli` too.

The command's help is complete with the newest versions that pyproject.toml allows, which pip installs here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from slotkeeper import __version__
from slotkeeper_cli import entry
from tests.cli.command_tree import all_commands, in_one_line

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Optional imports of botocore and urllib3, which the local environment has.
OPTIONAL = {"awscrt", "certifi", "cffi", "cryptography", "pyopenssl", "setuptools"}
OPTIONAL_OF_NICEGUI = {"charset-normalizer", "requests", "simplejson"}
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]
EXTRA: list[str] = PROJECT["project"]["optional-dependencies"]["cli"]
WEB: list[str] = PROJECT["project"]["optional-dependencies"]["web"]
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
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
# The script that pip writes, without the environment's packages.
RUN_SCRIPT = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import {function}; {function}()"

# Prints the help of each command, by its path.
ALL_HELP = """
import contextlib, io, json, sys
import typer.main
from slotkeeper_cli.app import app
command, shown = typer.main.get_command(app), {}
for path in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        command([*path.split(), "--help"], standalone_mode=False)
    shown[path] = printed.getvalue()
print(json.dumps([typer.__version__, shown]))
"""
CONSOLE = """
import json, sys
from slotkeeper_cli.web import server
print(json.dumps([server.HOST, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. It is built in a copy, because setuptools leaves files in the source tree."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for place in PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]:
        shutil.copytree(ROOT / place, source / place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> metadata.Distribution:
    """The wheel, unpacked as pip unpacks it: the folder has no other distribution."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (found,) = metadata.distributions(path=[str(folder)])
    return found


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


def _imported(package: str) -> set[str]:
    """The distributions of what every module of a package imports."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package],
        env={"PYTHONPATH": f"{ROOT / 'layers' / 'slotkeeper'}:{ROOT / 'cli'}", "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return _distributions(json.loads(ran.stdout))


def _distributions(imported: list[str]) -> set[str]:
    modules = set(imported) - sys.stdlib_module_names - {"slotkeeper", "slotkeeper_cli", "__main__"}
    of = metadata.packages_distributions()
    return {of[module][0].lower().replace("_", "-") for module in modules if module in of}


def test_every_import_of_the_library_comes_with_the_package() -> None:
    imported = _imported("slotkeeper")

    assert {"boto3", "aws-xray-sdk", "fastjsonschema"} <= imported
    assert imported - OPTIONAL <= _installed(DEPENDENCIES)


def test_every_import_of_the_command_comes_with_the_extra() -> None:
    imported = _imported("slotkeeper_cli")

    assert {"boto3", "typer"} <= imported
    assert imported - OPTIONAL <= _installed([*DEPENDENCIES, *EXTRA])
    assert not {Requirement(one).name for one in EXTRA} & _installed(DEPENDENCIES)


def test_the_wheel_requires_the_commands_packages_with_the_extra_only(installed: metadata.Distribution) -> None:
    needed = [Requirement(text) for text in installed.requires or []]
    always = {one.name for one in needed if one.marker is None}
    optional = [one for one in needed if one.marker is not None]
    with_extra, picture, web = (
        {one.name for one in optional if one.marker and one.marker.evaluate({"extra": extra})}
        for extra in ("cli", "picture", "web")
    )

    assert installed.version == __version__
    assert always == {"boto3", "aws-lambda-powertools", "backoff", "fastjsonschema"}
    assert with_extra == {"typer", "click", "rich"}
    assert picture == {"matplotlib"}
    assert web == {"nicegui"}
    assert len(needed) == len(always | with_extra | picture | web)


def test_the_wheel_contains_the_library_the_command_and_their_data(installed: metadata.Distribution) -> None:
    shipped = {str(file) for file in installed.files or [] if ".dist-info" not in str(file)}
    expected = {
        str(file.relative_to(ROOT / place))
        for place in ("layers/slotkeeper", "cli")
        for pattern in ("*.py", "*.json", "py.typed")
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
        "slotkeeper: the command needs typer, and only the library is installed: pip install 'slotkeeper[cli]'\n"
    )


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and the newest allowed versions of what it and its extras name.

    What those need in turn is this environment's, so that pip looks for few packages.
    """
    folder = tmp_path_factory.mktemp("newest")
    venv.create(folder)
    python = folder / "bin" / "python"
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "this-environment.pth").write_text(sysconfig.get_path("purelib"))
    _pip(
        "--python",
        str(python),
        "install",
        "--upgrade",
        f"{wheel}[cli,web]",
        *(Requirement(each).name for each in [*DEPENDENCIES, *EXTRA, *WEB]),
    )
    return python


@pytest.fixture(scope="module")
def newest_with_click(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the newest typer that uses click."""
    folder = tmp_path_factory.mktemp("with-click")
    (click,) = (one for one in EXTRA if Requirement(one).name == "click")
    _pip("install", "--target", str(folder), "--no-deps", "typer<0.26", click)
    return folder


def _pip(*arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, "--no-compile"]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, f"pip needs the package index: {installed.stderr}"


def _in(python: Path, code: str, *, before: str = "", stdin: str = "") -> Any:
    """What a program prints as JSON in an environment, with a folder before its packages."""
    environment = {"PYTHONPATH": before, "COLUMNS": "500"}
    ran = subprocess.run(
        [python, "-c", code], input=stdin, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("uses_click", [False, True], ids=["newest", "newest-with-click"])
def test_the_newest_allowed_versions_show_the_help_of_every_parameter(
    newest: Path, newest_with_click: Path, uses_click: bool
) -> None:
    commands = dict(all_commands())
    before = str(newest_with_click) if uses_click else ""
    version, helps = _in(newest, ALL_HELP, before=before, stdin=json.dumps(list(commands)))

    assert (tuple(map(int, version.split(".")[:2])) < (0, 26)) == uses_click
    missing = [
        (path, parameter.name)
        for path, shown in helps.items()
        for parameter in commands[path].params
        if in_one_line(parameter.help) not in in_one_line(shown)
    ]
    assert missing == []


def test_the_console_starts_with_the_newest_allowed_versions_and_imports_only_what_comes_with_its_extra(
    newest: Path,
) -> None:
    host, names = _in(newest, CONSOLE)

    assert host == "127.0.0.1"
    assert _distributions(names) - OPTIONAL - OPTIONAL_OF_NICEGUI <= _installed([*DEPENDENCIES, *EXTRA, *WEB])


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
    assert f"SlotkeeperVersion: {{Value: {__version__}," in template
    assert newest
    assert newest[1] == __version__
