"""`make local-up DOCKER=yes`: the address that containers reach, and the messages if there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dev.emulator import cli
from dev.emulator.docker_bridge import BridgeError, container_host

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has further loopback addresses")


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
    assert container_host() == ("127.0.0.1" if "/" in configured else "127.0.0.2")


@pytest.mark.parametrize("address", ["0.0.0.0", "8.8.8.8", "192.168.255.254", "", "::"])  # noqa: S104
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
    assert "run make local-down first. Nothing was changed." in result.output
