"""The command, the console and the template with the newest versions of their packages, which pip installs."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.command.command_tree import all_commands, in_one_line
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

WEB: list[str] = PROJECT["project"]["optional-dependencies"]["web"]
OPTIONAL_OF_NICEGUI = {"charset-normalizer", "requests", "simplejson"}

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
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and the newest versions of the packages that it and its extras name.

    What those need in turn is this environment's, so that pip looks for few packages.
    """
    folder = tmp_path_factory.mktemp("newest")
    wheel = build_wheel(tmp_path_factory.mktemp("build"))
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
    """The JSON that a program prints in an environment, with a folder before its packages."""
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
    assert distributions(names) - OPTIONAL - OPTIONAL_OF_NICEGUI <= installed_with([*DEPENDENCIES, *EXTRA, *WEB])


def test_the_newest_cfn_lint_accepts_the_template(tmp_path: Path) -> None:
    """SAM CLI allows an older one alone, which `make lint` uses."""
    _pip("install", "--target", str(tmp_path), "cfn-lint")
    ran = subprocess.run(
        [tmp_path / "bin" / "cfn-lint", "template.yaml"],
        cwd=ROOT,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
