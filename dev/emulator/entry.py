"""Start a command of this package: Ctrl-C is handled before the imports, which take a second."""

import signal
import sys
from importlib import import_module
from types import FrameType


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(module: str, program: str) -> None:
    """Import `module` and run its click command `main` under the name `program`.

    Exits with 130 if interrupted, and with 1 if this Python does not have the project's packages.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background commands with SIGINT ignored
        signal.signal(number, _interrupt)
    try:
        import_module(module).main(prog_name=program)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dev":
            raise
        print(f"{error}: it is not installed for {sys.executable}.", file=sys.stderr)
        print(f"Use make (make help lists its commands), or build/venv/bin/{program}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("Interrupted before anything was started.")
        sys.exit(130)
