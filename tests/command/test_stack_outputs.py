"""`slotkeeper stack outputs --export` in a shell: the stack that the shell and boto3 then use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.settings import JanitorSettings, RetrySettings, StarterSettings
from slotkeeper_cli.stack_variables import shell_lines, variable_name
from tests.command.operator_account import Operator
from tests.template.parsing import parsed_template

ENDPOINT = "http://127.0.0.1:4566"
CHATBOT = f"{ENDPOINT}/v1/messages"
API = {"url": "http://127.0.0.1:9000", "client_id": "the-client", "client_secret": "it's $secret"}
# A shell that is set up for an account in every manner that an AWS SDK reads before the local stack's variables.
OF_AN_ACCOUNT = {
    "AWS_PROFILE": "production",
    "AWS_SESSION_TOKEN": "token",
    "AWS_ENDPOINT_URL_SQS": "https://sqs.eu-west-1.amazonaws.com",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "AWS_REGION": "eu-west-1",
    "HTTP_PROXY": "http://proxy.invalid",
    "no_proxy": "intranet.invalid,127.0.0.1",  # as after an earlier evaluation
}
ASK_BOTO3 = """
import boto3, json
session = boto3.Session()
keys = session.get_credentials()
print(json.dumps([session.client("sqs").meta.endpoint_url, session.region_name, keys.access_key, keys.token]))
"""


@pytest.fixture
def local(operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator in a checkout with a local stack, in a shell that is set up for an account."""
    for name, value in OF_AN_ACCOUNT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    written = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1", "endpoint": ENDPOINT}
    (tmp_path / "build" / "local").mkdir(parents=True)
    file = tmp_path / "build" / "local" / "outputs.json"
    file.write_text(json.dumps(written | {"chat_service": API, "chatbot_url": CHATBOT}))
    return operator


def shell(commands: str, then: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Evaluate the commands in a shell, then run another one."""
    environment = {"PATH": os.environ["PATH"], "COMMANDS": commands, "PYTHON": sys.executable} | variables
    script = f'eval "$COMMANDS" && {then}'
    return subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=False)


def test_boto3_and_the_command_use_the_local_stack_alone_in_a_shell_for_an_account(local: Operator) -> None:
    printed = local.run("stack", "outputs", "--local", "--export").stdout
    ended = shell(printed, '"$PYTHON" -c "$ASK"; env', ASK=ASK_BOTO3, **OF_AN_ACCOUNT)
    answer, *lines = ended.stdout.splitlines()
    assert json.loads(answer) == [ENDPOINT, "us-east-1", "key", None], ended.stderr
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    assert known["SLOTKEEPER_LOCAL"] == "1"
    assert known["AWS_CONFIG_FILE"] == known["AWS_SHARED_CREDENTIALS_FILE"] == "/dev/null"
    assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_SQS"} & known.keys()
    assert known["no_proxy"] == known["NO_PROXY"] == "intranet.invalid,127.0.0.1"
    assert known["REQUEST_QUEUE_URL"] == local.outputs["RequestQueueUrl"]
    assert known["CHATBOT_URL"] == CHATBOT
    assert [known[f"CHAT_API_{name}"] for name in ("URL", "CLIENT_ID", "CLIENT_SECRET")] == list(API.values())


def test_in_another_folder_the_command_uses_the_shells_local_stack(
    local: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = local.run("stack", "outputs", "--local", "--json").json["export"]
    elsewhere = tmp_path.with_name("elsewhere")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert local.run("stack", "outputs", "--local").exit_code == 4
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    assert local.run("stack", "outputs", "--json").json["local"]


def test_without_a_local_stack_the_shell_stops_before_a_command_reaches_the_account(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = operator.run("stack", "outputs", "--local", "--export")
    assert (refused.exit_code, "run make local-up" in refused.stderr) == (4, True)
    assert shell(refused.stdout, "echo the next command").stdout == ""


@pytest.mark.parametrize("value", ["it's", 'a "b" $c `d` \\', "two\nlines", "", "-n * ~"])
def test_a_shell_reads_each_value_unchanged(value: str) -> None:
    lines = "\n".join(shell_lines({"VALUE": value}))
    assert shell(lines, 'printf %s "$VALUE"').stdout == value


def test_an_output_has_the_variable_that_functions_and_the_library_read() -> None:
    outputs = set(map(variable_name, parsed_template()["Outputs"]))
    settings: tuple[Any, ...] = (StarterSettings, JanitorSettings, RetrySettings)
    read = {name.upper() for each in settings for name in each._fields}
    resources = {name for name in read if name.endswith(("_TABLE_NAME", "_QUEUE_URL", "_QUEUE_ARN"))}
    assert len(resources) > 8
    assert resources <= outputs
