"""The log of an invocation has all of its lines.

AWS: "Lambda Developer Guide: Sending Lambda function logs to CloudWatch Logs": each invocation's lines are between its
START and END lines.
MiniStack takes the lines that have arrived 5 ms after the last one. On a busy machine the others arrive later, and are
added to the next invocation of the environment, or to none. Here the program of a Python environment writes a marker
after the handler's last line, and the log ends with it.
"""

import queue
import time
from collections.abc import Callable
from typing import Any

from dev.emulator.engine.emulator import PatchError, lambda_runtime, replace

MARKER = "\x03"  # End of Text
MOST_SECONDS = 30.0  # if the environment has ended, and a process that it started keeps its log open
_END = "        _real_stdout.flush()\n\nrun()\n"


def apply() -> None:
    """Write the marker at the end of an invocation, and read the log up to it."""
    replace(lambda_runtime, "_PYTHON_WORKER_SCRIPT", with_marker)
    replace(lambda_runtime.Worker, "_drain_stderr_bounded", read_to_marker)


def with_marker(script: str) -> str:
    """Add the marker to the program. Raises PatchError if its end is another."""
    if not script.endswith(_END):
        raise PatchError("the program of a Python environment does not end as expected")
    return script.removesuffix(_END) + f"        print({MARKER!r}, file=sys.stderr, flush=True)\n{_END}"


def read_to_marker(drain: Callable[..., str]) -> Callable[..., str]:
    """Replace the method that reads the log of an invocation. Other runtimes than Python write no marker."""

    def read(worker: Any, **bounds: float) -> str:
        if type(worker) is not lambda_runtime.Worker or not worker.config.get("Runtime", "").startswith("python"):
            return drain(worker, **bounds)
        lines: list[str] = []
        until = time.monotonic() + MOST_SECONDS
        while time.monotonic() < until:
            is_read_on = worker._stderr_thread.is_alive()
            try:
                line: str = worker._stderr_queue.get(timeout=0.05)
            except queue.Empty:
                if not is_read_on:
                    break
                continue
            if line.endswith(MARKER):
                lines += filter(None, [line.removesuffix(MARKER)])  # the handler's last line may lack a line break
                break
            lines.append(line)
        return "\n".join(lines)

    return read
