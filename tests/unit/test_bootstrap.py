"""The set-up without an installation: a chosen Python is taken or refused, and a moved environment is made again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dev.tools import bootstrap


@pytest.mark.parametrize("answer", [None, "3.9 True"], ids=["absent", "another version"])
def test_a_chosen_python_that_is_not_the_runtimes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    chosen = tmp_path / "python"
    if answer:
        chosen.write_text(f"#!/bin/sh\necho {answer}\n")
        chosen.chmod(0o755)
    monkeypatch.setenv("SLOTKEEPER_PYTHON", str(chosen))
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
