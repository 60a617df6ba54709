"""Each command in each document: a shell runs it, and its options and values are checked with the real program.

The programs are replaced by a script that records its arguments. Calls of AWS are validated with botocore's models.
tests/deployed and tests/deployed have the effects of the commands, on the embedded AWS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import click
import pytest
import typer.main
from botocore import xform_name
from botocore.model import Shape
from botocore.validate import validate_parameters

from dev.emulator.deployment import check_names
from dev.tools.function_folders import code_folders
from dev.tools.gradual import TYPES
from dev.tools.invoke import events_of
from slotkeeper_cli.app import app
from slotkeeper_cli.stack_variables import shell_lines, variable_name
from tests.template.parsing import parsed_template
from tests.template.test_samconfig import CONFIG

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/*.md", "[a-z]*/README.md", "dev/*/README.md", "functions/*/README.md")
PAGES = sorted({page for place in PLACES for page in ROOT.glob(place)})
RETRIES = ROOT / "docs" / "retries.md"
RETRIES_REFERENCE = ROOT / "docs" / "retries-reference.md"
PROGRAMS = ("aws", "sam", "make", "slotkeeper", "pipx", "git", "curl", "python", "python3", "pip", "cfn-lint", "npx",
            "uuidgen")  # fmt: skip
PLACES = ("build/venv/bin/python", "build/cli/bin/slotkeeper", "build/venv/bin/slotkeeper", ".ci/run")
# Records its name and arguments. Prints what the pages read: the stack's outputs, a message, JSON, an ARN
# that is long enough for each field, or a word.
RECORDER = r"""#!/bin/bash
# Appended in one write, because the programs of a pipe run at the same time.
{ printf '%s\0' "${0##*/}" "$@"; printf '\n'; } > "$CALLS.$$"
cat "$CALLS.$$" >> "$CALLS"
case "${0##*/} $*" in
  slotkeeper*"stack outputs"*--export*) cat exports.sh ;;
  aws*receive-message*) cat dead-letter.json ;;
  *--json*|*"--output json"*) echo '{}' ;;
  aws*) echo arn:aws:service:us-east-1:123456789012:thing ;;
  *) echo word ;;
esac
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
RESOURCES = set(parsed_template()["Resources"])
SLOTKEEPER: Any = typer.main.get_command(app)
AWS_GLOBAL = {"--query", "--output", "--endpoint-url", "--region", "--profile", "--no-cli-pager", "--cli-input-json"}
# Commands of the CLI itself, which botocore's models do not have.
AWS_OWN = {("s3", "cp"), ("s3", "ls"), ("s3", "rb"), ("s3", "rm"), ("cloudformation", "wait"), ("logs", "tail"),
           ("cloudformation", "deploy"), ("dynamodb", "wait")}  # fmt: skip
AWS_OWN_OPTIONS = {"--max-items", "--page-size", "--cli-binary-format"}

OUTPUTS = {
    name: f"https://{name.lower()}.invalid" if name.endswith("Url") else name.lower()
    for name in map(str, parsed_template()["Outputs"])
}
DEAD_LETTER = {"Messages": [{"Body": '{"request_id": "r", "payload": {}}', "ReceiptHandle": "handle"}]}
OF_THE_LOCAL_STACK = {"CHAT_API_URL", "CHAT_API_CLIENT_ID", "CHAT_API_CLIENT_SECRET"}
OF_THE_READER = {"CHANGE_SET_ARN"}  # sam deploy prints it
VARIABLES = {variable_name(name): value for name, value in OUTPUTS.items()}


class Call(NamedTuple):
    """One recorded call."""

    program: str
    arguments: list[str]


def blocks_of(page: Path) -> list[str]:
    """A page's blocks of commands: the indented ones in their order, then the fenced ones."""
    text = page.read_text()
    fenced = re.findall(r"^```(?:shell|bash|sh)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^|(?<=\n\n))((?:    .*\n)+)", outside)
    return [*(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in indented), *fenced]


