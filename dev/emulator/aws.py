"""Start, attach, deploy to, restart and stop the embedded AWS, and make clients of it."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from dev.emulator import deployment, docker_bridge, processes
from dev.emulator.chat_service import CLIENT_ID, CLIENT_SECRET
from dev.emulator.environment import ACCESS_KEY, REGION, ROOT, child_environment
from dev.emulator.local_clients import local_client

READY_SECONDS = 120.0  # for a busy machine; an engine that has died is noticed immediately
RESTART_SECONDS = 120.0
TERMINATION_SECONDS = 4.0
DETACH = b"."  # a byte on the engine's stdin: it outlives its parent
Say = Callable[[str], None]


def silent(_message: str) -> None:
    """Shows no progress."""


class EngineError(RuntimeError):
    """The engine could not be started or attached; the message states what to do."""


class EmbeddedAws:
    """One engine process on 127.0.0.1. As a context manager it stops what it started.

    `container_host` is the host by which containers reach it; "" if they cannot.
    """

    def __init__(
        self, state_dir: Path, endpoint: str, pid: int, token: str, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.state_dir = state_dir
        self.endpoint = endpoint
        self.chat_service: str | None = None  # the URL of the simulated chat API, if it runs in the engine
        self.container_host = ""
        self.outputs: dict[str, str] = {}
        self.pid = pid
        self._token = token
        self._process = process
        self._clients: dict[str, Any] = {}
        self._environment: dict[str, str] = {}  # for a restart

    @classmethod
    def start(
        cls,
        state_dir: Path,
        *,
        faults: bool = False,
        downstream: bool = False,
        chat_service: bool = False,
        lasting: bool = False,
        container_host: str = "",
        environment: Mapping[str, str] | None = None,
        say: Say = silent,
    ) -> Self:
        """Start an engine and wait until it answers. Raises EngineError, and BridgeError for `container_host`.

        Until `detach`, the engine ends when this process ends, even if this process is killed.

        Args:
            faults: apply the rules of dev.emulator.faults.
            downstream: follow the script of dev.emulator.downstream.
            chat_service: run the simulated chat API in the engine.
            lasting: allow `restart`, and write every change of an item to journal.jsonl
                (engine/patches/dynamodb.py).
            container_host: the host by which containers reach this machine; the engine also listens there if it is an
                address.
            environment: for the engine (SLOTKEEPER_ENGINE_WITHOUT, SLOTKEEPER_GLUE_PLACE_HELD_SECONDS).
        """
        say("starting the embedded AWS")
        state_dir = state_dir.resolve()
        state_dir.mkdir(parents=True, exist_ok=True)
        cls._refuse_a_second(state_dir)
        if container_host:
            docker_bridge.listening_address(container_host)
        for attempt in range(3):
            named = ["faults"] * faults + ["downstream"] * downstream
            settings = _kept(state_dir) if lasting else {}
            settings |= {"SLOTKEEPER_ENGINE_CONTAINER_HOST": container_host} | dict(environment or {})
            aws = cls._launch(state_dir, free_port(), named, free_port() if chat_service else None, settings)
            aws.container_host = container_host
            try:
                aws._wait_until_ready()
            except EngineError:
                aws.stop()
                # Another process may have taken the free port in between.
                if attempt == 2 or "already in use" not in aws.log_tail():
                    raise
                continue
            except BaseException:
                aws.stop()
                raise
            aws._write_state()
            return aws
        raise AssertionError("unreachable")

    @classmethod
    def _launch(
        cls, state_dir: Path, port: int, files: list[str], chat_port: int | None, environment: Mapping[str, str]
    ) -> Self:
        endpoint = f"http://127.0.0.1:{port}"
        token = secrets.token_hex(8)
        scratch = state_dir / "scratch"
        for earlier in (scratch, state_dir / "glue"):
            shutil.rmtree(earlier, ignore_errors=True)
        scratch.mkdir()
        (state_dir / "outputs.json").unlink(missing_ok=True)
        settings = {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "LAMBDA_EXECUTOR": "local",
            "IOT_MTLS_ENABLED": "0",
            "TMPDIR": str(scratch),
            "S3_DATA_DIR": str(scratch / "s3"),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "SLOTKEEPER_GLUE_LOGS": str(state_dir / "glue"),
        }
        for name in files:
            settings[f"SLOTKEEPER_ENGINE_{name.upper()}"] = str(state_dir / f"{name}.json")
            for left in (f"{name}.json", f"{name}.jsonl"):
                (state_dir / left).unlink(missing_ok=True)
        if chat_port:
            settings["SLOTKEEPER_CHAT_SERVICE_PORT"] = str(chat_port)
        full = child_environment(endpoint, settings | dict(environment))
        (state_dir / "engine.log").unlink(missing_ok=True)
        process = _spawn(state_dir, token, full)
        aws = cls(state_dir, endpoint, process.pid, token, process)
        aws._environment = full
        aws.chat_service = f"http://127.0.0.1:{chat_port}" if chat_port else None
        return aws

    def restart(self, *, hard: bool = False) -> None:
        """End an engine that was started with `lasting`, and start it again with its state, on the same port.

        SIGTERM lets it finish open requests for TERMINATION_SECONDS. With `hard` it ends in the middle of them.
        engine/patches/restarts.py states which data survive. Fault rules are removed. Raises EngineError.
        """
        if self._process is None:
            raise EngineError("another process started this engine; restart it there. Nothing was changed.")
        if not hard:
            processes.send_signal(self.pid, signal.SIGTERM)
            # The engine waits for open requests. A function that calls the engine meanwhile waits for the engine.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TERMINATION_SECONDS)
        if self._process.poll() is None:
            processes.send_signal(self.pid, signal.SIGUSR1)
        try:
            self._process.wait(RESTART_SECONDS)
        except subprocess.TimeoutExpired:
            late = f"the embedded AWS did not end within {RESTART_SECONDS:.0f} s:\n{self.log_tail()}"
            raise EngineError(late) from None
        processes.end_session(self.pid)
        (self.state_dir / "faults.json").unlink(missing_ok=True)
        self._process = _spawn(self.state_dir, self._token, self._environment)
        self.pid = self._process.pid
        self._wait_until_ready()
        self._write_state()

    @classmethod
    def _refuse_a_second(cls, state_dir: Path) -> None:
        """Two engines would share files, and the first could not be attached again."""
        try:
            running = cls.attach(state_dir)
        except EngineError:
            return
        raise EngineError(f"an embedded AWS already runs in {state_dir}, at {running.endpoint}; stop it first")

    @classmethod
    def attach(cls, state_dir: Path) -> Self:
        """The engine that `make local-up` left running in `state_dir`. Raises EngineError if there is none."""
        state_dir = state_dir.resolve()
        try:
            state = json.loads((state_dir / "engine.pid").read_text())
        except (FileNotFoundError, ValueError):
            raise EngineError(f"no embedded AWS was started in {state_dir}: run `make local-up`") from None
        if not processes.is_ours(state["pid"], state["token"]):
            raise EngineError(f"the embedded AWS of {state_dir} is not running any more: run `make local-up`")
        aws = cls(state_dir, state["endpoint"], state["pid"], state["token"], None)
        aws.chat_service = state.get("chat_service")
        aws.container_host = state.get("container_host", "")
        outputs = state_dir / "outputs.json"
        if outputs.exists():
            aws.outputs = json.loads(outputs.read_text())["outputs"]
        return aws

    def deploy(
        self, parameters: Mapping[str, str] | None = None, *, template: Path = ROOT / "template.yaml", say: Say = silent
    ) -> dict[str, str]:
        """Build and deploy `template` as the stack `slotkeeper`; return its outputs. Raises DeploymentError."""
        self.outputs = deployment.deploy(self, parameters or {}, template, say)
        document: dict[str, Any] = {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": ACCESS_KEY,
            "container_host": self.container_host,
            "outputs": self.outputs,
            "sources": deployment.digest_of_sources(),  # `make invoke` deploys again if they have changed
        }
        if self.chat_service:
            account = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
            document["chat_service"] = {"url": self.chat_service} | account
        if self.chatbot_url:
            document["chatbot_url"] = self.chatbot_url
        (self.state_dir / "outputs.json").write_text(json.dumps(document, indent=2) + "\n")
        return self.outputs

    @property
    def chatbot_url(self) -> str | None:
        """The URL of ChatbotUrl on this engine; None if no chatbot is deployed."""
        url = self.outputs.get("ChatbotUrl")
        return reachable(url, self.endpoint) if url else None

    def client(self, service: str) -> Any:
        """The boto3 client of a service on this engine. It never reads the user's AWS files."""
        if service not in self._clients:
            self._clients[service] = local_client(service, self.endpoint)
        return self._clients[service]

    def stop(self) -> None:
        """End the engine and every process it started. A process id that another program uses now is left alone."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._process is not None or processes.is_ours(self.pid, self._token):
            processes.end_session(self.pid)
        if self._process is not None:
            self._process.wait()
        pid_file = self.state_dir / "engine.pid"
        if pid_file.exists() and self._token in pid_file.read_text():
            self.forget(self.state_dir)
        for left in ("scratch", "kept"):
            shutil.rmtree(self.state_dir / left, ignore_errors=True)

    @staticmethod
    def forget(state_dir: Path) -> None:
        """Remove the record and the files of an engine that has ended."""
        for name in ("engine.pid", "outputs.json"):
            (state_dir / name).unlink(missing_ok=True)
        shutil.rmtree(state_dir / "scratch", ignore_errors=True)

    def detach(self) -> None:
        """Let the engine continue when this process ends. Only `stop` ends it then."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(DETACH)
        self._process = None

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the engine's log."""
        log = self.state_dir / "engine.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            if self._process is not None and self._process.poll() is not None:
                raise EngineError(f"the embedded AWS ended during its start:\n{self.log_tail()}")
            try:
                with opener.open(f"{self.endpoint}/_ministack/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"the embedded AWS did not answer within {READY_SECONDS:.0f} s:\n{self.log_tail()}"
                    ) from None
                time.sleep(0.05)

    def _write_state(self) -> None:
        state = {"pid": self.pid, "token": self._token, "endpoint": self.endpoint, "chat_service": self.chat_service}
        state |= {"container_host": self.container_host}
        temporary = self.state_dir / "engine.pid.new"
        temporary.write_text(json.dumps(state) + "\n")
        os.replace(temporary, self.state_dir / "engine.pid")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _spawn(state_dir: Path, token: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (state_dir / "engine.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dev.emulator.engine", "--token", token],
            # The engine reads this pipe, which closes when this process ends, even if it is killed.
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=state_dir / "scratch",
            start_new_session=True,  # a terminal's Ctrl-C reaches this process alone, which ends the engine in order
        )


def _kept(state_dir: Path) -> dict[str, str]:
    """The settings by which an engine stores its state for a restart; the folder is empty at first."""
    kept = state_dir / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    journal = state_dir / "journal.jsonl"
    journal.unlink(missing_ok=True)
    return {"PERSIST_STATE": "1", "STATE_DIR": str(kept), "S3_PERSIST": "1", "SLOTKEEPER_ENGINE_JOURNAL": str(journal)}


def reachable(url: str, endpoint: str) -> str:
    """The URL on `endpoint` of an API Gateway stage: `url` is https://<id>.execute-api.<region>.<...>/<stage>/<path>.

    An API Gateway stage has its own host name, which does not resolve on this machine. The engine also serves the
    stage under a path; API, stage, path and event stay the same. Raises ValueError for another URL.
    """
    at = urlsplit(url)
    name, _, rest = (at.hostname or "").partition(".")
    if not name or not rest.startswith("execute-api."):
        raise ValueError(f"{url} is not the URL of an API Gateway stage, https://<id>.execute-api.<region>...")
    return f"{endpoint}/_aws/execute-api/{name}{at.path}"


def free_port() -> int:
    """A free port of 127.0.0.1; another program may take it before the caller does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
