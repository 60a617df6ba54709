"""A process whose waiting requests are rows, on the simulated tables."""

from __future__ import annotations

import json
from typing import Any

from slotkeeper.aws.dynamodb import Item, number
from slotkeeper.slots.intake import Acceptance, accept
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import Request
from slotkeeper.slots.request_table import FAILURES
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.executions import WORKFLOW
from tests.simulation.account.quick_clients import shared_client
from tests.simulation.account.service import Refusal
from tests.unit.slot_parts import NOW, SlotParts

TOPIC = "arn:aws:sns:us-east-1:123456789012:failures"


class QueueAccount(AwsAccount):
    """The account.

    Attributes:
        start_errors: name of an execution -> the error code that StartExecution answers with.
        unread: names of rows that BatchGetItem leaves unprocessed.
        unread_once: the same, of the next BatchGetItem that is asked for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.start_errors: dict[str, str] = {}
        self.unread: set[str] = set()
        self.unread_once: set[str] = set()

    def _StartExecution(self, parameters: Item) -> Item:
        if code := self.start_errors.get(parameters["name"]):
            raise Refusal(code)
        return super()._StartExecution(parameters)

    def _BatchGetItem(self, parameters: Item) -> Item:
        wanted = parameters["RequestItems"]["requests"]
        left = [key for key in wanted["Keys"] if key["execution"]["S"] in self.unread | self.unread_once]
        self.unread_once -= {key["execution"]["S"] for key in left}
        read = {**wanted, "Keys": [key for key in wanted["Keys"] if key not in left]}
        answer = self.tables.perform("BatchGetItem", {"RequestItems": {"requests": read}}) if read["Keys"] else {}
        unprocessed = {"requests": {**wanted, "Keys": left}} if left else {}
        return {"Responses": {"requests": []}} | answer | {"UnprocessedKeys": unprocessed}


class QueueScene(SlotParts):
    """The process `p` with a limit, and its queue."""

    def __init__(self, limit: int = 1) -> None:
        self.aws = QueueAccount().use()
        self.aws.clock = lambda: self.now
        clients = {name: shared_client(name) for name in ("dynamodb", "sqs", "stepfunctions", "events", "sns")}
        super().__init__(clients, WORKFLOW, "https://sqs/bells", "https://sqs/endings", TOPIC)
        self.sent = 0
        self.names: dict[str, str] = {}  # execution -> request id
        self.put_process(slot_limit=number(limit))

    # The process

    def put_process(self, **attributes: Item) -> None:
        item = {
            "process_name": {"S": "p"},
            "slot_limit": number(1),
            "slots_in_use": number(0),
            "holders": {"M": {}},
            "target": {"S": "job"},
            "grants": number(7),
        }
        self.aws.tables.put("slots", item | attributes)

    def change(self, **attributes: Item) -> None:
        """Set attributes of the process's item."""
        self.aws.tables.put("slots", self.item | attributes)

    def hold(self, held: dict[str, Item]) -> None:
        """Add holders to the item, in DynamoDB's format, and their weights to its counter."""
        holders = self.item["holders"]["M"] | {name: {"M": each} for name, each in held.items()}
        weights = sum(int(each["M"].get("weight", number(1))["N"]) for each in holders.values())
        self.change(holders={"M": holders}, slots_in_use=number(weights))

    def free(self, *names: str) -> None:
        """Remove holders, and their weights from the counter, as their workflows do."""
        self.change(
            holders={"M": {name: each for name, each in self.item["holders"]["M"].items() if name not in names}}
        )
        self.change(slots_in_use=number(self.process.held_weight))

    @property
    def item(self) -> Item:
        return self.aws.tables.item("slots", "p")

    @property
    def process(self) -> Process:
        read = self.grants.read("p")
        assert read is not None
        return read

    @property
    def holders(self) -> dict[str, str]:
        """The state of each holder, by the id of its request."""
        return {self.names.get(name, name): each.state for name, each in self.process.holders.items()}

    # The queue

    def accept(self, request: Request, message: str = "", at: float | None = None) -> Acceptance:
        """Receive a request that is sent now, with the next sequence number."""
        self.sent += 1
        self.names[request.execution_name] = request.request_id
        sent = self.now if at is None else at
        return accept(self.requests, request, message or f"m{self.sent}", sent, str(self.sent), self.now)

    def queue(self, *ids: str, **fields: Any) -> list[str]:
        """Queue a request of each id; return the names of their executions."""
        requests = [Request("p", {}, each, **fields) for each in ids]
        for request in requests:
            self.accept(request)
        return [request.execution_name for request in requests]

    def row(self, execution: str) -> Item:
        return self.aws.tables.item("requests", f"p\n{execution}")

    def end(self, execution: str, state: str) -> None:
        """Give a row a state. Its end, if it has one, is published."""
        gone = {"place", "deadline"} | (set() if state in ("QUEUED", "STARTED") else {"open", "task_token"})
        row = {name: value for name, value in self.row(execution).items() if name not in gone}
        row |= {"ended": number(NOW)} if "open" in gone else {}
        row |= {"failed": number(NOW)} if state in FAILURES else {}
        self.aws.tables.put("requests", row | {"state": {"S": state}})

    @property
    def states(self) -> dict[str, str]:
        """The state of the last attempt of each request."""
        rows = sorted(self.aws.tables.items("requests"), key=lambda row: int(row["attempt"]["N"]))
        return {row["request_id"]["S"]: row["state"]["S"] for row in rows}

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @property
    def rings(self) -> list[tuple[Item, int]]:
        """The body and the delay of each ring so far."""
        return [(json.loads(sent["MessageBody"]), sent["DelaySeconds"]) for sent in self.aws.sent_to("bells")]

    @property
    def to_publish(self) -> list[Item]:
        """The bodies of the messages to EndingQueue so far."""
        return [json.loads(sent["MessageBody"]) for sent in self.aws.sent_to("endings")]

    @property
    def ran(self) -> list[str]:
        """The ids of the requests that were started, in their order."""
        return [json.loads(each["input"])["request_id"] for each in self.aws.started]


def reserved(since: float = NOW, weight: int = 1) -> Item:
    """A RESERVED holder."""
    holder = {"state": {"S": "RESERVED"}, "since": number(int(since))}
    return holder if weight == 1 else holder | {"weight": number(weight)}


def running(weight: int = 1) -> Item:
    return reserved(weight=weight) | {"state": {"S": "RUNNING"}}


def leased(until: float, weight: int = 1) -> Item:
    return reserved(weight=weight) | {"state": {"S": "LEASED"}, "until": number(int(until)), "code": {"S": "x"}}
