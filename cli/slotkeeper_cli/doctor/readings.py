"""What the checks read next to the readings of every answer. Each is made once, and kept by the account."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate

from slotkeeper.aws.dynamodb import Attributes, Item, MalformedAttribute
from slotkeeper.settings import NO_TARGET
from slotkeeper.slots.plan import Plan, plan
from slotkeeper.slots.process import MalformedProcess, Process
from slotkeeper.slots.request_table import State, read_state
from slotkeeper.slots.rows import MAX_PAGES, Listed, QueuedRow, RequestRow, read_queued_row
from slotkeeper_cli.formatting import count
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.stack_connection import StackResource

if TYPE_CHECKING:
    from slotkeeper_cli.account import Account

# Seconds for which the failures of a day are kept, since a read of them costs a call for each megabyte of all failures.
SLOW_SECONDS = 60.0
DAY = 86_400
# Of a function without a setting (Lambda API Reference, GetFunctionRecursionConfig).
DEFAULT_RECURSION = "Terminate"
FUNCTION, RULE = "AWS::Lambda::Function", "AWS::Events::Rule"


def reading[**Arguments, Result](
    read: Callable[Concatenate[Account, Arguments], Result], keeps: float | None = None
) -> Callable[Concatenate[Account, Arguments], Result]:
    """A function that reads, of which the account keeps the result for each arguments. `keeps`: seconds."""

    @wraps(read)
    def kept(account: Account, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        key = (read.__module__, read.__name__, *arguments)
        return account.kept(key, lambda: read(account, *arguments, **named), keeps)

    return kept


slow_reading = partial(reading, keeps=SLOW_SECONDS)


# ------------------------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True)
class ProcessWithQueue:
    """A process and its queue, which was read after it.

    Attributes:
        process: None if there is none of this name.
        at: when they were read, in seconds since the epoch.
    """

    name: str
    process: Process | MalformedProcess | None
    rows: Sequence[QueuedRow]
    at: float

    @property
    def oldest(self) -> float | None:
        """When the first request was sent, in seconds since the epoch; None if the queue is empty."""
        return min((row.sent for row in self.rows), default=None)

    @cached_property
    def plan(self) -> Plan | None:
        """What a dispatch would do; None of a process that is malformed or runs no requests, and without requests."""
        if not (self.rows and isinstance(self.process, Process) and self.process.target != NO_TARGET):
            return None
        # No reservation is old enough here: only a dispatch starts again what a dead one has left.
        return plan(self.process, (row.queued for row in self.rows), self.at, age=math.inf)


def are_queued(rows: Sequence[QueuedRow]) -> str:
    """`1 request is queued`, `3 requests are queued`."""
    return count(len(rows), "request is queued", "requests are queued")


@dataclass(frozen=True)
class Queues:
    """Every process and every queue, by the name of the process. `listed`: what could not be read."""

    of: Mapping[str, ProcessWithQueue]
    listed: Listed[tuple[str, QueuedRow]]

    @property
    def planned(self) -> list[tuple[Process, ProcessWithQueue, Plan]]:
        """The queues that `plan` decides about."""
        every = ((one.process, one, one.plan) for one in self.of.values())
        return [(process, one, plan) for process, one, plan in every if isinstance(process, Process) and plan]


@reading
def queues(account: Account) -> Queues:
    """All processes, and after them all queues: a Scan of SlotTable, and of the index of what is queued."""
    now = time.time()
    processes, malformed = account.processes()
    listed = Listed[tuple[str, QueuedRow]]()
    for item in _scan(account, "place", listed):
        try:
            listed.rows.append((item["process_name"]["S"], read_queued_row(item)))
        except (MalformedAttribute, ValueError, IndexError) as error:
            listed.malformed.append(f"request {item['execution']['S']} of {item['process_name']['S']}: {error}")
    known: dict[str, Process | MalformedProcess] = {one.name: one for one in processes}
    known |= {one.process: one for one in malformed}
    found: dict[str, list[QueuedRow]] = {name: [] for name in known}
    for name, row in listed.rows:
        found.setdefault(name, []).append(row)
    # No order of a Scan is documented.
    of = {
        name: ProcessWithQueue(name, known.get(name), sorted(rows, key=lambda row: row.queued.place), now)
        for name, rows in sorted(found.items())
    }
    return Queues(of, listed)


def queue_again(account: Account, name: str) -> ProcessWithQueue:
    """A process and its queue, read now."""
    process = account.control.slots.read(name)
    return ProcessWithQueue(name, process, account.control.rows.queue(name).rows, time.time())


@dataclass(frozen=True)
class OpenRow:
    """A request that has started and not ended, or whose end is not published. `at`: when it was accepted or ended."""

    process: str
    execution: str
    state: State
    request_id: str
    at: float


@reading
def open_rows(account: Account) -> Listed[OpenRow]:
    """The requests that have started or ended, and whose end is not published: a Scan of the index of what is open."""
    listed = Listed[OpenRow]()
    for item in _scan(account, "open", listed):
        row = Attributes(item)
        try:
            state, moment = row.parsed("state", read_state), row.number("open")
            if state != "QUEUED":
                names = (row.text("process_name"), row.text("execution"))
                listed.rows.append(OpenRow(*names, state, row.text("request_id"), abs(moment)))
        except MalformedAttribute as error:
            listed.malformed.append(f"request {item['execution']['S']}: {error}")
    return listed


def _scan(account: Account, index: str, listed: Listed[Any]) -> Iterable[Item]:
    """The entries of a sparse index of RequestTable, of at most MAX_PAGES pages."""
    pages = account.stack.client("dynamodb").get_paginator("scan")
    asked = {"TableName": account.stack.outputs["RequestTableName"], "IndexName": index, "ConsistentRead": True}
    for page in islice(pages.paginate(**asked), MAX_PAGES):
        yield from page["Items"]
        listed.is_cut = "LastEvaluatedKey" in page


@slow_reading
def failures(account: Account) -> Listed[RequestRow]:
    """The failures of the last day that were neither redriven nor discarded, of all processes."""
    now = time.time()
    return account.control.rows.failures(None, now - DAY, now + DAY)


@slow_reading
def last_ended(account: Account, process: str) -> Listed[RequestRow]:
    """The requests of a process that ended in the last day, the newest first: one page."""
    now = time.time()
    return account.control.rows.history(process, now - DAY, now + DAY, 1, newest_first=True)


# ------------------------------------------------------------------------------------------------------- infrastructure


@dataclass(frozen=True)
class FunctionSettings:
    """A function's reserved concurrency, None if it has none; and its RecursiveLoop."""

    reserved: int | None
    recursion: str


