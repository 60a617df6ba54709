"""One account from a standing queue to its end: every request is admitted, runs, and gives its slot back.

The starter and the janitor are the functions' own handlers, with Powertools and all that they log; the workflow is its
own definition, as the simulation reads it. Each invocation and each step of a workflow happens at one instant: what
others could do in between is not tried here, the simulation itself does that. Time passes between them, to the next run
that ends, message that is visible again, or round of the janitor.

In a process of its own (runs.py), since the functions are set up by environment variables and write to standard output.
"""

from __future__ import annotations

import heapq
import importlib.util
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import boto3

from dev.benchmarks.scale.account import SETTLED, Account, Group
from dev.benchmarks.scale.meter import Meter
from dev.benchmarks.scale.workflows import Workflow
from slotkeeper.slots.names import execution_name
from tests.simulation.slots_actors import DEAD_LETTERS, MACHINE, MOST_RECEIVES, RETENTION, VISIBILITY
from tests.simulation.slots_state import GRACE, JOB, LOOK_GAP
from tests.simulation.workflow import FAILED, REQUESTS, SLOTS
from tests.simulation.worlds import BEGINNING

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    "SLOT_TABLE_NAME": SLOTS,
    "SETTLED_TABLE_NAME": SETTLED,
    "WORKFLOW_ARN": MACHINE,
    "REQUEST_QUEUE_URL": REQUESTS,
    "REQUEST_DEAD_LETTER_QUEUE_URL": DEAD_LETTERS,
    "FAILED_REQUEST_QUEUE_URL": FAILED,
    "EVENT_BUS_NAME": "default",
    "QUEUE_VISIBILITY_SECONDS": str(VISIBILITY),
    "QUEUE_RETENTION_SECONDS": str(RETENTION),
    "QUEUE_MAX_RECEIVES": str(MOST_RECEIVES),
    "GRACE_SECONDS": str(GRACE),
    "LOOK_GAP_SECONDS": str(LOOK_GAP),
    "POWERTOOLS_METRICS_NAMESPACE": "Slotkeeper",
    "POWERTOOLS_SERVICE_NAME": "slotkeeper",
    "POWERTOOLS_TRACE_DISABLED": "true",
}
_CONTEXT = SimpleNamespace(
    function_name="function",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:function",
    aws_request_id="00000000-0000-0000-0000-000000000000",
    get_remaining_time_in_millis=lambda: 28_000,
)


@dataclass(frozen=True)
class Load:
    """What stands on the queue at the beginning.

    Args:
        processes: that share the requests evenly.
        requests: in all.
        limit: slots of each process.
        seconds: that a run takes, at least and at most; drawn from the seed.
        period: seconds between two rounds of the janitor.
    """

    processes: int
    requests: int
    limit: int
    seconds: tuple[float, float] = (30, 90)
    period: float = 60
    seed: int = 1