def commands_in_text(page: Path) -> list[str]:
    """The commands between backticks in a page's text, each on one line."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    codes = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))
    return [code for code in codes if code.partition(" ")[0] in PROGRAMS]


def run(folder: Path, blocks: list[str]) -> list[Call]:
    """Run the blocks as one script and return its calls. A block may use variables of an earlier one.

    A command may fail for lack of output: only the calls are checked.
    """
    script = re.sub(r"<[a-z][a-z -]*>", "placeholder", "\n".join(blocks))  # the reader's values
    if not script:
        return []
    for place in [*(f"bin/{name}" for name in PROGRAMS), *PLACES]:
        program = folder / place
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(RECORDER)
        program.chmod(0o755)
    message, _, policy = (
        block
        for page in (RETRIES, RETRIES_REFERENCE)
        for block in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
    )
    contents = {
        "message.json": message,
        "policy.json": policy,
        "dead-letter.json": json.dumps(DEAD_LETTER),
        "exports.sh": "\n".join(shell_lines(VARIABLES)),
    }
    contents = dict.fromkeys(re.findall(r"[\w./-]+\.(?:json|jsonl|py|csv|yaml)\b", script), "{}\n") | contents
    for name, content in contents.items():
        (folder / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / name.lstrip("/")).write_text(content)
    environment = dict.fromkeys(OF_THE_LOCAL_STACK | OF_THE_READER, "set") | VARIABLES
    environment |= {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "HOME": str(folder),
    }
    command = ["bash", "-uc", script]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not re.search("command not found|No such file|syntax error|unbound variable", ran.stderr), ran.stderr
    lines = (folder / "calls").read_text().removesuffix("\0\n").split("\0\n")
    return [Call(program, arguments) for program, *arguments in (line.split("\0") for line in lines)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path, tmp_path: Path) -> None:
    checks = {"sam": _check_sam, "make": _check_make, "slotkeeper": _check_slotkeeper, "python": _check_python}
    for call in run(tmp_path, blocks_of(page)):
        if call.program == "aws":
            _check_aws(call.arguments, tmp_path)
        elif call.program in checks:
            checks[call.program](call.arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_pages_text_exists(page: Path, tmp_path: Path) -> None:
    for target in re.findall(r"\b(?:or|by|see|run) make ([a-z-]+)", "\n".join(blocks_of(page))):  # in their comments
        _check_make([target])
    for code in commands_in_text(page):
        program, *arguments = code.split()
        if program == "aws" and "--" in code:
            _check_aws(shlex.split(re.sub(r"<[a-z-]+>|\$\w+", "a" * 36, code).removesuffix(" ..."))[1:], tmp_path)
        if program == "make" and arguments:
            _check_make(arguments)
        if program == "slotkeeper" and arguments:
            leaf, rest = _leaf(arguments)
            known = _options(leaf)
            assert {one.split("=")[0] for one in rest if one.startswith("-")} <= known, code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_variable_of_a_page_is_an_output_or_set_on_the_page(page: Path) -> None:
    """bash does not run commands in a comment or in the text."""
    script = "\n".join([*blocks_of(page), *commands_in_text(page)])
    used = set(re.findall(r"\$\{?([A-Z][A-Za-z]*[A-Z_]\w*)", script)) - {"HOME", "PATH", "PWD"}
    used |= set(re.findall(r"""environ\["([A-Z_]+)"\]""", script))
    assert used <= VARIABLES.keys() | OF_THE_LOCAL_STACK | OF_THE_READER | set(re.findall(r"\b([A-Z_]+)=", script))


def test_the_operator_page_has_every_command() -> None:
    page = (ROOT / "docs" / "operator.md").read_text()

    def walk(command: Any, path: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            if getattr(child, "commands", None):
                walk(child, f"{path} {name}")
            else:
                assert f"{path} {name}" in page

    walk(SLOTKEEPER, "slotkeeper")


# -------------------------------------------------------------------------------------------------------- the programs


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
        if "does not exist" not in str(error):  # the reader's file
            pytest.fail(f"{shlex.join(arguments)}: {error.format_message()}")


def _check_make(arguments: list[str]) -> None:
    targets = [one for one in arguments if "=" not in one and not one.startswith("-")]
    assert set(targets) <= TARGETS, arguments
    values = dict(one.split("=", 1) for one in arguments if "=" in one)
    for name in values:
        assert re.search(rf"\b{name}\b", _MAKEFILE), f"make knows no variable {name}"
    assert values.get("TYPE", TYPES[0]) in TYPES
    if "invoke" in targets and "FUNCTION" in values:
        assert values["FUNCTION"] in code_folders()
        events = [path.stem for path in events_of(values["FUNCTION"])]
        assert values.get("EVENT", events[0]) in events or (ROOT / values["EVENT"]).exists()


def _check_sam(arguments: list[str]) -> None:
    words = [one for one in arguments if re.fullmatch(r"[a-z]+", one)][:2]
    path = "_".join(words) if words[0] == "local" else words[0]
    command = getattr(import_module(SAM[path]), "cli")  # noqa: B009 - a module's attribute, by its name
    options = {one.split("=")[0] for one in arguments if re.match(r"--?[a-z]", one)}
    assert options <= _options(command) | {"--config-env", "--config-file"}, arguments
    check_names(re.findall(r"^(\w+)=", "\n".join(arguments), re.MULTILINE))
    values = dict(zip(arguments, [*arguments[1:], ""], strict=True))
    assert values.get("--config-env", "default") in CONFIG
    assert {each for each in arguments if each.endswith("Function")} <= RESOURCES
    assert values.get("--resource-id", "StarterFunction") in RESOURCES
    assert values.get("-e", "-") == "-" or (ROOT / values["-e"]).exists()


def _check_python(arguments: list[str]) -> None:
    if arguments[0] == "-m" and arguments[1] not in ("venv", "pip"):
        import_module(arguments[1])
        assert all((ROOT / each).exists() for each in arguments[2:] if "/" in each and not each.startswith("-"))


@cache
def _operations(service: str) -> dict[str, Any]:
    model = botocore.session.Session().get_service_model(service)
    return {xform_name(name, "-"): model.operation_model(name) for name in model.operation_names}


def _check_aws(arguments: list[str], folder: Path) -> None:
    while arguments[0] in AWS_GLOBAL:
        arguments = arguments[2:]
    service, name, *options = arguments
    if (service, name) in AWS_OWN:
        return
    operations = _operations({"s3api": "s3"}.get(service, service))
    assert name in operations, f"aws {service} has no {name}"
    shape = operations[name].input_shape
    validate_parameters(dict(_parameters(shape, options, folder)), shape)


def _parameters(shape: Any, options: list[str], folder: Path) -> Iterator[tuple[str, Any]]:
    """The parameters of the call, from the CLI's options."""
    members = {f"--{xform_name(each, '-')}": each for each in shape.members}
    at = 0
    while at < len(options):
        option, values = options[at], []
        at += 1
        while at < len(options) and not options[at].startswith("--"):
            values.append(options[at])
            at += 1
        if option in AWS_GLOBAL | AWS_OWN_OPTIONS:
            continue
        if option not in members and option.replace("--no-", "--") in members:
            yield members[option.replace("--no-", "--")], False
            continue
        assert option in members, f"there is no {option}"
        yield members[option], _value(shape.members[members[option]], values, folder)


def _value(shape: Shape, values: list[str], folder: Path) -> Any:
    if shape.type_name == "boolean":
        assert values == []
        return True
    if shape.type_name == "list" and values[0].startswith("file://"):
        assert (folder / values[0].removeprefix("file://")).is_file()  # of the reader, or of an earlier command
        return []
    if shape.type_name == "list":
        return json.loads(values[0]) if values[0].startswith("[") else values
    (value,) = values
    assert value
    if value.startswith("file://"):
        value = (folder / value.removeprefix("file://")).read_text()
    if shape.type_name in ("string", "timestamp", "blob"):
        return value
    if shape.type_name == "structure" and not value.startswith("{"):  # the CLI's shorthand
        pairs = (pair.split("=", 1) for pair in value.split(","))
        return {name: json.loads(text) if text in ("true", "false") else text for name, text in pairs}
    return json.loads(value)
