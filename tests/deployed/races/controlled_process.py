"""A process that exchanges lines of JSON with its parent.

    python -m <module> '<arguments as JSON>'

It ends when its parent has ended.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import Any, Self

from dev.emulator.environment import ROOT
from tests.waiting import NEVER


class ControlledProcess:
    """The parent's side. As a context manager it kills the process at the end."""

    def __init__(self, module: str, arguments: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select does not see a line in a buffer
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "layers" / "slotkeeper")])},
        )

    def receive(self, seconds: float = 0.0) -> Any:
        """The next line of the process, which works for so many seconds before it sends it."""
        output = self._process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], seconds + NEVER)
        assert readable, f"the process has sent nothing for {seconds + NEVER:g} s"
        line = output.readline()
        assert line, "the process has ended without a line"
        return json.loads(line)

    def send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def send_line(value: Any) -> None:
    """The process's side: send a line to the parent."""
    print(json.dumps(value), flush=True)


def receive_line() -> Any:
    """The process's side: the parent's next line. Without a parent the process ends."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    return json.loads(line)
