"""Every command in every document: a shell runs it, and the program that it calls knows its options.

The programs are stand-ins that note how they were called. What each page's commands do for real is shown elsewhere: on
the embedded AWS (tests/e2e), in the real runtime (tests/runtime), or by botocore's models here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import botocore.session
import click
import pytest
import typer.main
from botocore import xform_name

from slotkeeper_cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), ROOT / "events" / "README.md"]
)
PROGRAMS = ("aws", "sam", "make", "slotkeeper", "pipx", "git", "curl", "python", "python3", "pip", "cfn-lint", "npx")
PLACES = ("build/venv/bin/python", "build/cli/bin/slotkeeper", "build/venv/bin/slotkeeper", ".ci/run")
# Notes its name and arguments. What is read from it is a word, or an empty document where that must be JSON.
STAND_IN = r"""#!/bin/bash
{ printf '%s\0' "${0##*/}" "$@"; printf '\n'; } >> "$CALLS"
case "$*" in *--json*|*"--output json"*) echo '{}' ;; *) echo word ;; esac
"""
SAM = {
    "build": "samcli.commands.build.command",
    "delete": "samcli.commands.delete.command",
    "deploy": "samcli.commands.deploy.command",
    "sync": "samcli.commands.sync.command",
    "validate": "samcli.commands.validate.validate",
    "logs": "samcli.commands.logs.command",
    "local_invoke": "samcli.commands.local.invoke.cli",
}
_MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^\.PHONY: (\S+)", _MAKEFILE, re.MULTILINE))
SLOTKEEPER: Any = typer.main.get_command(app)
AWS_GLOBAL = {"--query", "--output", "--endpoint-url", "--region", "--profile", "--no-cli-pager", "--cli-input-json"}
AWS_OWN = {("s3", "cp"), ("s3", "ls"), ("s3", "rb"), ("s3", "rm"), ("cloudformation", "wait"), ("logs", "tail"),
           ("cloudformation", "deploy"), ("dynamodb", "wait")}  # fmt: skip


def _shell(page: Path) -> str:
    """All blocks of a page, as one script: a later one may use what an earlier one has set."""
    text = page.read_text()
    fenced = re.findall(r"^```(?:shell|bash|sh)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^|(?<=\n\n))((?:    .*\n)+)", outside)
    script = "\n".join([*(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks), *fenced])
    return re.sub(r"<[a-z][a-z -]*>", "placeholder", script)  # for the reader to fill in


def _calls(page: Path, folder: Path) -> list[list[str]]:
    script = _shell(page)
    if not script:
        return []
    bin_folder = folder / "bin"
    for place in (*(f"bin/{name}" for name in PROGRAMS), *PLACES):
        program = folder / place
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(STAND_IN)
        program.chmod(0o755)
    for named in re.findall(r"[\w./-]+\.(?:json|jsonl|py|csv)\b", script):
        file = folder / named.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n")
    wanted = set(re.findall(r"\$\{?([A-Za-z_]\w*)", script)) - set(os.environ)
    environment = {name: name.lower() for name in wanted} | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "HOME": str(folder),
    }
    # Output that a page reads piece by piece is not there: what is checked is what is called.
    ran = subprocess.run(
        ["bash", "-uc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "command not found" not in ran.stderr, ran.stderr
    assert "No such file" not in ran.stderr, ran.stderr
    assert "syntax error" not in ran.stderr, ran.stderr
    lines = (folder / "calls").read_text().removesuffix("\0\n").split("\0\n")
    return [line.split("\0") for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_one_that_there_is(page: Path, tmp_path: Path) -> None:
    checks = {"aws": _check_aws, "sam": _check_sam, "make": _check_make, "slotkeeper": _check_slotkeeper}
    for program, *arguments in _calls(page, tmp_path):
        if program in checks:
            checks[program](arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_pages_text_is_one_that_there_is(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\b(?:or|by|see|run) make ([a-z-]+)", _shell(page)):  # in the comments of its blocks
        _check_make([target])
    for code in re.findall(r"`([^`\n]+)`", text):
        program, *arguments = code.split()
        if program == "make" and arguments:
            _check_make(arguments)
        if program == "slotkeeper" and arguments:
            leaf, rest = _leaf(arguments)
            known = _options(leaf)
            assert {one.split("=")[0] for one in rest if one.startswith("-")} <= known, code


def test_every_command_is_on_its_page() -> None:
    page = (ROOT / "docs" / "operator.md").read_text()

    def walk(command: Any, path: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            if getattr(child, "commands", None):
                walk(child, f"{path} {name}")
            else:
                assert f"{path} {name}" in page

    walk(SLOTKEEPER, "slotkeeper")


def _leaf(arguments: list[str]) -> tuple[Any, list[str]]:
    command, at = SLOTKEEPER, 0
    while at < len(arguments) and getattr(command, "commands", None) and arguments[at] in command.commands:
        command, at = command.commands[arguments[at]], at + 1
    assert at or arguments[0].startswith("-"), f"there is no command {arguments[0]}"
    assert not getattr(command, "commands", None) or arguments[at:] in ([], ["--help"]) or not at, arguments
    return command, arguments[at:]


def _options(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h", "--version"}


def _check_slotkeeper(arguments: list[str]) -> None:
    command, rest = _leaf(arguments)
    if {"--help", "--version", "--install-completion"} & set(rest):
        return
    try:
        command.make_context("slotkeeper", list(rest))
    except click.BadParameter as error:
        if "does not exist" not in str(error):  # a file that the page says to have
            pytest.fail(f"{shlex.join(arguments)}: {error.format_message()}")


def _check_make(arguments: list[str]) -> None:
    targets = [one for one in arguments if "=" not in one and not one.startswith("-")]
    assert set(targets) <= TARGETS, arguments
    for name in (one.split("=")[0] for one in arguments if "=" in one):
        assert re.search(rf"\b{name}\b", _MAKEFILE), f"make knows no variable {name}"


def _check_sam(arguments: list[str]) -> None:
    words = [one for one in arguments if re.fullmatch(r"[a-z]+", one)][:2]
    path = "_".join(words) if words[0] == "local" else words[0]
    command = getattr(import_module(SAM[path]), "cli")  # noqa: B009 - a module's attribute, by its name
    given = {one.split("=")[0] for one in arguments if re.match(r"--?[a-z]", one)}
    assert given <= _options(command) | {"--config-env", "--config-file"}, arguments


@cache
def _operations(service: str) -> dict[str, Any]:
    model = botocore.session.Session().get_service_model(service)
    return {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}


def _check_aws(arguments: list[str]) -> None:
    while arguments[0] in AWS_GLOBAL:
        arguments = arguments[2:]
    service, name, *options = arguments
    if (service, name) in AWS_OWN:
        return
    operations = _operations({"s3api": "s3"}.get(service, service))
    assert name in operations, f"aws {service} has no {name}"
    members = {f"--{xform_name(each, '-')}" for each in operations[name].input_shape.members}
    given = {one for one in options if one.startswith("--")} - AWS_GLOBAL
    assert {one.replace("--no-", "--") if one not in members else one for one in given} <= members | {
        "--max-items", "--page-size", "--cli-binary-format"
    }, f"aws {service} {name}"  # fmt: skip
