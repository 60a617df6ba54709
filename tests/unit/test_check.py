"""`make check` runs the fast tests of the changed files, and all fast tests for a file that several folders test."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.tools.check import FAST, SLOW, targets_of

ROOT = Path(__file__).parents[2]
LAYER = "layers/slotkeeper/slotkeeper"


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (f"{LAYER}/slots/protocol.py", ["tests/unit/slots"]),
        ("template.yaml", ["tests/template"]),
        ("statemachines/workflow.asl.json", ["tests/workflow"]),
        ("cli/slotkeeper_cli/app.py", ["tests/cli"]),
        ("tests/unit/token/test_token_lock.py", ["tests/unit/token/test_token_lock.py"]),
        ("tests/cli/conftest.py", ["tests/cli"]),
        ("tests/cli/test_that_was_removed.py", []),
        (f"{LAYER}/settings.py", sorted(FAST)),
        ("functions/starter/app.py", sorted(FAST)),
        ("tests/support/boundary.py", sorted(FAST)),
        ("conftest.py", sorted(FAST)),
        ("dev/emulator/engine/launcher.py", []),
        ("tests/races/conftest.py", []),
    ],
)
def test_a_changed_file_selects_its_tests(changed: str, tests: list[str]) -> None:
    assert targets_of([changed]) == tests


def test_a_selected_folder_replaces_its_modules() -> None:
    assert targets_of([f"{LAYER}/events.py", f"{LAYER}/slots/protocol.py", "README.md"]) == sorted(FAST)


def test_every_named_folder_of_tests_exists() -> None:
    assert all((ROOT / folder).is_dir() for folder in (*FAST, *(f"tests/{name}" for name in SLOW)))
