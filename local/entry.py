"""How a command of this package begins: Ctrl-C is heard before anything else, since the imports alone take a second."""

import signal
import sys
from importlib import import_module
from types import FrameType


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(module: str, program: str) -> None:
    """Import `module` and run its click command `main` under the name `program`; 130 if interrupted on the way."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background commands with SIGINT ignored
        signal.signal(number, _interrupt)
    try:
        import_module(module).main(prog_name=program)
    except KeyboardInterrupt:
        print("Interrupted before anything was started.")
        sys.exit(130)
