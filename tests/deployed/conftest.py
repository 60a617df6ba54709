"""One embedded AWS for the folder, with the deployed template."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dev.emulator.aws import EmbeddedAws
from dev.emulator.chat_service import ChatService
from dev.emulator.chatbot_client import UNTHROTTLED
from slotkeeper_cli import dead_letters
from slotkeeper_cli.app import app
from slotkeeper_cli.errors import CommandRefused
from slotkeeper_cli.stack_connection import LOCAL_FILE
from tests.deployed.deployed_chatbot import DeployedChatbot
from tests.deployed.deployed_machines import Machines
from tests.deployed.deployed_stack import CHECK_GAP, GRACE, DeployedStack
from tests.deployed.deployed_worker import DeployedWorker
from tests.deployed.receivers import Inbox, consumer, subscribed

# In the place of a Docker bridge's address: another address of this machine that no other machine can reach.
CONTAINER_HOST = "127.0.0.2" if sys.platform == "linux" else ""


@pytest.fixture(scope="session")
def chat_service() -> Iterator[ChatService]:
    """The simulated chat API that the deployed chatbot calls."""
    with ChatService() as service:
        yield service


@pytest.fixture(scope="session")
def parameters(chat_service: ChatService) -> dict[str, str]:
    """The parameters of the stack."""
    return {
        "JanitorSchedule": "rate(1 day)",  # tests invoke the janitor themselves
        "GraceSeconds": str(GRACE),
        "CheckGapSeconds": str(CHECK_GAP),
        # Those that tests create.
        "MoreGlueJobArns": "arn:aws:glue:us-east-1:000000000000:job/*-job",
        "MoreStateMachineArns": ",".join(
            f"arn:aws:states:us-east-1:000000000000:stateMachine:{name}" for name in ("child-*", "month-summary")
        ),
        "ChatApiUrl": chat_service.url,
        **UNTHROTTLED,
        "TokenMinRefreshSeconds": "0",  # tests invalidate tokens in quick succession
        "DeployWorker": "true",
        "WorkSeconds": "5",
        "SchedulerBeyondSeconds": "20",
        "WorkerReservedConcurrency": "5",  # the doctor's recommendation
    }


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory, parameters: dict[str, str]) -> Iterator[DeployedStack]:
    state_dir: Path = tmp_path_factory.mktemp("embedded-aws")
    # A finished run still counts as concurrent for 2 s, which matters only for a job at its limit.
    environment = {"SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": "2"}
    options: dict[str, Any] = {"container_host": CONTAINER_HOST, "environment": environment}
    with EmbeddedAws.start(state_dir, faults=True, downstream=True, **options) as aws:
        aws.deploy(parameters)
        _replace_work(aws)
        yield DeployedStack(aws)


def _replace_work(aws: EmbeddedAws) -> None:
    """Give the worker the work of these tests, since functions/worker may be replaced."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.write(Path(__file__).parent / "reading_worker" / "app.py", "app.py")
    aws.client("lambda").update_function_code(FunctionName=aws.outputs["WorkerFunctionName"], ZipFile=code.getvalue())


@pytest.fixture
def stack(deployed: DeployedStack) -> Iterator[DeployedStack]:
    deployed.faults.clear()
    yield deployed
    deployed.faults.clear()


@pytest.fixture
def bot(deployed: DeployedStack, chat_service: ChatService) -> Iterator[DeployedChatbot]:
    made = DeployedChatbot(deployed.aws, chat_service)
    made.reset()
    yield made
    chat_service.end_outage()


@pytest.fixture
def work(deployed: DeployedStack) -> Iterator[DeployedWorker]:
    made = DeployedWorker(deployed.aws)
    yield made
    made.restore()


@pytest.fixture
def machines(stack: DeployedStack) -> Machines:
    return Machines(stack)


@pytest.fixture(scope="session")
def producer(deployed: DeployedStack) -> Inbox:
    """The completion events."""
    return consumer(deployed.aws)


@pytest.fixture(scope="session")
def notices(deployed: DeployedStack) -> Inbox:
    """The messages of FailureTopic."""
    return subscribed(deployed.aws, "notices")


@pytest.fixture
def slotkeeper(deployed: DeployedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the operator command with `--local` on the deployed stack; returns its JSON. Checks a given exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOCAL_FILE, str(deployed.aws.state_dir / "outputs.json"))
    monkeypatch.setattr(dead_letters, "LONG_POLL_SECONDS", 0)  # the engine's queues answer completely without waiting

    def run(*arguments: str, exit_code: int | None = None) -> Any:
        # Its progress lines are on stderr, the result on stdout.
        ended = CliRunner(mix_stderr=False).invoke(app, [*arguments, "--local", "--json", "--yes"])
        if isinstance(ended.exception, CommandRefused):
            raise ended.exception
        ended_with = getattr(ended.exception, "exit_code", ended.exit_code)
        assert exit_code in (None, ended_with), f"{ended.exception!r}\n{ended.stderr}\n{ended.stdout}"
        return json.loads(ended.stdout)

    return run
