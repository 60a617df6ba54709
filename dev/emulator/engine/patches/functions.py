"""Functions: their code and environment, their logs, and what calls them."""

import contextlib
import hashlib
import os
import queue
import shutil
import tempfile
import threading
import time
import types
import zipfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from dev.emulator.engine.emulator import (
    PatchError,
    eventbridge,
    lambda_runtime,
    lambda_svc,
    patch,
    put,
    replace,
    scheduler,
    wrap,
)
from dev.emulator.environment import ROOT

MARKER = "\x03"  # End of Text
MOST_SECONDS = 30.0  # if the environment has ended, and a process that it started keeps its log open
_END = "        _real_stdout.flush()\n\nrun()\n"
_INIT_ERROR = '{"status": "error", "error": str(e)}'
# None in sys.modules makes an import fail ("The import system", The Python Language Reference).
HIDE = 'import sys\nsys.modules.update({"awscrt": None, "OpenSSL": None})\n'
SWEEP_SECONDS = 0.5
CODE_DIR = ROOT / "build" / "code"
KEPT_SECONDS = 7 * 86_400  # code that no environment has begun with for so long is removed

_unpacking = threading.Lock()


@patch
def event_source_groups() -> None:
    """An event source handles several message groups of a FIFO queue at the same time.

    AWS: "Lambda Developer Guide: Configuring scaling behavior for SQS event source mappings": for FIFO queues the
    concurrency is the number of active message groups, or MaximumConcurrency if that is lower.
    MiniStack has one batch in flight for the whole queue. The queue delivers no other message of a group with a
    message in flight, so simultaneous batches keep the order of a group.
    """
    wrap(lambda_svc, "_sqs_esm_concurrency", _concurrency)


def _concurrency(
    original: Callable[..., int], mapping: Any, function: Any, config: Any, queue: dict[str, Any] | None = None
) -> int:
    as_standard = {**queue, "is_fifo": False} if queue else None
    return original(mapping, function, config, as_standard)


@patch
def lambda_code() -> None:
    """All environments of a function share one copy of its code and layers, also those of later engines.

    AWS: "Lambda Developer Guide: Understanding the Lambda execution environment lifecycle" and "Packaging your layer
    content": code is mounted at /var/task and layers under /opt, the same for every environment, and only /tmp can be
    written.
    MiniStack unpacks both again for each environment. This system's layer has 700 files; fifty simultaneous
    environments wait mostly for the disk, and so does a stop of the engine. A new copy has no compiled modules, and
    each environment that begins with it compiles them, which takes longer than all else of its start.
    """
    replace(lambda_runtime, "zipfile", _with_shared_copies)


def _with_shared_copies(original: types.ModuleType) -> types.ModuleType:
    module = types.ModuleType(original.__name__)
    vars(module).update(vars(original) | {"ZipFile": _SharedCopy})
    return module


class _SharedCopy(zipfile.ZipFile):
    """Its `extractall` replaces the empty target folder with a link to the one copy of the archive's content."""

    @cached_property
    def copy(self) -> Path:
        """The folder of the unpacked content."""
        return CODE_DIR / hashlib.sha256(Path(str(self.filename)).read_bytes()).hexdigest()

    def namelist(self) -> list[str]:
        """The members' names; none if the content is unpacked. MiniStack checks the path of each, 700 for the layer."""
        return [] if self.copy.exists() else super().namelist()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        with _unpacking:
            if not self.copy.exists():
                self._unpack(members, pwd)
            os.utime(self.copy)
        folder = Path(path)
        folder.rmdir()
        os.symlink(self.copy, folder)

    def _unpack(self, members: Any, pwd: bytes | None) -> None:
        """Unpack into a folder that gets its name when it is complete, since other engines use it too."""
        CODE_DIR.mkdir(parents=True, exist_ok=True)
        for earlier in CODE_DIR.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another engine removes it too
                if time.time() - earlier.stat().st_mtime > KEPT_SECONDS:
                    shutil.rmtree(earlier)
        half = Path(tempfile.mkdtemp(suffix=".half", dir=CODE_DIR))
        super().extractall(half, members, pwd)
        try:
            half.rename(self.copy)
        except OSError:  # another engine was faster
            shutil.rmtree(half)


