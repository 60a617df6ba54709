"""The modules that `make` runs find their imports with the PYTHONPATH of their target; `make check` finds its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from dev.tools.check import targets_of

ROOT = Path(__file__).parents[2]


def _imports() -> dict[str, set[str]]:
    """PYTHONPATH -> the modules that targets with this path run. A package's `__main__` names the module it runs."""
    imports = defaultdict(set)
    makefile = (ROOT / "Makefile").read_text()
    for path, module in re.findall(r"(?:PYTHONPATH=(\S+) )?\$\(PYTHON\) -m ((?:dev|tests)\.[\w.]+)", makefile):
        main = ROOT / module.replace(".", "/") / "__main__.py"
        text = main.read_text() if main.exists() else ""
        named = re.findall(r'run\("([\w.]+)"', text)
        imports[path].update(named or [f"{module}.__main__" if "__name__" in text else module])
    return imports


def test_a_targets_module_is_imported_with_the_path_of_its_target() -> None:
    imports = _imports()
    assert len(imports) > 1
    for path, modules in imports.items():
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": path}
        command = [sys.executable, "-c", f"import {', '.join(sorted(modules))}"]
        imported = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert imported.returncode == 0, imported.stderr


def test_a_change_of_the_command_selects_its_situations_and_the_modules_with_its_name() -> None:
    situations, tests = "tests/command/test_situations.py", "tests/command/test_doctor"
    assert targets_of(["cli/slotkeeper_cli/doctor/slot_checks.py"]) == [
        f"{tests}_checks.py",
        f"{tests}_command.py",
        situations,
    ]
    assert targets_of(["cli/slotkeeper_cli/failures.py"]) == [situations]
