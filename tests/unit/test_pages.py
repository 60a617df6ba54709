"""The documents name only what exists: commands and options, links, pages, definitions, resources, parameters, fields.

A shell runs the commands of a page, with programs that record their arguments. The recorded names are compared with
the real programs and with botocore's models. tests/deployed has the effects of the commands, on the embedded AWS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import click
import pytest
import typer.main
from botocore import xform_name

from dev.emulator.deployment import check_names
from dev.tools.function_folders import code_folders
from dev.tools.gradual import TYPES
from dev.tools.invoke import events_of
from slotkeeper_cli.app import app
from slotkeeper_cli.stack_variables import shell_lines, variable_name
from tests.simulation.account.completion_events import SCHEMA
from tests.template.parsing import parsed_template
from tests.template.test_samconfig import CONFIG

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/*.md", "[a-z]*/README.md", "dev/*/README.md", "functions/*/README.md")
PAGES = sorted({page for place in PLACES for page in ROOT.glob(place)})
RETRIES = ROOT / "docs" / "retries.md"
RETRIES_REFERENCE = ROOT / "docs" / "retries-reference.md"
PROGRAMS = ("aws", "sam", "make", "slotkeeper", "pipx", "git", "curl", "python", "python3", "pip", "cfn-lint", "npx",
            "uuidgen")  # fmt: skip
PROGRAMS_OF_THE_TREE = ("build/venv/bin/python", "build/cli/bin/slotkeeper", "build/venv/bin/slotkeeper", ".ci/run")
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
PARAMETERS: dict[str, Any] = parsed_template()["Parameters"]
LAYER = ROOT / "layers" / "slotkeeper" / "slotkeeper"
MESSAGES = (ROOT / "docs" / "messages.md").read_text()
EVENTS = (ROOT / "docs" / "completion-events.md").read_text()
# A linked file of ARCHITECTURE.md, and the names in backticks that follow it.
DEFINED = re.findall(r"\]\(([\w/.-]+)\)((?:[\s,]+`\w+`)+)", (ROOT / "ARCHITECTURE.md").read_text())
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


of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Call(NamedTuple):
    """One recorded call."""

    program: str
    arguments: list[str]


def outside_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[str]:
    """A page's blocks of commands: the indented ones in their order, then the fenced ones."""
    text = page.read_text()
    fenced = re.findall(r"^```(?:shell|bash|sh)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^|(?<=\n\n))((?:    .*\n)+)", outside_code(page))
    return [*(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in indented), *fenced]


def commands_in_text(page: Path) -> list[str]:
    """The commands between backticks in a page's text, each on one line."""
    codes = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside_code(page)))
    return [code for code in codes if code.partition(" ")[0] in PROGRAMS]


def run(folder: Path, blocks: list[str]) -> list[Call]:
    """Run the blocks as one script and return its calls. A block may use variables of an earlier one.

    A command may fail for lack of output: only the calls are checked.
    """
    script = re.sub(r"<[a-z][a-z -]*>", "placeholder", "\n".join(blocks))  # the reader's values
    if not script:
        return []
    for place in [*(f"bin/{name}" for name in PROGRAMS), *PROGRAMS_OF_THE_TREE]:
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


@of_each_page
def test_every_command_of_a_page_exists(page: Path, tmp_path: Path) -> None:
    checks = {"aws": _check_aws, "sam": _check_sam, "make": _check_make, "slotkeeper": _check_slotkeeper,
              "python": _check_python}  # fmt: skip
    for call in run(tmp_path, blocks_of(page)):
        if call.program in checks:
            checks[call.program](call.arguments)


@of_each_page
def test_every_command_in_a_pages_text_exists(page: Path) -> None:
    for target in re.findall(r"\b(?:or|by|see|run) make ([a-z-]+)", "\n".join(blocks_of(page))):  # in their comments
        _check_make([target])
    for code in commands_in_text(page):
        program, *arguments = code.split()
        if program == "aws" and "--" in code:
            _check_aws(shlex.split(code.removesuffix(" ..."))[1:])
        if program == "make" and arguments:
            _check_make(arguments)
        if program == "slotkeeper" and arguments:
            leaf, rest = _leaf(arguments)
            known = _options(leaf)
            assert {one.split("=")[0] for one in rest if one.startswith("-")} <= known, code


