"""The retry flow on a stack: its ledger and schedules, and its downstreams as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from rich.console import Console

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry.delivery import RetryQueue, ScheduleTarget
from slotkeeper.retry.downstream.downstreams import DownstreamTable, MalformedHealth, names
from slotkeeper.retry.downstream.health import DownstreamSettings, Health, State
from slotkeeper.retry.downstream.rules import current, force_closed
from slotkeeper.retry.ledger import WAITING, Ledger, Row
from slotkeeper.retry.operations import RetryOperations, is_cancelled
from slotkeeper.retry.policy import BUILT_IN, InvalidPolicy, Policy, parse_policy
from slotkeeper_cli.formatting import count, duration, iso, local_time, seconds
from slotkeeper_cli.output import styled, table
from slotkeeper_cli.stack_connection import StackConnection, queue_attributes

# Seconds after which a retry counts as overdue. EventBridge Scheduler delivers up to two minutes late
# (docs/retries-reference.md), and a message that the queue delays waits for a free worker.
OVERDUE_AFTER = 300


def policy_text(stack: StackConnection) -> str | None:
    """The value of the retry policy's parameter; None if there is no such parameter."""
    ssm = stack.client("ssm")
    try:
        return str(ssm.get_parameter(Name=stack.outputs["RetryPolicyParameterName"])["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


def usable_policy(text: str | None) -> tuple[Policy, str]:
    """The policy in the parameter's value; or the built-in one, and why."""
    if text is None:
        return BUILT_IN, "the parameter of the retry policy does not exist"
    try:
        return parse_policy(text), ""
    except InvalidPolicy as error:
        return BUILT_IN, f"the retry policy is invalid: {error}"


class RetryControl:
    """The layer's objects for retries, made for a stack's table, queue and schedule group."""

    def __init__(self, stack: StackConnection) -> None:
        self._scheduler, self._group = stack.client("scheduler"), stack.outputs["RetryScheduleGroupName"]
        sqs, url = stack.client("sqs"), stack.outputs["WorkQueueUrl"]
        attributes = queue_attributes(stack, "WorkQueue")
        # Commands create no schedules, so the role and the dead-letter queue of schedules are not needed.
        schedules = ScheduleTarget(self._group, "", attributes["QueueArn"], "")
        max_bytes = int(attributes.get("MaximumMessageSize", 1_048_576))
        queue = RetryQueue(sqs, self._scheduler, url, schedules, max_message_bytes=max_bytes)
        self._dynamodb, self._table = stack.client("dynamodb"), stack.outputs["RequestLedgerTableName"]
        self.ledger = Ledger(self._dynamodb, self._table)
        self.steps = RetryOperations(self.ledger, queue)

    def approximate_row_count(self) -> int:
        """The number of rows; DynamoDB counts them every six hours (API Reference, TableDescription)."""
        described = self._dynamodb.describe_table(TableName=self._table)["Table"]
        return int(described.get("ItemCount", 0))

    def schedule_names(self) -> Iterator[str]:
        """The names of all schedules of the group."""
        pages = self._scheduler.get_paginator("list_schedules").paginate(GroupName=self._group)
        return (one["Name"] for page in pages for one in page["Schedules"])


def is_awaited(row: Row) -> bool:
    """Whether an attempt of a request has not started, also one that was cancelled."""
    return row.status == WAITING or is_cancelled(row)


def lateness(row: Row, now: float) -> float:
    """The seconds by which an attempt is overdue; 0 if it is not."""
    due = row.next_attempt_at
    return 0.0 if due is None or now <= due + OVERDUE_AFTER else now - due


class DownstreamControl:
    """The layer's objects for downstreams, made for a stack.

    Attributes:
        most: the event source's concurrency.
        policy: the policy in the stack's parameter; the built-in one if that is missing or invalid.
        policy_problem: why the policy is the built-in one, if it is only because the parameter is missing or invalid.
    """

    def __init__(self, stack: StackConnection) -> None:
        self.table = DownstreamTable(stack.client("dynamodb"), stack.outputs["DownstreamTableName"])
        self.most = int(stack.parameters["WorkerConcurrency"])
        self.policy, self.policy_problem = usable_policy(policy_text(stack))

    @cached_property
    def healths(self) -> dict[str, Health | MalformedHealth]:
        """The health of every downstream that the table or the policy has, and of `default`, by name."""
        read = self.table.read_all()
        return {name: read.get(name, Health()) for name in names(self.policy, read)}

    def add_unlisted(self, downstream: str) -> None:
        """Add a downstream to `healths` that has an item, and is beyond those that are read together."""
        if "" in self.healths and downstream not in self.healths:
            health = self.table.read(downstream)
            if health != Health():
                self.healths[downstream] = health

    def settings(self, downstream: str) -> DownstreamSettings:
        return replace(self.policy.downstream_settings(downstream), most=self.most)


def read_downstreams(stack: StackConnection) -> dict[str, Health | MalformedHealth]:
    """The health of each downstream that has an item (one Scan); none in a stack without the table."""
    if "DownstreamTableName" not in stack.outputs:
        return {}
    return DownstreamTable(stack.client("dynamodb"), stack.outputs["DownstreamTableName"]).read_all()


def summary(name: str, health: Health) -> dict[str, Any]:
    """The facts of the item, without the settings of the policy."""
    last = health.breaker.changes[-1] if health.breaker.changes else None
    is_due = health.breaker.state == State.OPEN and not health.breaker.forced
    return {
        "downstream": name,
        "state": health.breaker.state,
        # Each failed probe changes `since`; a downstream is out of order since the breaker opened.
        "since": iso(last.at) if last else None,
        "why": last.why if last else None,
        "by": (last.by or None) if last else None,
        "forced_open": health.breaker.forced,
        "next_probe_at": iso(health.breaker.probe_at) if is_due else None,
        "probe_until": iso(health.breaker.probe_at) if health.breaker.state == State.HALF_OPEN else None,
        "limit_set": health.concurrency.limit_set,
    }


def details(name: str, health: Health, settings: DownstreamSettings, now: float) -> dict[str, Any]:
    """The summary, and the figures of the present windows."""
    health = current(health, settings, now)
    # A probe that succeeds restores the limit. An operator who closes the breaker sets the adaptive one to one caller.
    limit = (force_closed(health, now, "") if health.breaker.forced else health).callers(settings)
    is_due = health.breaker.state == State.OPEN and not health.breaker.forced
    allowed = health.allowed_retries(settings)
    return summary(name, health) | {
        "breaker_enabled": settings.breaker.enabled,
        "next_probe_at": iso(health.breaker.probe_due(settings.breaker, now)) if is_due else None,
        "failures": health.breaker.failures,
        "failure_threshold": settings.breaker.failure_threshold,
        "window_calls": settings.breaker.considered,
        "permitted_callers": {State.OPEN: 0, State.HALF_OPEN: 1}.get(health.breaker.state, limit),
        "limit": limit,
        "worker_concurrency": settings.most,
        # Without a limit only probes are counted.
        "under_way": len(health.permits) if limit is not None or health.breaker.state == State.HALF_OPEN else None,
        "allowed_retries": None if allowed is None else int(allowed),
        "budget_capacity": None if allowed is None else settings.budget.capacity,
        "changes": [vars(change) | {"at": iso(change.at)} for change in health.breaker.changes],
    }


def noteworthy(read: Mapping[str, Health | MalformedHealth]) -> list[dict[str, Any]]:
    """The summaries of the downstreams whose breaker is not closed, or whose limit an operator has set."""
    healths = [(name, health) for name, health in sorted(read.items()) if isinstance(health, Health)]
    return [
        summary(name, one)
        for name, one in healths
        if one.breaker.state != State.CLOSED or one.concurrency.limit_set is not None
    ]


def not_closed(read: Mapping[str, Health | MalformedHealth], only: str = "") -> list[dict[str, Any]]:
    """The summaries of the downstreams whose breaker is not closed. `only`: the name of one; empty for all."""
    return [one for one in noteworthy(read) if one["state"] != State.CLOSED and only in ("", one["downstream"])]


def line(data: Mapping[str, Any], now: float) -> str:
    """A summary on one line."""
    parts = []
    if data["state"] != State.CLOSED:
        parts.append(f"the breaker is {data['state']}{_since(data, now)}{_because(data)}; {_next_step(data, now)}")
    if data["limit_set"] is not None:
        parts.append(f"an operator has set the limit to {count(data['limit_set'], 'caller')}")
    return f"downstream {data['downstream']}: {'; '.join(parts)}"


def print_details(console: Console, data: dict[str, Any], now: float) -> None:
    """Print the details of a downstream."""
    closed = data["state"] == State.CLOSED
    title = styled(f"{data['downstream']}  ", "bold")
    state = styled(f"{data['state']}{_since(data, now)}{_because(data)}", "not bold" if closed else "red not bold")
    title.append_text(state)
    console.print(title)
    if not closed:
        console.print(f"  {_next_step(data, now)}")
    if not data["breaker_enabled"]:
        closes = not closed and not data["forced_open"]
        console.print("  the policy disables the breaker" + ": the next message closes it" * closes)
    for text in _figures(data):
        console.print(f"  {text}")
    if data["changes"]:
        rows = table("  at", "to", "why", "by")
        for change in reversed(data["changes"]):
            at = local_time(seconds(change["at"]))
            rows.add_row(f"  {at}", change["to"], change["why"], change["by"])
        console.print(rows)
    console.print()


def _figures(data: dict[str, Any]) -> list[str]:
    under_way = "" if data["under_way"] is None else f", {count(data['under_way'], 'attempt')} under way"
    failures = f"{data['failures']} of the last {count(data['window_calls'], 'call')} failed"
    threshold = f"; the breaker opens at {data['failure_threshold']}" if data["breaker_enabled"] else ""
    lines = [f"{_permitted_text(data)}{under_way}", f"{failures}{threshold}"]
    if data["allowed_retries"] is not None:
        capacity = count(data["budget_capacity"], "retry", "retries")
        lines.append(f"{data['allowed_retries']:,} of {capacity} may fail until successes and time return more")
    return lines


def _permitted_text(data: dict[str, Any]) -> str:
    if data["limit"] is None:
        limit = "no concurrency limit"
    elif data["limit_set"] is not None:
        limit = f"{count(data['limit'], 'caller')} permitted (set by an operator)"
    else:
        limit = f"{data['limit']} of {count(data['worker_concurrency'], 'caller')} permitted (adaptive)"
    if data["state"] == State.CLOSED:
        return limit
    permitted = count(data["permitted_callers"], "caller")
    return f"{permitted} permitted while the breaker is {data['state']}; after that {limit}"


def _because(data: Mapping[str, Any]) -> str:
    """The reason of the last change, and the operator who made it: `: maintenance, by user/anna`."""
    by = f", by {data['by']}" if data["by"] else ""
    return f": {data['why']}{by}" if data["why"] else ""


def _next_step(data: Mapping[str, Any], now: float) -> str:
    """What ends the present state of a breaker that is not closed."""
    if data["forced_open"]:
        return f"it stays open until: {next_step('retry breaker close', data['downstream'], why=ToFillIn('TEXT'))}"
    if data["state"] == State.HALF_OPEN:
        until = seconds(data["probe_until"])
        if until > now:
            return f"a probe is under way, until {local_time(until)} at the latest"
        return "the last probe did not report, so it has failed, and the next one is due soon"
    due = seconds(data["next_probe_at"])
    return f"the next probe is due in {duration(due - now)}" if due > now else "the next message is the probe"


def _since(data: Mapping[str, Any], now: float) -> str:
    if data["since"] is None:
        return ""
    at = seconds(data["since"])
    return f" since {local_time(at)} ({duration(now - at)})"
