"""`make run-chatbot` in its smallest form with a shared token, on a deployment."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dev.emulator import cli
from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ANSWERS, ChatService, Outage, answer_to
from dev.scenarios.token.token_figures import Parameters
from dev.scenarios.token.token_scenario import perform
from tests.scenarios.reports import run_of


def test_every_claim_of_the_chatbots_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = Parameters(messages=24, senders=2, invalidations=2, auth_latency=0.2)
    with EmbeddedAws.start(tmp_path) as aws, ChatService(auth_latency=0.2, answer_latency=0.05) as service:
        report = perform(aws, service, parameters, run_of())
        answered = say(tmp_path, "Good morning", monkeypatch)
        service.strike(ANSWERS, Outage(status=503))
        refused = say(tmp_path, "Good night", monkeypatch)
    assert [check for check in report["checks"] if not check["ok"]] == []
    assert (report["answered"], report["containers"]) == (24, 2)
    assert report["auths"] == {"cold": 1, "per_invalidation": [1, 1], "total": 3}
    assert report["token_waits"]["count"] >= 2
    assert list(report["phases"]) == ["deploy", "containers", "run", "collect"]
    assert (answered.exit_code, answered.output.strip()) == (0, answer_to("Good morning"))
    assert refused.exit_code == 1
    assert refused.output.startswith("local: 502 ChatApiFailed: ")


def say(state_dir: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`python -m dev.emulator say` with this engine."""
    monkeypatch.setattr(cli, "STATE_DIR", state_dir)
    return CliRunner().invoke(cli.main, ["say", text])
