"""`make help`: the everyday targets, and among them the one that installs what the commands of CONTRIBUTING need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def targets(of: str) -> list[str]:
    shown = subprocess.run(["make", "--no-print-directory", of], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r"^  make (\S+)  ", shown.stdout, re.MULTILINE)


def test_help_lists_at_most_fifteen_targets() -> None:
    assert 1 < len(targets("help")) <= 15
    assert set(targets("help")) < set(targets("help-all"))


def test_what_installs_pytest_is_in_help_and_precedes_the_first_test_command_of_contributing() -> None:
    assert "setup-dev" in targets("help")
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^setup-dev:.*\n\t(.*)", makefile, re.MULTILINE)
    files = [ROOT / name for name in re.findall(r"requirements/\S+\.txt", recipe)]
    assert any(line.startswith("pytest==") for file in files for line in file.read_text().splitlines())
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert 0 <= text.find("    make setup-dev") < text.index("build/venv/bin/python -m pytest")