class Functions:
    """The handlers over one account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        clock = SimpleNamespace(time=lambda: account.now)
        with mock.patch.object(boto3, "client", account.client):
            self._starter = _loaded("starter")
            self._janitor = _loaded("janitor")
        for module in (self._starter, self._janitor):
            module.time = clock
        self._janitor._janitor = replace(self._janitor._janitor, clock=clock.time)
        self._janitor._janitor.settlement.clock = clock.time
        self._janitor._lease._clock = clock.time

    def start(self, group: str, message: dict[str, Any]) -> bool:
        """One invocation of the starter with one message; True if that is consumed."""
        attributes = {
            "ApproximateReceiveCount": str(message["receives"]),
            "SentTimestamp": str(int(message["sent_at"] * 1000)),
            "SequenceNumber": str(message["sequence"]).zfill(20),
            "MessageGroupId": group,
            "MessageDeduplicationId": message["id"],
            "SenderId": "sender",
            "ApproximateFirstReceiveTimestamp": str(int(message["sent_at"] * 1000)),
        }
        record = {
            "messageId": f"{group}/{message['id']}",
            "receiptHandle": message["handle"],
            "body": message["body"],
            "attributes": attributes,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:requests.fifo",
            "awsRegion": "us-east-1",
        }
        return not self._invoke("starter", self._starter, {"Records": [record]})["batchItemFailures"]

    def round(self) -> dict[str, int]:
        """One scheduled round of the janitor: what it counted."""
        counted: dict[str, int] = self._invoke("janitor", self._janitor, {})
        return counted

    def _invoke(self, name: str, module: ModuleType, event: dict[str, Any]) -> Any:
        meter = self._account.meter
        meter.count(f"lambda.{name}")
        meter.go(name)
        try:
            return module.handler(event, _CONTEXT)
        finally:
            meter.halt()


class Drive:
    """The load, to its end."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.meter = Meter()
        self.account = Account(self.meter)
        self.began = self.account.now = self._next_round = BEGINNING
        # It begins when the starter's invocation is over, which called it.
        self.account.on_start = lambda name: self._at(self.account.now, self._begin, name)
        self.account.on_visible = lambda group, at: self._at(at, self._deliver, group)
        self.functions = Functions(self.account)
        self.waited: set[str] = set()  # the requests that were refused at least once
        self.ended = 0
        self._random = Random(load.seed)
        self._events: list[tuple[float, int, Callable[[str], None], str]] = []
        self._number = 0
        self._workflows: dict[str, Workflow] = {}

    def go(self) -> None:
        """Everything. Raises RuntimeError if it did not end as it must."""
        account, load = self.account, self.load
        for number in range(load.processes):
            name = process_name(number)
            account.put(process_item(name, load.limit))
            ids = range(number, load.requests, load.processes)
            bodies = deque(json.dumps({"process": name, "request_id": f"request-{each:06}"}) for each in ids)
            for each in ids:
                self.meter.counts[execution_name(name, f"request-{each:06}", 1)]["sqs.send_message"] = 1
            account.groups[name] = Group(name, bodies, account.now)
            self._at(account.now, self._deliver, name)
        while self.ended < load.requests:
            if self._events and self._events[0][0] < self._next_round:
                account.now, _, happen, who = heapq.heappop(self._events)
                happen(who)
            else:
                account.now, self._next_round = self._next_round, self._next_round + load.period
                self.meter.owner = Meter.JANITOR
                self.functions.round()
        held = [name for name, item in account.items[SLOTS].items() if item["slots_in_use"]["N"] != "0"]
        if held or list(account.closed) != ["SUCCEEDED"]:
            raise RuntimeError(f"it did not end well: {held} hold slots, workflows ended as {list(account.closed)}")

    def _at(self, moment: float, happen: Callable[[str], None], who: str) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, happen, who))

    def _deliver(self, process: str) -> None:
        """The event source mapping: one message after the other, as long as the group gives one out."""
        group = self.account.groups[process]
        while (message := group.receive(self.account.now)) is not None:
            request = json.loads(message["body"])
            self.meter.owner = execution_name(process, request["request_id"], 1)
            self.meter.count("sqs.receive_message")
            if not self.functions.start(process, message):
                self.waited.add(self.meter.owner)
                return
            self.meter.count("sqs.delete_message")
            group.delete(message["handle"], self.account.now)

    def _begin(self, name: str) -> None:
        """A workflow, from its start to its Glue run."""
        self.meter.owner = name
        workflow = self._workflows[name] = Workflow(self.account, name)
        workflow.begin()
        self._at(self.account.now + self._random.uniform(*self.load.seconds), self._end_run, name)

    def _end_run(self, name: str) -> None:
        """Glue ends its run, and the workflow goes on to its end."""
        self.meter.owner = name
        self.account.end_run(name)
        self._workflows.pop(name).end_run()
        self.ended += 1


def process_name(number: int) -> str:
    return f"process-{number:04}"


def process_item(name: str, limit: int) -> dict[str, Any]:
    """A new process, in DynamoDB's own form."""
    return {
        "process_name": {"S": name},
        "slot_limit": {"N": str(limit)},
        "slots_in_use": {"N": "0"},
        "holders": {"M": {}},
        "job_name": {"S": JOB},
    }


def _loaded(function: str) -> Any:
    """A function's app.py, as a container has it."""
    spec = importlib.util.spec_from_file_location(f"{function}_app", ROOT / "functions" / function / "app.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"functions/{function}/app.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
