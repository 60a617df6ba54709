"""`make local-up DOCKER=yes`: the address that containers reach is found, checked, and listened on."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dev.emulator import cli
from dev.emulator.docker_bridge import BridgeError, container_host, listening_address
from dev.emulator.engine import relay

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has further loopback addresses")
BRIDGE = "127.0.0.2"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `docker` on PATH. It prints the file of its first argument, and fails without it."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\ncat {tmp_path}/"$1" 2>/dev/null || {{ echo no daemon >&2; exit 1; }}\n')
    program.chmod(0o755)
    (tmp_path / "info").write_text("Debian GNU/Linux 12\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


@on_linux
@pytest.mark.parametrize("configured", ["127.0.0.2 ", "fd00::1 127.0.0.2 ", "127.0.0.0/31 "])
def test_the_host_is_the_gateway_of_dockers_bridge(docker: Path, configured: str) -> None:
    """Docker shows no gateway before it has restarted once: then it is the subnet's first address."""
    (docker / "network").write_text(configured)
    assert container_host() == ("127.0.0.1" if "/" in configured else BRIDGE)


def test_docker_desktop_has_a_name_for_this_machine(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (docker / "info").write_text("Docker Desktop\n")
    assert container_host() == "host.docker.internal"
    assert listening_address("host.docker.internal") == ""
    (docker / "docker").unlink()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert container_host() == "host.docker.internal"


@pytest.mark.parametrize("address", ["0.0.0.0", "8.8.8.8", "169.254.1.1", "192.168.255.254", "", "::"])  # noqa: S104
def test_another_address_than_a_private_one_of_this_machine_is_refused(docker: Path, address: str) -> None:
    (docker / "network").write_text(address)
    with pytest.raises(BridgeError, match=r"cannot listen: expected a private IPv4 address of this machine"):
        container_host()


def test_without_docker_nothing_is_started(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "STATE_DIR", docker / "state")
    result = CliRunner().invoke(cli.main, ["up", "--docker"])
    assert result.exit_code == 1
    assert "Docker does not answer: no daemon. DOCKER=yes needs a running Docker. Nothing was started" in result.output
    assert not (docker / "state").exists()


def test_a_stack_that_runs_without_it_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    running = SimpleNamespace(endpoint="http://127.0.0.1:1", container_host="")
    monkeypatch.setattr(cli.EmbeddedAws, "attach", lambda _: running)
    result = CliRunner().invoke(cli.main, ["up", "--docker"])
    assert result.exit_code == 1
    assert "runs without DOCKER=yes" in result.output
    assert "run make local-down first. Nothing was changed." in result.output


@on_linux
def test_an_address_that_is_taken_ends_the_start() -> None:
    with socket.create_server((BRIDGE, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"cannot listen on {BRIDGE}:{port}: Address already in use"):
            relay.listen(BRIDGE, [port])
