"""A process of its own that is told what to do, and tells what came of it, a line of JSON at a time.

    python -m <module> '<what it has to know as JSON>'

A line that never comes ends it: its parent is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from dev.emulator.environment import ROOT
from tests.support.waiting import NEVER


class ControlledProcess:
    """The parent's side. A context manager that ends the process, whatever state it is in."""

    def __init__(self, module: str, knows: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(knows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line that waits in a buffer is one that select does not see
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "layers" / "slotkeeper")])},
        )

    def says(self) -> Any:
        """The next line it says."""
        output = self._process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], NEVER)
        assert readable, f"the process has said nothing for {NEVER:g} s"
        line = output.readline()
        assert line, "the process has ended without a word"
        return json.loads(line)

    def tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def go_on(self) -> None:
        """Lets it do its work, or leave its stopping point."""
        self.tell(None)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def say(what: Any) -> None:
    """The process's side: a line to the parent."""
    print(json.dumps(what), flush=True)


def hear() -> Any:
    """The process's side: the parent's next line. Without a parent the process ends here."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    return json.loads(line)