@of_each_page
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
        if not re.search("does not exist|No such file", str(error)):  # the reader's file
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


def _check_aws(arguments: list[str]) -> None:
    while arguments[0] in AWS_GLOBAL:
        arguments = arguments[2:]
    service, name, *rest = arguments
    if (service, name) in AWS_OWN:
        return
    operations = _operations({"s3api": "s3"}.get(service, service))
    assert name in operations, f"aws {service} has no {name}"
    shape = operations[name].input_shape
    known = {f"--{xform_name(each, '-')}" for each in shape.members}
    given = {each.replace("--no-", "--") for each in rest if each.startswith("--")} - AWS_GLOBAL - AWS_OWN_OPTIONS
    assert given <= known, f"aws {service} {name} has no {given - known}"
    assert {f"--{xform_name(each, '-')}" for each in shape.required_members} <= given, arguments


# Links and names


def _anchors(page: Path) -> set[str]:
    """The anchors of GitHub: headings in lower case, with hyphens for blanks and without punctuation."""
    headings = re.findall(r"^#+ (.*)$", outside_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@of_each_page
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), target


def test_the_list_of_documents_has_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}


@of_each_page
def test_every_diagram_names_existing_resources(page: Path) -> None:
    for diagram in re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for name in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Queue|Table)\b", diagram):
            assert name in RESOURCES, name


@pytest.mark.parametrize(("file", "names"), DEFINED)
def test_a_name_of_the_architecture_is_defined_in_the_file_that_is_linked_before_it(file: str, names: str) -> None:
    code = (ROOT / file).read_text()
    for name in re.findall(r"\w+", names):
        assert re.search(rf'(?:def|class) {name}\b|^    "{name}": {{', code, re.MULTILINE), f"{name} is not in {file}"


# Tables


def _rows(page: str) -> list[list[str]]:
    """The cells of each row whose first cell is code."""
    lines = re.findall(r"^\| (`[^|]+`) \|(.*)\|$", page, re.MULTILINE)
    return [[first.strip("`"), *(cell.strip() for cell in rest.split("|"))] for first, rest in lines]


ROWS = {row[0]: row[1:] for row in _rows((ROOT / "docs" / "parameters.md").read_text())}


def test_the_page_has_every_parameter_and_no_other() -> None:
    assert ROWS.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_parameters_default_and_range_are_the_templates(name: str) -> None:
    declared, (default, allowed, _) = PARAMETERS[name], ROWS[name]
    assert default.startswith(f"`{declared['Default']}`" if declared["Default"] != "" else "empty")
    for bound in ("MinValue", "MaxValue", "MaxLength"):
        if bound in declared:
            assert re.search(rf"\b{declared[bound]}\b", allowed), bound
    for value in declared.get("AllowedValues", [])[:6]:
        assert str(value) in allowed


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("## A request", LAYER / "slots" / "request.schema.json"),
        ("## Work", LAYER / "retry" / "work.schema.json"),
        ("## Chat messages", LAYER / "chatbot" / "message.schema.json"),
    ],
)
def test_the_fields_of_a_message_are_its_schemas(heading: str, schema: Path) -> None:
    section = MESSAGES.split(f"\n{heading}\n")[1].split("\n##")[0]
    declared = json.loads(schema.read_text())

    assert {row[0]: row[1] == "yes" for row in _rows(section)} == {
        name: name in declared["required"] for name in declared["properties"]
    }


def test_the_page_of_retries_has_each_setting_of_a_downstream_and_no_other() -> None:
    declared = json.loads((LAYER / "retry" / "policy.schema.json").read_text())["definitions"]["downstream"]
    settings = {f"{part}.{name}" for part, of in declared["properties"].items() for name in of["properties"]}
    named = {name for row in _rows(RETRIES_REFERENCE.read_text()) for name in row[0].split("`, `")}
    assert {name for name in named if name.partition(".")[0] in declared["properties"]} == settings


def test_the_page_of_events_has_each_field_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| [^|]+ \|$", EVENTS, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z_]+)`", row)) == sorted(SCHEMA["properties"])
