"""`make local-up` and `make local-down`: what a user is told, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from local import cli, processes
from local.aws import EmbeddedAws, EngineError
from local.environment import ROOT
from tests.support.waiting import wait_until

# `up` in a folder of its own. Its deployment is one bucket, or never ends.
UP = """
import sys, time
from pathlib import Path
from local import cli, deployment
cli.STATE_DIR = Path(sys.argv[1])
def deploy(aws, *_others):
    print("deploying", flush=True)
    aws.client("s3").create_bucket(Bucket="data")
    time.sleep(SECONDS)
    return {"DataBucketName": "data"}
deployment.deploy = deploy
sys.argv[1:] = ["up"]
import local.__main__
"""
ENDLESS, SHORT = UP.replace("SECONDS", "600"), UP.replace("SECONDS", "0")


@contextmanager
def running(script: str, state_dir: Path) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", script, str(state_dir)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running(ENDLESS, tmp_path) as up:
        assert up.stdout is not None
        wait_for_line(up, "deploying")
        engine = EmbeddedAws.attach(tmp_path).pid
        up.send_signal(number)
        said = up.stdout.read()
        assert up.wait() == 130
    assert "Traceback" not in said
    assert processes.session_members(engine) == []
    assert {path.name for path in tmp_path.iterdir()} == {"engine.log"}


def test_a_killed_up_leaves_no_engine(tmp_path: Path) -> None:
    with running(ENDLESS, tmp_path) as up:
        wait_for_line(up, "deploying")
        engine = EmbeddedAws.attach(tmp_path).pid
        up.kill()
        wait_until(lambda: not processes.session_members(engine), "the engine's end")


def test_up_leaves_the_engine_running_and_down_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SHORT, tmp_path) as up:
        said, _ = up.communicate()
        assert up.returncode == 0, said
    body = json.loads(said.splitlines()[-1])
    assert body == {
        "process": "sample",
        "request_id": "first",
        "arguments": {"--input_key": "input/2012-01.csv", "--output_key": "output/2012-01.json"},
    }
    engine = EmbeddedAws.attach(tmp_path)
    uploaded = engine.client("s3").get_object(Bucket="data", Key=body["arguments"]["--input_key"])
    assert uploaded["Body"].read().startswith(b"date,")
    monkeypatch.setattr(cli, "STATE_DIR", tmp_path)
    monkeypatch.setattr(cli, "_past_interrupts", lambda: None)  # this process goes on
    assert CliRunner().invoke(cli.main, ["down"]).exit_code == 0
    assert processes.session_members(engine.pid) == []


def test_down_clears_up_after_an_engine_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"pid": os.getpid(), "token": "0123456789abcdef", "endpoint": "http://127.0.0.1:1"}
    (tmp_path / "engine.pid").write_text(json.dumps(state))
    (tmp_path / "outputs.json").write_text("{}")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(cli, "STATE_DIR", tmp_path)
    result = CliRunner().invoke(cli.main, ["down"])
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])
    with pytest.raises(EngineError, match="make local-up"):
        EmbeddedAws.attach(tmp_path)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never said")
