"""`slotkeeper stack env`: the file of `sam local invoke`, as the functions are deployed."""

from __future__ import annotations

import json
import platform
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slotkeeper_cli.commands.stack import ENV_FILE
from tests.command.operator_account import Operator, StubbedCalls, stack_of

FUNCTION = "AWS::Lambda::Function"
RESOURCES = (
    ("StarterFunction", "starter", FUNCTION),
    ("WorkerFunction", "worker", FUNCTION),
    ("SlotTable", "slots", "AWS::DynamoDB::Table"),
)
URL = "http://127.0.0.1:4566/000000000000/requests.fifo"
CONTAINER_URL = "http://172.17.0.1:4566/000000000000/requests.fifo"
DEPLOYED: dict[str, dict[str, str]] = {
    "starter": {"AWS_ENDPOINT_URL": "", "REQUEST_QUEUE_URL": URL, "GRACE_SECONDS": "60"},
    "worker": {"AWS_ENDPOINT_URL": "", "WORK_SECONDS": "50"},
}


@pytest.fixture(autouse=True)
def configurations(operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The functions' configurations as Lambda returns them, by name. The command runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    made: dict[str, Any] = {name: {"Environment": {"Variables": each}} for name, each in DEPLOYED.items()}
    with (
        stack_of(*RESOURCES),
        StubbedCalls("lambda", {"GetFunctionConfiguration": lambda asked: made[asked["FunctionName"]]}),
    ):
        yield made


def _local(folder: Path, **more: str) -> None:
    """What `make local-up` writes."""
    file = folder / "build" / "local" / "outputs.json"
    file.parent.mkdir(parents=True)
    keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
    file.write_text(json.dumps({"endpoint": "http://127.0.0.1:4566"} | keys | more))


def test_the_file_has_each_functions_variables_as_deployed_and_is_private(operator: Operator, tmp_path: Path) -> None:
    deployed = {"StarterFunction": DEPLOYED["starter"], "WorkerFunction": DEPLOYED["worker"]}
    assert operator.run("stack", "env", "-o", "-").json == deployed
    assert list(tmp_path.iterdir()) == []
    ended = operator.run("stack", "env")
    written = tmp_path / ENV_FILE
    assert (json.loads(written.read_text()), stat.S_IMODE(written.stat().st_mode)) == (deployed, 0o600)
    assert ended.stdout.splitlines() == [
        "Wrote build/env.json: the variables of 2 functions. After sam build:",
        "sam local invoke StarterFunction --region us-east-1 -e events/starter/happy.json "
        "--parameter-overrides Architecture=x86_64",
    ]
    (tmp_path / "mine.json").write_text("old")
    assert " --env-vars mine.json " in operator.run("stack", "env", "--output", "mine.json").stdout
    assert json.loads((tmp_path / "mine.json").read_text()) == deployed


def test_for_the_local_stack_a_container_calls_only_its_address(operator: Operator, tmp_path: Path) -> None:
    _local(tmp_path, container_host="172.17.0.1")
    ended = operator.run("stack", "env", "--local")
    endpoint = {"AWS_ENDPOINT_URL": "http://172.17.0.1:4566"}
    assert json.loads((tmp_path / ENV_FILE).read_text()) == {
        "Parameters": endpoint,  # SAM CLI gives these also to a function that is not deployed
        "StarterFunction": DEPLOYED["starter"] | endpoint | {"REQUEST_QUEUE_URL": CONTAINER_URL},
        "WorkerFunction": DEPLOYED["worker"] | endpoint,
    }
    assert "the variables of 2 functions" in ended.stdout
    assert "\nAWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test sam local invoke " in ended.stdout


def test_a_local_stack_that_containers_cannot_reach_is_refused(operator: Operator, tmp_path: Path) -> None:
    _local(tmp_path, container_host="")
    ended = operator.run("stack", "env", "--local")
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "run make local-down, then make local-up DOCKER=yes. No file was written." in ended.stderr
    assert not (tmp_path / ENV_FILE).exists()


def test_variables_that_cannot_be_decrypted_or_written_are_no_file(
    operator: Operator, configurations: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ended = operator.run("stack", "env", "-o", "file/env.json")
    assert (ended.exit_code, "file/env.json cannot be written: " in ended.stderr) == (1, True)
    assert "Give another file with --output." in ended.stderr
    configurations["worker"] = {"Environment": {"Error": {"ErrorCode": "AccessDenied", "Message": "no kms:Decrypt"}}}
    ended = operator.run("stack", "env")
    assert ended.exit_code == 1
    assert "the variables of WorkerFunction: no kms:Decrypt. With your own key this command needs kms" in ended.stderr
    assert not (tmp_path / ENV_FILE).exists()
