"""What git runs before a commit is what `make lint` runs, by the same programs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
HOOKS: list[dict[str, Any]] = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]
LINT = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]


def test_nothing_is_fetched_for_a_hook() -> None:
    assert {repository["repo"] for repository in CONFIG["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS} == {"unsupported"}  # pre-commit's word for: as it is installed
    pinned = re.findall(r"^pre-commit==(\S+)$", (ROOT / "requirements" / "hooks.txt").read_text(), re.MULTILINE)
    assert tuple(map(int, pinned[0].split("."))) >= tuple(map(int, CONFIG["minimum_pre_commit_version"].split(".")))


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_a_hook_is_a_line_of_make_lint(hook: dict[str, Any]) -> None:
    program, *arguments = shlex.split(hook["entry"])
    assert program.startswith("build/venv/bin/")
    assert (ROOT / program).exists()
    # Ruff gets the files of the commit, and leaves out by its own list what `make lint` does not name.
    command = [program.removeprefix("build/venv/bin/"), *(each for each in arguments if each != "--force-exclude")]
    assert f"@{' '.join(command)}" in LINT
