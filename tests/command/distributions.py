"""The wheel of the library and the command, and the distributions of an environment, with their requirements."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]
EXTRA: list[str] = PROJECT["project"]["optional-dependencies"]["cli"]
# Optional imports of botocore and urllib3, which the local environment has.
OPTIONAL = {"awscrt", "certifi", "cffi", "cryptography", "pyopenssl", "setuptools"}
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a copy, because setuptools leaves files in the source tree."""
    source, target = folder / "source", folder / "wheel"
    for made in (source, target):
        made.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for place in PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]:
        shutil.copytree(ROOT / place, source / place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    built = subprocess.run(
        [sys.executable, "-c", _BUILD, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = target.glob("*.whl")
    return wheel


def installed_with(requirements: list[str]) -> set[str]:
    """The distributions that these requirements install, with their own requirements."""
    seen: set[tuple[str, str]] = set()
    wanted = [Requirement(one) for one in requirements]
    while wanted:
        requirement = wanted.pop()
        for extra in {"", *requirement.extras}:
            key = (requirement.name.lower().replace("_", "-"), extra)
            if key in seen:
                continue
            seen.add(key)
            for text in metadata.requires(requirement.name) or []:
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    wanted.append(further)
    return {name for name, _ in seen}


def distributions(imported: Iterable[str]) -> set[str]:
    """The distributions of imported modules, without the standard library and this project."""
    modules = set(imported) - sys.stdlib_module_names - {"slotkeeper", "slotkeeper_cli", "__main__"}
    of = metadata.packages_distributions()
    return {of[module][0].lower().replace("_", "-") for module in modules if module in of}
