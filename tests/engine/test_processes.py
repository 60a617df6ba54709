"""The processes of a session, with `ps` and without it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.emulator import processes
from tests.support.waiting import wait_until

TOKEN = "0f1e2d3c4b5a6978"
# A leader with one child, both of which only wait.
LEADER = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); input()"


@pytest.fixture(params=["proc", "ps"])
def _source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "proc":
        if not processes.HAS_PROC:
            pytest.skip("this system has no /proc")
        monkeypatch.setenv("PATH", os.devnull)  # no ps is found
    else:
        monkeypatch.setattr(processes, "HAS_PROC", False)


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", LEADER, TOKEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        processes.end_session(process.pid)


@pytest.mark.usefixtures("_source")
def test_a_session_is_found_and_ended(leader: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: len(processes.session_members(leader.pid)) == 2, "the leader's child")
    assert processes.is_ours(leader.pid, TOKEN)
    processes.end_session(leader.pid)
    assert processes.session_members(leader.pid) == []
    assert not processes.is_ours(leader.pid, TOKEN)


def test_a_name_with_brackets_does_not_hide_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "stat").write_text("4711 (a) b (c)) Z 1 4711 4711 0\n")
    (tmp_path / "4712").mkdir()  # ended in between
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert [(pid, state[0]) for pid, state in processes._states_from_proc()] == [(4711, "Z")]
