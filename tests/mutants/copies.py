"""Copies of the tree in which a mutant can do no harm."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from tests.mutants.mutant_catalogue import Mutant

# Fetched once and only read: the copies share it.
SHARED = Path("build") / "dynamodb-local"


def copy_tree(source: Path, target: Path) -> None:
    """The files that git tracks, as they stand, and those that it does not know yet; nothing that it ignores."""
    shutil.rmtree(target, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (source / name).is_file():  # not one that is deleted and not committed yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
    (source / SHARED).mkdir(parents=True, exist_ok=True)
    (target / SHARED).parent.mkdir(parents=True, exist_ok=True)
    (target / SHARED).symlink_to((source / SHARED).resolve())


def copy_with(mutant: Mutant, base: Path, target: Path) -> None:
    """A copy of a copy, with its compiled bytecode, and the mutant in it. Raises Stale."""
    texts = mutant.mutated(base)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target, symlinks=True, ignore=shutil.ignore_patterns(".hypothesis"))
    for name, text in texts.items():
        (target / name).write_text(text)
        # Python tells a source by its size and its time in seconds: too little for a change of one sign.
        if name.endswith(".py"):
            Path(importlib.util.cache_from_source(str(target / name))).unlink(missing_ok=True)
