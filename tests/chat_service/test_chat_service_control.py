"""The standalone simulated chat API: its control routes and its command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from dev.emulator.chat_service import ChatService
from dev.emulator.environment import ROOT
from tests.chat_service.chat_api_client import ChatApiClient


def test_invalidate_ends_the_live_token(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    assert client.send("POST", "/_control/invalidate")[1]["invalidated_at"] > 0
    assert client.me(token) == 401
    assert client.send("POST", "/_control/invalidate")[1] == {"invalidated_at": None}


def test_an_outage_is_started_and_ended(client: ChatApiClient) -> None:
    struck = client.send("POST", "/_control/outage", {"route": "POST /auth", "status": 500, "times": 2})
    assert struck[1]["outages"]["POST /auth"]["status"] == 500
    assert client.auth()[0] == 500
    assert client.send("POST", "/_control/end_outage", {"route": "POST /auth"})[1]["outages"] == {}
    assert client.auth()[0] == 200


def test_settings_apply(service: ChatService, client: ChatApiClient) -> None:
    made = {"auth_latency": 0.25, "answer_latency": 0, "auth_effect": "end", "forbidden": ["no"]}
    status, state, _ = client.send("POST", "/_control/settings", made)
    assert status == 200
    assert {name: state[name] for name in made} == made
    assert (service.auth_latency, service.auth_effect, service.forbidden) == (0.25, "end", {"no"})


def test_control_requests_are_not_logged_and_show_no_token(service: ChatService, client: ChatApiClient) -> None:
    token = client.token()
    client.me(token)
    state, log = client.send("GET", "/_control/state")[1], client.send("GET", "/_control/log")[1]
    assert [request["path"] for request in log["requests"]] == ["/auth", "/me"]
    assert state["auths"] == len(state["tokens"]) == 1
    assert token not in str(state) + str(log)
    assert service.client_secret not in str(state) + str(log)


def test_the_command_serves_until_it_is_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dev.emulator.chat_service"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as command:
        assert command.stdout is not None
        lines = [command.stdout.readline() for _ in range(3)]
        command.send_signal(signal.SIGINT)
        rest = command.stdout.read()
    assert "http://127.0.0.1:" in lines[0]
    assert (command.returncode, rest) == (130, "\nended\n")