@reading
def functions(account: Account) -> dict[str, FunctionSettings]:
    """The settings of each function, by logical id."""
    client = account.stack.client("lambda")

    def read(function: StackResource) -> FunctionSettings:
        name = function.name
        return FunctionSettings(
            client.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions"),
            client.get_function_recursion_config(FunctionName=name)["RecursiveLoop"],
        )

    return _each(account, FUNCTION, read)


@reading
def unreserved_concurrency(account: Account) -> int:
    """The concurrent executions of the account that no function has reserved."""
    return int(account.stack.client("lambda").get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"])


def properties(account: Account, resource: str) -> Mapping[str, Any]:
    """The properties of a resource in the deployed template; empty if it has none."""
    found: Mapping[str, Any] = account.template().get(resource, {}).get("Properties", {})
    return found


@reading
def rules(account: Account) -> dict[str, str]:
    """The state of each EventBridge rule, by logical id. The physical id of a rule on a custom bus is `bus|name`."""
    client = account.stack.client("events")

    def read(rule: StackResource) -> str:
        bus, _, name = rule.name.rpartition("|")
        return str(client.describe_rule(Name=name, **({"EventBusName": bus} if bus else {}))["State"])

    return _each(account, RULE, read)


def _each[Read](account: Account, kind: str, read: Callable[[StackResource], Read]) -> dict[str, Read]:
    """A reading of each resource of a kind, by logical id."""
    of_kind = [one for one in account.resources() if one.kind == kind]
    return dict(zip([one.logical_id for one in of_kind], in_parallel(read, of_kind), strict=True))


# -------------------------------------------------------------------------------------------------------- notifications


@reading
def topic_key(account: Account) -> str:
    """The key that encrypts the topic to which alarms publish; empty if none does."""
    topic = account.stack.outputs["FailureTopicArn"]
    answer = account.stack.client("sns").get_topic_attributes(TopicArn=topic)
    return str(answer["Attributes"].get("KmsMasterKeyId", ""))


@reading
def subscriptions(account: Account) -> list[Mapping[str, str]]:
    """The subscriptions of that topic."""
    pages = account.stack.client("sns").get_paginator("list_subscriptions_by_topic")
    listed = pages.paginate(TopicArn=account.stack.outputs["FailureTopicArn"])
    return [one for page in listed for one in page["Subscriptions"]]


@reading
def key_policy(account: Account, key: str) -> Mapping[str, Any]:
    """The policy of a customer managed key."""
    answer = account.stack.client("kms").get_key_policy(KeyId=key, PolicyName="default")
    policy: Mapping[str, Any] = json.loads(answer["Policy"])
    return policy
