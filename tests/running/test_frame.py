"""What the run commands have in common."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from local.aws import EmbeddedAws, EngineError
from local.chat_run import main as chat_run
from local.run import main as run
from local.worker_run import main as worker_run


@pytest.mark.parametrize("command", [run, chat_run, worker_run])
def test_a_run_that_cannot_start_leaves_no_report_of_an_earlier_one(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_state_dir: Path, **_options: bool) -> None:
        raise EngineError("no engine today")

    monkeypatch.setattr(command, "RUN_DIR", tmp_path)
    monkeypatch.setattr(EmbeddedAws, "start", refuse)
    for name in command.WRITTEN:
        (tmp_path / name).touch()
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 1
    assert "no engine today" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
