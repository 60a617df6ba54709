"""The code of functions that engines unpack."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest

from dev.emulator.engine.patches import functions


def _unpacked(archive: Path, folder: Path) -> Path:
    folder.mkdir()
    with functions._SharedCopy(archive) as code:
        code.extractall(folder)
    return folder.resolve()


def test_equal_archives_have_one_copy_and_one_that_nothing_uses_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "CODE_DIR", tmp_path / "code")
    for name, text in (("first", "1"), ("equal", "1"), ("other", "2")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(zipfile.ZipInfo("app.py"), text)
    first = _unpacked(tmp_path / "first", tmp_path / "a")
    assert _unpacked(tmp_path / "equal", tmp_path / "b") == first
    assert (first / "app.py").read_text() == "1"
    long_ago = time.time() - functions.KEPT_SECONDS - 60
    os.utime(first, (long_ago, long_ago))
    other = _unpacked(tmp_path / "other", tmp_path / "c")
    assert list((tmp_path / "code").iterdir()) == [other]
