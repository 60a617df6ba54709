"""One small account in moto, for tests of one thread."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
from slotkeeper.slots.processes import Processes
from slotkeeper.slots.protocol import CONFIRM_UPDATE
from slotkeeper.slots.request import Delivery, Request, parse_request, process_of_execution
from slotkeeper.slots.rows import RequestRow
from slotkeeper.slots.run_report import RunReport
from slotkeeper.slots.settlement import Settlement
from slotkeeper.slots.work import Children, GlueRuns
from slotkeeper.token import lock as token_lock
from slotkeeper.token import refresh as token_refresh
from tests.simulation.account.boundary import passed_values
from tests.simulation.account.completion_events import Bus
from tests.simulation.account.function_environment import OF_SLOTS, read_again
from tests.simulation.account.in_process_aws import InProcessAws
from tests.simulation.account.prepared_account import prepared_account
from tests.simulation.account.quick_clients import shared_client
from tests.simulation.account.tables import create_table
from tests.simulation.aws.dynamodb import INDEXES
from tests.unit.chatbot_account import ChatbotAccount
from tests.unit.slot_parts import NOW, SlotParts
from tests.unit.token_instances import Api, Instances, VirtualTime, token_table
from tests.unit.work_account import WorkAccount, invocation, record
from tests.unit.worker_harness import WorkerHarness, worker_resources

ROOT = Path(__file__).parents[2]
# The worker of tests, since functions/worker may be replaced.
CODE = code_folders() | {"worker": ROOT / "tests" / "simulation" / "account" / "worker"}
Load = Callable[[str], ModuleType]  # the type of the fixture `load`
QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012"
GRACE = 120
CHECK_GAP = 30
CONTEXT = invocation(28.0)
SERVICES = ("dynamodb", "sqs", "stepfunctions", "glue", "events", "sns")


@pytest.fixture(autouse=True)
def _no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
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


class Account(SlotParts):
    """An account in moto, with the parts of the flow, a janitor and the handler of status events.

    Attributes:
        answers: those that callers have received: the token, then the output, or error and cause.
        notices: the notifications that were tried.
    """

    slot_table, request_table = "slots", "requests"

    def __init__(self, clients: dict[str, Any], topic: str, dead_letter_url: str, **names: str) -> None:
        super().__init__(clients, topic=topic, **names)
        self.glue, self.topic, self.dead_letter_url = clients["glue"], topic, dead_letter_url
        self.dispatch_url, self.ending_url = names["dispatch_url"], names["ending_url"]
        self.workflow = Workflow(self.stepfunctions, self.workflow_arn)
        self.children = Children(self.stepfunctions)
        self.glue_runs = GlueRuns(self.glue)
        self.answers: list[tuple[str, ...]] = []
        self.receive_answers_of(self.stepfunctions)
        self.bus = Bus(self.events)
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

    def receive_answers_of(self, client: Any) -> None:
        """Let the answers that a client of Step Functions gives to callers arrive, which moto refuses."""

        def receive(model: Any, params: Any, **_: Any) -> Any:
            if model.name not in ("SendTaskSuccess", "SendTaskFailure"):
                return None
            self.answers.append(tuple(json.loads(params["body"]).values()))
            return SimpleNamespace(status_code=200), {}

        client.meta.events.register_last("before-call", receive)  # after the hooks of a test

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

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SLOT_TABLE_NAME": self.slot_table,
            "REQUEST_TABLE_NAME": self.request_table,
            "WORKFLOW_ARN": self.workflow_arn,
            "DISPATCH_QUEUE_URL": self.dispatch_url,
            "REQUEST_DEAD_LETTER_QUEUE_URL": self.dead_letter_url,
            "ENDING_QUEUE_URL": self.ending_url,
            "FAILURE_TOPIC_ARN": self.topic,
        }

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
        key = {"process_name": {"S": "p"}, "execution": {"S": execution}}
        row: Item = self.dynamodb.get_item(TableName=self.request_table, Key=key).get("Item", {})
        return row

    def set_row(self, execution: str, **attributes: Item) -> None:
        """Set attributes of the row of a request of `p`."""
        row = self.raw_row(execution) | attributes
        self.dynamodb.put_item(TableName=self.request_table, Item=row)

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
        self.dynamodb.update_item(
            TableName=self.slot_table,
            Key={"process_name": {"S": "p"}},
            UpdateExpression="SET slots_in_use = slots_in_use + :weight, holders.#me = :entry",
            ExpressionAttributeNames={"#me": execution},
            ExpressionAttributeValues={":weight": number(weight), ":entry": {"M": entry}},
        )

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
        self.stepfunctions.stop_execution(executionArn=self.execution_arn(execution))

    def item(self, process: str = "p") -> Any:
        return self.slots.read(process)

    def write(self, attribute: str, value: Item) -> None:
        """Set an attribute of the item of `p`, without the conditions of the protocol."""
        self.dynamodb.update_item(
            TableName=self.slot_table,
            Key={"process_name": {"S": "p"}},
            UpdateExpression="SET #a = :v",
            ExpressionAttributeNames={"#a": attribute},
            ExpressionAttributeValues={":v": value},
        )

    def raw_item(self, process: str = "p") -> Item:
        key = {"process_name": {"S": process}}
        item: Item = self.dynamodb.get_item(TableName=self.slot_table, Key=key, ConsistentRead=True).get("Item", {})
        return item

    # Services

    def executions(self) -> list[str]:
        listed = self.stepfunctions.list_executions(stateMachineArn=self.workflow_arn)["executions"]
        return sorted(execution["name"] for execution in listed)

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
    return record(bell.to_json(), message_id) | {"eventSourceARN": f"{QUEUE_ARN}:dispatch"}


@pytest.fixture
def account() -> Iterator[Account]:
    with prepared_account(_resources) as names:
        clients = {name: shared_client(name) for name in SERVICES}
        topic = clients["sns"].create_topic(Name="failures")["TopicArn"]  # moto's topics cannot be prepared
        yield Account(clients, topic, **names)


def _resources() -> dict[str, str]:
    """Create the account's resources, and the process `p`; return their names."""
    dynamodb, sqs, stepfunctions = map(shared_client, ("dynamodb", "sqs", "stepfunctions"))
    create_table(dynamodb, "slots", "process_name")
    create_table(dynamodb, "requests", "process_name", "execution", INDEXES["requests"])
    Processes(dynamodb, "slots", lambda: NOW).create("p", 1, "job")
    fifo = {"FifoQueue": "true"}
    machine = stepfunctions.create_state_machine(
        name="workflow",
        definition=json.dumps({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}),
        roleArn="arn:aws:iam::123456789012:role/workflow",
    )
    return {
        "dead_letter_url": sqs.create_queue(QueueName="dead.fifo", Attributes=fifo)["QueueUrl"],
        "dispatch_url": sqs.create_queue(QueueName="dispatch")["QueueUrl"],
        "ending_url": sqs.create_queue(QueueName="endings")["QueueUrl"],
        "workflow_arn": machine["stateMachineArn"],
    }


@pytest.fixture
def load(account: Account, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a function's app.py again, as a cold start does."""
    for name, value in (OF_SLOTS | account.environment).items():
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
    with ChatbotAccount(account.dynamodb, boto3.client("secretsmanager"), NOW) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def work_account(account: Account, monkeypatch: pytest.MonkeyPatch) -> WorkAccount:
    """The worker's resources and variables, in the same account."""
    made = WorkAccount()
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Waiting for a token takes virtual time. For tests of one thread."""
    virtual = VirtualTime()
    for module in (token_lock, token_refresh, backoff._sync):
        monkeypatch.setattr(module, "time", virtual)
    return virtual


@pytest.fixture
def instances() -> Iterator[Instances]:
    with prepared_account(token_table):
        yield Instances(shared_client("dynamodb"), Api())


@pytest.fixture
def workplace() -> Iterator[WorkerHarness]:
    with prepared_account(worker_resources):
        yield WorkerHarness()


@pytest.fixture
def quick_workplace() -> WorkerHarness:
    """A workplace without moto, for thousands of deliveries."""
    return WorkerHarness(InProcessAws())
