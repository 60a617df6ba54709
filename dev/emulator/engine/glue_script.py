"""The process of one Glue run: its script, `--key value` arguments, a timeout, a stop that ends its children too.

Only these processes can import `glue_modules`, the part of Glue's own modules that works here.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from dev.emulator.engine.emulator import glue

MODULES = Path(__file__).with_name("glue_modules")
_fetching = threading.Lock()


class ScriptProcess:
    """Runs one script. `stop` may be called at any time, even before the start. `name` is that of its log files."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, location: str, arguments: list[str], timeout: float) -> tuple[str, str]:
        """Run the script at `location`; return the run's state and error message. `timeout` in seconds.

        Its output is in two files, as in Glue's log groups `output` and `error`.
        """
        logs = Path(os.environ["SLOTKEEPER_GLUE_LOGS"])
        logs.mkdir(exist_ok=True)
        errors = logs / f"{self._name}.error.log"
        with tempfile.TemporaryDirectory(prefix="glue-") as folder:
            script = _fetch(location, Path(folder))
            if script is None:
                return "FAILED", f"Failed to download the script {location}: Not Found"
            # Appended to: after a restart of the engine, the same run executes its script again.
            with (logs / f"{self._name}.output.log").open("ab") as stdout, errors.open("ab") as stderr, self._lock:
                if self._stopped:
                    return "STOPPED", ""
                self._process = subprocess.Popen(
                    [sys.executable, str(script), *arguments],
                    cwd=folder,
                    env=os.environ | {"PYTHONPATH": str(MODULES)},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    process_group=0,  # its own group, so that a stop ends its children; still in the engine's session
                )
            try:
                code = self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._kill()
                self._process.wait()
                return "TIMEOUT", "Job run timed out"
            finally:
                self._kill()  # the children, which otherwise continue to work for a run that has ended
            return ("SUCCEEDED", "") if code == 0 else ("FAILED", _reason(errors.read_text(errors="replace"), code))

    def stop(self) -> None:
        """Kill the script and its children."""
        with self._lock:
            self._stopped = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            # No such group: all its processes have ended. (On macOS a group of zombies is "not permitted".)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _fetch(location: str, folder: Path) -> Path | None:
    """Copy the script into `folder`, under a name that ends in `.py`."""
    # MiniStack stages all scripts of one base name in the same file, so fetch and copy are one step.
    with _fetching:
        staged = glue._resolve_script(location)
        if staged is None:
            return None
        name = Path(staged).name
        return Path(shutil.copyfile(staged, folder / (name if name.endswith(".py") else f"{name}.py")))


def _reason(stderr: str, code: int) -> str:
    """The error message in Glue: the exception's line, without the traceback."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip()[:2000] if lines else f"Command failed with exit code {code}"
