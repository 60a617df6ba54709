"""One small account in the process, for tests of one thread."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import backoff._sync
import boto3
import pytest

from dev.tools.function_folders import code_folders
from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.closed_executions import ClosedExecutions
from slotkeeper.slots.dead_holders import DeadHolders
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.executions import Workflow
from slotkeeper.slots.intake import Acceptance, accept
from slotkeeper.slots.janitor import Janitor
from slotkeeper.slots.protocol import CONFIRM_UPDATE
from slotkeeper.slots.request import Delivery, Request, parse_request, process_of_execution
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns
from slotkeeper.token import lock as token_lock
from slotkeeper.token import refresh as token_refresh
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.boundary import passed_values
from tests.simulation.account.executions import WORKFLOW
from tests.simulation.account.function_environment import OF_SLOTS, OF_THE_WORKER, read_again
from tests.simulation.account.items import REQUESTS, SLOTS
from tests.simulation.account.quick_clients import shared_client
from tests.unit.chatbot_account import ChatbotAccount
from tests.unit.slot_parts import NOW, SlotParts
from tests.unit.token_instances import Api, Instances, VirtualTime
from tests.unit.work_messages import invocation, record
from tests.unit.worker_harness import WorkerHarness

ROOT = Path(__file__).parents[2]
# The worker of tests, since functions/worker may be replaced.
CODE = code_folders() | {"worker": ROOT / "tests" / "simulation" / "account" / "worker"}
Load = Callable[[str], ModuleType]  # the type of the fixture `load`
QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012"
GRACE = 120
CHECK_GAP = 30
CONTEXT = invocation(28.0)
TOPIC = OF_SLOTS["FAILURE_TOPIC_ARN"]
SERVICES = ("dynamodb", "sqs", "stepfunctions", "glue", "events", "sns")


@pytest.fixture(autouse=True)
def _no_real_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield
    AwsAccount.current = None


@pytest.fixture
def aws(_no_real_account: None) -> AwsAccount:
    """The account that answers the calls of the test's clients."""
    return AwsAccount().use()


class Account(SlotParts):
    """The process `p`, with the parts of the flow, a janitor and the handler of status events.

    Attributes:
        notices: the notifications that were tried.
    """

    slot_table, request_table, topic = SLOTS, REQUESTS, TOPIC

    def __init__(self, aws: AwsAccount) -> None:
        self.aws, self.bus = aws, aws.bus
        aws.clock = lambda: self.now
        self.dead_letter_url = OF_SLOTS["REQUEST_DEAD_LETTER_QUEUE_URL"]
        self.dispatch_url, self.ending_url = OF_SLOTS["DISPATCH_QUEUE_URL"], OF_SLOTS["ENDING_QUEUE_URL"]
        clients = {name: shared_client(name) for name in SERVICES}
        super().__init__(clients, WORKFLOW, self.dispatch_url, self.ending_url, TOPIC)
        self.processes.create("p", 1, "job")
        self.glue = clients["glue"]
        self.workflow = Workflow(self.stepfunctions, self.workflow_arn)
        self.children = Children(self.stepfunctions)
        self.glue_runs = GlueRuns(self.glue)
        self.notices = passed_values(self.sns, "Publish", "Message")
        self.settlement = Settlement(
            self.workflow, self.children, self.rows, self.outcomes, self.requeues, self.doorbell, lambda: self.now
        )
        self.closed_executions = ClosedExecutions(
            self.slots,
            self.rows,
            self.doorbell,
            self.workflow,
            self.settlement,
            DeadHolders(self.slots, self.glue_runs, self.children, CHECK_GAP, lambda: self.now),
            self.endings,
            lambda: self.now,
        )
        self.janitor = Janitor(
            slots=self.slots,
            processes=self.processes,
            tools=self.tools,
            rows=self.rows,
            endings=self.endings,
            workflow=self.workflow,
            glue=self.glue_runs,
            children=self.children,
            settlement=self.settlement,
            grace=GRACE,
            check_gap=CHECK_GAP,
            clock=lambda: self.now,
            sleep=self.slept.append,
        )

    @property
    def answers(self) -> list[tuple[str, ...]]:
        """Those that callers have received: the token, then the output, or error and cause."""
        return [tuple(answer.values()) for answer in self.aws.answers]

    def run_at(self, now: float) -> RunReport:
        self.now = now
        return self.janitor.run()

    def event_at(self, execution: str, now: float, status: str = "ABORTED") -> tuple[int | None, RunReport]:
        """Handle one receive of a status event. Returns the seconds until the next receive, and the report."""
        self.now = now
        report = RunReport()
        return self.closed_executions.handle(execution, status, report), report

    def ending(self, body: Item) -> dict[str, Any]:
        """Send a message to EndingQueue and receive it."""
        self.sqs.send_message(QueueUrl=self.ending_url, MessageBody=json.dumps(body))
        return self.next_ending()

    def next_ending(self) -> dict[str, Any]:
        """The next message of EndingQueue, as the event source mapping delivers it."""
        (received,) = self.sqs.receive_message(QueueUrl=self.ending_url)["Messages"]
        return record(received["Body"]) | {"receiptHandle": received["ReceiptHandle"]}

    # Requests

    def queue(self, request_id: str = "order-1", **fields: Any) -> str:
        """Add the row of a request of `p`; return the name of its execution."""
        return self.accept({"process": "p", "request_id": request_id} | fields).execution

    def accept(self, body: Item) -> Acceptance:
        """Add the row of a request, as the starter does for a message that is sent now."""
        request: Request = parse_request(delivery(body))
        message = f"message-of-{request.execution_name}"
        return accept(self.requests, request, message, self.now, "1", self.now)

    def row(self, execution: str) -> RequestRow:
        row = self.rows.row(process_of_execution(execution), execution)
        assert row is not None
        return row

    def raw_row(self, execution: str) -> Item:
        """The row of a request of `p`."""
        return self.aws.tables.item(REQUESTS, f"p\n{execution}")

    def set_row(self, execution: str, **attributes: Item) -> None:
        """Set attributes of the row of a request of `p`."""
        self.aws.tables.put(REQUESTS, self.raw_row(execution) | attributes)

    @property
    def states(self) -> dict[str, str]:
        """The state of each row of `p`, by request id and attempt."""
        return {f"{row.request_id}/{row.attempt}": row.state for row in self.rows.rows("p").rows}

    # Holders

    def hold(self, execution: str, state: str = "RESERVED", weight: int = 1, **attributes: Any) -> None:
        """Add a holder to `p`, without the conditions of the protocol."""
        entry: Item = {"state": {"S": state}, "since": number(int(self.now))} | attributes
        if weight != 1:
            entry["weight"] = number(weight)
        item = self.raw_item()
        self.write("slots_in_use", number(int(item["slots_in_use"]["N"]) + weight))
        self.write("holders", {"M": item["holders"]["M"] | {execution: {"M": entry}}})

    def free(self, execution: str) -> None:
        """Free a holder of `p`, as the workflow does."""
        holder = self.item().holders[execution]
        assert self.slots.free("p", execution, holder.raw)

    def confirm(self, execution: str) -> None:
        """Confirm the slot of a holder of `p`, as the workflow does."""
        self.dynamodb.update_item(
            TableName=self.slot_table,
            Key={"process_name": {"S": "p"}},
            UpdateExpression=CONFIRM_UPDATE,
            ExpressionAttributeNames={"#me": execution, "#state": "state"},
            ExpressionAttributeValues={":running": {"S": "RUNNING"}, ":none": {"M": {}}},
        )

    def finish(self, execution: str) -> None:
        """Close an execution."""
        self.aws.execution(execution, "ABORTED")

    def item(self, process: str = "p") -> Any:
        return self.slots.read(process)

    def write(self, attribute: str, value: Item) -> None:
        """Set an attribute of the item of `p`, without the conditions of the protocol."""
        self.aws.tables.put(SLOTS, self.raw_item() | {attribute: value})

    def raw_item(self, process: str = "p") -> Item:
        return self.aws.tables.item(SLOTS, process)

    # Services

    def executions(self) -> list[str]:
        return sorted(self.aws.executions)

    def messages(self, url: str) -> list[dict[str, Any]]:
        answer = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    @property
    def rings(self) -> list[Any]:
        """The bodies of the rings so far, in no order."""
        return [json.loads(message["Body"]) for message in self.messages(self.dispatch_url)]


