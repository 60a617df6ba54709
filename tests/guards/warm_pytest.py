"""Runs pytest for each line of standard input, in a fork of a process that has imported the packages of its arguments.

A line is a JSON list: the file that receives the output, the seconds after which SIGALRM ends the run, and pytest's
arguments. The answer is the exit code, as of `subprocess.run`. Nothing of the project is imported before the fork, so
each run has the current code of the working folder.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

import pytest


def main() -> None:
    sys.path[0] = os.getcwd()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process without a traceback
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        output, seconds, arguments = json.loads(line)
        if (child := os.fork()) == 0:
            sys.exit(_run(output, seconds, arguments))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(output: str, seconds: float, arguments: list[str]) -> int:
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    sys.argv[1:] = arguments
    return pytest.main(arguments)


if __name__ == "__main__":
    main()
