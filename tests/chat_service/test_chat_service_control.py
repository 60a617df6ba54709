"""The stand-in by itself: its control routes and its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from dev.emulator.chat_service import ChatService
from dev.emulator.chat_service.main import main
from dev.emulator.environment import ROOT
from tests.chat_service.asking import Asking


def test_the_token_is_killed_by_hand(service: ChatService, client: Asking) -> None:
    token = client.token()
    assert client.send("POST", "/_control/invalidate")[1]["invalidated_at"] > 0
    assert client.me(token) == 401
    assert client.send("POST", "/_control/invalidate")[1] == {"invalidated_at": None}


def test_a_route_fails_and_is_mended_by_hand(client: Asking) -> None:
    struck = client.send("POST", "/_control/outage", {"route": "POST /auth", "status": 500, "times": 2})
    assert struck[1]["outages"]["POST /auth"]["status"] == 500
    assert client.auth()[0] == 500
    assert client.send("POST", "/_control/mend", {"route": "POST /auth"})[1]["outages"] == {}
    assert client.auth()[0] == 200


def test_settings_are_made_by_hand(service: ChatService, client: Asking) -> None:
    made = {"auth_latency": 0.25, "answer_latency": 0, "auth_effect": "end", "forbidden": ["no"]}
    status, state, _ = client.send("POST", "/_control/settings", made)
    assert status == 200
    assert {name: state[name] for name in made} == made
    assert (service.auth_latency, service.auth_effect, service.forbidden) == (0.25, "end", {"no"})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("outage", {"route": "/auth"}),
        ("outage", {"route": "POST /auth", "status": 200}),
        ("outage", {"route": "POST /auth", "status": "bad"}),
        ("outage", {"route": "POST /auth", "colour": "red"}),
        ("outage", b"[]"),
        ("settings", {"auth_latency": -1}),
        ("settings", {"auth_latency": float("nan")}),
        ("settings", {"answer_latency": "soon"}),
        ("settings", {"auth_effect": "middle"}),
        ("settings", {"forbidden": "text"}),
        ("settings", {"client_secret": "mine"}),
        ("settings", b"{"),
    ],
)
def test_a_wrong_control_request_is_refused_and_changes_nothing(client: Asking, path: str, body: Any) -> None:
    before = client.send("GET", "/_control/state")[1]
    status, answer, _ = client.send("POST", f"/_control/{path}", body)
    assert status == 400
    assert answer["error"]
    assert client.send("GET", "/_control/state")[1] == before


def test_an_unknown_control_says_what_there_is(client: Asking) -> None:
    status, answer, _ = client.send("DELETE", "/_control/token")
    assert status == 404
    assert "/_control/invalidate" in answer["error"]


def test_control_is_not_in_the_log_and_shows_no_token(service: ChatService, client: Asking) -> None:
    token = client.token()
    client.me(token)
    state, log = client.send("GET", "/_control/state")[1], client.send("GET", "/_control/log")[1]
    assert [request["path"] for request in log["requests"]] == ["/auth", "/me"]
    assert state["auths"] == len(state["tokens"]) == 1
    assert token not in str(state) + str(log)
    assert service.client_secret not in str(state) + str(log)


@pytest.mark.parametrize("wrong", [["--port", "70000"], ["--auth-latency", "-1"], ["--no"]])
def test_a_wrong_option_is_refused(wrong: list[str]) -> None:
    assert CliRunner().invoke(main, wrong).exit_code == 2


def test_a_port_that_is_taken_is_said(service: ChatService) -> None:
    port = service.url.rpartition(":")[2]
    result = CliRunner().invoke(main, ["--port", port])
    assert result.exit_code == 1
    assert f"cannot serve on 127.0.0.1:{port}" in result.output


def test_the_command_serves_until_it_is_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dev.emulator.chat_service"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as command:
        assert command.stdout is not None
        said = [command.stdout.readline() for _ in range(3)]
        command.send_signal(signal.SIGINT)
        rest = command.stdout.read()
    assert "http://127.0.0.1:" in said[0]
    assert (command.returncode, rest) == (130, "\nended\n")
