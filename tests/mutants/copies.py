"""Copies of the tree that mutants are applied to."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.mutants.mutant_catalogue import Mutant

# Downloaded once and read-only: the copies share it.
SHARED = Path("build") / "dynamodb-local"


def copy_tree(source: Path, target: Path) -> None:
    """Copy tracked and new files in their current state, without files that git ignores."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (source / name).is_file():  # a tracked file may be deleted and not committed yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
    (source / SHARED).mkdir(parents=True, exist_ok=True)
    (target / SHARED).parent.mkdir(parents=True, exist_ok=True)
    (target / SHARED).symlink_to((source / SHARED).resolve())


def copy_with(mutant: Mutant, base: Path, target: Path) -> None:
    """Copy `base` with its compiled bytecode and apply the mutant. Raises Stale."""
    texts = mutant.mutated(base)
    shutil.rmtree(target, ignore_errors=True)
    # Links, since tests write to generated files only: copies of the others take a tenth of a trial.
    generated = [name for name in ("build", ".hypothesis") if (base / name).exists()]
    shutil.copytree(base, target, symlinks=True, ignore=shutil.ignore_patterns(*generated), copy_function=os.link)
    if "build" in generated:
        shutil.copytree(base / "build", target / "build", symlinks=True)
    for name, text in texts.items():
        (target / name).unlink()
        (target / name).write_text(text)
        # Python compares a source's size and its time in seconds only, and so misses a changed sign.
        if name.endswith(".py"):
            Path(importlib.util.cache_from_source(str(target / name))).unlink(missing_ok=True)
