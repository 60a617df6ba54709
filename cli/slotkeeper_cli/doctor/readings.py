"""The readings of the checks, next to those of every answer. Each is made once, and kept by the account."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate

from slotkeeper.aws.dynamodb import Attributes, MalformedAttribute
from slotkeeper.slots.request_table import State, read_state
from slotkeeper.slots.rows import Listed, RequestRow
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
class OpenRow:
    """A request that has started and not ended, or whose end is not published. `at`: when it was accepted or ended."""

    process: str
    execution: str
    state: State
    request_id: str
    at: float


@reading
def open_rows(account: Account) -> Listed[OpenRow]:
    """The requests that have started or ended, and whose end is not published: a Scan of the index `open`."""
    listed = Listed[OpenRow]()
    for item in account.control.row_search.index("open", listed):
        row = Attributes(item)
        try:
            state, moment = row.parsed("state", read_state), row.number("open")
            if state != "QUEUED":
                names = (row.text("process_name"), row.text("execution"))
                listed.rows.append(OpenRow(*names, state, row.text("request_id"), abs(moment)))
        except MalformedAttribute as error:
            listed.malformed.append(f"request {item['execution']['S']}: {error}")
    return listed


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
