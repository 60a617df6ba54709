"""Copies of the tree that mutants are applied to."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def replaced(tree: Path, texts: Mapping[str, str]) -> Iterator[None]:
    """Files of the tree have other texts inside the block."""
    before = {name: (tree / name).read_text() for name in texts}
    try:
        _write(tree, texts)
        yield
    finally:
        _write(tree, before)


def _write(tree: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (tree / name).write_text(text)
        # Python compares a source's size and its time in seconds only, and so misses a changed sign.
        if name.endswith(".py"):
            Path(importlib.util.cache_from_source(str(tree / name))).unlink(missing_ok=True)
