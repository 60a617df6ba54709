"""The commands of the documents as a shell runs them: each call of AWS is one that its API takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import jmespath
import pytest
from botocore import xform_name
from botocore.model import OperationModel, Shape
from botocore.validate import validate_parameters

from dev.emulator.deployment import check_names

ROOT = Path(__file__).parents[2]
MESSAGES = (ROOT / "docs" / "messages.md").read_text()
RETRIES = (ROOT / "docs" / "retries.md").read_text()

# Stands in for the AWS CLI: notes each call's arguments, and whose key it has, and answers what the page makes use of.
AWS = r"""#!/bin/bash
{ printf '%s\0' "${AWS_ACCESS_KEY_ID:-}" "$@"; printf '\n'; } >> "$CALLS"
case "$*" in
  *describe-stacks*) printf '%s\n' $OUTPUTS ;;
  *get-queue-attributes*) echo arn:aws:sqs:us-east-1:123456789012:queue ;;
  *receive-message*) cat letter-on-the-queue.json ;;
  *describe-*) echo arn:aws:service:us-east-1:123456789012:thing ;;
esac
"""
_DECLARED = (ROOT / "template.yaml").read_text().split("\nOutputs:\n")[1]
OUTPUTS = {
    name: f"https://{name.lower()}.invalid" if name.endswith("Url") else name.lower()
    for name in re.findall(r"^  (\w+):$", _DECLARED, re.MULTILINE)
}
BODY = '{"request_id": "r", "payload": {"text": "It\'s \\"so\\""}, "retries": ["2026-11-21T09:30:00.000Z"]}'
LETTER = {"Messages": [{"Body": BODY, "ReceiptHandle": "handle+/="}]}
LOCAL = {
    "endpoint": "http://127.0.0.1:4566",
    "region": "us-east-1",
    "access_key_id": "key",
    "secret_access_key": "secret",
}
GLOBAL_OPTIONS = {"query", "output"}


def _shell(page: str) -> list[str]:
    """The indented blocks, in their order."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^|(?<=\n\n))((?:    .*\n)+)", outside)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks]


ACCOUNT, LOCALLY, *EVERYDAY = (block for block in _shell(RETRIES) if "sam deploy" not in block)
IN_MESSAGES = [block for block in _shell(MESSAGES) if block.startswith("aws ")]


