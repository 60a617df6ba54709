"""One engine for the folder, and fixtures that create resources in it."""

import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.emulator.aws import EmbeddedAws
from dev.emulator.faults import Faults
from tests.engine.waiting_callers import Callers
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/any"
MINUTE_SECONDS = "1.5"  # the length of a Glue minute in this engine
PLACE_HELD_SECONDS = "0.7"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The engine, without the patches that SLOTKEEPER_ENGINE_WITHOUT names."""
    environment = {
        "SLOTKEEPER_GLUE_MINUTE_SECONDS": MINUTE_SECONDS,
        "SLOTKEEPER_GLUE_PLACE_HELD_SECONDS": PLACE_HELD_SECONDS,
        "SLOTKEEPER_ENGINE_SWITCH_SECONDS": "0.00005",
    }
    with EmbeddedAws.start(tmp_path_factory.mktemp("engine"), faults=True, environment=environment) as engine:
        yield engine


@pytest.fixture(scope="session")
def faults(aws: EmbeddedAws) -> Faults:
    """The engine's faults."""
    return Faults(aws.state_dir)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """A name that no other test uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"


@pytest.fixture
def machine(aws: EmbeddedAws, unique: Callable[[str], str]) -> "MachineMaker":
    """Creates JSONata state machines."""
    return MachineMaker(aws, unique)


@pytest.fixture
def callers(aws: EmbeddedAws, machine: "MachineMaker", unique: Callable[[str], str]) -> Callers:
    """Executions that wait for answers, with a queue of their own."""
    return Callers(aws, machine, aws.client("sqs").create_queue(QueueName=unique("asked"))["QueueUrl"])


@pytest.fixture
def glue_job(aws: EmbeddedAws, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a Glue job from a script's text and returns its name."""
    s3, glue = aws.client("s3"), aws.client("glue")

    def make(script: str, *, command: str = "pythonshell", key: str = "", runs: int = 10, **job: Any) -> str:
        name = unique("job")
        s3.create_bucket(Bucket="scripts")
        key = key or f"{name}.py"
        s3.put_object(Bucket="scripts", Key=key, Body=script.encode())
        glue.create_job(
            Name=name,
            Role=ROLE,
            Command={"Name": command, "ScriptLocation": f"s3://scripts/{key}"},
            ExecutionProperty={"MaxConcurrentRuns": runs},
            **job,
        )
        return name

    return make


class MachineMaker:
    """Creates a state machine and starts executions of it."""

    def __init__(self, aws: EmbeddedAws, unique: Callable[[str], str]) -> None:
        self.client = aws.client("stepfunctions")
        self._unique = unique

    def __call__(self, states: dict[str, Any], **fields: Any) -> str:
        """Create a machine that starts with the first of `states`; return its ARN."""
        definition = {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **fields}
        arn: str = self.client.create_state_machine(
            name=self._unique("machine"), definition=json.dumps(definition), roleArn=ROLE
        )["stateMachineArn"]
        return arn

    def start(self, arn: str, given: Any = None, name: str = "") -> str:
        """Start an execution; return its ARN."""
        fields = {"name": name or self._unique("run"), "input": json.dumps({} if given is None else given)}
        started: str = self.client.start_execution(stateMachineArn=arn, **fields)["executionArn"]
        return started

    def describe(self, execution: str) -> dict[str, Any]:
        """DescribeExecution."""
        answer: dict[str, Any] = self.client.describe_execution(executionArn=execution)
        return answer

    def closed(self, execution: str) -> dict[str, Any] | None:
        """The description once the execution has ended, None before."""
        description = self.describe(execution)
        return description if description["status"] != "RUNNING" else None

    def end_of(self, execution: str) -> dict[str, Any]:
        """Wait for the end of an execution; return its description."""
        return wait_until(lambda: self.closed(execution), f"the end of {execution}")

    def history(self, execution: str) -> list[str]:
        """The types of the history's events."""
        events = self.client.get_execution_history(executionArn=execution)["events"]
        return [event["type"] for event in events]


def lines(path: Path) -> list[str]:
    """The lines that a script has written to a file; none before its creation."""
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def function(aws: EmbeddedAws, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a Lambda function from the text of its module `app` and returns its name."""
    client = aws.client("lambda")

    def make(source: str, **fields: Any) -> str:
        name = unique("function")
        client.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="app.handler",
            Code={"ZipFile": zipped(source)},
            **{"Timeout": 10, **fields},
        )
        return name

    return make


@pytest.fixture
def fifo(aws: EmbeddedAws, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a FIFO queue and returns its URL."""

    def make(**attributes: str) -> str:
        fixed = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        name = unique("queue") + ".fifo"
        url: str = aws.client("sqs").create_queue(QueueName=name, Attributes=fixed | attributes)["QueueUrl"]
        return url

    return make


def zipped(source: str) -> bytes:
    """A zip file with `source` as its `app.py`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("app.py", source)
    return file.getvalue()


def queue_arn(aws: EmbeddedAws, url: str) -> str:
    """The ARN of the queue at `url`."""
    answer = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn: str = answer["Attributes"]["QueueArn"]
    return arn
