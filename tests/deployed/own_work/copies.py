"""A copy of the tree."""

from __future__ import annotations

import shutil
import subprocess
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
