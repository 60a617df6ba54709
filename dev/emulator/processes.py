"""End a process and every process it started, and nothing else.

The engine leads its own session. Lambda workers and Glue scripts stay in that session even in another process group, so
its members are the processes that must end with the engine.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
HAS_PROC = (PROC / "self" / "stat").exists()  # on Linux, where small images lack ps; macOS has only ps


def command_line(pid: int) -> str:
    """The command line of `pid`, empty if there is no such process."""
    if HAS_PROC:
        try:
            return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""
    result = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return result.stdout.strip()


def is_ours(pid: int, token: str) -> bool:
    """Whether `pid` is still the process started with `token`. The system reuses process ids."""
    return token in command_line(pid)


def session_members(leader: int) -> list[int]:
    """Process ids in the session that `leader` started, without this process."""
    members = []
    for pid, state in _states_from_proc() if HAS_PROC else _states_from_ps():
        if pid == os.getpid() or state.startswith("Z"):
            continue
        try:
            if os.getsid(pid) == leader:
                members.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return members


def _states_from_proc() -> list[tuple[int, str]]:
    """(process id, state) of every process, from /proc/<pid>/stat ("proc_pid_stat(5)")."""
    states = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while the list was read
            # The name before the state is in brackets, and may contain blanks and brackets.
            states.append((int(folder.name), (folder / "stat").read_text(errors="replace").rpartition(")")[2].strip()))
    return states


def _states_from_ps() -> list[tuple[int, str]]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return [(int(pid), state) for pid, state in (line.split(None, 1) for line in listing.splitlines())]


def end_session(leader: int) -> None:
    """Kill `leader` and every other process of its session."""
    for _ in range(10):  # a dying process may have started another one a moment ago
        members = session_members(leader)
        for pid in members:
            send_signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the leader may be no child of this process
            os.waitpid(leader, os.WNOHANG)
        if not members:
            return
        time.sleep(0.02)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
