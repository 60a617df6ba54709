"""The Lambda runtime on this machine: AWS's emulator of the Runtime API with AWS's own Python client, and no Docker.

The emulator (aws-lambda-rie) comes inside SAM CLI's package, the client is awslambdaric: together they are what AWS's
base images for Lambda start (Lambda guide, "Deploy Python Lambda functions with container images"). The emulator ends a
call at the function's timeout. It does not bound memory, has no /opt and no /var/task, and takes one call at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.emulator import processes
from dev.emulator.aws import free_port
from dev.emulator.environment import ROOT, child_environment

LAYER = ROOT / "layers" / "slotkeeper"
INVOCATIONS = "/2015-03-31/functions/function/invocations"
READY_SECONDS = 60.0
ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


class RuntimeUnavailable(RuntimeError):
    """The runtime cannot be started on this machine; the message says why."""


class FunctionFailed(RuntimeError):
    """The function raised, ended or ran out of time; the message is what Lambda would answer."""


@dataclass(frozen=True)
class Configuration:
    """A function as it is deployed, as far as its runtime needs to know. `timeout` is in seconds, `memory` in MiB."""

    name: str
    folder: Path
    handler: str
    timeout: int
    memory: int
    environment: Mapping[str, str]


def emulator() -> Path:
    """The emulator's program for this processor. Raises RuntimeUnavailable."""
    if sys.platform != "linux":
        raise RuntimeUnavailable(
            f"the emulator of the Lambda runtime is a program for Linux, and this is {sys.platform}"
        )
    spec = importlib.util.find_spec("samcli")  # importing it takes a second
    (sam,) = (spec and spec.submodule_search_locations) or [""]
    architecture = ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    program = Path(sam, "local", "rapid", f"aws-lambda-rie-{architecture}")
    if not program.exists():
        raise RuntimeUnavailable(f"SAM CLI brings no emulator of the Lambda runtime for {platform.machine()}")
    return program


class Runtime:
    """One environment of one function, as a context manager: cold at first, warm from its second call on."""

    def __init__(
        self,
        function: Configuration,
        endpoint: str,
        log: Path,
        *,
        path: Sequence[Path] = (LAYER,),
        program: Sequence[str] = ("-m", "awslambdaric"),
    ) -> None:
        """`endpoint` answers its calls of AWS; what it writes goes to `log`; `path` is what Python finds beside the
        function, and `program` what it runs, with the handler's name. Raises RuntimeUnavailable."""
        self._function = function
        self._log = log
        self._path = path
        self._program = program
        self._read = 0
        for _ in range(3):  # another program may take a port between the look and the start
            self._port, api_port = free_port(), free_port()
            self._process = self._start(endpoint, api_port)
            if self._answers():
                return
            processes.end_session(self._process.pid)
        raise RuntimeUnavailable(f"the Lambda runtime did not start:\n{self.new_output()}")

    def _start(self, endpoint: str, api_port: int) -> subprocess.Popen[bytes]:
        # Without a word about the address it listens on every interface.
        command = [str(emulator()), "--log-level", "error"]
        command += ["--runtime-interface-emulator-address", f"127.0.0.1:{self._port}"]
        command += ["--runtime-api-address", f"127.0.0.1:{api_port}"]
        command += [sys.executable, *self._program, self._function.handler]
        # Lambda guide, "Defined runtime environment variables".
        variables = {
            "PYTHONPATH": os.pathsep.join(map(str, self._path)),
            "PYTHONDONTWRITEBYTECODE": "1",  # /var/task cannot be written
            "LAMBDA_TASK_ROOT": str(self._function.folder),
            "AWS_LAMBDA_FUNCTION_NAME": self._function.name,
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(self._function.timeout),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self._function.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "_HANDLER": self._function.handler,
            "TZ": ":UTC",
            "POWERTOOLS_TRACE_DISABLED": "true",  # the emulator gives a call no trace, and there is no X-Ray here
        }
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self._function.folder,
                env=child_environment(endpoint, variables | dict(self._function.environment)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The emulator's; the function runs in a process below it, in the same session."""
        return self._process.pid

    def invoke(self, event: Any) -> Any:
        """The function's answer. Raises FunctionFailed."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._function.timeout + 30)
        try:
            with contextlib.closing(connection):
                connection.request("POST", INVOCATIONS, json.dumps(event))
                content = connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            raise FunctionFailed(f"no answer: {type(error).__name__}: {error}") from None
        try:
            answer = json.loads(content or b"null")
        except ValueError:
            raise FunctionFailed(content.decode(errors="replace")) from None
        if isinstance(answer, dict) and "errorMessage" in answer and "errorType" in answer:
            raise FunctionFailed(f"{answer['errorType']}: {answer['errorMessage']}")
        return answer

    def new_output(self) -> str:
        """What the function has written since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        return new.decode(errors="replace")

    def _answers(self) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes.end_session(self._process.pid)
        self._process.wait()
