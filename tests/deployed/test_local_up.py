"""`make local-up` and `make local-down`: their output, and the processes and files that remain."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from dev.emulator import cli, processes
from dev.emulator.aws import EmbeddedAws, EngineError
from dev.emulator.environment import ROOT
from dev.emulator.own_job import OwnJob, read_job
from tests.waiting import wait_until

# `up` in another folder. Its deployment creates a bucket and a secret, or never ends.
UP = """
import sys, time
from pathlib import Path
from dev.emulator import cli
from dev.emulator import deployment
cli.STATE_DIR = Path(sys.argv[1])
deployed = {"ProcessName": "sample", "GlueJobName": "", "ChatApiUrl": ""}
cli.stack_parameters = lambda aws: deployed
def deploy(aws, parameters, *_others):
    print("deploying", parameters, flush=True)
    deployed.update(parameters)
    aws.client("s3").create_bucket(Bucket="data")
    secrets = aws.client("secretsmanager")
    if not secrets.list_secrets()["SecretList"]:
        secrets.create_secret(Name="a:secret:[b]", SecretString="{}")
    time.sleep(SECONDS)
    url = "https://abc.execute-api.us-east-1.amazonaws.com/v1/messages"
    work = {"WorkQueueUrl": "queue"} if parameters["DeployWorker"] == "true" else {}
    return {"DataBucketName": "data", "ApiCredentialsSecretArn": "a:secret:[b]", "ChatbotUrl": url} | work
