"""The commands of the developers' documents as a shell runs them: each target, option, event and file is there."""

from __future__ import annotations

import os
import re
import subprocess
from importlib import import_module
from pathlib import Path

import botocore.session
import click
import pytest

from local.gradual import TYPES
from local.invoke.stack import events_of, folders
from tests.template.test_samconfig import COMMANDS, CONFIG
from tests.unit.test_document_commands import _check

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "docs/development.md")
PROGRAMS = ("bin/make", "bin/sam", "bin/aws", "bin/python", "build/venv/bin/python", ".ci/run")
# Notes each call's arguments. What is piped into it is read to its end, as the real one would.
NOTE = r"""#!/bin/bash
{ printf '%s\0' "${0##*/}" "$@"; printf '\n'; } >> "$CALLS"
[ -p /dev/stdin ] && cat >/dev/null
exit 0
"""
RESOURCES = set(re.findall(r"^  (\w+):$", (ROOT / "template.yaml").read_text(), re.MULTILINE))


def _commands(page: str) -> list[str]:
    """The indented blocks, with what is indented further because it stands in a list."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?<=\n\n)((?: {4,6}\S.*\n)(?: {4,}.*\n)*)", text)
    return ["\n".join(line.strip() for line in block.splitlines()) for block in blocks]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Every call of a program that the pages' blocks make."""
    folder = tmp_path_factory.mktemp("pages")
    for program in PROGRAMS:
        (folder / program).parent.mkdir(parents=True, exist_ok=True)
        (folder / program).write_text(NOTE)
        (folder / program).chmod(0o755)
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CALLS": str(folder / "calls")}
    environment |= {"SIGNING_KEY_SECRET_ARN": "arn:secret", "WorkerFunctionName": "worker"}
    script = "\n".join(block for page in PAGES for block in _commands(page))
    ran = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return [line.split("\0") for line in (folder / "calls").read_text().removesuffix("\0\n").split("\0\n")]


def _of(calls: list[list[str]], program: str) -> list[list[str]]:
    found = [arguments for name, *arguments in calls if name == program]
    assert found
    return found


def test_the_pages_have_no_command_that_is_not_looked_at_here(calls: list[list[str]]) -> None:
    assert {name for name, *_ in calls} == {Path(program).name for program in PROGRAMS}


def test_every_target_is_there_and_reads_every_variable(calls: list[list[str]]) -> None:
    targets = (ROOT / "Makefile").read_text()
    for target, *variables in _of(calls, "make"):
        assert f"\n{target}:" in targets
        for name in (variable.partition("=")[0] for variable in variables):
            assert re.search(rf"\$\(?\$?{name}\b", targets), name


def test_every_event_is_there(calls: list[list[str]]) -> None:
    for target, *variables in _of(calls, "make"):
        values = dict(variable.split("=", 1) for variable in variables)
        assert values.get("TYPE", TYPES[0]) in TYPES
        if target == "invoke":
            assert values["FUNCTION"] in folders()
            event = values.get("EVENT", "happy")
            assert event in [path.stem for path in events_of(values["FUNCTION"])] or (ROOT / event).exists()


def test_sam_takes_every_option(calls: list[list[str]]) -> None:
    for arguments in _of(calls, "sam"):
        name = "local_invoke" if arguments[0] == "local" else arguments[0]
        command: click.Command = import_module(COMMANDS[name]).cli
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        given = dict(zip(arguments, [*arguments[1:], ""], strict=True))
        assert {option for option in given if re.match(r"--?\w", option)} <= known, arguments
        assert given["--config-env"] in CONFIG
        assert {each for each in arguments if each.endswith("Function")} <= RESOURCES
        assert given.get("--resource-id", "StarterFunction") in RESOURCES
        assert given.get("-e", "-") == "-" or (ROOT / given["-e"]).exists()


def test_every_python_module_and_file_is_there(calls: list[list[str]]) -> None:
    for flag, module, *arguments in _of(calls, "python"):
        assert flag == "-m"
        import_module(module)
        assert all((ROOT / each).exists() for each in arguments if "/" in each and not each.startswith("-"))


def test_the_api_takes_every_call_of_aws(calls: list[list[str]], tmp_path: Path) -> None:
    made = {_check(arguments, botocore.session.Session(), tmp_path) for arguments in _of(calls, "aws")}
    assert made == {"lambda get-function-configuration"}
