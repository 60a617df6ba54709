"""The launcher's patches; and an engine that is neither started twice nor mistaken for another program."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.emulator import processes
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.engine import launcher
from dev.emulator.environment import ROOT
from tests.waiting import wait_until

TOKEN = "0f1e2d3c4b5a6978"
# A leader with one child, both of which only wait.
LEADER = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); input()"


def test_the_pinned_version_is_the_one_of_the_requirements() -> None:
    pinned = re.search(r"^ministack==(\S+)", (ROOT / "requirements" / "local.in").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned.group(1) == launcher.MINISTACK_VERSION


def test_a_folder_has_one_engine_which_is_found_again(tmp_path: Path) -> None:
    with EmbeddedAws.start(tmp_path) as engine:
        with pytest.raises(EngineError, match="already"):
            EmbeddedAws.start(tmp_path)
        assert EmbeddedAws.attach(tmp_path).endpoint == engine.endpoint
    assert processes.session_members(engine.pid) == []
    with pytest.raises(EngineError, match="make local-up"):
        EmbeddedAws.attach(tmp_path)


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", LEADER, TOKEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        processes.end_session(process.pid)


@pytest.mark.parametrize("has_proc", [processes.HAS_PROC, False])
def test_a_session_is_found_and_ended(
    leader: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, has_proc: bool
) -> None:
    monkeypatch.setattr(processes, "HAS_PROC", has_proc)
    wait_until(lambda: len(processes.session_members(leader.pid)) == 2, "the leader's child")
    assert processes.is_ours(leader.pid, TOKEN)
    processes.end_session(leader.pid)
    assert processes.session_members(leader.pid) == []
    assert not processes.is_ours(leader.pid, TOKEN)