deployment.deploy = deploy
sys.argv[1:] = ["up", *sys.argv[2:]]
import dev.emulator.__main__
"""
CREDENTIALS = "a:secret:[b]"  # a console could read parts of it as an emoji and as markup
ENDLESS, SHORT = UP.replace("SECONDS", "600"), UP.replace("SECONDS", "0")


@pytest.fixture
def left_behind(tmp_path: Path) -> Iterator[Path]:
    """The folder of an engine that `up` leaves running; it is stopped after the test."""
    yield tmp_path
    with suppress(EngineError):
        EmbeddedAws.attach(tmp_path).stop()


@contextmanager
def running(script: str, state_dir: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", script, str(state_dir), *options]
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
        output = up.stdout.read()
        assert up.wait() == 130
    assert "Traceback" not in output
    assert processes.session_members(engine) == []
    assert {path.name for path in tmp_path.iterdir()} == {"engine.log"}


def test_a_killed_up_leaves_no_engine(tmp_path: Path) -> None:
    with running(ENDLESS, tmp_path) as up:
        wait_for_line(up, "deploying")
        engine = EmbeddedAws.attach(tmp_path).pid
        up.kill()
        wait_until(lambda: not processes.session_members(engine), "the engine's end")


def test_a_second_up_uses_the_same_engine_and_leaves_the_users_own_credentials(
    left_behind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = up_once(left_behind)
    engine = EmbeddedAws.attach(left_behind)
    secrets = engine.client("secretsmanager")
    assert f"the simulated chat API at {engine.chat_service}" in output
    service = json.loads((left_behind / "outputs.json").read_text())["chat_service"]
    stored = json.loads(secrets.get_secret_value(SecretId=CREDENTIALS)["SecretString"])
    assert stored == {name: service[name] for name in ("client_id", "client_secret")}
    secrets.put_secret_value(SecretId=CREDENTIALS, SecretString="the user's own")
    output = up_once(left_behind, "--parameters", "ChatApiUrl=https://chat.example")
    assert "already running" in output
    assert "the chatbot calls https://chat.example; store its credentials: docs/deploy.md, The chatbot\n" in output
    assert "simulated chat API" not in output
    assert secrets.get_secret_value(SecretId=CREDENTIALS)["SecretString"] == "the user's own"
    monkeypatch.setattr(cli, "STATE_DIR", left_behind)
    monkeypatch.setattr(cli, "_past_interrupts", lambda: None)  # it ignores signals, and this process continues
    assert CliRunner().invoke(cli.main, ["down"]).exit_code == 0
    assert processes.session_members(engine.pid) == []


def test_say_is_refused_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "STATE_DIR", tmp_path)
    result = CliRunner().invoke(cli.main, ["say", "Good morning"])
    assert result.exit_code == 1
    assert "run `make local-up`" in result.output


REFUSED = [
    ({"--parameters": "SlotLimits=1"}, "template.yaml has no parameter SlotLimits; did you mean SlotLimit?"),
    ({"--parameters": "Foo=1"}, "template.yaml has no parameter Foo; it has ProcessName, SlotLimit,"),
    ({"--parameters": "SlotLimit"}, "'SlotLimit' is not of the form Name=value"),
    ({"--parameters": "SlotLimit=many"}, "SlotLimit=many: expected a whole number"),
    ({"--parameters": "SlotLimit=-1"}, "SlotLimit=-1: expected at least 0"),
    ({"--parameters": "ProcessName=sales SlotLimit=100001"}, "SlotLimit=100001: expected at most 100000"),
    ({"--parameters": "ProcessName='a b'"}, "ProcessName=a b: expected the pattern [A-Za-z0-9_-]{1,47}"),
    ({"--parameters": "DeployWorker=yes"}, "DeployWorker=yes: expected one of true, false"),
    ({"--parameters": f"GlueJobName={'a' * 256}"}, "expected at most 255 characters"),
    ({"--parameters": "ProcessName='a"}, '"ProcessName=\'a" is not a list of words: No closing quotation'),
    ({"--parameters": "GlueJobName=sales"}, "GlueJobName=sales without a job: give its script, as in JOB=my_job.py"),
    ({"--arguments": "--mode=fast"}, "the arguments without a job: give its script, as in JOB=my_job.py"),
    ({"--job": "/no/such.py"}, "there is no file /no/such.py: expected the Python script of your Glue job"),
    ({"--job": "/"}, "there is no file /: expected the Python script of your Glue job"),
    ({"--job": __file__, "--arguments": "mode=fast"}, "'mode' is not an argument: expected --name=value"),
    ({"--job": __file__, "--arguments": "--mode --day=1"}, "--mode has no value: expected --mode=value"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED, ids=str)
def test_up_starts_nothing_with_an_option_that_cannot_work(
    options: dict[str, str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "STATE_DIR", tmp_path)
    words = [word for option in options.items() for word in option]
    result = CliRunner().invoke(cli.main, ["up", *words], env={"COLUMNS": "1000"})
    assert result.exit_code == 2
    assert reason in result.output
    assert result.output.endswith("Nothing was started or changed.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_jobs_name_and_default_arguments_are_read_as_a_shell_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    script = tmp_path / "load sales.py"
    script.touch()
    job = read_job("~/load sales.py", "", "--day=2026-11-22 --city 'San José' --empty= --at=a=b")
    arguments = {"--day": "2026-11-22", "--city": "San José", "--empty": "", "--at": "a=b"}
    assert job == OwnJob("load sales", script, arguments)
    assert read_job(str(script), "sales-load", "").name == "sales-load"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile with an incomplete environment, whose Python only prints its arguments."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / "build" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # With these variables of `make test`, this make would print the folder that it enters.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=checkout, env=alone, capture_output=True, text=True, check=False)


def finish_setup(checkout: Path) -> None:
    (checkout / "build" / "venv" / ".installed-local").touch()


@pytest.mark.parametrize("text", ['{"cost": "$5"}', "$(shell id) $$x", '`id` "it\'s" \\ #', "two\nlines", ""])
def test_make_say_and_make_work_pass_the_text_unchanged(checkout: Path, text: str) -> None:
    finish_setup(checkout)
    for target, name in (("say", "TEXT"), ("work", "BODY")):
        assert make(checkout, target, f"{name}={text}").stdout == f"-m\ndev.emulator\n{target}\n--\n{text}\n"


def test_make_local_up_passes_job_arguments_and_parameters_unchanged(checkout: Path) -> None:
    given = {"JOB": "my $5 job.py", "ARGUMENTS": "--a='$(shell id)' --b=\"c d\"", "PARAMETERS": "A='rate(1 day)' B=$$"}
    printed = make(checkout, "local-up", "SETUP=:", *(f"{name}={value}" for name, value in given.items())).stdout
    assert printed.splitlines()[3:] == [f"--{name.lower()}={value}" for name, value in given.items()]


@pytest.mark.parametrize(("value", "asked"), [("yes", True), ("no", False), ("", False)])
def test_containers_can_reach_the_engine_only_if_make_is_asked(checkout: Path, value: str, asked: bool) -> None:
    assert ("--docker" in make(checkout, "-n", "local-up", f"DOCKER={value}").stdout) is asked


@pytest.mark.parametrize("finished", [True, False])
def test_make_clean_removes_everything_even_if_local_down_fails(checkout: Path, finished: bool) -> None:
    (checkout / "build" / "venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    if finished:
        finish_setup(checkout)
    assert make(checkout, "clean").returncode == 0
    assert [path.name for path in checkout.iterdir()] == ["Makefile"]


def up_once(state_dir: Path, *options: str) -> str:
    with running(SHORT, state_dir, *options) as up:
        output, _ = up.communicate()
        assert up.returncode == 0, output
    return output


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
    raise AssertionError(f"{text!r} is not in the output")
