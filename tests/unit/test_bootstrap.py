"""The set-up without an installation: which Python it chooses, and its error if there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dev.tools import bootstrap


def _fake_python(folder: Path, answer: str) -> str:
    script = folder / "python3.13"
    script.write_text(f"#!/bin/sh\necho {answer}\n")
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose only Python is the one in this folder."""
    monkeypatch.delenv("SLOTKEEPER_PYTHON", raising=False)
    monkeypatch.setattr(bootstrap, "_candidates", lambda: [str(tmp_path / "python3.13")])
    return tmp_path


def test_the_runtimes_python_is_taken(only: Path) -> None:
    python = _fake_python(only, "3.13 True")
    assert bootstrap.find_python() == python


def test_a_chosen_python_is_taken_or_refused_but_never_replaced(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_python(only, "3.13 True")
    for chosen in ("/nonexistent", _fake_python(only.parent, "3.9 True")):
        monkeypatch.setenv("SLOTKEEPER_PYTHON", chosen)
        with pytest.raises(SystemExit, match=f"SLOTKEEPER_PYTHON={chosen} is not Python 3.13"):
            bootstrap.find_python()


def test_an_unfinished_or_moved_environment_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTKEEPER_PYTHON", sys.executable)
    made: list[str] = []
    monkeypatch.setattr(bootstrap.subprocess, "run", lambda command, **_: made.append(command[-1]))
    monkeypatch.setattr(bootstrap, "_ask", lambda _: (bootstrap.RUNTIME, True))
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    bootstrap.ensure(venv, [])
    bootstrap.ensure(venv, [])
    venv.rename(tmp_path / "moved")
    bootstrap.ensure(tmp_path / "moved", [])
    assert made == [str(venv), str(tmp_path / "moved")]
