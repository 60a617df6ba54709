"""The Lambda runtime on this machine, without Docker: AWS's emulator of the Runtime API and AWS's Python client.

The emulator (aws-lambda-rie) is part of SAM CLI's package, and the client is awslambdaric. AWS's base images for Lambda
start both (Lambda guide, "Deploy Python Lambda functions with container images"). The emulator ends a call at the
function's timeout. It does not limit memory, has no /opt and no /var/task, and handles one call at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import platform
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.emulator import processes
from dev.emulator.aws import free_port
from dev.emulator.environment import ROOT, child_environment

LAYER = ROOT / "layers" / "slotkeeper"
INVOCATIONS = "/2015-03-31/functions/function/invocations"
ENDPOINT = "AWS_ENDPOINT_URL"
READY_SECONDS = 60.0
ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


class RuntimeUnavailable(RuntimeError):
    """The runtime cannot be started on this machine; the message states why."""


class FunctionFailed(RuntimeError):
    """The function raised, exited or timed out; the message is Lambda's answer."""


@dataclass(frozen=True)
class Configuration:
    """The deployed configuration that the runtime needs. `timeout` is in seconds, `memory` in MiB."""

    name: str
    folder: Path
    handler: str
    timeout: int
    memory: int
    environment: Mapping[str, str]


def emulator() -> Path:
    """The path of the emulator for this processor. Raises RuntimeUnavailable."""
    if sys.platform != "linux":
        raise RuntimeUnavailable(f"the emulator of the Lambda runtime needs Linux, and this is {sys.platform}")
    spec = importlib.util.find_spec("samcli")  # importing it takes a second
    (sam,) = (spec and spec.submodule_search_locations) or [""]
    architecture = ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    program = Path(sam, "local", "rapid", f"aws-lambda-rie-{architecture}")
    if not program.exists():
        raise RuntimeUnavailable(f"SAM CLI has no emulator of the Lambda runtime for {platform.machine()}")
    return program


class Runtime:
    """One execution environment of one function, as a context manager. Its second call is a warm one."""

    def __init__(self, function: Configuration, endpoint: str, log: Path) -> None:
        """Start the runtime.

        Args:
            endpoint: of the embedded AWS that the function calls, unless its environment names one.
            log: file for the function's output.

        Raises:
            RuntimeUnavailable: the runtime did not start.
        """
        self._function = function
        self._log = log
        self._read = 0
        # The emulator answers browsers too. A page can call 127.0.0.1, but cannot find one of 16 million addresses: on
        # Linux all of 127.0.0.0/8 is this machine.
        self.address = f"127.{'.'.join(str(1 + secrets.randbelow(254)) for _ in range(3))}"
        for _ in range(3):  # another program may take a free port before the start
            self._port, api_port = free_port(), free_port()
            self._process = self._start(endpoint, api_port)
            if self._answers():
                return
            processes.end_session(self._process.pid)
        raise RuntimeUnavailable(f"the Lambda runtime did not start:\n{self.new_output()}")

    def _start(self, endpoint: str, api_port: int) -> subprocess.Popen[bytes]:
        # By default the emulator listens on every interface.
        command = [str(emulator()), "--log-level", "error"]
        command += ["--runtime-interface-emulator-address", f"{self.address}:{self._port}"]
        command += ["--runtime-api-address", f"{self.address}:{api_port}"]
        command += [sys.executable, "-m", "awslambdaric", self._function.handler]
        # Lambda guide, "Defined runtime environment variables".
        variables = {
            "PYTHONPATH": str(LAYER),
            "PYTHONDONTWRITEBYTECODE": "1",  # /var/task cannot be written
            "LAMBDA_TASK_ROOT": str(self._function.folder),
            "AWS_LAMBDA_FUNCTION_NAME": self._function.name,
            "AWS_LAMBDA_FUNCTION_TIMEOUT": str(self._function.timeout),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self._function.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "_HANDLER": self._function.handler,
            "TZ": ":UTC",
            "POWERTOOLS_TRACE_DISABLED": "true",  # the emulator passes no trace, and there is no X-Ray
        }
        own = dict(self._function.environment)
        if not own.get(ENDPOINT):  # empty in the template, with which the function would call AWS
            own.pop(ENDPOINT, None)
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self._function.folder,
                env=child_environment(endpoint, variables | own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The emulator's process id. The function runs in a child process, in the same session."""
        return self._process.pid

    def invoke(self, event: Any) -> Any:
        """Call the function, and return its answer. Raises FunctionFailed."""
        connection = http.client.HTTPConnection(self.address, self._port, timeout=self._function.timeout + 30)
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
        """The function's output since the last call of this method."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        return new.decode(errors="replace")

    def _answers(self) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection((self.address, self._port), timeout=1).close()
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
