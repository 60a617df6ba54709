"""The Git hook runs `make check`, whose linters are also in `make lint`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
HOOKS: list[dict[str, Any]] = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]


def test_no_hook_is_downloaded() -> None:
    assert {repository["repo"] for repository in CONFIG["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS} == {"unsupported"}  # pre-commit's name for: use the installed program
    pinned = re.findall(r"^pre-commit==(\S+)$", (ROOT / "requirements" / "hooks.txt").read_text(), re.MULTILINE)
    assert tuple(map(int, pinned[0].split("."))) >= tuple(map(int, CONFIG["minimum_pre_commit_version"].split(".")))


def test_the_hook_is_make_check_whose_linters_are_those_of_make_lint() -> None:
    assert [hook["entry"] for hook in HOOKS] == ["make --no-print-directory check"]
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^(check|lint): (\S+)", makefile, re.MULTILINE) == [
        ("check", "lint-code"),
        ("lint", "lint-code"),
    ]
