"""What the commands of the developers' documents name is there: events, stacks, resources, modules, files.

That each program knows its options, test_document_shell.py says of every page.
"""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from dev.tools.gradual import TYPES
from dev.tools.invoke.stack import events_of, folders
from tests.template.test_samconfig import CONFIG
from tests.unit.test_document_shell import ROOT, _calls

PAGES = ("CONTRIBUTING.md", "docs/development.md")
RESOURCES = set(re.findall(r"^  (\w+):$", (ROOT / "template.yaml").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return [call for page in PAGES for call in _calls(ROOT / page, tmp_path_factory.mktemp("page"))]


def _of(calls: list[list[str]], program: str) -> list[list[str]]:
    found = [arguments for name, *arguments in calls if name == program]
    assert found
    return found


def test_every_event_is_there(calls: list[list[str]]) -> None:
    invoked = 0
    for target, *variables in _of(calls, "make"):
        values = dict(variable.split("=", 1) for variable in variables)
        assert values.get("TYPE", TYPES[0]) in TYPES
        if target == "invoke":
            invoked += 1
            assert values["FUNCTION"] in folders()
            event = values.get("EVENT", "happy")
            assert event in [path.stem for path in events_of(values["FUNCTION"])] or (ROOT / event).exists()
    assert invoked


def test_whatever_sam_is_asked_for_is_there(calls: list[list[str]]) -> None:
    for arguments in _of(calls, "sam"):
        given = dict(zip(arguments, [*arguments[1:], ""], strict=True))
        assert given["--config-env"] in CONFIG
        assert {each for each in arguments if each.endswith("Function")} <= RESOURCES
        assert given.get("--resource-id", "StarterFunction") in RESOURCES
        assert given.get("-e", "-") == "-" or (ROOT / given["-e"]).exists()


def test_every_python_module_and_file_is_there(calls: list[list[str]]) -> None:
    for flag, module, *arguments in _of(calls, "python"):
        assert flag == "-m"
        import_module(module)
        assert all((ROOT / each).exists() for each in arguments if "/" in each and not each.startswith("-"))