class Run:
    """Blocks of commands, run by a shell in a folder with the files that the page says to have there.

    `calls` are those of AWS that came of it, each the access key and the arguments.
    """

    def __init__(self, folder: Path, *blocks: str, **variables: str) -> None:
        self.folder = folder
        program = folder / "bin" / "aws"
        program.parent.mkdir()
        program.write_text(AWS)
        program.chmod(0o755)
        message, _, policy = re.findall(r"```json\n(.*?)```", RETRIES, re.DOTALL)
        for name, content in {
            "message.json": message,
            "policy.json": policy,
            "letter-on-the-queue.json": json.dumps(LETTER),
            "build/local/outputs.json": json.dumps(LOCAL | {"outputs": OUTPUTS}),
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)

        environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "CALLS": str(folder / "calls"),
            "OUTPUTS": " ".join(f"{name}={value}" for name, value in OUTPUTS.items()),
            **variables,
        }
        command = ["bash", "-euc", "\n".join(blocks)]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        lines = (folder / "calls").read_text().removesuffix("\0\n").split("\0\n")
        self.calls = [(key, arguments) for key, *arguments in (line.split("\0") for line in lines)]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The page's commands, run from the first to the last over an account's stack."""
    return Run(tmp_path_factory.mktemp("account"), ACCOUNT, *EVERYDAY)


@pytest.fixture(scope="module")
def session() -> botocore.session.Session:
    return botocore.session.Session()


def _check(arguments: list[str], session: botocore.session.Session, folder: Path) -> str:
    """Fails unless the API takes this call. Returns its name."""
    service, name, *options = arguments
    if (service, name) == ("s3", "cp"):  # the CLI's own, and in no model
        assert sorted(re.match(r"s3://[^/]+/work/\S+$", each) is not None for each in options) == [False, True]
        return "s3 cp"
    model = session.get_service_model(service)
    operations = {xform_name(each, "-"): each for each in model.operation_names}
    operation = model.operation_model(operations[name])
    validate_parameters(dict(_parameters(operation, options, folder)), operation.input_shape)
    return f"{service} {name}"


def _parameters(operation: OperationModel, options: list[str], folder: Path) -> Iterator[tuple[str, Any]]:
    members = {xform_name(each, "-"): (each, shape) for each, shape in operation.input_shape.members.items()}
    at = 0
    while at < len(options):
        assert options[at].startswith("--"), options
        name = options[at].removeprefix("--")
        at += 1
        shape = members[name][1] if name not in GLOBAL_OPTIONS else None
        values = []
        while at < len(options) and not options[at].startswith("--"):
            values.append(options[at])
            at += 1
        if shape is not None:
            yield members[name][0], _value(shape, values, folder)


def _value(shape: Shape, values: list[str], folder: Path) -> Any:
    if shape.type_name == "boolean":
        assert values == []
        return True
    if shape.type_name == "list":
        return json.loads(values[0]) if values[0].startswith("[") else values
    (value,) = values
    assert value
    if value.startswith("file://"):
        value = (folder / value.removeprefix("file://")).read_text()
    return value if shape.type_name in ("string", "timestamp") else json.loads(value)


def test_the_api_takes_every_call_of_the_page_of_retries(account: Run, session: botocore.session.Session) -> None:
    assert {_check(arguments, session, account.folder) for _, arguments in account.calls} == {
        "cloudformation describe-stacks",
        "s3 cp",
        "sqs send-message",
        "dynamodb get-item",
        "sqs receive-message",
        "sqs delete-message",
        "sqs get-queue-attributes",
        "sqs start-message-move-task",
        "sqs list-message-move-tasks",
        "ssm put-parameter",
    }


def test_the_outputs_are_the_variables_that_the_page_uses(account: Run) -> None:
    sent = next(arguments for _, arguments in account.calls if "send-message" in arguments)
    assert sent[2:4] == ["--queue-url", OUTPUTS["WorkQueueUrl"]]


def test_the_outputs_are_read_from_what_cloudformation_answers(account: Run) -> None:
    asked = next(arguments for _, arguments in account.calls if "describe-stacks" in arguments)
    outputs = [{"OutputKey": name, "OutputValue": value} for name, value in OUTPUTS.items()]
    read = jmespath.search(asked[asked.index("--query") + 1], {"Stacks": [{"Outputs": outputs}]})
    assert read == [f"{name}={value}" for name, value in OUTPUTS.items()]


def test_a_dead_letter_is_sent_as_it_is_and_the_same_one_deleted(account: Run) -> None:
    assert (account.folder / "body.json").read_text() == BODY
    (deleted,) = [arguments for _, arguments in account.calls if "delete-message" in arguments]
    assert deleted[-2:] == ["--receipt-handle", "handle+/="]


def test_the_same_commands_reach_nothing_but_the_local_stack(tmp_path: Path) -> None:
    run = Run(tmp_path, LOCALLY, *EVERYDAY, AWS_ACCESS_KEY_ID="the-users-own")
    assert len(run.calls) > 10
    for key, arguments in run.calls:
        assert (key, arguments[:2]) == ("key", ["--endpoint-url", LOCAL["endpoint"]])


def test_the_api_takes_the_call_of_the_page_of_messages(tmp_path: Path, session: botocore.session.Session) -> None:
    run = Run(tmp_path, *IN_MESSAGES, REQUEST_QUEUE_URL="https://queue.invalid")
    assert {_check(arguments, session, run.folder) for _, arguments in run.calls} == {"sqs send-message"}


def test_a_deployment_of_the_page_names_parameters_that_there_are() -> None:
    (deployment,) = [block for block in _shell(RETRIES) if "sam deploy" in block]
    names = re.findall(r"(\w+)=", deployment)
    assert names
    check_names(names)
