"""Entry point of `python -m local`. Ctrl-C is listened to before anything else: the imports alone take a second."""

import signal
import sys
from types import FrameType


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


for _number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background commands with SIGINT ignored
    signal.signal(_number, _interrupt)
try:
    from .cli import main

    main(prog_name="python -m local")
except KeyboardInterrupt:
    print("Interrupted before anything was started.")
    sys.exit(130)
