"""The folders of the functions: the deployed code, and the files next to that of a function that you may replace.

functions/<name>/app.py         deployed with everything next to it
functions/<name>/src/app.py     deployed with everything in `src`. Next to `src`, functions/<name> has its own
                                events/, tests/ and sample.py, each if it needs one
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from dev.emulator.environment import ROOT

FUNCTIONS = ROOT / "functions"


def code_folders() -> dict[str, Path]:
    """Function -> the folder of its `app.py`, which is its CodeUri in the template."""
    found = {path.parent.name: path.parent for path in FUNCTIONS.glob("*/app.py")}
    found |= {path.parents[1].name: path.parent for path in FUNCTIONS.glob("*/src/app.py")}
    return dict(sorted(found.items()))


def own_module(function: str, name: str) -> ModuleType | None:
    """The module functions.<function>.<name> of a function that you may replace; None if it has none."""
    if not (FUNCTIONS / function / f"{name.replace('.', '/')}.py").exists():
        return None
    return importlib.import_module(f"functions.{function}.{name}")