@patch
def lambda_endpoint() -> None:
    """A function calls this engine, also if its variables contain an endpoint.

    AWS: "AWS SDKs and Tools Reference Guide: Service-specific endpoints": AWS_ENDPOINT_URL is the endpoint of all
    services. An SDK ignores an empty value, and calls AWS.
    MiniStack passes the function's own value on. With the template's empty one, its functions would call AWS.
    """
    # The engine's own value wins, as it does for the variables that Lambda reserves.
    replace(lambda_runtime, "_RESERVED_RUNTIME_ENV_VARS", lambda names: {*names, "AWS_ENDPOINT_URL"})


@patch
def lambda_packages() -> None:
    """Functions do not find two packages of the development environment that Lambda lacks.

    AWS: "Lambda Developer Guide: Building Lambda functions with Python", Runtime-included SDK versions: boto3, botocore
    and their dependencies.
    MiniStack's functions find all packages of the engine's environment, including awscrt and pyOpenSSL. Botocore
    imports both if they exist, which takes a fifth of a cold start.
    """
    replace(lambda_runtime, "_PYTHON_WORKER_SCRIPT", lambda script: HIDE + script)


@patch
def lambda_logs() -> None:
    """The log of an invocation has all of its lines.

    AWS: "Lambda Developer Guide: Sending Lambda function logs to CloudWatch Logs": each invocation's lines are between
    its START and END lines.
    MiniStack takes the lines that have arrived 5 ms after the last one. On a busy machine the others arrive later, and
    are added to the next invocation of the environment, or to none. Here the program of a Python environment writes a
    marker after the handler's last line, and the log ends with it.
    """
    _replace_in_program(_END, f"        print({MARKER!r}, file=sys.stderr, flush=True)\n{_END}")
    drain = lambda_runtime.Worker._drain_stderr_bounded
    put(lambda_runtime.Worker, "_drain_stderr_bounded", lambda worker, **bounds: _read(drain, worker, **bounds))


def _replace_in_program(part: str, by: str) -> None:
    """Replace a part of the program of a Python environment. Raises PatchError unless the program has it once."""
    if lambda_runtime._PYTHON_WORKER_SCRIPT.count(part) != 1:
        raise PatchError(f"the program of a Python environment does not have {part!r} once")
    replace(lambda_runtime, "_PYTHON_WORKER_SCRIPT", lambda script: script.replace(part, by))


def _read(drain: Callable[..., str], worker: Any, **bounds: float) -> str:
    """Read the log of an invocation up to its marker. Other runtimes than Python write none."""
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


@patch
def lambda_init_errors() -> None:
    """The error of a function that fails in its init phase has the exception's type and stack trace.

    AWS: "Lambda Developer Guide: AWS Lambda function errors in Python": errorType, errorMessage and stackTrace.
    MiniStack's has the exception's text alone, such as `'NAME'` if the environment lacks NAME.
    Shown by tests/deployed/test_sample_events.py.
    """
    _replace_in_program(_INIT_ERROR, _INIT_ERROR.replace("str(e)", "traceback.format_exc()"))


@patch
def schedules() -> None:
    """Schedules and scheduled rules fire within a second of their time.

    AWS: "EventBridge: Creating a scheduled rule" and "EventBridge Scheduler: Schedule types": the precision is one
    minute, so a target is called within the minute, usually in its first seconds.
    MiniStack checks schedules every ten seconds, which would prolong a test of a one-minute schedule.
    """
    put(scheduler, "_SCHEDULE_TICK_INTERVAL", SWEEP_SECONDS)
    put(eventbridge, "_SCHEDULER_TICK_INTERVAL", SWEEP_SECONDS)