def delivery(body: Any, group: str = "p", **changes: Any) -> Delivery:
    """A delivery without a queue."""
    text = body if isinstance(body, str) else json.dumps(body)
    return replace(Delivery("message-1", text, group, "1", NOW), **changes)


def request_record(body: Any, message_id: str = "m1", group: str = "p", sent_at: float = NOW) -> dict[str, Any]:
    """A message of RequestQueue, as the event source mapping delivers it."""
    made = record(body, message_id)
    made["attributes"] |= {
        "SentTimestamp": str(int(sent_at * 1000)),
        "MessageGroupId": group,
        "SequenceNumber": "18849496460467696128",
    }
    return made | {"eventSourceARN": f"{QUEUE_ARN}:requests.fifo"}


def bell_record(bell: Bell, message_id: str = "m1") -> dict[str, Any]:
    """A message of DispatchQueue, as the event source mapping delivers it."""
    return record(bell.to_json(), message_id) | {"eventSourceARN": f"{QUEUE_ARN}:bells"}


@pytest.fixture
def account(aws: AwsAccount) -> Account:
    return Account(aws)


@pytest.fixture
def load(account: Account, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a function's app.py again, as a cold start does."""
    for name, value in OF_SLOTS.items():
        monkeypatch.setenv(name, value)
    read_again()

    def load_function(name: str) -> ModuleType:
        folder = CODE[name]
        monkeypatch.syspath_prepend(str(folder))
        own = {path.stem for path in folder.iterdir()}
        for module_name in [name for name in sys.modules if name.partition(".")[0] in own]:
            del sys.modules[module_name]
        spec = importlib.util.spec_from_file_location(f"{name}_app", folder / "app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load_function


@pytest.fixture
def chat(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatbotAccount]:
    """A simulated chat API, and the chatbot's tables, secrets and variables.

    The functions' clients come from a session of this test, so that its hooks end with the test.
    """
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
    with ChatbotAccount(account.aws, NOW) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def work_account(account: Account, monkeypatch: pytest.MonkeyPatch) -> AwsAccount:
    """The same account, with the worker's variables."""
    for name, value in OF_THE_WORKER.items():
        monkeypatch.setenv(name, value)
    return account.aws


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Waiting for a token takes virtual time. For tests of one thread."""
    virtual = VirtualTime()
    for module in (token_lock, token_refresh, backoff._sync):
        monkeypatch.setattr(module, "time", virtual)
    return virtual


@pytest.fixture
def instances(aws: AwsAccount) -> Instances:
    return Instances(shared_client("dynamodb"), Api())


@pytest.fixture
def workplace(aws: AwsAccount) -> WorkerHarness:
    return WorkerHarness(aws)
